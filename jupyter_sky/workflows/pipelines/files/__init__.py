"""Pipelines written as task files."""
