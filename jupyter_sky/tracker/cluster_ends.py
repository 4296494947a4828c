"""Observed lifetimes of the machines of a cluster that has ended, survivors included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..clouds import Machine
    from ..store.store import ClusterRow


def observed_ends(
    row: ClusterRow, machines: Sequence[Machine], ended: float
) -> list[tuple[str, float]]:
    """Return the kind of end and the age of each machine of a cluster that has ended.

    A machine that the cloud has taken back is a loss. All others were alive when their cluster
    ended: they are censored observations, without which machines would seem to live shorter.

    Parameters
    ----------
    machines
        States of the cluster's machines, or of some, as the cloud reports them.
    ended
        Unix seconds of the cluster's end.

    Returns
    -------
    list of (str, float)
        ``preempted`` or ``ended``, and the age in seconds, by rank; machines that were given up
        before are left out.
    """
    known = {machine.id: machine for machine in machines}
    observed: list[tuple[str, float]] = []
    for record in row.machines:
        if record.get("state") == "ended":  # observed when it was given up
            continue
        machine = known.get(record["id"])
        lost = machine is not None and machine.preempted
        # a survivor is ended by us a moment after the loss: that moment is not known better
        at = machine.ended if machine is not None and lost and machine.ended else ended
        observed.append(("preempted" if lost else "ended", max(0.0, at - record["started"])))
    return observed
