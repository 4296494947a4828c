"""Prices from the clouds' own interfaces.

``source`` says what a source of prices is, and each cloud has a file of its own: ``aws``,
``azure``, ``gcp``, ``lambdalabs``. ``fetcher`` reads lists page by page and ``page_cache`` keeps the
pages; ``runner`` compares what came with what was there, and replaces it in one step; ``commands`` is
what users call.
"""

from .commands import command, show
from .runner import RefreshOutcome, refresh, sources

__all__ = ["RefreshOutcome", "command", "refresh", "show", "sources"]
