"""Nodes of a Slurm cluster as machines of a cloud."""
