"""Dry run of a cell: its placement, its price and the sizes of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_sky import clouds
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.decisions.optimizer.planning import plan
from jupyter_sky.execution.cells.inputs import collect_inputs
from jupyter_sky.execution.cells.request import with_settings
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.interfaces.widgets.dry_run import DryRun
from jupyter_sky.machines.provisioner.preview import preview_plan, with_alternatives

if TYPE_CHECKING:
    from jupyter_sky.execution.files.dataset_listing import CellDataset


def dry_run(code: str, options: CellOptions) -> DryRun:
    """Plan a cell without launching or sending anything.

    The cluster that is up and would take the cell comes first, then what can be launched from
    here, then what the catalog has.
    """
    session = sessions.current()
    options = with_settings(options, session.config)
    sending = collect_inputs(options, code, session.namespace, session.config)
    listed = _list_data(session, options)
    found, notes = _plan_cell(session, options, listed)
    sizes = {name: sum(item["sizes"]) for name, item in sending.inline.items()}
    sizes |= {name: parcel.nbytes for name, parcel in sending.large.items()}
    copies = ", ".join(
        _("{name} {size:,} bytes").format(name=name, size=size) for name, size in sizes.items()
    )
    if options.data or options.uploads or options.sync:
        notes = (*notes, *_describe_data(session, options, listed, found))
    if options.recover is not None:
        from jupyter_sky.execution.cells.recovery_places import describe_recovery

        need, cloud = options.resources, found.tasks[0].offer.cloud
        recovery = describe_recovery(need, options.recover, session.namespace, cloud)
        notes = (*notes, recovery)
    return DryRun(found, copies, notes)


def _describe_data(
    session: Any, options: CellOptions, listed: Sequence[CellDataset], found: Plan
) -> list[str]:
    """Return what bringing the data of a cell to its place would take, and uploading."""
    from jupyter_sky.execution.clusters.cluster import place_of_machine
    from jupyter_sky.execution.files.data_estimate import estimate_lines, upload_lines
    from jupyter_sky.execution.files.upload_targets import open_targets
    from jupyter_sky.knowledge import catalog

    offer = found.tasks[0].offer
    place = place_of_machine(offer.cloud, offer.region)
    live = session.clusters.find_connected(options.resources, options.cluster)
    there = frozenset(live.datasets) if live is not None else frozenset()
    nodes = found.tasks[0].nodes
    if options.sync and (synced := _synced_data(session, options, nodes)):
        listed = [*listed, synced]
    lines = estimate_lines(listed, place, catalog.load(), there, nodes)
    targets = open_targets(options.uploads, session.folder)
    return lines + upload_lines(targets, place, catalog.load())


def _synced_data(session: Any, options: CellOptions, nodes: int) -> CellDataset | None:
    """Return the files of ``--sync``, where they are many and for several machines."""
    if nodes < 2:
        return None
    from jupyter_sky.execution.files.shared_files import shared_dataset
    from jupyter_sky.machines.engines.node.files import build_manifest

    return shared_dataset(session.folder, build_manifest(session.folder, options.sync).files)


def _list_data(session: Any, options: CellOptions) -> Sequence[CellDataset]:
    if not options.data:
        return ()
    from jupyter_sky.execution.files.dataset_listing import list_data

    return list_data(options.data, session.folder, options.resources)


def _data_settings(
    session: Any, options: CellOptions, listed: Sequence[CellDataset]
) -> dict[str, Any]:
    """Return the settings by which a plan counts the data of a cell."""
    if not listed and not options.uploads:
        return {}
    from jupyter_sky.execution.clusters.cluster_request import data_settings
    from jupyter_sky.execution.files.data_estimate import area_names, planned_data
    from jupyter_sky.machines.storage.stores.uri import StorageUri

    uris = [each.manifest.uri for each in listed]
    uris += [StorageUri.parse(each.uri, session.folder) for each in options.uploads]
    areas = area_names(uris, session.config.residency)
    return data_settings(planned_data(listed), areas)


def _plan_cell(
    session: Any, options: CellOptions, listed: Sequence[CellDataset]
) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan of a cell, with notes."""
    need = options.resources
    for row in session.clusters.find_rows(need, options.cluster):
        # per node, as in the ledger: all of its nodes are paid for, however many the cell asks for
        price = None if row.price is None else row.price / row.nodes
        offer = replace(Offer(**row.offer), price=price)
        # the limit on the hourly cost was checked when the cluster was launched
        whole = replace(need.as_minimum(), nodes=row.nodes, max_hourly_cost=None)
        up = replace(plan(whole, offers=(), warm=[offer]), name=need.command_line())
        return with_alternatives(up, need), (
            _("on cluster {name}, which is up").format(name=row.name),
        )
    found, notes = preview_plan(need, options.burst, **_data_settings(session, options, listed))
    offer, second = found.tasks[0].offer, ""
    if clouds.is_ready(offer.cloud) and not clouds.launch_obstacle(offer):  # else nothing starts
        second = session.clusters.second_cluster_note(need, options.cluster)
    return with_alternatives(found, need), (*([second] if second else ()), *notes)
