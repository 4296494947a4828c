"""Base class of the clouds whose offers the shipped catalog has."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.clouds.provider.protocol import Provider


class CatalogProvider(Provider):
    """A cloud of this package; its prices are refreshed with the catalog, not by its provider."""

    def offers(self) -> Iterator[Offer]:
        """Yield the offers of the cloud in the catalog, the cheapest first."""
        from jupyter_sky.knowledge.catalog import load

        yield from load().filter(cloud=self.name).offers()
