"""Public protocol of a cloud: facts as class attributes, and the operations of a provider.

Another package adds a cloud by a subclass of `Provider`, named by an entry point of the group
``jupyter_sky.providers``.
"""

from jupyter_sky.base.lazy_names import attach

__getattr__, __dir__ = attach(__name__, __file__)
