"""``GET offers``: offers of the clouds, from the local catalog."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jupyter_sky.interfaces.server.handler import SkyHandler, authorized

if TYPE_CHECKING:
    from jupyter_sky.interfaces.widgets.offers import OfferLine, Offers
    from jupyter_sky.machines.provisioner.launch_order import LaunchTier

LIMIT = 20
POPULAR = ("T4", "L4", "A10G", "V100", "A100", "A100-80GB", "H100")
"""Accelerators of which the cheapest offer is shown where none is asked for."""
_FLAGS = {"true": True, "false": False}


def offers(what: str | None, limit: int, labels: dict[str, Any]) -> dict[str, Any]:
    """Return offers, and how many there are; those that can be launched now come first.

    Each group is ordered by price. Without a request, the answer is the first offer of each of the
    `POPULAR` accelerators.

    Parameters
    ----------
    what
        Accelerators (``A100:8``) or an instance type.
    labels
        Resources, spelled as the options are; ``true`` and ``false`` are flags.
    """
    asked: dict[str, Any] = {
        name: _FLAGS.get(text.lower(), text) for name, text in labels.items() if text
    }
    popular = not what and not set(asked) - {"spot", "region"}
    if popular:
        lines = list(_popular_lines(asked))
        total, notes = len(lines), []
    else:
        from jupyter_sky.interfaces.api.planning import offers

        found = offers(what or None, limit=limit, **asked)
        lines = list(_launchable_first(found))[:limit]
        total, notes = found.line_count, found.notes([line for line, _ in lines])
    return {
        "offers": [_describe_offer(*line) for line in lines],
        "total": total,
        "popular": popular,
        "at": time.time(),
        "notes": notes,
    }


def _launchable_first(found: Offers) -> Iterator[tuple[OfferLine, LaunchTier]]:
    """Yield the lines of offers with what stands in the way of their launch, the least first."""
    from dataclasses import replace

    from jupyter_sky.machines.provisioner.launch_order import split_by_launchability

    for tier, selection in split_by_launchability(found.selection):
        for line in replace(found, selection=selection).lines():
            yield line, tier


def _popular_lines(labels: dict[str, Any]) -> Iterator[tuple[OfferLine, LaunchTier]]:
    from jupyter_sky.base.errors import SkyNoOffer
    from jupyter_sky.interfaces.api.planning import offers

    for name in POPULAR:
        try:
            found = offers(f"{name}:1", limit=1, **labels)
        except SkyNoOffer:
            continue  # not sold there
        yield from list(_launchable_first(found))[:1]


def _describe_offer(line: OfferLine, tier: LaunchTier) -> dict[str, Any]:
    from jupyter_sky.base.requests.resources import Resources
    from jupyter_sky.clouds import launch_obstacle
    from jupyter_sky.knowledge.catalog.price_origin import describe_origin

    offer = line.offer
    taken = "cloud region instance_type spot price country source date note".split()
    request = Resources.parse(
        cloud=offer.cloud,
        region=offer.region or None,  # some clouds have none
        instance_type=offer.instance_type,
        spot=offer.spot,
    )
    origin = describe_origin(offer.source, offer.date)
    return {
        **{name: getattr(offer, name) for name in taken},
        "zones": list(line.zones),
        "cpus": offer.vcpus or None,
        "memory": offer.memory or None,
        "gpus": f"{offer.gpu}:{offer.gpu_count:g}" if offer.gpu else "",
        "line": request.command_line(),
        "launch": tier,
        "obstacle": launch_obstacle(offer),
        "place": offer.region if origin.publishers else f"{offer.cloud} {offer.region}".strip(),
        "origin": origin.short,
        "origin_detail": origin.tooltip,
    }


class OffersHandler(SkyHandler):
    """Offers."""

    @authorized
    async def get(self) -> None:
        """Answer ``?what=A100:8&spot=true&region=eu&limit=20``."""
        query = {name: self.get_query_argument(name) for name in self.request.query_arguments}
        what = query.pop("what", None)
        query.pop("limit", None)
        query.pop("token", None)
        await self.answer(lambda: offers(what, self.number("limit", LIMIT, 1), query))


HANDLERS = [("offers", OffersHandler)]
