"""Pipelines: graphs of tasks from the cells of a notebook, and what identifies a task's result."""
