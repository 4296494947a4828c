"""Outputs of the calls of a pool, as the controllers of its clusters have recorded them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jupyter_sky.machines.engines.wire.controller_requests import ReadJournal

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle


def journal_name(pool: str) -> str:
    """Return the name of the journal of a pool's calls.

    Examples
    --------
    >>> journal_name("train-1a2b3c")
    'calls-train-1a2b3c'
    """
    return f"calls-{pool}"


def read_entries(clusters: Iterable[ClusterHandle], pool: str) -> list[Mapping[str, Any]]:
    """Return the recorded outputs of calls in the order of time.

    Parameters
    ----------
    clusters
        Clusters of the pool; those that are lost are left out.
    """
    entries: list[Mapping[str, Any]] = []
    for cluster in clusters:
        if cluster.connection.is_lost:
            continue
        start = 0
        while True:
            answer = cluster.connection.ask_controller(ReadJournal(journal_name(pool), start))
            if not answer.entries:
                break
            entries += answer.entries
            start = answer.next
    return sorted(entries, key=lambda entry: entry["time"])


def format_entries(entries: Iterable[Mapping[str, Any]]) -> str:
    r"""Return the printed texts, each line behind the rank of its node.

    Examples
    --------
    >>> entry = {"rank": 1, "type": "stream", "content": {"name": "stdout", "text": "a\nb\n"}}
    >>> print(format_entries([entry]), end="")
    [1] a
    [1] b
    """
    lines = [
        f"[{entry['rank']}] {line}\n"
        for entry in entries
        if entry["type"] == "stream"
        for line in entry["content"]["text"].splitlines()
    ]
    return "".join(lines)
