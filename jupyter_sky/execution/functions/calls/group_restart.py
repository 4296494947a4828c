"""Kinds of process groups: what begins again with the calls of an ``@`` after a loss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

GroupKind = Literal["calls", "processes"]
"""Part that begins again: the calls, or the processes too, where a group is for life."""

KINDS: tuple[GroupKind, ...] = ("processes", "calls")


def group_kind(plugins: Iterable[object]) -> GroupKind | None:
    """Return what begins again with the calls of an ``@`` in a pool with some plug-ins.

    Examples
    --------
    >>> from jupyter_sky.execution.functions import plugins
    >>> group_kind([plugins.torch(), plugins.mpi()]), group_kind([plugins.joblib()])
    ('processes', None)
    """
    kinds = {getattr(plugin, "group", None) for plugin in plugins}
    return next((kind for kind in KINDS if kind in kinds), None)
