"""Bags of jobs: many runs of one function or command, carried out on spot machines."""

from jupyter_sky.base.lazy_names import attach

__getattr__, __dir__ = attach(__name__, __file__)
