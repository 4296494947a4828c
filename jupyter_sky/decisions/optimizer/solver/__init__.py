"""Solver of placement problems: arrays in, a plan with its certificate out."""
