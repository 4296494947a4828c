"""Pipelines written as cells of a notebook."""
