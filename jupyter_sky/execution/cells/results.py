"""Results of a cell in the notebook: outputs bound, errors raised, the value returned."""

from __future__ import annotations

import contextlib
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_sky.base.errors import SkyCancelled, SkyError, SkyTransferError, SkyUsageError
from jupyter_sky.base.requests.cell_options.values import CellOutput
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.failures import mending_line, rebuild_exception
from jupyter_sky.execution.cells.inputs import Replies, Reply
from jupyter_sky.execution.cells.request import CellPosition
from jupyter_sky.execution.clusters.cluster import Placement
from jupyter_sky.execution.files import transfer
from jupyter_sky.execution.files.transfer import RemoteValue, TransferReporter
from jupyter_sky.machines.engines.wire.engine_requests import KeepResult

_RESULT = "the result"


@dataclass(frozen=True, slots=True)
class ResultCollector:
    """Collector of the results of one cell.

    Attributes
    ----------
    cell
        Position of the cell.
    label
        Name of the cell in messages.
    namespace
        Variables of the notebook, where outputs are bound.
    trusted
        Whether pickles of the cluster may be opened.
    """

    placement: Placement
    cell: CellPosition
    label: str
    namespace: MutableMapping[str, Any]
    trusted: bool
    reporter: TransferReporter

    def collect(self, replies: Replies, outputs: Sequence[CellOutput]) -> Any:
        """Bind ``-o`` names and return the last expression's value; a list by rank for several.

        Raises
        ------
        Exception
            The exception of the cell, of its own class.
        SkyCancelled
            The cell was taken back before it ran.
        SkyTransferError, SkyUsageError
            A value could not come; the others are bound.
        """
        for reply in replies:
            if reply.status in ("aborted", "killed"):
                raise SkyCancelled(_("{label} was cancelled").format(label=self.label))
            if reply.status != "ok":
                self._bind_made(replies, outputs)
                raise self._error(reply)
        self._bind_outputs(replies, outputs)
        values = [self._value(reply) for reply in replies]
        if len(values) == 1:
            return values[0]
        return None if all(value is None for value in values) else values

    def _error(self, reply: Reply) -> BaseException:
        if reply.refused is not None:
            return SkyTransferError(reply.refused)
        described = (reply.error.get("sky") or {}).get("error") or {}
        hint = mending_line(described, self.namespace, self.cell.line)
        return rebuild_exception(reply.error, reply.rank, self.namespace, hint)

    def _bind_outputs(self, replies: Replies, outputs: Sequence[CellOutput]) -> None:
        """Bind every name that can be bound, then raise the first error of the others."""
        failed: list[SkyError] = []
        for output in outputs:
            try:
                values = [self._output(reply, output) for reply in replies]
            except SkyError as error:
                failed.append(error)
                values = self._handles(replies, output)
            if values:
                self.namespace[output.name] = values[0] if len(values) == 1 else values
        if failed:
            raise failed[0]

    def _bind_made(self, replies: Replies, outputs: Sequence[CellOutput]) -> None:
        """Bind what a cell that failed had made on every engine, as far as it can be sent."""
        made = [each for each in outputs if all(each.name in reply.outputs for reply in replies)]
        with contextlib.suppress(SkyError):  # the error of the cell matters more
            self._bind_outputs(replies, made)

    def _handles(self, replies: Replies, output: CellOutput) -> list[RemoteValue]:
        """Return handles of values that cannot be sent, so that later cells there can use them."""
        cluster, name = self.placement.cluster, output.name
        described = [(reply.rank, reply.outputs[name]) for reply in replies]
        if not all("unpicklable" in each and "ref" in each for _, each in described):
            return []
        return [RemoteValue(cluster, rank, name, each, self.trusted) for rank, each in described]

    def _output(self, reply: Reply, output: CellOutput) -> Any:
        cluster, name, described = self.placement.cluster, output.name, reply.outputs[output.name]
        if described.get("missing"):
            raise SkyUsageError(
                _("-o {name}: the cell has not made a variable {name!r}").format(name=name),
                hint=_("what else it made is still on the cluster: %sky vars"),
            )
        if output.uri:
            from jupyter_sky.execution.files.stored_values import store_value

            reference = RemoteValue(cluster, reply.rank, name, described, self.trusted)
            place = self.placement, reply.rank
            kept = store_value(*place, output, described, self.trusted, self.reporter)
            del reference  # which lets the engine go of its own
            return kept
        if output.keep:
            return RemoteValue(cluster, reply.rank, name, described, self.trusted)
        try:
            self.reporter.announce(name, transfer.wire_size(described), "from")
        except SkyTransferError:
            transfer.release_packed(cluster, reply.rank, described)
            raise
        progress = self.reporter.progress(name)
        return transfer.receive_value(cluster, reply.rank, name, described, progress, self.trusted)

    def _value(self, reply: Reply) -> Any:
        cluster, rank, described = self.placement.cluster, reply.rank, reply.value
        if described is None:
            return None
        if "ref" not in described:
            try:
                return transfer.receive_value(
                    cluster, rank, _RESULT, described, trusted=self.trusted
                )
            except SkyTransferError:  # it stays there, as values that are not sent at all do
                described = cluster.connection.ask_engine(
                    rank, KeepResult(self.cell.number)
                ).described
        return RemoteValue(cluster, rank, _RESULT, described, self.trusted)


# -- Payloads of replies: pages and next inputs that a front end shows beside the outputs ---------
#
# ``len?``, ``%load`` and ``set_next_input`` answer with payloads. They come with the reply of the
# engine and go into the reply of the notebook's own kernel.

SHOWN_SOURCES = frozenset({"page", "set_next_input", "edit_magic"})
"""Payloads that a notebook takes over. Another one, ``ask_exit``, would end its own kernel."""


def filter_payload(payload: Any, trusted: bool) -> list[dict[str, Any]]:
    """Return the parts of an engine's payload that reach the front end.

    A machine that is not trusted can show a page of text or propose an input, which stands in a
    cell of its own: it must not replace one that the user would run again.

    Examples
    --------
    >>> filter_payload([{"source": "set_next_input", "text": "x", "replace": True}], False)
    [{'source': 'set_next_input', 'text': 'x', 'replace': False}]
    """
    received = payload if isinstance(payload, list) else ()
    parts = [part for part in received if isinstance(part, dict)]
    parts = [part for part in parts if str(part.get("source")) in SHOWN_SOURCES]
    if trusted:
        return parts
    return [inert for part in parts if (inert := _inert_part(part)) is not None]


def _inert_part(part: dict[str, Any]) -> dict[str, Any] | None:
    text = part.get("text") if part["source"] == "set_next_input" else page_text(part)
    if not isinstance(text, str):
        return None
    if part["source"] == "set_next_input":
        return {"source": "set_next_input", "text": text, "replace": False}
    return {"source": "page", "start": 0, "data": {"text/plain": text}}


def page_text(part: dict[str, Any]) -> str | None:
    """Return the text of a page; None for other parts of a payload."""
    data = part.get("data") if part.get("source") == "page" else None
    text = data.get("text/plain") if isinstance(data, dict) else None
    return text if isinstance(text, str) else None


def first_payload(payloads: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the payload of the first engine that has one: a front end shows one page."""
    return next((payload for payload in payloads if payload), [])
