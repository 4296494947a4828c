"""Lists of Compute Engine: filtered, ordered, by pages, and of all zones at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from . import gce_validation as bodies
from .gce_state import World, sold
from .gce_validation import Refused


def listed(
    kind: str, held: Iterable[dict[str, Any]], query: dict[str, str], most: int
) -> dict[str, Any]:
    """One page of a list, of at most so many entries."""
    through = bodies.matcher(query.get("filter", ""))
    found = [each for each in held if through(each)]
    if query.get("orderBy") == "creationTimestamp desc":
        key = "insertTime" if kind == "operation" else "creationTimestamp"
        found.sort(key=lambda each: each[key], reverse=True)
    else:
        found.sort(key=lambda each: each["name"])
    page, token = _page(found, query, most)
    return {"kind": f"compute#{kind}List", "id": "list", "items": page, **token}


def aggregated(world: World, kind: str, query: dict[str, str], most: int) -> dict[str, Any]:
    """One page of what all zones have; a zone without any on this page has a warning instead."""
    types, gpus = sold()
    exact = re.fullmatch(r'name = "([^"]*)"', query.get("filter", ""))
    name = exact[1] if exact else ""
    held: dict[str, Callable[[], list[tuple[str, Any]]]] = {
        "instances": lambda: _by_zone(world.instances),
        "disks": lambda: _by_zone(world.disks),
        "machineTypes": lambda: _named(types, name),
        "acceleratorTypes": lambda: _named(gpus, name),
    }
    if kind not in held:
        raise Refused(404, "notFound", f"aggregated/{kind} was not found")
    through = bodies.matcher(query.get("filter", ""))
    entries = sorted(
        ((zone, each) for zone, each in held[kind]() if through(each)),
        key=lambda entry: (entry[0], entry[1]["name"]),
    )
    page, token = _page(entries, query, most)
    nothing = {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results for scope"}
    items: dict[str, Any] = {f"zones/{zone}": {"warning": nothing} for zone in types}
    for zone, each in page:
        scope = items.setdefault(f"zones/{zone}", {})
        scope.pop("warning", None)
        scope.setdefault(kind, []).append(each)
    return {"kind": f"compute#{kind[:-1]}AggregatedList", "id": "list", "items": items, **token}


def _page(entries: list[Any], query: dict[str, str], most: int) -> tuple[list[Any], dict[str, str]]:
    asked = int(query.get("maxResults", "500"))
    if not 0 <= asked <= 500:
        raise bodies.invalid("maxResults", asked, "Must be between 0 and 500.")
    most = min(asked or 500, most)
    start = int(query.get("pageToken") or 0)
    more = start + most < len(entries)
    return entries[start : start + most], {"nextPageToken": str(start + most)} if more else {}


def _by_zone(held: Mapping[tuple[str, str], Any]) -> list[tuple[str, Any]]:
    return [(zone, each) for (zone, _), each in held.items()]


def _named(sold: Mapping[str, Collection[str]], name: str) -> list[tuple[str, Any]]:
    """List what zones sell; of the very many kinds only one, if it is named."""
    return [
        (zone, {"name": each})
        for zone, kinds in sold.items()
        for each in (kinds if not name else [name] if name in kinds else [])
    ]
