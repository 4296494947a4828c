"""Datasets, caches and mounts."""
