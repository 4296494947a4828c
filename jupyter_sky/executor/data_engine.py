"""Data engine of a cell: the code that it runs, its node, and the wait until Spark is ready."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..cell_options.values import CellOptions
from ..clouds.launch_support import runs_here
from ..provider.facts import MANAGED
from ..provisioner import Report

if TYPE_CHECKING:
    from .cluster import ClusterHandle


def engine_code(code: str, options: CellOptions) -> str:
    """Return the code that engines run: of a cell of SQL, what runs its statement.

    Examples
    --------
    >>> engine_code("1 + 1", CellOptions())
    '1 + 1'
    """
    if not options.sql:
        return code
    from ..services.sql import cell_code

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


def await_data_engine(cluster: ClusterHandle, options: CellOptions, report: Report) -> None:
    """Wait until the data engine of a cell is ready, if it has one.

    Raises
    ------
    SkyError
        It cannot be started.
    """
    if options.engine is None:
        return
    from ..services.requests import await_engine, check_client

    if runs_here(cluster.row.cloud):
        check_client()
    if cluster.row.cloud in MANAGED:  # its session was waited for as it was launched
        return
    await_engine(cluster.connection.ask_controller, partial(report, "booting"))
