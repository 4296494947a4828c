"""The offers that come nearest to an impossible request, for saying why it is impossible."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import numpy as np

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import OTHER_FORM, Resources
from jupyter_sky.knowledge.catalog import filters
from jupyter_sky.knowledge.catalog.selection import Selection

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog.catalog import Catalog

_MAX_PER_SET = (
    40  # offers taken for each set of labels in the way: enough to find the nearest among
)
_AMOUNTS = {"cpus": "vcpus", "memory": "memory_gib", "gpu_memory": "accelerator_memory_gib"}


def find_nearest(catalog: Catalog, need: Resources) -> list[Offer]:
    """Return offers that fail the fewest labels, of each set of such labels the nearest.

    What `optimizer.no_offer` needs to explain a request: it would come to the same answer from
    all offers, a hundred times slower.

    Parameters
    ----------
    need
        A request that nothing meets.
    """
    everything = catalog.filter(Resources(service=need.service) if need.service else Resources())
    if not len(everything):
        everything = catalog.filter(Resources())
    failed = {key: ~met[everything.rows] for key, met in filters.masks(catalog, need)}
    failed |= _market(everything, need)
    count = sum(mask.astype(np.int16) for mask in failed.values())
    fewest = np.flatnonzero(count == np.min(count))
    pattern = np.zeros(len(fewest), np.int64)
    far = np.zeros(len(fewest))
    for position, (key, mask) in enumerate(failed.items()):
        pattern |= mask[fewest].astype(np.int64) << position
        far += np.where(mask[fewest], _distance(catalog, everything, need, key, fewest), 0.0)
    order = np.lexsort((_price(everything)[fewest], far, pattern))
    _, starts = np.unique(pattern[order], return_index=True)
    chosen = np.concatenate([order[start : start + _MAX_PER_SET] for start in starts])
    found = everything._take(fewest[np.unique(chosen)], False).offers()
    if need.clouds and not any(offer.cloud in need.clouds for offer in found):
        # though it fails more labels: without it, it would seem that they sell nothing at all
        found += catalog.filter(Resources(clouds=need.clouds)).offers(1)
    return found


def _market(found: Selection, need: Resources) -> dict[str, np.ndarray]:
    failed = {}
    if need.spot is not None:
        failed["market"] = found.spot != need.spot
    if need.service and found.service is None:
        failed["service"] = np.ones(len(found), bool)
    if need.max_hourly_cost is not None:
        failed["max_hourly_cost"] = ~(found.price * need.nodes <= need.max_hourly_cost)
    return failed


def _price(found: Selection) -> np.ndarray:
    return np.nan_to_num(found.price, nan=np.inf)


def _distance(
    catalog: Catalog, found: Selection, need: Resources, key: str, which: np.ndarray
) -> np.ndarray:
    """Return each offer's distance from a label, on the scales of `optimizer.candidates`."""
    table, rows = catalog.offers, found.rows[which]
    if key == "gpu_memory" and not need.gpu:
        tpu = table.where("accelerator", lambda name: name.startswith("tpu-"))[rows]
        amounts = table.values(_AMOUNTS[key])[rows]
        return _log_ratio(need.gpu_memory.value, np.where(tpu, np.nan, amounts))
    if key in _AMOUNTS:
        return _log_ratio(getattr(need, key).value, table.values(_AMOUNTS[key])[rows])
    if key == "max_hourly_cost":
        return _price(found)[which]
    if key == "gpus":
        same = table.values("accelerator")[rows] == table.code("accelerator", need.gpu or "")
        counts = table.values("accelerator_count")[rows]
        none = np.where(np.isnan(counts), 100.0, 20.0)
        near = _log_ratio(need.gpu_count, counts)
        if need.gpu_form is not None:
            near[same] += OTHER_FORM * ~filters.has_form(catalog, need, rows[same])
        return np.where(same, near, none)
    if key in ("region", "zone", "instance_type"):
        asked = getattr(need, key)
        near = np.array(
            [1 - SequenceMatcher(None, asked, word).ratio() for word in table.categories(key)]
        )
        return near[table.values(key)[rows]]
    return np.zeros(len(which))


def _log_ratio(asked: float, found: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(np.abs(np.log(found / asked)), nan=1e6, posinf=1e6)
