"""Cells as Python calls: run, follow, wait for and stop them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, overload

from jupyter_sky.base.requests.cell_options.data import parse_data, parse_uploads
from jupyter_sky.base.requests.cell_options.parsing import FILE_PREFIX, parse_output
from jupyter_sky.base.requests.cell_options.values import CellInput, CellOptions
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.interfaces.api.pipelines import run_graph

if TYPE_CHECKING:
    from jupyter_sky.base.requests.dag.dag import Dag
    from jupyter_sky.execution.cells.earlier_run import EarlierRun
    from jupyter_sky.execution.cells.run import SkyRun
    from jupyter_sky.interfaces.widgets.logs import Log
    from jupyter_sky.machines.storage.datasets.data import Storage


def run(
    code: str | Dag,
    *,
    inputs: Mapping[str, Any] | Iterable[str] = (),
    outputs: Iterable[str] = (),
    data: str | Storage | Mapping[str, str | Storage] | Iterable[str | Storage] = (),
    out: Mapping[str, str | Storage] = MappingProxyType({}),
    background: bool = False,
    cluster: str | None = None,
    name: str | None = None,
    yes: bool = False,
    **labels: Any,
) -> Any:
    """Run code on a cluster, as a ``%%sky`` cell does.

    Parameters
    ----------
    code
        The body of a cell; the name of a run of this notebook, also of an earlier kernel; or a
        Dag, whose tasks are run each after its producers.
    inputs
        Values by their remote names, or names of variables of the notebook.
    outputs
        Names that are bound here afterwards; ``"m!"`` leaves the value there, ``"file:out/"``
        brings a file or folder, ``"m@s3://mine/runs/7/"`` keeps the value in a store.
    data
        Datasets that the code reads, as ``--data`` has them: addresses, with their paths if they
        are given as ``{"./data/train": "s3://imagenet/train"}``.
    out
        Addresses to which new files are uploaded, by path: ``{"./model": "gs://mine/runs/7"}``.
    background
        Return the `SkyRun` at once.
    **labels
        Resources, spelled as the options are: ``cpus="4+"``, ``gpus="V100:1"``. For a Dag, what
        its plan minimizes and keeps to: ``minimize="time"``, ``deadline="3h"``, ``budget=20``.

    Returns
    -------
    Any
        The value of the last expression, or the run; of a Dag a `PipelineRun`.

    Notes
    -----
    The run that a name finds has ``status``, ``logs()``, ``cancel()`` and ``result()``, which
    brings what ``-o`` named.

    Examples
    --------
    >>> sky.run("sum(data)", inputs={"data": [1, 2]})  # doctest: +SKIP
    3
    >>> sky.run(dag).wait().result("train")  # doctest: +SKIP
    0.93
    >>> sky.run("train").result()  # doctest: +SKIP
    0.93
    """
    if not isinstance(code, str):
        return run_graph(code, name, **labels)
    session = _sessions.current()
    is_name_alone = not (
        inputs or outputs or data or out or background or cluster or name or yes or labels
    )
    if is_name_alone and code.strip().isidentifier() and session.has_run(code.strip()):
        return session.find_handle(code.strip())
    named = dict(inputs) if isinstance(inputs, Mapping) else None
    names = tuple(outputs)
    options = CellOptions(
        resources=Resources.parse(**labels),
        cluster=cluster,
        data=parse_data(_data_items(data), "data"),
        uploads=parse_uploads([f"{path}:{_address(uri)}" for path, uri in out.items()]),
        inputs=tuple(CellInput(item, item) for item in inputs),
        outputs=tuple(parse_output(item) for item in names if not item.startswith(FILE_PREFIX)),
        files=tuple(
            item.removeprefix(FILE_PREFIX) for item in names if item.startswith(FILE_PREFIX)
        ),
        background=background,
        name=name,
        yes=yes,
    )
    return session.run(code, options, _display(), values=named)


def _data_items(
    data: str | Storage | Mapping[str, str | Storage] | Iterable[str | Storage],
) -> list[str]:
    """Return data as ``--data`` spells them."""
    if isinstance(data, Mapping):
        return [f"{_address(uri)}:{_written_path(str(path))}" for path, uri in data.items()]
    from jupyter_sky.machines.storage.datasets.data import Storage

    given = [data] if isinstance(data, str | Storage) else [*data]
    return [_address(each) for each in given]


def _written_path(path: str) -> str:
    return path if path.startswith(("/", "./")) else f"./{path}"


def _address(uri: str | Storage) -> str:
    return uri if isinstance(uri, str) else str(uri.uri)


@overload
def logs(which: str | int | None = None, *, spark: Literal[False] = False) -> Log: ...
@overload
def logs(which: str | int | None = None, *, spark: Literal[True]) -> Table: ...
def logs(which: str | int | None = None, *, spark: bool = False) -> Log | Table:
    """Return everything that a cell printed on its cluster, by cell number, name or run id.

    It is text; as the last value of a cell it is a view with search that goes on with the run.

    Parameters
    ----------
    which
        Cell number, name or run id; the latest cell unless given.
    spark
        Return the stages of its queries of Spark instead, also after the end of its cluster.

    Returns
    -------
    Log or Table
        Text, with a view for notebooks; of Spark a row for each stage.

    Examples
    --------
    >>> sky.logs(7)  # doctest: +SKIP
    >>> [line for line in sky.logs("train").splitlines() if "loss" in line]  # doctest: +SKIP
    >>> sky.logs(7, spark=True)  # doctest: +SKIP
    """
    session = _sessions.current()
    run = session.history.find_run(None if which is None else str(which))
    if spark:
        from jupyter_sky.execution.cells.spark_log import spark_stages

        return spark_stages(session, run)
    from jupyter_sky.interfaces.widgets.logs import Log

    return Log.of(session.history, run)


def wait(which: str | None = None, timeout: float | None = None) -> Any:
    """Wait for a background cell (or for all of them) and return its value.

    Parameters
    ----------
    which
        Name or cell number; all background cells unless given.
    timeout
        Seconds to wait at most; without it, to the end.

    Returns
    -------
    object
        Value of the cell.

    Examples
    --------
    >>> sky.wait("train", timeout=60)  # doctest: +SKIP
    """
    session = _sessions.current()
    if which is not None:
        return session.find_handle(which).result(timeout)
    runs = list(session.live.values())
    for pending in runs:
        pending.result(timeout)
    return None


def cancel(which: str) -> None:
    """Stop a background cell, by name or cell number.

    Parameters
    ----------
    which
        Name or cell number.

    Examples
    --------
    >>> sky.cancel("train")  # doctest: +SKIP
    """
    _sessions.current().find_handle(which).cancel()


def handle(which: str) -> SkyRun | EarlierRun:
    """Return the handle of a cell, by name or cell number, also of an earlier kernel.

    Parameters
    ----------
    which
        Name or cell number.

    Returns
    -------
    SkyRun or EarlierRun
        The run of the cell: its status, outputs and value.

    Examples
    --------
    >>> sky.handle("train")  # doctest: +SKIP
    """
    return _sessions.current().find_handle(which)


def _display() -> Any:
    from IPython import get_ipython  # type: ignore[attr-defined]

    from jupyter_sky.interfaces.widgets.cell_display import for_cell

    shell = get_ipython()
    return for_cell(shell) if shell is not None else None


def provision_log(cluster: str | None = None) -> str:
    """Return the stages of a cluster's launch, each with when it began and how long it took."""
    from jupyter_sky.machines.provisioner.launch_stages import format_stages
    from jupyter_sky.machines.provisioner.ssh_launch import STAGES

    row = _sessions.current().clusters.find_row(cluster)
    text = format_stages(Path(row.connection["file"]).parent / STAGES)
    return text or _("{name} runs on this machine: nothing had to be launched\n").format(
        name=row.name
    )
