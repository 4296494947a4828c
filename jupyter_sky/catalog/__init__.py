"""Offers of every cloud with places and prices, in columns that are read in milliseconds.

Three layers, the weakest first: what ships with the package; what ``jupyter sky catalog refresh``
fetched, cloud by cloud; and the user's own offers and discounts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .catalog import Catalog
    from .loader import load
    from .regions import Band, Region
    from .selection import Selection
    from .transfer import Duration, Egress, Location, Storage

__all__ = [
    "Band",
    "Catalog",
    "Duration",
    "Egress",
    "Location",
    "Region",
    "Selection",
    "Storage",
    "load",
]

_HOMES = {
    "Band": "regions",
    "Catalog": "catalog",
    "Duration": "transfer",
    "Egress": "transfer",
    "Location": "transfer",
    "Region": "regions",
    "Selection": "selection",
    "Storage": "transfer",
    "load": "loader",
}


def __getattr__(name: str) -> Any:
    # numpy and pyarrow are for those who ask: loading the extension must not cost them
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
