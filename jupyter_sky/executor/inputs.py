"""Inputs of a cell: named with ``-i``, or found by reading the cell (``--auto``)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..cell_options.values import CellInput, CellOptions
from ..config.settings import Sky
from ..engines.wire.auto_inputs import AutoInput
from ..engines.wire.code_sources import with_sources
from ..engines.wire.values import Parcel
from ..errors import SkyUsageError, suggest
from .cell_names import SHELL_NAMES, free_names
from .notebook_history import NO_HISTORY, NotebookHistory
from .transfer import RemoteValue, is_inline
from .values import Sending


def collect_inputs(
    options: CellOptions,
    code: str,
    namespace: Mapping[str, Any],
    config: Sky,
    history: NotebookHistory = NO_HISTORY,
) -> Sending:
    """Evaluate and pickle the inputs of a cell.

    Parameters
    ----------
    namespace
        Variables of the notebook.
    history
        Cells before this one.

    Raises
    ------
    SkyUsageError
        A name or an environment variable does not exist here.
    SkyTransferError
        A value cannot be pickled; says which part of it, and why.
    """
    found = _find_inputs(options, code, namespace, config)
    inputs = [*options.inputs, *(CellInput(name, name) for name in found)]
    order = history.changed_later(found)
    inline: dict[str, dict[str, Any]] = {}
    large: dict[str, Parcel] = {}
    remote: dict[str, list[RemoteValue]] = {}
    auto: dict[str, AutoInput] = {}
    types: list[type] = []
    for item in inputs:
        value, digest = _evaluate(item.expression, namespace), ""
        handles = value if isinstance(value, list) else [value]
        if handles and all(isinstance(handle, RemoteValue) for handle in handles):
            remote[item.name] = handles
        else:
            types.append(type(value))
            parcel = Parcel.of(value, item.expression)
            digest = parcel.digest() if item.name in order else ""
            if is_inline(parcel):
                inline[item.name] = with_sources(parcel.inline(), parcel)
            else:
                large[item.name] = parcel
        if item.name in order:
            auto[item.name] = AutoInput(digest, *order[item.name])
    env = {name: _read_variable(name) for name in options.env}
    notes = (f"sent by --auto: {', '.join(found)}",) if found else ()
    return Sending(code, options, inline, large, remote, auto, env, notes, tuple(types))


def _find_inputs(
    options: CellOptions, code: str, namespace: Mapping[str, Any], config: Sky
) -> list[str]:
    """Return the names that a cell reads, where they are to be sent without being named."""
    if not (config.auto_inputs if options.auto is None else options.auto):
        return []
    named = {item.name for item in options.inputs}
    return [name for name in free_names(code, namespace) if name not in named]


def _read_variable(name: str) -> str:
    """Return an environment variable of this machine."""
    if name not in os.environ:
        raise SkyUsageError(
            f"--env {name}: it is not set here",
            hint=f"set it before the kernel starts, or os.environ[{name!r}] = getpass()",
        )
    return os.environ[name]


def _evaluate(expression: str, namespace: Mapping[str, Any]) -> Any:
    if expression in namespace:
        return namespace[expression]
    if expression.isidentifier():
        names = [name for name in namespace if not name.startswith("_") and name not in SHELL_NAMES]
        raise SkyUsageError(
            f"-i {expression}: there is no variable {expression!r} in this notebook",
            hint=suggest(expression, names) if names else "run the cell that makes it first",
        )
    try:
        return eval(expression, dict(namespace))
    except Exception as error:
        raise SkyUsageError(f"-i {expression}: {type(error).__name__}: {error}") from None
