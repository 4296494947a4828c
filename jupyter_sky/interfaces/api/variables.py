"""Variables of clusters as Python calls: listed, sent, fetched."""

from __future__ import annotations

from typing import Any

from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.live_run import describe_wait
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.machines.engines.wire.engine_requests import ListNames


def vars(cluster: str | None = None) -> Table:
    """List the variables that cells have made on a cluster.

    Parameters
    ----------
    cluster
        Name of the cluster; the notebook's own unless given.

    Returns
    -------
    Table
        A row for each variable.

    Examples
    --------
    >>> sky.vars("gpu")  # doctest: +SKIP
    """
    live = _sessions.current().clusters.find(cluster)
    if note := describe_wait(live, (0,)):
        print(note, flush=True)
    rows = tuple(map(tuple, live.connection.ask_engine(0, ListNames()).names))
    return Table(
        _("Variables on {name}").format(name=live.row.name),
        ("name", "type", "bytes", "value"),
        rows,
        empty=_("none yet"),
    )


def put(*names: str, cluster: str | None = None) -> None:
    """Send variables of the notebook to a cluster.

    Parameters
    ----------
    *names
        Names of the notebook's variables.
    cluster
        Name of the cluster; the notebook's own unless given.

    Examples
    --------
    >>> sky.put("data", "labels", cluster="gpu")  # doctest: +SKIP
    """
    _sessions.current().variables.put(list(names), cluster)


def get(
    *names: str,
    cluster: str | None = None,
    to: str | None = None,
    force: bool = False,
    rank: int = 0,
) -> Any:
    """Bring variables, files and folders of a cluster here; return the last one's value.

    Parameters
    ----------
    *names
        Names of variables, paths of files and folders, or patterns such as ``out/*.png``. Paths
        are relative to the folder in which cells run.
    cluster
        Name of the cluster; the notebook's own unless given.
    to
        File or folder for files. Without it they keep their place, below the notebook's folder.
    force
        Replace files that are here and differ.
    rank
        Rank of the node.

    Returns
    -------
    object
        Value of a variable, path of a file, or list of the paths of several files.

    Raises
    ------
    SkyUsageError
        There is nothing of that name, or a file here would be replaced.

    Examples
    --------
    >>> model = sky.get("model", cluster="gpu")  # doctest: +SKIP
    >>> sky.get("out/model.pt", to="results/")  # doctest: +SKIP
    PosixPath('results/model.pt')
    """
    from jupyter_sky.execution.cells.fetching import FetchRequest, fetch

    request = FetchRequest(names, cluster, to, force, rank)
    found = fetch(_sessions.current(), request)
    return found[-1].value if found else None
