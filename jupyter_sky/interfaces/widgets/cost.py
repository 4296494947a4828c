"""Cost report in a notebook: live with widgets, static with its time elsewhere."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.tables import NO_MATHJAX_CLASSES, TABLE, Table
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.ledger import budget
from jupyter_sky.knowledge.ledger.ledger import By
from jupyter_sky.knowledge.ledger.report import CostReport, parse_by, text_row

if TYPE_CHECKING:
    from pandas import DataFrame

    from jupyter_sky.interfaces.widgets.view import View

_log = logging.getLogger(__name__)

PERIOD_SECONDS = 5.0
"""Period of the check for new figures [s]."""
REFRESH_SECONDS = 60.0
"""Period after which a view gets figures even without changes [s]; between, it extrapolates."""
MAX_CPU_SHARE = 0.004
"""Largest share of a core that the updates of all views may take."""
MAX_LIVE_VIEWS = 8
"""Views that are kept up to date: of more than that the oldest ones keep their figures."""

Read = Callable[[By, str], CostReport]
"""Make a report by a grouping, since a time that `knowledge.ledger.report.parse_since` reads."""
_QUIET = "opacity: 0.72"


class Cost:
    """Cost report: spending so far, current rate, forecast and savings.

    The report is a table of spending with the totals above and notes below; it is live in a
    notebook.

    Attributes
    ----------
    bill : CostReport
        Figures as of the last update.
    table : Table
        Spending by cell, cluster, day or another grouping.

    Examples
    --------
    >>> sky.cost(by="day", since="30d").to_csv("costs.csv")  # doctest: +SKIP
    """

    def __init__(
        self,
        read: Read,
        set_budget: Callable[[float | None], None],
        signature: Callable[[], object] = time.time,
        by: By = "cell",
        since: str = "all",
        compact: bool = False,
    ) -> None:
        self.bill, self.compact = read(by, since), compact
        self._read, self._set_budget, self._since = read, set_budget, since
        self._signature, self._known, self._made = signature, signature(), time.monotonic()
        self._view: View | None = None
        self._display_id = ""

    @property
    def table(self) -> Table:
        """Spending by the grouping of the report."""
        by = self.bill.by
        return Table(
            _("Cost by {by}").format(by=by),
            (by, "time", "price", "cost", _("price from")),
            tuple(map(text_row, self.bill.lines)),
            empty=_("nothing has run yet"),
        )

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.bill.lines)

    def to_dicts(self) -> list[dict[str, object]]:
        """Return each line as a dict from column to text."""
        return self.table.to_dicts()

    def to_pandas(self) -> DataFrame:
        """Return all lines as a DataFrame: timestamps, amounts in USD, NaN where unknown."""
        from pandas import DataFrame, to_datetime

        names = "what started ended seconds price usd estimated source date".split()
        rows = [[getattr(line, name) for name in names] for line in self.bill.lines]
        frame = DataFrame(rows, columns=[self.bill.by, *names[1:]])
        for name in ("started", "ended"):
            frame[name] = to_datetime(frame[name].astype(float), unit="s", utc=True)
        return frame.astype({"seconds": float, "price": float, "usd": float})

    def to_csv(self, path: str | Path | None = None) -> str | None:
        """Return all lines as CSV text, or write them to a file.

        Raises
        ------
        SkyUsageError
            The file cannot be written.
        """
        text = self.bill.to_csv()
        if path is None:
            return text
        try:
            Path(path).expanduser().write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            raise SkyUsageError(
                _("{path}: cannot be written: {strerror}").format(
                    path=path, strerror=error.strerror or error
                )
            ) from error
        return None

    # -- static forms ------------------------------------------------------------------------

    def __str__(self) -> str:
        facts = [f"{name}: {text}" for name, text in self.bill.headline]
        if self.compact:
            return f"☁ {' · '.join(facts)}"
        return "\n".join(["Cost", *facts, "", str(self.table), "", *self.bill.notes])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        facts = self.bill.headline
        if self.compact:
            words = " · ".join(f"{escape(name)} <b>{escape(text)}</b>" for name, text in facts)
            return f'<div class="{NO_MATHJAX_CLASSES}" role="status" style="{TABLE}">{words}</div>'
        rows = "".join(
            f'<tr style="background: none"><th scope="row" style="padding: 1px 8px; text-align: '
            f'left; font-weight: 400; background: none">{escape(name)}</th><td style="padding: '
            f'1px 8px; text-align: left; background: none"><b>{escape(text)}</b></td></tr>'
            for name, text in facts
        )
        notes = "".join(f"<div>{escape(note)}</div>" for note in self.bill.notes)
        return (
            f'<table class="{NO_MATHJAX_CLASSES}" style="{TABLE}"><tbody>{rows}</tbody></table>'
            f"{self.table._repr_html_()}"
            f'<div class="{NO_MATHJAX_CLASSES}" '
            f'style="{TABLE}; {_QUIET}; padding: 2px 8px">{notes}</div>'
        )

    # -- live --------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop updating; the figures stay visible as static HTML."""
        if self._view is None:
            return
        _ticker.drop(self)
        self._view, view = None, self._view
        if self._display_id:
            # JupyterLab prefers a widget even when its model is gone, and then shows an error.
            static = {"text/html": self._repr_html_(), "text/plain": str(self)}
            _display(static, self._display_id, update=True)
        view.close()

    def _ipython_display_(self) -> None:
        from IPython import get_ipython  # type: ignore[attr-defined]

        static = {"text/html": self._repr_html_(), "text/plain": str(self)}
        if getattr(get_ipython(), "kernel", None) is None:
            _display(static)
            return
        self._display_id = self._display_id or secrets.token_hex(8)
        if self._view is None:
            self._view = self._live()
            _ticker.add(self)
        bundle, metadata = self._view._repr_mimebundle_()
        _display(bundle, self._display_id, metadata=metadata)

    def _live(self) -> View:
        from jupyter_sky.interfaces.widgets.view import View

        answers = {
            "bill": self._answer_bill,
            "csv": self._answer_csv,
            "budget": self._answer_budget,
        }
        static = lambda: (self._repr_html_(), str(self))  # noqa: E731
        return View("cost", answers, static, self._state())

    def _state(self) -> dict[str, Any]:
        return {"compact": self.compact, "since": self._since, "bill": self.bill.to_dict()}

    def refresh(self) -> None:
        """Update the view if the figures have changed."""
        signature, now = self._signature(), time.monotonic()
        if signature == self._known and now - self._made < REFRESH_SECONDS:
            return
        self._known, self._made = signature, now
        self.bill = self._read(self.bill.by, self._since)
        if self._view is not None:
            self._view.state = self._state()

    def _answer_bill(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the report for the grouping and the time that the view asks for."""
        self.bill, self._since = self._read_bill(payload), str(payload.get("since") or "all")
        return self.bill.to_dict()

    def _answer_csv(self, payload: dict[str, Any]) -> dict[str, Any]:
        bill = self._read_bill(payload)
        return {"text": bill.to_csv(), "name": bill.file_name}

    def _answer_budget(self, payload: dict[str, Any]) -> dict[str, Any]:
        self._set_budget(budget.parse_budget(payload))
        return self._answer_bill(payload)

    def _read_bill(self, payload: dict[str, Any]) -> CostReport:
        by = parse_by(str(payload.get("by") or self.bill.by))
        return self._read(by, str(payload.get("since") or "all"))


class _Ticker:
    """Thread that updates all live views of a process with a bounded share of a core."""

    def __init__(self) -> None:
        self._shown: list[Cost] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, cost: Cost) -> None:
        """Update a view from now on; the oldest view beyond `MAX_LIVE_VIEWS` is updated no more."""
        with self._lock:
            self._shown = [*self._shown, cost][-MAX_LIVE_VIEWS:]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sky-cost", daemon=True)
                self._thread.start()

    def drop(self, cost: Cost) -> None:
        """Update a view no longer."""
        with self._lock:
            self._shown = [one for one in self._shown if one is not cost]

    def _run(self) -> None:
        wait = PERIOD_SECONDS
        while True:
            time.sleep(wait)
            with self._lock:
                shown = list(self._shown)
                if not shown:
                    self._thread = None
                    return
            begun = time.thread_time()
            for cost in shown:
                try:
                    cost.refresh()
                except Exception:  # a store that is locked for a moment must not end the thread
                    _log.debug("a view of costs could not be updated", exc_info=True)
            took = time.thread_time() - begun
            wait = max(PERIOD_SECONDS, took / MAX_CPU_SHARE)


_ticker = _Ticker()


def _display(
    bundle: dict[str, Any],
    display_id: str | None = None,
    metadata: dict[str, Any] | None = None,
    update: bool = False,
) -> None:
    from IPython.display import display

    display(bundle, raw=True, metadata=metadata, display_id=display_id, update=update)
