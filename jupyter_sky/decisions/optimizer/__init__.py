"""Choice of offers for tasks, and plans of whole graphs."""

from jupyter_sky.base.lazy_names import attach

__getattr__, __dir__ = attach(__name__, __file__)
