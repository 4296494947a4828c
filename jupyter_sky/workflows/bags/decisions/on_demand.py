"""Machines on demand in place of spot machines: their price, and when they are an alternative."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.execution.cells.recovery_places import launchable_offers
from jupyter_sky.workflows.bags.decisions.fleet_plan import machine_kind
from jupyter_sky.workflows.bags.decisions.job_forecast import DegradedOption
from jupyter_sky.workflows.bags.decisions.outlook import BOOT_HOURS

MOST_GROUPS = 10_000
"""Groups on demand that are taken to be there."""


@lru_cache(maxsize=64)
def cheapest_on_demand(resources: Resources) -> Offer | None:
    """Return the cheapest machine on demand that meets a request; None where there is none."""
    asked = replace(resources, spot=False, nodes=1, zone=None, max_hourly_cost=None)
    with suppress(SkyError):
        offers = [each for each in launchable_offers(asked) if each.price is not None]
        return min(offers, key=lambda offer: offer.price or 0.0, default=None)
    return None


def on_demand_option(
    resources: Resources, nodes: int = 1, per_machine: int = 1
) -> tuple[DegradedOption, ...]:
    """Return machines on demand as an alternative to spot machines; none for other requests.

    Parameters
    ----------
    nodes
        Machines of a group.
    per_machine
        Groups of one machine.
    """
    if not resources.spot:
        return ()
    offer = cheapest_on_demand(resources)
    if offer is None:
        return ()
    kind = machine_kind(offer, nodes, BOOT_HOURS)
    name = f"{kind.name} on demand"
    return (DegradedOption(replace(kind, name=name, price=kind.price / per_machine), MOST_GROUPS),)
