"""Log of a run: text that a notebook shows as a view with search."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.tables import NO_MATHJAX_CLASSES, view_bundle
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import RunRow
    from jupyter_sky.execution.cells.run_history import RunHistory

SHOWN_LINES = 200
"""Lines at the end of a log that a saved notebook holds."""

_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_TEXT = (
    "max-height: 420px; overflow: auto; margin: 0; padding: 4px 8px; white-space: pre-wrap; "
    "color: var(--jp-ui-font-color1, inherit); background: none; "
    "border: 1px solid rgba(128, 128, 128, 0.35); "
    "font-family: var(--jp-code-font-family, monospace); font-size: var(--jp-code-font-size, 12px)"
)
_NOTE = "opacity: 0.8; font-size: 0.92em; padding: 2px 8px"


class Log(str):
    """Text that a run had printed when the log was read.

    As the last value of a cell it is a view that follows the run, with search, times, and the
    nodes side by side.

    Examples
    --------
    >>> log = sky.logs(7)  # doctest: +SKIP
    >>> "loss" in log  # doctest: +SKIP
    True
    """

    __slots__ = ("caption", "history", "run")
    run: RunRow
    history: RunHistory
    caption: str

    @classmethod
    def of(cls, history: RunHistory, run: RunRow) -> Log:
        """Read the log of a run."""
        log = cls(history.log_text(run.run_id))
        log.history, log.run = history, run
        log.caption = _("log of {name}").format(name=run.label)
        return log

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        for at, line in enumerate(self.splitlines()):
            if at:
                printer.break_()
            printer.text(line)

    def _repr_html_(self) -> str:
        return static_html(self, self.caption, self.run.name or str(self.run.cell))

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return view_bundle(Log.view, self, **kwargs)

    def view(self) -> Any:
        """Return this log as a widget, which can be part of other widgets."""
        from jupyter_sky.interfaces.widgets.view import View

        state = {"run_id": self.run.run_id, "title": self.caption}
        return View("logs", {"log": self._answer}, self._static, state)

    def _static(self) -> tuple[str, str]:
        return self._repr_html_(), str(self)

    def _answer(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the lines from an entry number on, and the stage of the run."""
        run = self.history.store.run(self.run.run_id) or self.run
        entries, following = self.history.read_journal(run.run_id, int(payload.get("since", 0)))
        about = {"stage": run.stage or run.status, "started": run.started, "ended": run.ended}
        return {"lines": format_entries(entries), "next": following, "run": about}


def format_entries(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return entries of a journal as text with its node, its stream and its time.

    Examples
    --------
    >>> format_entries([{"time": 5.0, "rank": 1, "type": "stream", "content": {"name": "stderr",
    ...                  "text": "careful"}}])
    [{'rank': 1, 'stream': 'stderr', 'text': 'careful', 'at': 5.0}]
    """
    found = []
    for entry in entries:
        content, stream = entry["content"], "stdout"
        if entry["type"] == "stream":
            stream, text = content["name"], content["text"]
        elif entry["type"] == "error":
            stream, text = "error", "\n".join([*content.get("traceback", []), ""])
        else:
            text = content.get("data", {}).get("text/plain", "")
            text = text and f"{text}\n"
        if text:
            line = {"rank": entry["rank"], "stream": stream, "text": text, "at": entry["time"]}
            found.append(line)
    return found


def static_html(text: str, title: str, which: str) -> str:
    """Return the end of a log as static HTML."""
    lines = [line.rpartition("\r")[2] for line in _ANSI.sub("", text).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    left = len(lines) - SHOWN_LINES
    note = f"{title}: the last {SHOWN_LINES} of {len(lines):,} lines; all: %sky logs {which}"
    body = "\n".join(map(escape, lines[-SHOWN_LINES:])) or _("nothing was printed")
    head = escape(note if left > 0 else title)
    return (
        f'<div class="{NO_MATHJAX_CLASSES}"><div style="{_NOTE}">{head}</div>'
        f'<pre tabindex="0" aria-label="{escape(title)}" style="{_TEXT}">{body}</pre></div>'
    )
