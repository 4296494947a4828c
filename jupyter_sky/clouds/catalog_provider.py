"""Base class of the clouds whose offers the shipped catalog has."""

from __future__ import annotations

from collections.abc import Iterator

from ..offers import Offer
from ..provider.protocol import Provider


class CatalogProvider(Provider):
    """A cloud of this package; its prices are refreshed with the catalog, not by its driver."""

    def offers(self) -> Iterator[Offer]:
        """Yield the offers of the cloud in the catalog, the cheapest first."""
        from ..catalog import load

        yield from load().filter(cloud=self.name).offers()
