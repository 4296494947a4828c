"""``GET offers``: offers of the clouds, from the local catalog."""

from __future__ import annotations

import time
from typing import Any

from .handler import SkyHandler, authorized

LIMIT = 20
_FLAGS = {"true": True, "false": False}


def offers(what: str | None, limit: int, labels: dict[str, Any]) -> dict[str, Any]:
    """Return the cheapest offers, and how many there are.

    Parameters
    ----------
    what
        Accelerators (``A100:8``) or an instance type.
    labels
        Resources, spelled as the options are; ``true`` and ``false`` are flags.
    """
    from ..api.planning import offers

    asked: dict[str, Any] = {
        name: _FLAGS.get(text.lower(), text) for name, text in labels.items() if text
    }
    found = offers(what or None, limit=limit, **asked)
    lines = found.lines()
    sources = dict.fromkeys(line.offer.source for line in lines if line.offer.source)
    return {
        "offers": [_describe_offer(line) for line in lines],
        "total": len(found),
        "at": time.time(),
        "source": ", ".join(sources),
        "notes": found.notes(lines),
    }


def _describe_offer(line: Any) -> dict[str, Any]:
    from ..resources import Resources

    offer = line.offer
    taken = "cloud region instance_type spot price country source date note".split()
    request = Resources.parse(
        cloud=offer.cloud, region=offer.region, instance_type=offer.instance_type, spot=offer.spot
    )
    return {
        **{name: getattr(offer, name) for name in taken},
        "zones": list(line.zones),
        "cpus": offer.vcpus or None,
        "memory": offer.memory or None,
        "gpus": f"{offer.gpu}:{offer.gpu_count:g}" if offer.gpu else "",
        "line": request.command_line(),
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
