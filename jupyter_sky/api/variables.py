"""Variables of clusters as Python calls: listed, sent, fetched."""

from __future__ import annotations

from typing import Any

from ..executor import session as _sessions
from ..tables import Table
from ..translation import _


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
    rows = tuple(map(tuple, live.connection.ask_engine(0, "names")["names"]))
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


def get(*names: str, cluster: str | None = None) -> Any:
    """Bring variables of a cluster here; return the last one's value.

    Parameters
    ----------
    *names
        Names of variables.
    cluster
        Name of the cluster; the notebook's own unless given.

    Returns
    -------
    object
        Value of the last name.

    Examples
    --------
    >>> model = sky.get("model", cluster="gpu")  # doctest: +SKIP
    """
    return _sessions.current().variables.get(list(names), cluster)
