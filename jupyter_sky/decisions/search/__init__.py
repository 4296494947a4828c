"""Search for the best configuration: CloudBandit, models that know of providers, baselines.

Pure functions of what was tried and of a seed: nothing is launched here.
"""

from jupyter_sky.base.lazy_names import attach

__getattr__, __dir__ = attach(__name__, __file__)
