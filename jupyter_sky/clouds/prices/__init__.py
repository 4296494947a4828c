"""Prices from the clouds' own interfaces.

``source`` defines the protocol of a price source; each cloud has a file of its own: ``aws``,
``azure``, ``gcp``, ``lambdalabs``. ``fetcher`` reads lists page by page and ``page_cache`` stores
the pages; ``runner`` compares new prices with the present ones and replaces them in one step;
``commands`` reports to users.
"""

from jupyter_sky.clouds.prices.commands import refresh_and_report, show
from jupyter_sky.clouds.prices.runner import RefreshOutcome, refresh, sources

__all__ = ["RefreshOutcome", "refresh", "refresh_and_report", "show", "sources"]
