"""Demands of a plan by the tasks that they are about, so that no task looks through all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jupyter_sky.decisions.optimizer.constraints import (
    Colocation,
    Custom,
    HourlyCeiling,
    NodeCeiling,
    Quota,
    _OfferDemand,
)


class DemandIndex:
    """Demands in an order that is kept, and what problems ask of them.

    Parameters
    ----------
    demands
        Checked before.

    Attributes
    ----------
    has_custom, has_family_quota, has_hourly_ceiling, has_node_limit : bool
        Whether there is a demand of a kind.
    clustered : frozenset of str
        Names of the tasks that share a cluster with others.

    Examples
    --------
    >>> from jupyter_sky.decisions.optimizer.constraints import Residency, same_cluster
    >>> index = DemandIndex([Residency("eu"), Residency("ch", tasks="a"), same_cluster("a", "b")])
    >>> [demand.name for demand in index.offer_demands("a")], len(index.offer_demands("b"))
    (['residency EU', 'residency CH of a'], 1)
    >>> sorted(index.clustered)
    ['a', 'b']
    """

    def __init__(self, demands: Iterable[Any]) -> None:
        known = tuple(demands)
        quotas = [demand for demand in known if isinstance(demand, Quota)]
        self.has_custom = _has(known, Custom)
        self.has_family_quota = any(quota.family for quota in quotas)
        self.has_hourly_ceiling = _has(known, HourlyCeiling)
        self.has_node_limit = bool(quotas) or _has(known, NodeCeiling)
        self.clustered = frozenset(
            name
            for demand in known
            if isinstance(demand, Colocation) and demand.by == "cluster"
            for name in demand.tasks
        )
        self._of_all: list[tuple[int, _OfferDemand]] = []
        self._of_task: dict[str, list[tuple[int, _OfferDemand]]] = {}
        for place, demand in enumerate(known):
            if isinstance(demand, _OfferDemand):
                if not demand.tasks:
                    self._of_all.append((place, demand))
                for name in dict.fromkeys(demand.tasks):
                    self._of_task.setdefault(name, []).append((place, demand))

    def offer_demands(self, task: str) -> list[_OfferDemand]:
        """Return the demands on single offers that are about a task, in their order."""
        found = sorted(self._of_all + self._of_task.get(task, []), key=lambda pair: pair[0])
        return [demand for _place, demand in found]


def _has(demands: Sequence[Any], kind: type) -> bool:
    return any(isinstance(demand, kind) for demand in demands)
