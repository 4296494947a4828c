"""References to IPython's shell in pickles: every process has a shell of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

_PARTS = (
    "display_formatter",
    "events",
    "history_manager",
    "input_transformer_manager",
    "magics_manager",
    "display_pub",
    "displayhook",
    "kernel",
)
_PACKAGES = ("IPython", "ipykernel", "ipyparallel", "jupyter_sky")


def reduce_shell_part(value: Any) -> tuple[Any, ...] | None:
    """Return the shell, or one of its parts, in the form of ``__reduce__``; None for all else."""
    if type(value).__module__.partition(".")[0] not in _PACKAGES:
        return None
    for path, part in _parts():
        if part is value:
            return find_shell_part, path
    return None


def find_shell_part(*path: str) -> Any:
    """Return a part of this process's shell."""
    for known, part in _parts():
        if known == path:
            return part
    raise LookupError(f"there is no IPython shell here with {'.'.join(path) or 'a kernel'}")


def _parts() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the shell and its parts, each with its path."""
    if "IPython" not in sys.modules:
        return
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if shell is None:
        return
    yield (), shell
    for name in _PARTS:
        if (part := getattr(shell, name, None)) is not None:
            yield (name,), part
    for kind, formatter in shell.display_formatter.formatters.items():
        yield ("formatters", kind), formatter
