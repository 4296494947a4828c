"""Outputs on their way from engines to the cell: in order, at linear cost, capped on screen.

Native messages are passed on one by one. Consecutive pieces of text are joined for at most
`BATCH_SECONDS`, so that four thousand flushed lines are a hundred messages, not four thousand.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from jupyter_sky.base.store.store import Store
from jupyter_sky.base.translation import _
from jupyter_sky.execution.display import Display, WrappedDisplay
from jupyter_sky.machines.engines.wire.messages import PROGRESS_MESSAGE, RECORDED_TYPES

BATCH_SECONDS = 0.05
BATCH_BYTES = 64 * 1024
RESULT_HOLD_SECONDS = 0.25
"""Delay of the first text of a cell on several engines, to see whether others print."""

_LINE_ENDS = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")

_log = logging.getLogger(__name__)
_SHOWN = RECORDED_TYPES - {"stream"}


class Relay:
    """Relay of one cell's messages from its engines to its display.

    Attributes
    ----------
    shown : int
        Number of messages that have been shown.
    progress : str
        What its engines have told last of what they wait for.

    Parameters
    ----------
    display
        Display of the cell.
    ranks
        The engines that run the cell. When more than one of them prints, each line of text says
        which: ``[1] loss 0.3``; so do results when there are several.
    cap
        Most bytes of text shown; the first and the last half of them are.
    where
        Command that shows everything, such as ``%sky logs 7``.
    shows_final_error
        Whether the exception that ends the cell is shown; if not, whoever receives it shows it.
    advise
        Gives the advice to the user that stands below an error, for its origin.
    """

    def __init__(
        self,
        display: Display,
        ranks: Sequence[int],
        cap: int,
        where: str,
        shows_final_error: bool = False,
        advise: Callable[[Mapping[str, Any]], str] = lambda origin: "",
    ) -> None:
        self.display, self.cap, self.where = display, cap, where
        self.is_multi_rank, self.shows_final_error = len(ranks) > 1, shows_final_error
        self.shown = 0
        self.progress = ""
        self._advise = advise
        self._results: dict[int, dict[str, Any]] = {}
        self._errors: dict[int, dict[str, Any]] = {}
        self._printed: set[int] = set()
        self._open_line: dict[str, int] = {}
        self._buffer: list[tuple[int, str, str]] = []
        self._buffer_bytes = 0
        self._sent = 0
        self._total = 0
        self._cut = False
        self._tail: deque[tuple[str, str]] = deque()
        self._tail_bytes = 0
        self._first: float | None = None
        self._last_flush = 0.0
        self._timer: threading.Timer | None = None
        self._lock = threading.RLock()
        self._held: list[tuple[int, str, Any, dict[str, Any]]] | None = []

    def release(self) -> None:
        """Begin to show messages, once the status line stands above them."""
        with self._lock:
            held, self._held = self._held, None
            for rank, engine, client, message in held or ():
                self._receive(rank, engine, client, message)

    def holds_widgets(self) -> bool:
        """Return whether messages of widgets wait for the status line."""
        with self._lock:
            kinds = (message["header"]["msg_type"] for *_, message in self._held or ())
            return any(kind.startswith("comm_") for kind in kinds)

    def hide_final_error(self) -> None:
        """Show no exception that ends the cell from now on: it is stopped for another reason."""
        with self._lock:
            self.shows_final_error = False

    def engine_receiver(
        self, rank: int, engine: str, client: Any
    ) -> Callable[[dict[str, Any]], None]:
        """Return the receiver of one engine's messages."""

        def receive(message: dict[str, Any]) -> None:
            try:
                self._receive(rank, engine, client, message)
            except Exception:  # a message that cannot be shown must not end the connection
                _log.exception("a message of a cell could not be shown")

        return receive

    def _receive(self, rank: int, engine: str, client: Any, message: dict[str, Any]) -> None:
        kind = message["header"]["msg_type"]
        with self._lock:
            if self._held is not None:
                self._held.append((rank, engine, client, message))
                return
            if kind in RECORDED_TYPES:
                self.shown += 1
            if kind == "stream":
                self._buffer_text(rank, message["content"]["name"], message["content"]["text"])
            elif kind in _SHOWN:
                self.flush()
                if kind == "execute_result" and self.is_multi_rank:
                    self._results[rank] = message  # until the others have theirs
                elif kind == "error" and self._is_held_error(message):
                    self._errors[rank] = message
                else:
                    self._forward(message)
            elif kind == PROGRESS_MESSAGE:
                self.progress = message["content"]["text"]
            elif kind.startswith("comm_"):
                self.flush()
                self.display.comm(message, engine, client)

    def _is_held_error(self, message: dict[str, Any]) -> bool:
        """Return whether an error ends the cell and is not shown, or only that of one engine."""
        is_final = bool(_facts(message).get("final"))
        return is_final and (self.is_multi_rank or not self.shows_final_error)

    def _forward(self, message: dict[str, Any]) -> None:
        kind, content = message["header"]["msg_type"], message["content"]
        metadata = message["metadata"]
        if kind == "error":
            advice = self._advice(_facts(message).get("error"))
            lines = [*content["traceback"], advice] if advice else content["traceback"]
            content, metadata = {**content, "traceback": lines}, {}
        self.display.send(kind, content, metadata, message.get("buffers"))

    def _advice(self, origin: Any) -> str:
        try:
            return self._advise(origin) if isinstance(origin, Mapping) else ""
        except Exception:  # the error matters more than its advice
            _log.exception("no advice could be given on an error")
            return ""

    def _show_error(self) -> None:
        """Show the exception of the first of several engines, as the cell raises it."""
        errors, self._errors = self._errors, {}
        if errors and self.shows_final_error:
            self._forward(errors[min(errors)])

    def _show_results(self) -> None:
        """Show the results of several engines by rank, each with its rank."""
        results, self._results = sorted(self._results.items()), {}
        for rank, message in results:
            content = message["content"]
            if len(results) > 1 and set(content["data"]) == {"text/plain"}:
                text = content["data"]["text/plain"]
                gap = "\n" if "\n" in text else " "
                content["data"] = {"text/plain": f"[{rank}]{gap}{text}"}
            elif len(results) > 1:
                self._show("stdout", f"[{rank}]\n")
            self._forward(message)

    def replay(self, entries: Sequence[dict[str, Any]]) -> None:
        """Show entries of the journal."""
        self.release()
        with self._lock:
            for entry in entries:
                if entry["type"] == "stream":
                    content = entry["content"]
                    self._buffer_text(entry["rank"], content["name"], content["text"])
                elif entry["type"] == "error":
                    self.flush()
                    text = "\n".join(entry["content"].get("traceback", []))
                    self._show("stderr", text + "\n")
                else:
                    self.flush()
                    kind = entry["type"].replace("execute_result", "display_data")
                    content = dict(entry["content"])
                    content.pop("execution_count", None)
                    self.display.send(kind, content, {}, None)
            self.flush()

    # -- text ------------------------------------------------------------------------------

    def _buffer_text(self, rank: int, name: str, text: str) -> None:
        self._printed.add(rank)
        self._buffer.append((rank, name, text))
        self._buffer_bytes += len(text)
        now = time.monotonic()
        if self._first is None:
            self._first = now
        held = (
            self.is_multi_rank
            and len(self._printed) == 1
            and now - self._first < RESULT_HOLD_SECONDS
        )
        due = now - self._last_flush > BATCH_SECONDS or self._buffer_bytes > BATCH_BYTES
        if due and not held:
            self.flush()
        elif self._timer is None:
            wait = RESULT_HOLD_SECONDS if held else BATCH_SECONDS
            self._timer = threading.Timer(wait, self._on_timer)
            self._timer.daemon = True
            self._timer.start()

    def _on_timer(self) -> None:
        with self._lock:
            self._timer = None
            self.flush()

    def flush(self) -> None:
        """Show the text gathered so far."""
        with self._lock:
            self._last_flush = time.monotonic()
            gathered, self._buffer, self._buffer_bytes = self._buffer, [], 0
            joined: list[tuple[str, list[str]]] = []
            for rank, name, text in gathered:
                if self.is_multi_rank:
                    text = self._prefixed(rank, name, text)
                if joined and joined[-1][0] == name:
                    joined[-1][1].append(text)
                else:
                    joined.append((name, [text]))
            for name, parts in joined:
                self._show(name, "".join(parts))

    def _prefixed(self, rank: int, name: str, text: str) -> str:
        """Begin each line with the rank of its engine, once several print."""
        continued = self._open_line.pop(name, None)
        if not text.endswith(("\n", "\r")):
            self._open_line[name] = rank
        if len(self._printed) < 2:
            return text
        lines = [line for line in _LINE_ENDS.split(text) if line]
        own = continued == rank
        prefixed = [
            line if line == "\r" or (own and not i) else f"[{rank}] {line}"
            for i, line in enumerate(lines)
        ]
        # another's line is ended; but one that is being drawn over and over stays where it is
        cut = continued not in (None, rank) and not text.startswith(("\n", "\r"))
        return "".join(["\n" if cut else "", *prefixed])

    def _show(self, name: str, text: str) -> None:
        """Send text while there is room for it; keep its end once there is not."""
        half = self.cap // 2
        self._total += len(text)
        head, rest = text[: half - self._sent], text[half - self._sent :]
        self._sent += len(head)
        if head:
            self.display.send("stream", {"name": name, "text": head})
        if rest and not self._cut:
            self._cut = True
            note = _("\n… more than {cap:.1f} MB: the end will be shown when it ends").format(
                cap=self.cap / 2e6
            )
            self.display.send("stream", {"name": "stderr", "text": f"{note} ({self.where})\n"})
        for start in range(max(len(rest) - half, 0), len(rest), BATCH_BYTES):
            piece = rest[start : start + BATCH_BYTES]
            self._tail.append((name, piece))
            self._tail_bytes += len(piece)
            while self._tail and self._tail_bytes - len(self._tail[0][1]) >= half:
                self._tail_bytes -= len(self._tail.popleft()[1])

    def finish(self) -> None:
        """Show the remaining messages, at the end of the cell."""
        self.release()
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self.flush()
            self._show_results()
            self._show_tail()
            self._show_error()

    def _show_tail(self) -> None:
        skipped = self._total - self._sent - self._tail_bytes
        if skipped > 0:
            note = f"\n… {skipped / 1e6:.1f} MB left out; everything: {self.where} …\n"
            self.display.send("stream", {"name": "stderr", "text": note})
        for name, pieces in groupby(self._tail, itemgetter(0)):
            text = "".join(piece for __, piece in pieces)
            self.display.send("stream", {"name": name, "text": text})
        self._tail.clear()
        # what threads print from now on has a cap of its own
        self._sent = self._total = self._tail_bytes = 0
        self._cut = False


def _facts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the facts about an error that its engine has put into the metadata."""
    facts = message["metadata"].get("sky")
    return facts if isinstance(facts, Mapping) else {}


# -- Outputs of machines that are not trusted: text and pictures, nothing that acts in a ----------
#
# Jupyter trusts what a cell has just shown, so HTML and JavaScript of a machine would act in the
# page with the rights of its user. Widgets, HTML, SVG and all other kinds are left out; their plain
# text stays.

INERT_MIME_TYPES = frozenset({"text/plain", "image/png", "image/jpeg", "image/gif"})
"""Kinds of output that a front end only draws."""
_NOTE = "untrusted-run:"


def filter_output(content: Any) -> dict[str, Any]:
    """Return the part of an output that only shows.

    Examples
    --------
    >>> filter_output({"data": {"text/html": "<script>", "text/plain": "5"}, "transient": {"a": 1}})
    {'data': {'text/plain': '5'}, 'metadata': {}}
    """
    data = content.get("data") if isinstance(content, Mapping) else None
    if not isinstance(data, Mapping):
        data = {}
    return {
        "data": {kind: str(value) for kind, value in data.items() if kind in INERT_MIME_TYPES},
        "metadata": {},
    }


class InertDisplay(WrappedDisplay):
    """Display of a cell that filters the outputs of a machine that is not trusted.

    Its payloads were reduced by `filter_payload`.

    Parameters
    ----------
    display
        Display of the cell.
    run
        The run whose outputs they are; only its own may be replaced.
    """

    def __init__(self, display: Display, run: str) -> None:
        super().__init__(display)
        self.run = run

    def send(
        self,
        kind: str,
        content: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        buffers: list[Any] | None = None,
    ) -> None:
        """Show text and pictures."""
        if kind == "stream":
            name = "stderr" if content.get("name") == "stderr" else "stdout"
            self.display.send(kind, {"name": name, "text": str(content.get("text", ""))})
        elif kind == "clear_output":
            self.display.send(kind, {"wait": bool(content.get("wait"))})
        elif kind == "error":
            self.display.send(kind, _error_text(content))
        elif kind in ("display_data", "update_display_data", "execute_result"):
            shown = filter_output(content)
            transient = content.get("transient")
            if isinstance(transient, Mapping) and "display_id" in transient:
                shown["transient"] = {"display_id": f"{self.run}-{transient['display_id']}"}
            if "execution_count" in content:
                shown["execution_count"] = content["execution_count"]
            self.display.send(kind, shown, {})

    def comm(self, message: dict[str, Any], engine: str, client: Any) -> None:
        """Leave out widgets: their state comes from the machine."""

    def share_widgets(self, models: Iterable[str], engine: str, client: Any) -> None:
        """Leave widgets of the notebook as they are: the engine has copies."""


def _error_text(content: Mapping[str, Any]) -> dict[str, Any]:
    lines = content.get("traceback")
    return {
        "ename": str(content.get("ename", "")),
        "evalue": str(content.get("evalue", "")),
        "traceback": [str(line) for line in lines] if isinstance(lines, list) else [],
    }


def mark_untrusted(store: Store, run: str) -> None:
    """Record for all processes that the outputs of a run are only text and pictures."""
    store.set_setting(_NOTE + run, "1")


def is_untrusted(store: Store, run: str) -> bool:
    """Return whether a run was on a machine that is not trusted."""
    return store.setting(_NOTE + run) is not None


def filter_entries(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return entries of a journal with text and pictures alone."""
    found = []
    for entry in entries:
        if entry.get("type") in ("display_data", "update_display_data", "execute_result"):
            transient = (entry.get("content") or {}).get("transient") or {}
            name = {"transient": {"display_id": str(transient.get("display_id", ""))}}
            content = filter_output(entry.get("content")) | (name if transient else {})
            entry = {**entry, "content": content}
        found.append(entry)
    return found
