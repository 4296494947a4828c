"""Clusters that are up against a request: what they lack, and why another one is started."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources, format_option
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow


def missing_labels(resources: Resources, row: ClusterRow) -> list[str]:
    """Return the labels of a request that a cluster does not meet, as they are written.

    A cluster that is up and paid for takes a cell that asks for less than it has; an exact amount
    chooses among machines that would have to be started.
    """
    texts = resources.labels()
    unmet = resources.as_minimum().unmet_labels(Offer(**row.offer))
    found = [format_option(key, texts[key]) for key in unmet]
    image = format_option("image", resources.image or "")
    if resources.image and "image" not in unmet and f" {image} " not in f" {row.resources} ":
        found.append(image)  # it is of another one
    offered = row.connection.get("session_nodes", row.nodes)
    if resources.nodes not in (1, offered, offered / Offer(**row.offer).hosts):
        found.append(f"--nodes {resources.nodes}")
    return found


def name_stem(notebook: str) -> str:
    """Return the beginning of the names of a notebook's clusters.

    Examples
    --------
    >>> name_stem("/home/ada/My Analysis.ipynb"), name_stem("")
    ('my-analysis', 'sky')
    """
    stem = re.sub(r"[^A-Za-z0-9]+", "-", Path(notebook).stem).strip("-").lower()
    return stem[:24] or "sky"


def preferred(rows: Iterable[ClusterRow], connected: Collection[str] = ()) -> list[ClusterRow]:
    """Return clusters that meet a request in the order in which they are taken.

    Those that are connected come first, then the oldest: a notebook's first cluster stays the one
    of its cells when the kernel was restarted after others have been started.
    """
    return sorted(rows, key=lambda row: (row.name not in connected, row.created))


def describe_second_cluster(resources: Resources, beside: Sequence[ClusterRow]) -> str:
    """Return a note that a cluster is started beside others, why, and how to end one of them."""
    if not beside:
        return ""
    nodes, name = resources.nodes, beside[0].name
    values = {
        "size": _(" of {nodes} nodes").format(nodes=nodes) if nodes > 1 else "",
        "names": _(" and ").join(row.name for row in beside),
        "reasons": _(" and ").join(_difference(resources, row) for row in beside),
        "name": name,
    }
    if len(beside) == 1:
        return _(
            "starts a second cluster{size} beside {names}, because {reasons}; %sky down {name} "
            "ends the first"
        ).format(**values)
    return _(
        "starts another cluster{size} beside {names}, because {reasons}; %sky down {name} ends one"
    ).format(**values)


def _difference(resources: Resources, row: ClusterRow) -> str:
    """Return why a cluster does not do for a request."""
    missing = missing_labels(resources, row)
    if missing != [f"--nodes {resources.nodes}"]:
        labels = _(" and ").join(missing)
        return _("{name} does not meet {labels}").format(name=row.name, labels=labels)
    if row.nodes == 1:
        return _("{name} has 1 node").format(name=row.name)
    return _("{name} has {nodes} nodes").format(name=row.name, nodes=row.nodes)
