"""Calls of functions: description, dispatch, streams and results."""
