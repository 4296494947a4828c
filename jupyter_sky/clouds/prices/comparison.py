"""Changes by a refresh: new offers, removed offers and changed prices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_TOLERANCE = 1e-6  # of a price: what rounding alone may change
_SHOWN = 5

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A price before and after."""

    region: str
    instance_type: str
    spot: bool
    before: float
    after: float

    @property
    def percent(self) -> float:
        """Change in percent of the price before."""
        return (self.after / self.before - 1) * 100

    def __str__(self) -> str:
        what = f"{self.instance_type}{' spot' if self.spot else ''} in {self.region}"
        return f"{what}: ${self.before:.4g} → ${self.after:.4g} ({self.percent:+.0f} %)"


@dataclass(frozen=True, slots=True)
class OfferDiff:
    """Differences between two lists of offers of one cloud.

    Offers are counted once for each instance type and region, whatever the number of zones, and
    only with an on-demand price.

    Attributes
    ----------
    before, after : int
        Priced offers of the two.
    new, gone : int
        Offers that only one of them has.
    repriced : int
        Offers whose on-demand price is another.
    spot_repriced : int
        Offers whose lowest spot price is another.
    far : int
        Offers whose on-demand price is more than three times, or less than a third, of what it was.
    largest : tuple of Change
        The changes that matter most: by percentage, on demand first.

    Examples
    --------
    >>> diff = compare(old, new)  # doctest: +SKIP
    >>> diff.new, diff.gone, diff.repriced  # doctest: +SKIP
    (12, 0, 3)
    """

    before: int
    after: int
    new: int
    gone: int
    repriced: int
    spot_repriced: int
    far: int
    largest: tuple[PriceChange, ...]

    @property
    def common(self) -> int:
        """Offers that both have."""
        return self.before - self.gone


def compare(old: pa.Table, new: pa.Table) -> OfferDiff:
    """Compare two tables of offers.

    Parameters
    ----------
    old, new
        Rows of one cloud, in the schema of the catalog.
    """
    before, after = _prices(old, "on_demand_usd_h"), _prices(new, "on_demand_usd_h")
    changes = list(_changes(before, after, spot=False))
    spot = list(_changes(_prices(old, "spot_usd_h"), _prices(new, "spot_usd_h"), spot=True))
    ranked = sorted(changes, key=_weight) or sorted(spot, key=_weight)
    return OfferDiff(
        before=len(before),
        after=len(after),
        new=len(after.keys() - before.keys()),
        gone=len(before.keys() - after.keys()),
        repriced=len(changes),
        spot_repriced=len(spot),
        far=sum(not 1 / 3 <= change.after / change.before <= 3 for change in changes),
        largest=tuple(ranked[:_SHOWN]),
    )


def _weight(change: PriceChange) -> tuple[float, str, str]:
    return -abs(change.percent), change.region, change.instance_type


def _prices(rows: pa.Table, column: str) -> dict[Key, float]:
    """Return the lowest price of each instance type in each region, without local zones."""
    found: dict[Key, float] = {}
    columns = [rows.column(name).to_pylist() for name in ("region", "instance_type", column)]
    for region, machine, price in zip(*columns, strict=True):
        if price is not None and price > 0:
            found[region, machine] = min(price, found.get((region, machine), price))
    return found


def _changes(
    before: Mapping[Key, float], after: Mapping[Key, float], *, spot: bool
) -> Iterator[PriceChange]:
    for key, price in after.items():
        old = before.get(key)
        if old is not None and abs(price - old) > _TOLERANCE * old:
            yield PriceChange(*key, spot, old, price)
