"""Offers of every cloud with places and prices, in columns that are read in milliseconds.

Three layers, the weakest first: what ships with the package; what ``jupyter sky catalog refresh``
fetched, cloud by cloud; and the user's own offers and discounts.
"""

from jupyter_sky.base.lazy_names import attach

__getattr__, __dir__ = attach(__name__, __file__)
