"""Ends of several clusters: candidates, their users, and the outcome of each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from jupyter_sky import clouds
from jupyter_sky.base.concurrency import run_parallel
from jupyter_sky.base.errors import SkyError, SkyNotEnded
from jupyter_sky.base.translation import _
from jupyter_sky.execution.clusters.cluster_launch import (
    describe_launcher,
    end_abandoned_launch,
    is_launch_running,
)
from jupyter_sky.execution.clusters.cluster_records import ClusterRecords, describe_place
from jupyter_sky.execution.clusters.clusters import ClusterRegistry
from jupyter_sky.knowledge.ledger.ledger import format_rate
from jupyter_sky.machines.engines.controller.activity import notebook_name

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow
    from jupyter_sky.clouds import Machine

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EndCandidate:
    """A cluster that may be ended, with its users.

    Attributes
    ----------
    place
        Place of the cluster, in words.
    is_own
        Whether this notebook started it.
    users
        Work of other notebooks and logins on it now, in words.
    """

    row: ClusterRow
    place: str
    is_own: bool
    users: tuple[str, ...]

    @property
    def affects_others(self) -> bool:
        """Whether another notebook or login started or uses it."""
        return bool(self.users) or not self.is_own

    def __str__(self) -> str:
        started = _("started by {notebook}").format(notebook=notebook_name(self.row.notebook))
        used = (
            _("used by {users}").format(users=", ".join(self.users))
            if self.users
            else _("nobody uses it")
        )
        return f"{self.row.name} ({self.place}, {format_rate(self.row.price)}): {started}, {used}"


@dataclass(frozen=True, slots=True)
class EndResult:
    """The outcome of ending several clusters, each by its name.

    Attributes
    ----------
    ended
        Names and places of clusters that have ended.
    spared
        Names of clusters that were not to be ended, and the reasons.
    failed
        Names of clusters that could not be ended, and the reasons.
    """

    ended: tuple[tuple[str, str], ...] = ()
    spared: tuple[tuple[str, str], ...] = ()
    failed: tuple[tuple[str, str], ...] = ()

    def raise_for_failures(self) -> None:
        """Raise SkyNotEnded, which names them, when clusters could not be ended."""
        if self.failed:
            reasons = "; ".join(f"{name}: {why}" for name, why in self.failed)
            names = ", ".join(f"%sky down {name}" for name, __ in self.failed[:3])
            raise SkyNotEnded(
                _("could not be ended and may go on costing money: {reasons}").format(
                    reasons=reasons
                ),
                hint=_("try again: {names}; or end them in their cloud's console").format(
                    names=names
                ),
            )


def end_clusters(
    clusters: ClusterRegistry,
    name: str | None = None,
    everything: bool = False,
    confirm: Callable[[list[EndCandidate]], None] = lambda others: None,
) -> EndResult:
    """End a cluster, those of this notebook, or all clusters of this user.

    Each is gone when this returns: its cloud has said so.

    Parameters
    ----------
    name
        The cluster; without one, those that this notebook started and no other uses.
    everything
        End all clusters, and machines that no cluster has.
    confirm
        Called with the clusters that others started or use, if there are any, before all are
        ended; raises to end none.
    """
    if name is not None:
        row = clusters.terminate(name)
        return EndResult(ended=((name, describe_place(row)),))
    candidates = _list_candidates(clusters)
    if everything:
        if others := [one for one in candidates if one.affects_others]:
            confirm(others)
        return _end_side_by_side(clusters.records, candidates, orphans=True)
    own = [one for one in candidates if one.is_own]
    used = [
        (one.row.name, _("used by {users}").format(users=", ".join(one.users)))
        for one in own
        if one.users
    ]
    unused = [one for one in own if not one.users]
    result = _end_side_by_side(clusters.records, unused, orphans=False)
    return replace(result, spared=(*result.spared, *used))


def _list_candidates(clusters: ClusterRegistry) -> list[EndCandidate]:
    """Return every cluster that is up or being launched, as recorded."""
    return run_parallel(
        [partial(_make_candidate, clusters, row) for row in clusters.store.live_clusters()]
    )


def _make_candidate(clusters: ClusterRegistry, row: ClusterRow) -> EndCandidate:
    users = [
        _("{name} of {notebook}").format(name=run.label, notebook=notebook_name(run.notebook))
        for run in clusters.store.runs(cluster=row.name, status="running", limit=None)
        if run.started >= row.created and run.notebook != clusters.notebook
    ]
    here = f" of {notebook_name(clusters.notebook)}"
    use = clusters.read_activity(row) if row.state == "up" else None
    for user in use.users if use else ():  # calls and logins are in no store
        if user not in users and not user.endswith(here):
            users.append(user)
    if row.state == "starting" and is_launch_running(row):
        users.append(_("its launch by {row}").format(row=describe_launcher(row)))
    is_own = row.notebook == clusters.notebook
    return EndCandidate(row, describe_place(row), is_own, tuple(users))


def _end_side_by_side(
    records: ClusterRecords, chosen: list[EndCandidate], orphans: bool
) -> EndResult:
    """End clusters side by side; the failure of one keeps none of the others up.

    Parameters
    ----------
    orphans
        End machines that no remembered cluster has, too.
    """
    spared = []
    jobs: list[tuple[str, Callable[[], str]]] = []
    for one in chosen:
        if one.row.state == "starting" and is_launch_running(one.row):
            why = _("it is being launched by {row}; interrupt that cell").format(
                row=describe_launcher(one.row)
            )
            spared.append((one.row.name, why))
        else:
            jobs.append((one.row.name, partial(_end_cluster, records, one)))
    ended, failed = _run_jobs(jobs)
    if orphans:
        more = _run_jobs(_orphan_jobs(records))
        ended, failed = ended + more[0], failed + more[1]
    return EndResult(tuple(ended), tuple(spared), tuple(failed))


def _end_cluster(records: ClusterRecords, one: EndCandidate) -> str:
    """End a cluster; return its place, or nothing when it had ended before."""
    row = one.row
    if row.state == "starting":
        return one.place if end_abandoned_launch(records, row) or row.machines else ""
    return one.place if records.terminate_unless_ended(row) else ""


def _orphan_jobs(records: ClusterRecords) -> list[tuple[str, Callable[[], str]]]:
    jobs: list[tuple[str, Callable[[], str]]] = []
    for name, machines in records.find_orphans().items():
        for cloud in sorted({machine.cloud for machine in machines}):
            of_cloud = [machine for machine in machines if machine.cloud == cloud]
            jobs.append((name, partial(_end_orphans, cloud, of_cloud)))
    return jobs


def _end_orphans(cloud: str, machines: list[Machine]) -> str:
    clouds.get(cloud).terminate([machine.id for machine in machines])
    return _("{cloud}, not in the store").format(cloud=cloud)


_Named = list[tuple[str, str]]


def _run_jobs(jobs: list[tuple[str, Callable[[], str]]]) -> tuple[_Named, _Named]:
    """Do jobs at the same time; return results, and reasons of failures, by name."""

    def attempt(name: str, job: Callable[[], str]) -> tuple[bool, str]:
        try:
            return True, job()
        except SkyError as error:
            return False, error.message
        except Exception as error:
            _log.warning("cluster %s could not be ended", name, exc_info=True)
            return False, f"{type(error).__name__}: {error}"

    said = run_parallel([partial(attempt, name, job) for name, job in jobs])
    done = [(name, text) for (name, __), (worked, text) in zip(jobs, said, strict=True) if worked]
    failed = [
        (name, why) for (name, __), (worked, why) in zip(jobs, said, strict=True) if not worked
    ]
    return [(name, place) for name, place in done if place], failed
