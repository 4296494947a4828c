"""Choice of offers for tasks, and plans of whole graphs."""

from jupyter_sky.optimizer.candidates import candidates, no_offer

__all__ = ["candidates", "no_offer"]
