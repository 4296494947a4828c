"""Search for offers: a table, or the reason why there is none."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyStoreError, SkyUsageError
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.resources import Resources, format_option
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.catalog.catalog import Catalog
from jupyter_sky.knowledge.catalog.loader import load
from jupyter_sky.knowledge.catalog.nearest_offers import find_nearest
from jupyter_sky.knowledge.catalog.seen_prices import get_seen_prices

if TYPE_CHECKING:
    from jupyter_sky.interfaces.widgets.offers import Offers
    from jupyter_sky.knowledge.catalog.selection import By, Selection


def search(
    what: str | accelerators.Accelerator | None,
    *,
    limit: int,
    flagged: bool,
    labels: Mapping[str, Any],
) -> Offers:
    """Return the offers for a request, see `jupyter_sky.interfaces.api.planning.offers`."""
    from jupyter_sky.decisions.optimizer.candidates import no_offer
    from jupyter_sky.interfaces.widgets.offers import Offers

    if not isinstance(limit, int) or limit < 1:
        raise SkyUsageError(_("limit={limit!r}: not a count").format(limit=limit), hint="limit=20")
    catalog = load()
    need = build_request(catalog, what, labels)
    catalog.check(need)
    if need.clouds and not catalog.offers.is_in("cloud", need.clouds).any():
        raise SkyUsageError(
            _("{format_option}: the catalog holds no offer of it").format(
                format_option=format_option("cloud", ",".join(need.clouds))
            ),
            hint=_("it has {names}; your own go into offers.csv").format(
                names=", ".join(catalog.names("cloud"))
            ),
        )
    by: By = "gpu_price" if need.gpu or need.gpu_memory else "price"
    found = _filter(catalog, need, by, flagged)
    if not len(found) and not len(catalog.filter(need, by=by, flagged=True)):
        raise no_offer(need, find_nearest(catalog, need))
    return Offers(found, need.command_line(), limit, catalog.problems)


def _filter(catalog: Catalog, need: Resources, by: By, flagged: bool) -> Selection:
    """Return offers with the spot prices that the tracker has seen since the catalog was made."""
    from jupyter_sky.knowledge import tracker

    prices = {}
    with suppress(SkyStoreError):  # what is remembered helps; it is not needed
        prices = tracker.current().prices(time.time())
    if not prices or need.service or need.spot is False:
        return catalog.filter(need, by=by, flagged=flagged)
    # a price that was seen may keep a limit that the listed one does not, and the other way round
    whole = catalog.filter(replace(need, max_hourly_cost=None), by=by, flagged=flagged)
    found = whole.with_seen_prices(get_seen_prices(catalog, prices))
    if need.max_hourly_cost is None:
        return found
    return found.where(found.price * need.nodes <= need.max_hourly_cost)


def build_request(
    catalog: Catalog, what: str | accelerators.Accelerator | None, labels: Mapping[str, Any]
) -> Resources:
    """Return the request of labels and a name, of an accelerator or an instance type."""
    if what is None:
        return Resources.parse(**labels)
    text = str(what)
    key = "instance_type" if _is_type(catalog, text) else "gpus"
    if labels.get(key):
        raise SkyUsageError(
            _("{text} and {key}={labels}: asked for twice").format(
                text=text, key=key, labels=labels[key]
            ),
            hint=_("give one"),
        )
    try:
        return Resources.parse(**{key: text, **labels})
    except SkyUsageError as error:
        types = get_close_matches(
            text, catalog.offers.categories("instance_type"), n=2, cutoff=0.75
        )
        if key == "gpus" and types and "not a known accelerator" in error.message:
            near = error.hint or ""
            also = (
                _("{removesuffix} or ").format(removesuffix=near.removesuffix("?"))
                if near.startswith("did")
                else _("did you mean ")
            )
            raise SkyUsageError(
                _("{text!r} is neither an accelerator nor an instance type").format(text=text),
                hint=_("{also}the instance type {types}?").format(
                    also=also, types=" or ".join(types)
                ),
            ) from None
        raise


def _is_type(catalog: Catalog, text: str) -> bool:
    return bool(text) and catalog.offers.code("instance_type", text) >= 0
