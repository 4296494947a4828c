"""Default choice: the machine with which a placement is compared to tell the saving.

As most tools would have it: the cheapest machine on demand that meets the same request in AWS
us-east-1, by the catalog of the moment of the launch. The request is taken whole (its vCPUs, its
GPUs, its law...) but for the clouds that it names, the market and the price ceiling. Where it names
another region, or a type that AWS us-east-1 does not sell, there is no default choice, and nothing
is said to have been saved by placement. Machines of one's own without a price save nothing.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.clouds.index import AWS
from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.requests.geography import in_area, is_area
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.catalog.price_origin import describe_origin
from jupyter_sky.knowledge.ledger.billing import cluster_price
from jupyter_sky.knowledge.ledger.ledger import format_rate

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow
    from jupyter_sky.knowledge.catalog import Catalog

CLOUD, REGION = AWS, "us-east-1"
BASELINE_KEY = "baseline"
"""Key of the baseline in ``connection`` of a cluster's row."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Baseline that a cluster is compared with, as of its launch.

    Attributes
    ----------
    on_demand : float or None
        The same machines on demand in the same place, USD/h for all nodes.
    default : float or None
        The default choice, USD/h for all nodes; None where there is none.
    place : str
        The default choice in a few words.
    source, date : str
        Where its price comes from, and of when it is.
    why : str
        Why there is no default choice.
    """

    on_demand: float | None = None
    default: float | None = None
    place: str = ""
    source: str = ""
    date: str = ""
    why: str = ""

    @classmethod
    def of(cls, row: ClusterRow) -> Baseline:
        """Return the baseline recorded with a cluster at its launch."""
        told = row.connection.get(BASELINE_KEY)
        if not isinstance(told, dict):
            return cls(why=_("it was launched before default choices were recorded"))
        return cls(**{f.name: told[f.name] for f in fields(cls) if f.name in told})

    @property
    def text(self) -> str:
        """The default choice with its price, where that is from, and of when.

        Examples
        --------
        >>> Baseline(0.2, 0.1, "aws us-east-1 m5.large", "price list", "2026-11-01").text
        'aws us-east-1 m5.large on demand, $0.10/h (price list, 1 Nov 2026)'
        """
        if self.default is None:
            return self.why
        origin = describe_origin(self.source, self.date).short
        return _("{place} on demand, {default} ({origin})").format(
            place=self.place, default=format_rate(self.default), origin=origin
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as the row of a cluster keeps it."""
        return asdict(self)


def measure_baseline(need: Resources, offer: Offer) -> Baseline | None:
    """Return the baseline of an offer; None for own machines without a price.

    Parameters
    ----------
    need
        What was asked for.
    offer
        What is about to be launched for it.
    """
    from jupyter_sky.knowledge.catalog import load

    if _is_free(offer):
        return None
    catalog, nodes = load(), need.nodes
    disk = need.disk.value if need.disk else 0.0
    same = _on_demand_price(catalog, offer)
    on_demand = cluster_price(same, offer.cloud, nodes, disk)
    here = catalog.region(CLOUD, REGION)
    area = need.region if need.region and is_area(need.region) else ""
    if area and not in_area(area, here.country, here.jurisdiction):
        return Baseline(
            on_demand,
            why=_("the request is for {area}, {cloud} {region} is not there").format(
                area=area, cloud=CLOUD, region=REGION
            ),
        )
    if not area and need.region not in (None, REGION):
        return Baseline(
            on_demand, why=_("the request names the region {region}").format(region=need.region)
        )
    wanted = replace(need, clouds=(CLOUD,), region=REGION, spot=False, max_hourly_cost=None)
    usual = next(iter(catalog.filter(wanted).head(1).offers()), None)
    if usual is None or usual.price is None:
        return Baseline(
            on_demand,
            why=_("{cloud} {region} sells nothing that meets the request").format(
                cloud=CLOUD, region=REGION
            ),
        )
    many = f"{nodes} x " if nodes > 1 else ""
    place = f"{many}{usual.cloud} {usual.region} {usual.instance_type}"
    default = cluster_price(usual.price, usual.cloud, nodes, disk)
    return Baseline(on_demand, default, place, usual.source, usual.date)


class PendingBaseline:
    """Baseline of an offer, computed during its launch: the catalog takes a moment to load.

    Examples
    --------
    >>> PendingBaseline(Resources(), Offer("local", "here", "", 2, 8, price=0.0))()
    {}
    """

    def __init__(self, need: Resources, offer: Offer) -> None:
        self._found: Future[Baseline | None] = Future()
        if _is_free(offer):
            self._found.set_result(None)
            return

        def look() -> None:
            try:
                self._found.set_result(measure_baseline(need, offer))
            except Exception as error:  # a catalog that cannot be read must not stop a launch
                why = _("the catalog could not be read: {error}").format(error=error)
                self._found.set_result(Baseline(why=why))

        threading.Thread(target=look, name="sky-baseline", daemon=True).start()

    def __call__(self) -> dict[str, Any]:
        """Return the baseline as stored in a cluster's row, under its key."""
        found = self._found.result()
        return {BASELINE_KEY: found.to_dict()} if found else {}


def _is_free(offer: Offer) -> bool:
    return find_facts(offer.cloud).on_premises and not offer.price


def _on_demand_price(catalog: Catalog, offer: Offer) -> float | None:
    """Return USD/h of the same machine in the same place on demand."""
    if not offer.spot:
        return offer.price
    same = Resources(
        clouds=(offer.cloud,),
        region=offer.region,
        zone=offer.zone,
        instance_type=offer.instance_type,
        spot=False,
    )
    return next((one.price for one in catalog.filter(same).head(1).offers()), None)
