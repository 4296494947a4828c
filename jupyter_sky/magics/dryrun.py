"""``--dry-run``: where a cell would run, at what price, and what would be copied."""

from __future__ import annotations

from typing import Any

from ..errors import SkyError, SkyNoOffer, SkyPermission
from ..executor import session as sessions
from ..executor.inputs import collect
from ..executor.request import CellOptions
from ..labels import OWN
from ..ledger import format_rate
from ..offers import Offer
from ..optimizer.plan import plan
from ..optimizer.planned import Plan
from ..provisioner import broker
from ..resources import Resources


def dry_run(code: str, options: CellOptions) -> Plan:
    """Return the plan of a cell; launch and send nothing.

    The cluster that is up and would take the cell comes first, then what can be launched from
    here, then what the catalog has.
    """
    session = sessions.current()
    options = options.with_defaults(session.config)
    sending = collect(options, code, session.namespace, session.config)
    found = _planned(session, options)
    sizes = {name: sum(item["sizes"]) for name, item in sending.inline.items()}
    sizes |= {name: parcel.nbytes for name, parcel in sending.large.items()}
    copies = ", ".join(f"{name} {size:,} bytes" for name, size in sizes.items())
    return found.with_notes(f"would be copied: {copies or 'nothing'}", "nothing was launched")


def _planned(session: Any, options: CellOptions) -> Plan:
    need = options.resources
    for row in session.clusters._found(need, options.cluster):
        up = plan(need, offers=(), warm=[Offer(**row.offer)])
        return up.with_notes(f"on cluster {row.name}, which is up")
    try:
        found = broker.planned(need)
        return found.with_notes(*_elsewhere(need, found.tasks[0].offer))
    except (SkyNoOffer, SkyPermission) as error:
        if need.clouds and set(need.clouds) <= set(OWN):
            raise
        found, why = plan(need), error
    names = ", ".join(found.clouds)
    reason = why.message.splitlines()[0] if isinstance(why, SkyPermission) else "see %sky check"
    return found.with_notes(f"{names}: cannot launch here yet: {reason}")


def _elsewhere(need: Resources, chosen: Offer) -> list[str]:
    """What the clouds that are not used from here would ask."""
    if chosen.cloud not in OWN:
        return []
    try:
        best = plan(need)
    except SkyError:  # the catalog has nothing for it, as for --cloud local
        return []
    offer = best.tasks[0].offer
    if offer.price is None:
        return []
    price = format_rate(offer.price * need.nodes)
    return [f"in the clouds: {offer.place} at {price}"]
