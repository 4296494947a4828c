"""Demand that machines fit the quotas of the accounts that would rent them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jupyter_sky.base.requests.dag.dag import Graph
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _, ngettext
from jupyter_sky.decisions.optimizer.constraints import _OfferDemand
from jupyter_sky.decisions.optimizer.market import Market, OfferPool
from jupyter_sky.decisions.optimizer.solver.problem import Flags, Floats
from jupyter_sky.knowledge.tracker.quotas import (
    AccountQuota,
    QuotaTable,
    QuotaUnit,
    family_key,
    format_amount,
)

if TYPE_CHECKING:
    from jupyter_sky.decisions.optimizer.pricing import PricedTask
    from jupyter_sky.decisions.optimizer.problem_builder import ProblemBuilder

_UNITS: tuple[QuotaUnit, ...] = ("vcpus", "gpus")


@dataclass(frozen=True)
class WithinQuotas(_OfferDemand):
    """Only machines that fit the quotas of accounts, by themselves.

    What is used of a quota now is another matter: a launch finds out, and another place is taken.

    Attributes
    ----------
    table : QuotaTable
        Quotas that are known.
    nodes : int
        Machines that are needed at once, at the least.
    """

    table: QuotaTable
    nodes: int = 1

    @property
    def name(self) -> str:
        """Name in error messages."""
        return f"the quotas of your accounts{self._for()}"

    def allowed(self, market: Market, pool: OfferPool) -> Flags:
        """Return offers that fit; those of accounts whose quotas are not known all do."""
        clouds = np.array([cloud in self.table.clouds for cloud, *__ in market.sites], bool)
        rows = np.flatnonzero(clouds[pool.site] & (pool.row >= 0))
        mask = np.ones(len(pool), bool)
        if not len(rows):
            return mask
        kinds, kind = np.unique(pool.machine[rows], return_inverse=True)
        machines = [market.machine(int(number)) for number in kinds]
        groups = dict[tuple[str, frozenset[str], str], int]()
        keys = [(each.cloud, self._families(each), each.gpu or "") for each in machines]
        group = np.array([groups.setdefault(key, len(groups)) for key in keys])[kind.reshape(-1)]
        regions = dict[tuple[str, str], int]()
        places = [regions.setdefault(site[:2], len(regions)) for site in market.sites]
        region = np.array(places)[pool.site[rows]]
        code = (region * len(groups) + group) * 2 + pool.spot[rows]
        codes, at = np.unique(code, return_inverse=True)
        names, families = list(regions), list(groups)
        limits = np.array(
            [
                self._limits(names[c // 2 // len(groups)], families[c // 2 % len(groups)], c % 2)
                for c in codes.tolist()
            ]
        )[at.reshape(-1)]
        amounts = np.array([_amounts(each) for each in machines])[kind.reshape(-1)] * self.nodes
        mask[rows] = (amounts <= limits).all(axis=1)
        return mask

    def _families(self, machine: Offer) -> frozenset[str]:
        return self.table.families(machine.cloud, machine.instance_type)

    def _limits(
        self, place: tuple[str, str], family: tuple[str, frozenset[str], str], spot: int
    ) -> tuple[float, ...]:
        """Return the most vCPUs and accelerators of a family that may be had at a place."""
        found = self._tightest(*place, family[1], family[2], bool(spot))
        return tuple(np.inf if quota is None else quota.limit for quota in found)

    def _tightest(
        self, cloud: str, region: str, families: frozenset[str], gpu: str, spot: bool
    ) -> tuple[AccountQuota | None, ...]:
        gpus = {family_key(gpu)} if gpu else set()
        return (
            self.table.tightest(cloud, region, families, spot, "vcpus"),
            self.table.tightest(cloud, region, gpus, spot, "gpus") if gpu else None,
        )

    def explain(self, offer: Offer) -> tuple[str, str]:
        """Return the quota that an offer exceeds in a sentence, and where to raise it.

        Both are empty for an offer that fits.
        """
        families, gpu = self._families(offer), offer.gpu or ""
        found = self._tightest(offer.cloud, offer.region, families, gpu, offer.spot)
        for unit, quota, amount in zip(_UNITS, found, _amounts(offer), strict=True):
            if quota is not None and amount * self.nodes > quota.limit:
                needed = format_amount(unit, amount * self.nodes)
                text = _("{place} needs {needed}: the quota {quota}")
                place = offer.place_of(self.nodes)
                said = text.format(place=place, needed=needed, quota=quota.describe())
                return said, _("raise it: {page}").format(page=quota.page) if quota.page else ""
        return "", ""


def _amounts(machine: Offer) -> tuple[float, float]:
    return machine.vcpus, machine.gpu_count if machine.gpu else 0.0


def quota_demands(graph: Graph, table: QuotaTable, tasks: Sequence[str]) -> list[WithinQuotas]:
    """Return the demands that some tasks of a graph fit the quotas, one for each node count."""
    if not table:
        return []
    groups: dict[int, list[str]] = {}
    for spec in graph.tasks:
        if spec.name in tasks:
            groups.setdefault(min(need.nodes for need in spec.needs), []).append(spec.name)
    if len(groups) == 1 and len(tasks) == len(graph.tasks):
        return [WithinQuotas(table, nodes) for nodes in groups]
    return [WithinQuotas(table, n, tasks=tuple(names)) for n, names in groups.items()]


def quota_notes(
    builder: ProblemBuilder, priced: Sequence[PricedTask], planned_usd: Sequence[float]
) -> list[str]:
    """Return sentences on cheaper offers that only a quota leaves out, one for each task at most.

    Parameters
    ----------
    priced
        Tasks with all offers that meet their requests.
    planned_usd
        What each task costs at its planned place, USD.
    """
    notes: list[str] = []
    for one, planned in zip(priced, planned_usd, strict=True):
        limits = {
            1 << bit: demand
            for bit, demand in enumerate(builder.offer_demands(one.spec))
            if isinstance(demand, WithinQuotas)
        }
        if not limits:
            continue
        refused = builder.find_refusals(one)
        usd: Floats = one.own_usd()
        cheaper = (refused != 0) & np.isfinite(usd) & (usd < planned - 1e-9)
        cheaper &= (refused & ~np.int64(sum(limits))) == 0
        left_out = np.flatnonzero(cheaper)
        if not len(left_out):
            continue
        row = int(left_out[np.argmin(usd[left_out])])
        best = builder.market.offer(one.pool, row)
        demand = next(each for bit, each in limits.items() if refused[row] & bit)
        said, raise_it = demand.explain(best)
        text = ngettext(
            "left out, though cheaper: {said}; {raise_it}",
            "left out, though cheaper, with {others:,} more: {said}; {raise_it}",
            1 if len(left_out) == 1 else 2,
        )
        notes.append(
            text.format(said=said, raise_it=raise_it, others=len(left_out) - 1).rstrip("; ")
        )
    return notes
