"""Decisions: placement and search."""
