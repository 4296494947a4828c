"""``--dry-run``: where a cell would run, at what price, and what would be copied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import SkyError, SkyNoOffer, SkyPermission
from ..executor import session as sessions
from ..executor.inputs import collect
from ..executor.request import CellOptions
from ..labels import OWN
from ..offers import Offer
from ..optimizer.plan import plan
from ..optimizer.planned import Alternative, Plan
from ..provisioner import broker
from ..resources import Resources
from ..widgets.dryrun import DryRun

_NEXT = 3  # places beside the one that would be taken


def dry_run(code: str, options: CellOptions) -> DryRun:
    """Say where a cell would run; launch and send nothing.

    The cluster that is up and would take the cell comes first, then what can be launched from
    here, then what the catalog has.
    """
    session = sessions.current()
    options = options.with_defaults(session.config)
    sending = collect(options, code, session.namespace, session.config)
    found, notes = _planned(session, options)
    sizes = {name: sum(item["sizes"]) for name, item in sending.inline.items()}
    sizes |= {name: parcel.nbytes for name, parcel in sending.large.items()}
    copies = ", ".join(f"{name} {size:,} bytes" for name, size in sizes.items())
    return DryRun(found, copies, notes)


def _planned(session: Any, options: CellOptions) -> tuple[Plan, tuple[str, ...]]:
    """Where it would run, and what is to be known of that."""
    need = options.resources
    for row in session.clusters._found(need, options.cluster):
        up = plan(need, offers=(), warm=[Offer(**row.offer)])
        return _with_next(up, need), (f"on cluster {row.name}, which is up",)
    try:
        return _with_next(broker.planned(need), need), ()
    except (SkyNoOffer, SkyPermission) as error:
        if need.clouds and set(need.clouds) <= set(OWN):
            raise
        found, why = plan(need), error
    names = ", ".join(found.clouds)
    reason = why.message.splitlines()[0] if isinstance(why, SkyPermission) else "see %sky check"
    return _with_next(found, need), (f"{names}: cannot launch here yet: {reason}",)


def _with_next(found: Plan, need: Resources) -> Plan:
    """The plan with the next places: its own alternatives, then those of the catalog."""
    told = {one.offer.place: one for one in found.alternatives()}
    if len(told) < _NEXT:
        told = {one.offer.place: one for one in _listed(found, need)} | told
    told.pop(found.tasks[0].offer.place, None)
    nearest = sorted(told.values(), key=lambda one: (one.usd, one.hours))
    return replace(found, alternatives_=tuple(nearest[:_NEXT]))


def _listed(found: Plan, need: Resources) -> list[Alternative]:
    """What the clouds would ask, beside a plan that has only what can be launched from here."""
    try:
        best = plan(need)
    except SkyError:  # the catalog has nothing for it, as for --cloud local
        return []
    (one,) = best.tasks
    usd, hours = best.usd - found.usd, best.hours - found.hours
    gco2 = best.gco2 - found.gco2
    kind = "in the clouds"
    first = Alternative(one.task, kind, one.offer, one.nodes, usd, hours, gco2)
    return [
        first,
        *(
            replace(other, usd=other.usd + usd, hours=other.hours + hours, gco2=other.gco2 + gco2)
            for other in best.alternatives()
        ),
    ]
