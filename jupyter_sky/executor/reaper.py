"""The reaper: compares what each cloud says is ours with what is remembered, and ends strays.

Nothing is forgotten here before a cloud has said that it is gone. A machine is kept when a cluster
that is up has it, or when the process that launches it lives; any other is a stray, and one that is
past its lease is ended whoever has it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .. import clouds
from ..clouds import Machine
from ..errors import SkyError
from ..together import at_once
from .launching import ABANDONED, abandon, is_under_way
from .recovery import recover_rows

if TYPE_CHECKING:
    from ..clouds import Cloud
    from ..store import ClusterRow
    from .clusters import Clusters


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the reaper found.

    Attributes
    ----------
    cloud, what : str
        Where, and the machine's name there (or what else costs money).
    cluster : str
        Of which cluster it is; empty if not known.
    why : str
        Why it should not be there.
    gone : bool
        Whether the cloud has confirmed its end.
    trouble : str
        Why it could not be ended, or the cloud not be asked.
    """

    cloud: str
    what: str
    cluster: str
    why: str
    gone: bool
    trouble: str = ""


def reap(known: Clusters, everywhere: bool = True) -> list[Finding]:
    """End what nobody needs any more; return what was found.

    Parameters
    ----------
    everywhere
        Ask in all regions of all clouds with credentials, not only where something was launched.
    """
    recover_rows(known)
    left = [row for row in known.store.starting() if not is_under_way(row)]
    found = at_once([partial(_abandoned, row, known) for row in left])
    known.forget_unsent()
    known.reconcile()
    found += at_once([partial(_in, name, known, everywhere) for name in clouds.launchable()])
    return [each for several in found for each in several]


def _abandoned(row: ClusterRow, known: Clusters) -> list[Finding]:
    """End what a process that is gone was launching."""
    try:
        return [_ended(machine, ABANDONED) for machine in abandon(known, row)]
    except SkyError as error:
        return [Finding(row.cloud, row.name, row.name, ABANDONED, False, error.message)]


def strays(
    machines: Iterable[Machine], needed: Collection[str], tokens: Collection[str], now: float
) -> Iterator[tuple[Machine, str]]:
    """Yield the machines that should not be there, each with the reason.

    Parameters
    ----------
    needed
        Names of the machines of clusters that are up.
    tokens
        Of orders that somebody is launching.
    now
        Unix seconds.
    """
    for machine in machines:
        if machine.lease_end is not None and machine.lease_end < now:
            yield machine, "its lease has ended"
        elif machine.id not in needed and machine.token not in tokens:
            yield machine, "no cluster that is up has it"


def _in(name: str, known: Clusters, everywhere: bool) -> list[Finding]:
    """Reap in one cloud; what it says of itself is no reason to leave out the others."""
    found: list[Finding] = []
    try:
        cloud = clouds.get(name)
        listed = cloud.mine(everywhere)
        # after the listing: what was launched meanwhile had been noted before
        needed, tokens = known.needed()
        unneeded = strays(listed, needed, tokens, time.time())
        found += at_once([partial(_end, cloud, machine, why) for machine, why in unneeded])
        if name in clouds.RENTED:
            clouds.rented_cloud(name).settle()
            if everywhere:
                left = clouds.rented_cloud(name).leftovers()
                found += [Finding(name, what, "", "no machine uses it", True) for what in left]
    except SkyError as error:
        found.append(Finding(name, "", "", "it cannot be asked", False, error.message))
    return found


def _end(cloud: Cloud, machine: Machine, why: str) -> Finding:
    try:
        cloud.terminate([machine.id])
    except SkyError as error:
        return Finding(cloud.name, machine.id, machine.cluster, why, False, error.message)
    return _ended(machine, why)


def _ended(machine: Machine, why: str) -> Finding:
    return Finding(machine.cloud, machine.id, machine.cluster, why, True)
