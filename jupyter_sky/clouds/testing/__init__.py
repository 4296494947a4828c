"""Conformance suite of clouds' providers; packages that add a cloud use `jupyter_sky.testing`."""

from jupyter_sky.clouds.testing.world import OPERATIONS, Operation, World

__all__ = ["OPERATIONS", "Operation", "World"]
