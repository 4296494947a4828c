"""``--dry-run``: what would be launched, where, at what price, and what would be copied."""

from __future__ import annotations

from typing import Any

from ..executor import session as sessions
from ..executor.inputs import collect
from ..executor.request import CellOptions
from ..ledger import format_rate
from ..widgets.table import Table


def dry_run(code: str, options: CellOptions) -> Any:
    """Return the places that could run a cell, best first; launch and send nothing."""
    session = sessions.current()
    options = options.with_defaults(session.config)
    sending = collect(options, code, session.namespace, session.config)
    rows = []
    found = session.clusters._found(options.resources, options.cluster)
    for row in found[:1]:
        price = format_rate(row.price)
        rows.append(
            (
                f"{row.name} (is up)",
                session.place(row),
                row.offer["vcpus"],
                row.offer["memory"],
                price,
                f"{row.price_source} {row.price_date}",
            )
        )
    nodes = options.resources.nodes
    for offer in session.clusters.plan(options.resources)[:10]:
        price = format_rate(None if offer.price is None else offer.price * nodes)
        place = f"{nodes} x {offer.place}" if nodes > 1 else offer.place
        rows.append(
            ("new", place, offer.vcpus, offer.memory, price, f"{offer.source} {offer.date}")
        )
    sizes = {name: sum(item["sizes"]) for name, item in sending.inline.items()}
    sizes |= {name: parcel.nbytes for name, parcel in sending.large.items()}
    copies = ", ".join(f"{name} {size:,} bytes" for name, size in sizes.items())
    note = f"would be copied: {copies or 'nothing'}; nothing was launched"
    return Table(
        f"Dry run: {options.resources.command_line() or 'any machine'}",
        ("cluster", "where", "vCPUs", "GiB", "price", "price from"),
        tuple(rows),
        note,
    )
