"""Dry run of a cell: its placement, its price and the sizes of its inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..cell_options.values import CellOptions
from ..executor import session as sessions
from ..executor.inputs import collect_inputs
from ..executor.request import with_settings
from ..offers import Offer
from ..optimizer.plan import Plan
from ..optimizer.planner import plan
from ..provisioner.preview import preview_plan, with_alternatives
from ..translation import _
from ..widgets.dry_run import DryRun


def dry_run(code: str, options: CellOptions) -> DryRun:
    """Plan a cell without launching or sending anything.

    The cluster that is up and would take the cell comes first, then what can be launched from
    here, then what the catalog has.
    """
    session = sessions.current()
    options = with_settings(options, session.config)
    sending = collect_inputs(options, code, session.namespace, session.config)
    found, notes = _plan_cell(session, options)
    sizes = {name: sum(item["sizes"]) for name, item in sending.inline.items()}
    sizes |= {name: parcel.nbytes for name, parcel in sending.large.items()}
    copies = ", ".join(
        _("{name} {size:,} bytes").format(name=name, size=size) for name, size in sizes.items()
    )
    if options.data:
        notes = (*notes, *_describe_data(session, options, found))
    return DryRun(found, copies, notes)


def _describe_data(session: Any, options: CellOptions, found: Plan) -> list[str]:
    """Return what bringing the data of a cell to its place would take."""
    from .. import catalog
    from ..executor.data_estimate import estimate_lines
    from ..executor.datasets import list_data

    listed = list_data(options.data, session.folder, options.resources)
    offer = found.tasks[0].offer
    target = f"{offer.cloud}/{offer.region}" if offer.region else offer.cloud
    return estimate_lines(listed, target, catalog.load())


def _plan_cell(session: Any, options: CellOptions) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan of a cell, with notes."""
    need = options.resources
    for row in session.clusters.find_rows(need, options.cluster):
        # per node, as in the ledger: all of its nodes are paid for, however many the cell asks for
        price = None if row.price is None else row.price / row.nodes
        offer = replace(Offer(**row.offer), price=price)
        # the limit on the hourly cost was checked when the cluster was launched
        whole = replace(need, nodes=row.nodes, max_hourly_cost=None)
        up = replace(plan(whole, offers=(), warm=[offer]), name=need.command_line())
        return with_alternatives(up, need), (
            _("on cluster {name}, which is up").format(name=row.name),
        )
    found, notes = preview_plan(need)
    second = session.clusters.second_cluster_note(need, options.cluster)
    return with_alternatives(found, need), (*([second] if second else ()), *notes)
