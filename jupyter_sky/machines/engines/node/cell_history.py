"""History of an engine's cells, by the numbers that they have in their notebook."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any


class _NoOutputs(defaultdict[int, list[Any]]):
    """Outputs of cells that are not kept.

    IPython (9 and later) keeps every piece of text and every display for as long as the process
    lives, for ``%notebook``. An engine that prints for days would need ever more memory.
    """

    def __missing__(self, number: int) -> list[Any]:
        return []


class CellHistory:
    """The lists behind ``In``, ``%history`` and ``_i``, which IPython fills by appending.

    An engine runs some cells of a notebook only. Entries of the others are empty, but for those
    whose text has come with a cell that reads the history.

    Parameters
    ----------
    shell
        IPython's shell; attributes of its history that are not public are accessed here only.
    """

    def __init__(self, shell: Any) -> None:
        self._shell, self._manager = shell, shell.history_manager
        self._session = ""
        self._manager.outputs = _NoOutputs(list)
        # `%rerun`, `%history -l` and `-g` ask the database of the machine's user for these
        self._manager.get_tail = self._last_cells
        self._manager.search = self._search

    @contextmanager
    def at_cell(self, number: int, session: str, cells: Mapping[str, str]) -> Iterator[None]:
        """Let the cell that runs in this context be stored under its number.

        Parameters
        ----------
        number
            Number of the cell; 0 for code that is no cell, which is not stored.
        session
            Id of the notebook's kernel: another one counts its cells anew.
        cells
            Texts of cells that the notebook has run elsewhere, by their numbers.
        """
        histories = self._manager.input_hist_raw, self._manager.input_hist_parsed
        if session != self._session:
            self._session = session
            for history in histories:
                history[:] = [""]
        for told, text in cells.items():
            self._fill(int(told), text)
        # a cell that was sent in the background may run after one that has a higher number
        length = number or len(histories[0])
        later = [history[length:] for history in histories]
        for history in histories:
            del history[length:]
            history += [""] * (length - len(history))
        self._set_previous(histories[0])
        try:
            yield
        finally:
            for history, rest in zip(histories, later, strict=True):
                del history[length + (number > 0) :]
                history += rest[1:]

    def _fill(self, number: int, text: str) -> None:
        raw, parsed = self._manager.input_hist_raw, self._manager.input_hist_parsed
        for history in (raw, parsed):
            history += [""] * (number + 1 - len(history))
        if raw[number]:
            return
        try:
            code = self._shell.transform_cell(text)
        except SyntaxError:
            code = text
        raw[number], parsed[number] = text.rstrip("\n"), code.rstrip("\n")
        self._shell.user_ns[f"_i{number}"] = raw[number]

    def _set_previous(self, raw: list[str]) -> None:
        """Set the inputs that become ``_i``, ``_ii`` and ``_iii`` when the next is stored."""
        last = ["", "", "", *raw]
        self._manager._i00, self._manager._i, self._manager._ii = last[-1], last[-2], last[-3]

    def _last_cells(
        self,
        n: int | None = 10,
        raw: bool = True,
        output: bool = False,
        include_latest: bool = False,
    ) -> list[tuple[int, int, Any]]:
        """Stand in for ``HistoryManager.get_tail``: the last `n` cells, the latest at the end."""
        cells = self._cells(raw, output)
        cells = cells if include_latest else cells[:-1]
        return cells[max(0, len(cells) - (10 if n is None else n)) :]

    def _search(
        self,
        pattern: str = "*",
        raw: bool = True,
        search_raw: bool = True,
        output: bool = False,
        n: int | None = None,
        unique: bool = False,
    ) -> list[tuple[int, int, Any]]:
        """Stand in for ``HistoryManager.search``: cells whose text matches, as a shell matches."""
        texts = {number: text for __, number, text in self._cells(search_raw, False)}
        matching = [number for number, text in texts.items() if fnmatchcase(text, pattern)]
        if unique:
            matching = sorted({texts[number]: number for number in matching}.values())
        found = {cell[1]: cell for cell in self._cells(raw, output)}
        return [found[number] for number in matching][-n if n else 0 :]

    def _cells(self, raw: bool, output: bool) -> list[tuple[int, int, Any]]:
        """Return session (0, this one), number and text of each cell; with its value if asked."""
        texts = self._manager.input_hist_raw if raw else self._manager.input_hist_parsed
        values = self._manager.output_hist_reprs
        return [
            (0, number, (text, values.get(number)) if output else text)
            for number, text in enumerate(texts)
            if text
        ]
