"""Bags of jobs: many runs of one function or command, carried out on spot machines."""
