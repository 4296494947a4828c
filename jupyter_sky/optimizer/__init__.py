"""Decisions: which of the offers to take."""

from jupyter_sky.optimizer.candidates import candidates, no_offer

__all__ = ["candidates", "no_offer"]
