"""Spot prices alone, read from the clouds that have them: an hourly look, not a refresh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.prices import coverage
from jupyter_sky.clouds.prices.fetcher import Fetcher
from jupyter_sky.clouds.prices.page_cache import PageCache
from jupyter_sky.clouds.prices.runner import sources
from jupyter_sky.clouds.prices.source import KnownOffers, PriceSource, SpotPrice, SpotPriceSource

_KEEP_HOURS = 0.5  # of pages that an interrupted run has fetched: prices of an hour ago are old


@dataclass(frozen=True, slots=True)
class SpotPriceList:
    """Spot prices of one cloud.

    Attributes
    ----------
    prices
        The valid ones.
    skipped
        Entries that were left out, by reason.
    """

    prices: Sequence[SpotPrice]
    skipped: Mapping[str, int]


def read_spot_prices(
    cloud: str,
    directory: Path,
    *,
    base: Path | None = None,
    source: PriceSource | None = None,
    pause: float = 1.0,
) -> SpotPriceList:
    """Return the spot prices of a cloud that hold now, and what was invalid among them.

    Parameters
    ----------
    cloud
        Its name.
    directory
        The data directory: regions are those of the catalog in it.
    base
        Directory of the catalog that ships, unless it is the package's own.
    source
        Price source of the cloud; the one of this package unless given.
    pause
        Seconds before a damaged page is asked for again.

    Raises
    ------
    SkyUsageError
        The cloud has no spot prices that could be read.
    SkyRefreshError
        An SDK or credentials are missing, or the cloud refuses.

    Examples
    --------
    >>> read_spot_prices("aws", folder).prices[0]  # doctest: +SKIP
    SpotPrice(region='us-east-1', zone='us-east-1a', instance_type='g5.xlarge', usd=0.412)
    """
    reader = source or sources().get(cloud)
    if not isinstance(reader, SpotPriceSource):
        names = [name for name, each in sources().items() if isinstance(each, SpotPriceSource)]
        raise SkyUsageError(
            _("spot prices of {cloud}: there is no source of them").format(cloud=cloud),
            hint=suggest(cloud, names),
        )
    reader.check()
    cache = PageCache(directory / "catalog-fetched" / f"{cloud}-spot", _KEEP_HOURS)
    tables = (
        coverage.read_current(directory / "catalog", base, cloud, name)
        for name in ("offers", "egress")
    )
    fetcher = Fetcher(cache, reader.explain, pause=pause)
    prices = reader.spot_prices(fetcher, KnownOffers(*tables))
    cache.clear()
    return SpotPriceList(prices, dict(fetcher.skipped))
