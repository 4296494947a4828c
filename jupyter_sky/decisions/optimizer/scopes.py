"""Places that a plan is to avoid, however they are named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.clouds.register import check_name
from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.offers import Offer, Place
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.tracker.blocks import Scope

if TYPE_CHECKING:
    from jupyter_sky.decisions.optimizer.market import Market


def covers(scope: Scope, site: Sequence[str]) -> bool:
    """Return whether a cloud, region and zone lie within a scope, whatever the machine."""
    mine = (scope.cloud, scope.region, scope.zone)
    return all(not word or word == other for word, other in zip(mine, site, strict=True))


def covers_machine(market: Market, kind: int, scope: Scope) -> bool:
    """Return whether a kind of machine is what a scope is about."""
    if scope.instance_type:
        return market.machine(kind).instance_type == scope.instance_type
    return market.quota_family(kind) == scope.family


def parse_scope(where: Any, market: Market | None = None) -> Scope:
    """Return what is to be avoided: a place of the tracker, an offer, a block, or its words.

    Examples
    --------
    >>> str(parse_scope("aws us-east-1 us-east-1a"))
    'aws us-east-1a'
    """
    if isinstance(where, Scope):
        return where
    if isinstance(getattr(where, "scope", None), Scope):
        return where.scope
    if isinstance(where, Offer | Place):
        at = Place.of(where)
        kind = at.instance_type
        return Scope("capacity", at.cloud, at.region, at.zone, kind, spot=at.spot)
    if not isinstance(where, str) or not where.split():
        raise SkyUsageError(
            _("{where!r} is not a place").format(where=where), hint=_('such as "aws us-east-1a"')
        )
    cloud, *words = where.replace("/", " ").split()
    check_name(cloud, f"{where!r}: no cloud is called {cloud}")
    return _parse_words(cloud, words, where, market)


def _parse_words(cloud: str, words: list[str], text: str, market: Market | None) -> Scope:
    spot = {"spot": True, "on-demand": False}
    found: dict[str, Any] = {}
    for word in words:
        if word in spot:
            found["spot"] = spot[word]
    names = [word for word in words if word not in spot]
    sites = market.sites if market else []
    for word in names:
        regions = {region for c, region, __ in sites if c == cloud}
        zones = {zone for c, __, zone in sites if c == cloud}
        if word in zones and word not in regions:
            key = "zone"
        elif word in regions or (market is None and "region" not in found):
            key = "region"
        else:
            key = "zone" if market is None and "zone" not in found else "instance_type"
        found[key] = word
    kind = found.get("instance_type", "")
    if market and kind and market.catalog.offers.code("instance_type", kind) < 0:
        known = sorted({name for c, *names in sites if c == cloud for name in names if name})
        hint = suggest(kind, known)
        if not hint.startswith("did"):  # all of them would hide what they are meant to show
            hint = f"such as {', '.join(known[:5])}"
        raise SkyUsageError(
            _("{text!r}: {cloud} has no place called {kind}").format(
                text=text, cloud=cloud, kind=kind
            ),
            hint=hint,
        )
    return Scope("capacity", cloud, **found)
