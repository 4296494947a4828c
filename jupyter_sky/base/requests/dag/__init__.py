"""Graphs of tasks with data and time estimates."""
