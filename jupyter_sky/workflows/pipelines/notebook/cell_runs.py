"""Cells that carry out attempts of a run: begun once, and found again by other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyError, SkyTaskLost
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.store.store import Store
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.earlier_run import EarlierRun
from jupyter_sky.execution.cells.output_area import Entry, OutputArea, output_data
from jupyter_sky.execution.cells.request import CellPosition
from jupyter_sky.execution.cells.run import SkyRun
from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.workflows.pipelines.model.graph import cluster_name

POLL_SECONDS = 0.1
"""Time between two looks at a cell of an earlier process."""


class CellRuns:
    """Cells of a session, by their names.

    Parameters
    ----------
    session
        Whose clusters they run on.
    folder
        To which their paths are relative; without one that of the session.
    """

    def __init__(self, session: Session, folder: Path | None = None) -> None:
        self._session, self._folder = session, folder
        self._runs: dict[str, SkyRun] = {}

    def has(self, name: str) -> bool:
        """Return whether a cell was begun, also by another process."""
        return self._session.has_run(name)

    def begin(
        self,
        name: str,
        code: str,
        options: CellOptions,
        values: Mapping[str, Any] | None = None,
        above: tuple[str, ...] = (),
    ) -> None:
        """Begin a cell in the background."""
        options = replace(options, background=True, name=name, yes=True)
        origin = CellPosition(0, above=above, folder=self._folder)
        self._runs[name] = self._session.run(code, options, origin=origin, values=values)

    def find(self, name: str) -> SkyRun | EarlierRun:
        """Return a cell that was begun.

        Raises
        ------
        SkyTaskLost
            It was stored and never sent: the process that was to send it has ended.
        """
        if found := self._runs.get(name):
            return found
        row = self._session.store.run(self._session.find_handle(name).id)
        if row is None or (row.ended is None and not row.nodes and not row.is_monitored()):
            raise SkyTaskLost(_("it was not sent"))
        return EarlierRun(self._session, row)

    def forget(self, name: str) -> None:
        """Let go of a cell and its value."""
        self._runs.pop(name, None)

    def outputs(self, run: SkyRun | EarlierRun) -> list[dict[str, Any]]:
        """Return what a cell has shown, as long as its cluster has it."""
        entries: list[Entry] = []
        with suppress(SkyError):  # what came before the error stays
            for entry in self._session.history.read_all(run.id):
                entries.append(entry)
        return notebook_outputs(entries)


async def end_of(run: SkyRun | EarlierRun) -> None:
    """Wait for the end of a run, however it ends; one of an earlier process is asked."""
    if isinstance(run, SkyRun):
        await asyncio.wait([asyncio.ensure_future(_result_of(run))])
    while not await asyncio.to_thread(run.done):
        await asyncio.sleep(POLL_SECONDS)


async def _result_of(run: SkyRun) -> None:
    with suppress(BaseException):  # whoever asks for the result gets it
        await run


def hourly_price(store: Store, token: str) -> float:
    """Return the price in USD/h of the cluster that a run has begun under a token; else 0."""
    cluster = store.cluster(cluster_name(token))
    return (cluster.price or 0.0) if cluster else 0.0


# -- Outputs of tasks as notebooks have them, from the entries of a journal -----------------------


def notebook_outputs(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return the outputs of a cell.

    Parameters
    ----------
    entries
        Messages in their order, each with its ``type`` and ``content``.

    Examples
    --------
    >>> said = [{"type": "stream", "content": {"name": "stdout", "text": text}} for text in "ab"]
    >>> notebook_outputs(said)
    [{'output_type': 'stream', 'name': 'stdout', 'text': 'ab'}]
    """
    shown = _CellOutputs.of(entries).shown
    return [{key: output[key] for key in output if key != "transient"} for output in shown]


class _CellOutputs(OutputArea):
    """Outputs of a cell from its begin: an update without its display was cleared away."""

    def add_result(self, content: Mapping[str, Any]) -> None:
        """Show the value of the last expression, whose cell has no number."""
        result = {"output_type": "execute_result", **output_data(content), "execution_count": None}
        self.shown.append(result)

    def add_unmatched_update(self, content: Mapping[str, Any]) -> None:
        """Leave the update out."""


def output_text(outputs: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of outputs.

    Examples
    --------
    >>> output_text([{"output_type": "stream", "name": "stdout", "text": "x"}])
    'x'
    """
    parts = []
    for output in outputs:
        if output["output_type"] == "stream":
            parts.append(output["text"])
        elif output["output_type"] == "error":
            parts.append("\n".join(output["traceback"]) + "\n")
        elif text := output["data"].get("text/plain"):
            parts.append(f"{text}\n")
    return "".join(parts)
