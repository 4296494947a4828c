"""Preparation of engines before a cell runs: packages, files, large values."""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.clouds.index import MANAGED
from jupyter_sky.base.errors import SkyError, SkyUsageError
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.execution.cells.cell_names import is_result
from jupyter_sky.execution.cells.inputs import Replies, Sending
from jupyter_sky.execution.cells.magic_code import parse_cell
from jupyter_sky.execution.clusters.cluster import Placement
from jupyter_sky.execution.files import transfer
from jupyter_sky.execution.files.transfer import RemoteValue, TransferReporter, format_size
from jupyter_sky.machines.engines.wire.engine_requests import Bind
from jupyter_sky.machines.provisioner import Report
from jupyter_sky.machines.services.requests import client_packages

if TYPE_CHECKING:
    from jupyter_sky.base.json_types import JsonObject
    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.machines.engines.wire.auto_inputs import Decision


def prepare_engines(
    sending: Sending,
    placement: Placement,
    root: Path,
    sync_packages: bool,
    reporter: TransferReporter,
) -> None:
    """Bring packages, files and large values to the engines of a cell.

    Parameters
    ----------
    root
        Folder of the notebook, where files for ``--sync`` are.
    sync_packages
        Whether packages that the cell imports are brought, too.
    """
    cluster, ranks, options = placement.cluster, placement.ranks, sending.options
    cluster.connection.check_protocol()
    if options.sync:
        from jupyter_sky.execution.files.shared_files import share_files

        share_files(placement, root, options.sync, reporter)
        files = reporter.progress("files")
        for note in transfer.sync_files(cluster, ranks, root, options.sync, files):
            reporter.note(note)
    sync_packages = sync_packages and not runs_here(cluster.row.cloud)
    pip = options.pip
    if not runs_here(cluster.row.cloud):
        pip += client_packages(options.engine)
    if pip or sync_packages:
        from jupyter_sky.execution.files.package_transfer import PackageTransfer

        packages = PackageTransfer(placement, reporter)
        if pip:  # may name a file that has just been brought
            packages.install_named(pip)
        if sync_packages:
            modules = imported_modules(sending.code) | type_modules(sending.types)
            packages.sync(modules | installed_modules(sending.modules))
    for name, values in sending.handles.items():
        for decision in _bind_handles(name, values, sending.policy(name), placement, reporter):
            _note_decision(name, decision, reporter)
    for name, parcel in sending.large.items():
        progress, policy = reporter.progress(name), sending.policy(name)
        decisions = transfer.send_value(cluster, ranks, name, parcel, progress, policy.get("auto"))
        if decisions == {"same"}:
            reporter.note(
                _("{name} is there already ({nbytes}): not sent").format(
                    name=name, nbytes=format_size(parcel.nbytes)
                )
            )
        for decision in decisions:
            _note_decision(name, decision, reporter)
    for note in sending.notes:
        reporter.note(note)


def describe_decision(name: str, decision: Decision) -> str:
    """Return a note on an input of ``--auto`` that was changed on an engine; else nothing."""
    if decision == "keep":
        return _(
            "{name} has changed on the cluster: not sent; -i {name} sends the notebook's"
        ).format(name=name)
    if decision == "replace" and not is_result(name):
        return _(
            "{name} had changed on the cluster: replaced by the notebook's, changed later"
        ).format(name=name)
    return ""


def describe_decisions(sending: Sending, replies: Replies) -> list[str]:
    """Return notes on the inputs that came with the cell itself."""
    notes = [
        describe_decision(name, reply.decisions[name])
        for name in sending.auto
        for reply in replies
        if name in reply.decisions
    ]
    return [note for note in dict.fromkeys(notes) if note]


def _note_decision(name: str, decision: Decision, reporter: TransferReporter) -> None:
    if note := describe_decision(name, decision):
        reporter.note(note)


def _bind_handles(
    name: str,
    values: Sequence[RemoteValue],
    policy: Mapping[str, Any],
    placement: Placement,
    reporter: TransferReporter,
) -> set[Decision]:
    """Bind values that are on the cluster to a name, without moving them if possible.

    One value is for every engine; of several, each engine has its own.
    """
    decisions: set[Decision] = set()
    cluster, by_rank = placement.cluster, {value.rank: value for value in values}
    for rank in placement.ranks:
        value = values[0] if len(values) == 1 else by_rank.get(rank)
        if value is None:
            raise SkyUsageError(
                _("-i {name}: it has no value for engine {rank}").format(name=name, rank=rank)
            )
        if value.cluster is cluster and value.rank == rank:
            bind = Bind(name, value.ref, policy.get("auto"))
            decisions.add(cluster.connection.ask_engine(rank, bind).decision)
            continue
        parcel = transfer.Parcel.of(value.fetch(reporter.progress(name)), name)
        reporter.announce(name, parcel.nbytes, "to")
        decisions |= transfer.send_value(
            cluster, [rank], name, parcel, reporter.progress(name), policy.get("auto")
        )
    return decisions


def check_input_sizes(sending: Sending, reporter: TransferReporter) -> None:
    """Refuse inputs that are too large to be sent without ``--yes``, before anything is launched.

    Raises
    ------
    SkyTransferError
        Names the value and its size.
    """
    for name, parcel in sending.large.items():
        reporter.announce(name, parcel.nbytes, "to")


# -- The modules that a cell needs: those that it imports, and those its values are made of -------


def imported_modules(code: str) -> set[str]:
    r"""Return the top-level modules that code imports anywhere, but for the standard library's.

    Examples
    --------
    >>> sorted(imported_modules("import os, numpy as np\nfrom sklearn.svm import SVC"))
    ['numpy', 'sklearn']
    """
    tree = parse_cell(code)
    if tree is None:
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return installed_modules(names)


def type_modules(types: Iterable[type]) -> set[str]:
    """Return the top-level modules that types are from, but for the standard library's.

    Examples
    --------
    >>> type_modules([int, list])
    set()
    """
    return installed_modules(kind.__module__ for kind in types)


def installed_modules(modules: Iterable[str]) -> set[str]:
    """Return the top-level modules of some, but for the standard library's.

    Examples
    --------
    >>> installed_modules(["numpy.linalg", "os.path", "__main__"])
    {'numpy'}
    """
    names = {module.partition(".")[0] for module in modules}
    return names - sys.stdlib_module_names - {"__main__"}


def engine_code(code: str, options: CellOptions) -> str:
    """Return the code that engines run: of a cell of SQL, what runs its statement.

    Examples
    --------
    >>> engine_code("1 + 1", CellOptions())
    '1 + 1'
    """
    if not options.sql:
        return code
    from jupyter_sky.machines.services.sql import cell_code

    names = [output.name for output in options.outputs]
    return cell_code(code, names, [value.name for value in options.inputs])


def run_on(options: CellOptions) -> str | None:
    """Return the ranks on which a cell runs, as ``--on`` names them; None for all.

    Examples
    --------
    >>> run_on(CellOptions(engine="spark")), run_on(CellOptions())
    ('0', None)
    """
    # the driver of a data engine is on the head node
    return options.on or (None if options.engine is None else "0")


def await_data_engine(cluster: ClusterHandle, options: CellOptions, report: Report) -> str:
    """Wait until the data engine of a cell is ready, if it has one.

    Returns
    -------
    str
        Address of its web page on this machine; empty where it has none.

    Raises
    ------
    SkyError
        It cannot be started.
    """
    if options.engine is None:
        return ""
    from jupyter_sky.machines.services.requests import await_engine, check_client

    if runs_here(cluster.row.cloud):
        check_client(options.engine)
    if cluster.row.cloud in MANAGED:  # its session was waited for as it was launched
        if options.engine != "spark":
            raise SkyError(
                _("{name} is a session of {cloud}, without machines for --engine {engine}").format(
                    name=cluster.row.name, cloud=cluster.row.cloud, engine=options.engine
                ),
                hint=_("take another cluster: -c NAME"),
            )
        return ""
    ask = cluster.connection.ask_controller
    facts = await_engine(ask, options.engine, partial(report, "booting"))
    return page_link(cluster, facts)


def page_link(cluster: ClusterHandle, facts: JsonObject) -> str:
    """Return the address of a data engine's web page on this machine; empty where it has none."""
    from jupyter_sky.machines.engines.node.service_orders import page_url

    port, token, path = facts.get("page", (0, "", ""))
    if not port:
        return ""
    here = cluster.tunnel.forward(port) if cluster.tunnel else port
    return page_url(here, token, path)


def make_reporter(
    config: Sky, is_confirmed: bool, report: Report, note: Callable[[str], None]
) -> TransferReporter:
    """Return a reporter of transfers; one that is confirmed refuses no size."""
    refuse_bytes = math.inf if is_confirmed else config.refuse_gb * 1e9
    return TransferReporter(report, note, config.announce_mb * 1e6, refuse_bytes)
