"""Requests: resources, places, graphs and options of a cell."""
