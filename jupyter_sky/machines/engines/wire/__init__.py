# pyright: strict
"""Formats that both ends of a connection read and write."""
