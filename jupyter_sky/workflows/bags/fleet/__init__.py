"""Machines of a bag."""
