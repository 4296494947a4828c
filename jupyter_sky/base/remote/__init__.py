"""Processes of this and of other machines: SSH commands, supervisor, process identity."""
