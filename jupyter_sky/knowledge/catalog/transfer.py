"""Cost and duration of data transfer and storage.

Prices stand in tiers: each holds for the part of a month's volume that falls inside it. A free
allowance of an account (100 GB a month on some clouds) is not counted, since it is unknown
whether it is spent: the first tier's price holds from the first byte.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from jupyter_sky.base.clouds.register import check_name, find_facts
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog.regions import Region

Relation = Literal[
    "same place", "same zone", "other zone", "other region", "other cloud", "internet"
]
Basis = Literal["listed", "estimate", "not known"]
_NO_CLOUD = ("internet", "")


@dataclass(frozen=True, slots=True)
class Location:
    """Location of data: a zone, a region, or no cloud at all.

    Attributes
    ----------
    cloud : str
        Name of the cloud; ``internet`` for machines of no cloud.
    region, zone : str
        In the cloud's own words; empty when not known.

    Examples
    --------
    >>> Location.parse("aws/us-east-1/us-east-1a"), str(Location.parse("internet"))
    (Location(cloud='aws', region='us-east-1', zone='us-east-1a'), 'internet')
    """

    cloud: str
    region: str = ""
    zone: str = ""

    @classmethod
    def parse(cls, text: Location | str) -> Location:
        """Read ``cloud``, ``cloud/region`` or ``cloud/region/zone``; ``internet`` is no cloud."""
        if isinstance(text, Location):
            return text
        parts = [part.strip() for part in text.split("/")] if isinstance(text, str) else [""]
        if not parts[0] or len(parts) > 3:
            raise SkyUsageError(
                _("{text!r} is not a place").format(text=text), hint=_("such as aws/us-east-1")
            )
        cloud = parts[0].lower()
        check_name(cloud, f"{text!r}: no cloud is called {cloud}", ("internet",))
        return cls(cloud, *parts[1:])

    @property
    def is_own(self) -> bool:
        """Whether this is a machine of the user's, or anywhere on the internet."""
        return self.cloud in _NO_CLOUD or find_facts(self.cloud).on_premises

    def __str__(self) -> str:
        return "/".join(part for part in (self.cloud, self.region, self.zone) if part)


@dataclass(frozen=True, slots=True)
class Egress:
    """The price of one transfer.

    Attributes
    ----------
    usd : float, optional
        None when nothing is known of the price.
    relation : str
        What the two places have in common.
    basis : str
        ``listed``, an ``estimate`` that `note` explains, or ``not known``.

    Examples
    --------
    >>> Egress(9.0, "internet", "listed").usd
    9.0
    """

    usd: float | None
    relation: Relation
    basis: Basis
    source: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Duration:
    """The time of one transfer.

    Attributes
    ----------
    hours, gbit_s : float
        How long, and the rate it rests on, between two machines.
    basis : str
        ``measured``, ``limit`` (what the cloud allows), or ``assumed``.

    Examples
    --------
    >>> Duration(0.22, 10.0, "limit").hours
    0.22
    """

    hours: float
    gbit_s: float
    basis: str
    source: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Storage:
    """The price of keeping data for one month.

    Attributes
    ----------
    usd : float, optional
        USD for a month; None when it is not known.
    storage_class : str
        In the cloud's own words.
    source, date : str
        Origin of the price, and the day on which it was read.

    Examples
    --------
    >>> Storage(23.0, "standard").usd
    23.0
    """

    usd: float | None
    storage_class: str
    source: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class Tiers:
    """USD per GB by volume: each price holds from a volume on, up to the next.

    Examples
    --------
    >>> round(Tiers(((0.0, 0.09), (10240.0, 0.085))).usd(10340), 2)
    930.1
    """

    steps: tuple[tuple[float, float], ...]
    source: str = ""
    note: str = ""

    def usd(self, gb: float, already_gb: float = 0.0) -> float:
        """Return the price of so many GB more, after so many in the same month."""
        end, total = already_gb + gb, 0.0
        for position, (start, price) in enumerate(self.steps):
            low = 0.0 if position == 0 else start  # allowances are not counted
            last = position + 1 == len(self.steps)
            high = math.inf if last else self.steps[position + 1][0]
            total += max(0.0, min(end, high) - max(already_gb, low)) * price
        return total


class TransferNetwork:
    """Prices and rates between places, from the catalog's tables."""

    def __init__(
        self,
        regions: Mapping[tuple[str, str], Region],
        egress: Sequence[dict[str, Any]],
        storage: Sequence[dict[str, Any]],
        bandwidth: Sequence[dict[str, Any]],
    ) -> None:
        self._regions = regions
        self._egress = _tiers(egress, "source_region", "destination", "usd_per_gb")
        self._storage = _tiers(storage, "region", "storage_class", "usd_per_gb_month")
        self._dates = {(row["cloud"], row["region"]): row["price_date"] for row in storage}
        self._bandwidth = {
            (row["source_cloud"], row["destination_cloud"], row["relation"]): row
            for row in bandwidth
        }

    # -- prices ------------------------------------------------------------------------------

    def egress(
        self,
        source: Location | str,
        destination: Location | str,
        gb: float,
        already_gb: float = 0.0,
    ) -> Egress:
        """Return the cost of moving data from one place to another.

        Parameters
        ----------
        source, destination
            Places, or their text: ``aws/us-east-1``, ``gcp/us-central1/us-central1-a``,
            ``internet``.
        gb
            GB to move.
        already_gb
            GB that went the same way earlier in the month: they fill the lower tiers.

        Examples
        --------
        >>> catalog.egress("aws/us-east-1", "gcp/us-central1", 100).usd  # doctest: +SKIP
        9.0
        """
        gb, already_gb = _volume(gb), _volume(already_gb)
        here, there = Location.parse(source), Location.parse(destination)
        relation = self.relation(here, there)
        if here.is_own or relation == "same place":
            return Egress(0.0, relation, "listed", "", "data coming in is free")
        tiers, basis, note = self._price(here, there, relation)
        if tiers is None:
            return Egress(0.0 if gb == 0 else None, relation, "not known", "", note)
        if tiers.note.startswith("low confidence"):
            basis = "estimate"
        usd = tiers.usd(gb, already_gb)
        return Egress(usd, relation, basis, tiers.source, note or tiers.note)

    def relation(self, here: Location, there: Location) -> Relation:
        """Return the scope that two places share."""
        if here.is_own or there.is_own:
            return "same place" if here == there else "internet"
        if here.cloud != there.cloud:
            return "other cloud"
        if here.region != there.region:
            return "other region"
        if here.zone and here.zone == there.zone:
            return "same zone"
        return "other zone"

    def _price(
        self, here: Location, there: Location, relation: Relation
    ) -> tuple[Tiers | None, Basis, str]:
        if relation == "same zone":
            return self._or_estimate(here, "same-zone")
        if relation == "other zone":
            tiers, basis, note = self._or_estimate(here, "cross-zone")
            if basis == "listed" and not (here.zone and there.zone):
                return tiers, "estimate", "the zones are not known: the price between two zones"
            return tiers, basis, note
        if relation == "other region":
            return self._between_regions(here, there)
        return self._to_internet(here, there)

    def _between_regions(self, here: Location, there: Location) -> tuple[Tiers | None, Basis, str]:
        pair = "<->".join(sorted((here.region, there.region)))
        exact = self._egress.get((here.cloud, here.region, f"cross-region:{pair}"))
        if exact:
            return exact, "listed", ""
        a, b = (self._continent(place) for place in (here, there))
        if find_facts(here.cloud).has_flat_egress:
            return self._or_estimate(here, "cross-region")
        if a and a == b:
            group = {"Asia": "asia", "North America": "na-eu", "Europe": "na-eu"}.get(a)
            for key in ("cross-region", f"cross-region:same-continent-{group}"):
                for region in (here.region, "*"):
                    tiers = self._egress.get((here.cloud, region, key))
                    if tiers:
                        return tiers, "listed", ""
        tiers, __, __ = self._to_internet(here, there)
        note = "no price is known between these regions: the price to the internet, an upper bound"
        return tiers, "estimate" if tiers else "not known", note if tiers else "no price is known"

    def _to_internet(self, here: Location, there: Location) -> tuple[Tiers | None, Basis, str]:
        country = self._country(there)
        special = {"AU": "internet:australia", "CN": "internet:china"}.get(country, "")
        tiers = self._egress.get((here.cloud, here.region, special))
        return (tiers, "listed", "") if tiers else self._or_estimate(here, "internet")

    def _or_estimate(self, here: Location, key: str) -> tuple[Tiers | None, Basis, str]:
        """Return the price of a region, or the highest of its cloud."""
        tiers = self._egress.get((here.cloud, here.region, key))
        if tiers:
            return tiers, "listed", ""
        others = [
            priced
            for (cloud, __, destination), priced in self._egress.items()
            if cloud == here.cloud and destination == key
        ]
        if not others:
            return None, "not known", f"no price of {here.cloud} for this is known"
        dearest = max(others, key=lambda priced: priced.usd(1e6))
        return dearest, "estimate", f"not known for {here}: the dearest that {here.cloud} has"

    def _continent(self, place: Location) -> str:
        region = self._regions.get((place.cloud, place.region))
        return region.continent if region else ""

    def _country(self, place: Location) -> str:
        region = self._regions.get((place.cloud, place.region))
        return region.country if region else ""

    def storage(
        self, cloud: str, region: str, gb: float, storage_class: str | None = None
    ) -> Storage:
        """Return the cost of storing `gb` GB for a month.

        Without `storage_class`, the standard class of the cloud's object store.
        """
        name = storage_class or find_facts(cloud).storage_class
        tiers = self._storage.get((cloud, region, name))
        gb = _volume(gb)
        if tiers is None:
            return Storage(None, name)
        return Storage(tiers.usd(gb), name, tiers.source, self._dates[cloud, region])

    # -- time --------------------------------------------------------------------------------

    def hours(self, source: Location | str, destination: Location | str, gb: float) -> Duration:
        """Return the duration of a transfer between two machines.

        Examples
        --------
        >>> catalog.transfer_hours("aws/us-east-1", "aws/us-west-2", 450).basis  # doctest: +SKIP
        'measured'
        """
        gb = _volume(gb)
        here, there = Location.parse(source), Location.parse(destination)
        relation = self.relation(here, there)
        if relation == "same place":
            return Duration(0.0, math.inf, "assumed", "", "nothing has to move")
        row = self._rate(here, there, relation)
        hours = gb * 8 / row["gbit_s"] / 3600
        return Duration(hours, row["gbit_s"], row["basis"], row["source"], row["note"])

    def _rate(self, here: Location, there: Location, relation: Relation) -> dict[str, Any]:
        if relation in ("same zone", "other zone"):
            key = "same region"
        elif relation == "internet":
            key = "internet"
        else:
            a, b = self._continent(here), self._continent(there)
            key = "same continent" if a and a == b else "other continent"
        for pair in ((here.cloud, there.cloud), (here.cloud, "*"), ("*", "*")):
            row = self._bandwidth.get((*pair, key))
            if row:
                return row
        return {"gbit_s": 1.0, "basis": "assumed", "source": "", "note": "no figure is known"}


def _volume(gb: float) -> float:
    """Return GB as a number from 0."""
    try:
        amount = float(gb)
    except (TypeError, ValueError):
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise SkyUsageError(
            _("{gb!r} is not a volume in GB").format(gb=gb), hint=_("give a number from 0")
        )
    return amount


def _tiers(
    rows: Sequence[dict[str, Any]], place: str, kind: str, price: str
) -> dict[tuple[str, str, str], Tiers]:
    grouped: defaultdict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        grouped[row["cloud"], row[place], row[kind]].append(row)
    tiers = {}
    for key, members in grouped.items():
        members.sort(key=lambda row: row["tier_from_gb"])
        steps = tuple((row["tier_from_gb"], row[price]) for row in members)
        tiers[key] = Tiers(steps, members[0]["source"], members[0].get("note", ""))
    return tiers
