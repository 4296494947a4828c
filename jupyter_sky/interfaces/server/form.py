"""The form of a cell, answered without a kernel: ``jupyter-sky/form/...``."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyStoreError, SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.server.handler import SkyHandler, authorized
from jupyter_sky.interfaces.server.service import NotFound

if TYPE_CHECKING:
    from jupyter_sky.interfaces.forms.completion import CompletionContext
    from jupyter_sky.interfaces.widgets.offers import OfferLine, Offers
    from jupyter_sky.machines.provisioner.launch_order import LaunchTier


class FormHandler(SkyHandler):
    """Questions of a form while its user types: ``POST form/match`` and the like."""

    @authorized
    async def post(self, kind: str) -> None:
        """Answer a question of the form, see `jupyter_sky.interfaces.forms.rpc.make_handlers`."""
        await self.answer(self._answered, kind, self.body)

    @authorized
    async def get(self, kind: str) -> None:
        """Answer a question whose parts are in the query; `fields` as JSON."""
        await self.answer(self._answered, kind, self._query)

    def _query(self) -> dict[str, Any]:
        asked: dict[str, Any] = {
            name: self.get_query_argument(name) for name in self.request.query_arguments
        }
        if "fields" in asked:
            try:
                asked["fields"] = json.loads(asked["fields"])
            except ValueError:
                raise SkyUsageError(_("fields: no JSON"), hint=_('fields={"values": {}}')) from None
        return asked

    def _answered(self, kind: str, asked: Any) -> dict[str, Any]:
        from jupyter_sky.interfaces.forms.rpc import make_handlers

        known = make_handlers(self._known)
        if kind not in known:
            raise NotFound(_("form/{kind}: not known").format(kind=kind), hint=suggest(kind, known))
        return known[kind](asked())

    def _known(self, asked: dict[str, Any]) -> CompletionContext:
        """Return the clusters that are up, and the notebook by its path as its kernel knows it."""
        from jupyter_sky.interfaces.forms.completion import CompletionContext

        store = None
        try:
            store = self.service.session.store
            up = tuple(store.clusters())
        except SkyStoreError:
            up = ()  # the panel says what is wrong with it; offers need no store
        path = asked.get("notebook")
        if not isinstance(path, str) or not path:
            return CompletionContext(up, store=store)
        folder = self.kernel_manager.cwd_for_path(path)
        return CompletionContext(up, os.path.join(folder, Path(path).name), store=store)


# -- ``GET offers``: offers of the clouds, from the local catalog ---------------------------------

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


HANDLERS = [
    (r"form/([^/]+)", FormHandler),
    ("offers", OffersHandler),
]
