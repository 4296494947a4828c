"""Pools of nodes that run calls."""
