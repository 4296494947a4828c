"""Clouds that can launch machines, by name; each is one module or package with its facts."""

from jupyter_sky.base.lazy_names import attach

__getattr__, __dir__ = attach(__name__, __file__)
