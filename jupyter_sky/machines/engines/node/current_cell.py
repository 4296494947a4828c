"""Current-cell file: the cell that an engine executes, always readable by the controller.

A message would not do: C code that keeps the interpreter to itself keeps every thread of the
engine from sending one. A small file is written before the cell begins, and takes microseconds.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from jupyter_sky.machines.engines.wire.messages import CellFacts

_END = b"\0"


@dataclass(frozen=True, slots=True)
class CurrentCell:
    """Cell that an engine executes.

    Attributes
    ----------
    msg_id : str
        The id of the request that it came with.
    facts : CellFacts
        Facts from its notebook: ``run``, ``rank``, ``ranks``, ``limit``.
    """

    msg_id: str
    facts: CellFacts


class CurrentCellFile:
    """Writer of the current-cell file, in the engine.

    Examples
    --------
    >>> cell_file = CurrentCellFile(Path("engine-0.cell"))  # doctest: +SKIP
    >>> cell_file.write("a1", '{"run": "r", "rank": 0}')  # doctest: +SKIP
    >>> read_current_cell(Path("engine-0.cell")).facts["run"]  # doctest: +SKIP
    'r'
    """

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def write(self, msg_id: str, facts: str) -> None:
        """Write that a cell begins; `facts` is JSON."""
        # the id at both ends: a reader that comes in the middle of a write can tell
        _write_ignoring_errors(self._file, f"{msg_id}\n{facts}\n{msg_id}".encode() + _END)

    def clear(self) -> None:
        """Write that the cell has ended."""
        _write_ignoring_errors(self._file, _END)


def cell_file_path(directory: Path, rank: int) -> Path:
    """Return the path of the current-cell file of an engine."""
    return directory / f"engine-{rank}.cell"


def _write_ignoring_errors(file: int, data: bytes) -> None:
    try:
        os.pwrite(file, data, 0)
    except OSError:  # a full disk: cells matter more
        pass


def read_current_cell(path: Path) -> CurrentCell | None:
    """Return the cell that an engine executes, or None."""
    for _ in range(3):
        try:
            text = path.read_bytes().partition(_END)[0].decode()
        except OSError:  # it has not started yet
            return None
        if not text:
            return None
        first, _, rest = text.partition("\n")
        facts, _, last = rest.rpartition("\n")
        if first == last:
            return CurrentCell(first, json.loads(facts))
    return None
