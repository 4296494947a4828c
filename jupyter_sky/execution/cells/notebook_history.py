"""Cells that a notebook has run, in their order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jupyter_sky.execution.cells.cell_names import assigned_names
from jupyter_sky.execution.cells.magic_code import shell_call, to_plain_python

RECENT_CELLS = 200
"""Number of cells in which changes of variables are looked for."""
MAX_CELL_CHARACTERS = 2**16
MAX_HISTORY_CHARACTERS = 2**20
_HISTORY_NAME = re.compile(r"In|_ih|_i{1,3}|_i\d+|history_manager")
_HISTORY_MAGICS = frozenset(
    "edit hist history load loadpy logstart macro notebook pastebin recall rep rerun save".split()
)
_CANDIDATE = re.compile(rf"\b(?:{_HISTORY_NAME.pattern}|{'|'.join(_HISTORY_MAGICS)})\b")
_SKY_LINE = re.compile(r"^[ \t]*%%sky\b.*$", re.MULTILINE)
_WORD = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class NotebookHistory:
    """Texts of the cells before one, by their numbers.

    Attributes
    ----------
    cells : tuple of str
        Texts as typed, ``%%sky`` lines included; the first, of number 0, is empty.
    """

    cells: tuple[str, ...] = ()

    def changed_later(self, names: Iterable[str]) -> dict[str, tuple[bool, bool]]:
        """Return for each name whether the notebook changed it after its clusters did.

        The cells are read, not watched: one that is sent to a cluster changes what it mentions.

        Returns
        -------
        dict
            Whether a cell of the notebook assigns the name after the last cell on a cluster that
            mentions it, and whether one mentions it after that.
        """
        pending: dict[str, tuple[bool, bool]] = dict.fromkeys(names, (False, False))
        found: dict[str, tuple[bool, bool]] = {}
        for cell in reversed(self.cells[-RECENT_CELLS:] if pending else ()):
            is_sent, assigned, mentioned = _analyse(cell)
            for name in mentioned & pending.keys():
                if is_sent:
                    found[name] = pending.pop(name)
                elif name in assigned:
                    pending.pop(name)
                    found[name] = (True, True)
                else:
                    pending[name] = (False, True)
            if not pending:
                break
        if not self.cells:
            return dict.fromkeys(pending, (False, True))
        return found | pending

    def texts(self) -> dict[int, str]:
        """Return the latest cells by their numbers, as engines run them.

        Large ones are left out, and old ones where all would be too many.
        """
        found: dict[int, str] = {}
        size = 0
        for number in range(len(self.cells) - 1, 0, -1):
            cell = self.cells[number]
            if len(cell) <= MAX_CELL_CHARACTERS:
                size += len(cell)
                if size > MAX_HISTORY_CHARACTERS:
                    break
                found[number] = _engine_text(cell)
        return found


NO_HISTORY = NotebookHistory()
"""History of code that is in no notebook."""


def read_history(shell: Any) -> NotebookHistory:
    """Return the cells that a shell has run before its present one."""
    manager = shell.history_manager
    return NotebookHistory(tuple(manager.input_hist_raw[:-1]) if manager else ())


def reads_history(code: str) -> bool:
    """Return whether code reads the texts of earlier cells.

    Examples
    --------
    >>> [reads_history(code) for code in ("In[3]", "%rerun 2-4", "In = 1; f(x)")]
    [True, True, True]
    >>> reads_history("history = model.fit(x)")
    False
    """
    if not _CANDIDATE.search(code):  # most cells: they need not be parsed
        return False
    try:
        tree = ast.parse(to_plain_python(code))
    except SyntaxError:  # a magic without its percent sign
        return not _HISTORY_MAGICS.isdisjoint(code.split(maxsplit=1)[:1])
    for node in ast.walk(tree):
        name = getattr(node, "id", None) or getattr(node, "attr", None)
        if isinstance(name, str) and _HISTORY_NAME.fullmatch(name):
            return True
        call = shell_call(node)
        if call is not None and not _HISTORY_MAGICS.isdisjoint(call[1][:1]):
            return True
    return False


def _engine_text(cell: str) -> str:
    """Return a cell as an engine runs it: a ``%%sky`` line is a comment there."""
    line = _SKY_LINE.search(cell)
    if line is None:
        return cell
    above, body = cell[: line.end()].split("\n"), cell[line.end() + 1 :]
    return body if body.startswith("%%") else "".join(f"# {text}\n" for text in above) + body


@lru_cache(maxsize=2 * RECENT_CELLS)
def _analyse(cell: str) -> tuple[bool, frozenset[str], frozenset[str]]:
    """Return whether a cell was sent to a cluster, and names that it assigns and mentions."""
    line = _SKY_LINE.search(cell)
    body = cell[line.end() :] if line else cell
    assigned = frozenset() if line else frozenset(assigned_names(body))
    return bool(line), assigned, frozenset(_WORD.findall(body)) | assigned
