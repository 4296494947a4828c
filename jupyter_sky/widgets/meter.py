"""A live view of the status line."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .statusline import Status, mimebundle

if TYPE_CHECKING:
    from ipywidgets import HTML

_log = logging.getLogger(__name__)
_EMPTY = {"text/html": "", "text/plain": ""}


class CostMeter:
    """A widget that shows what `read` returns, every `period` seconds until it is closed.

    Besides the widget it displays the static forms of the status, for where the widget's model is
    not: in saved notebooks, on paper and in a terminal. Make one by `cost_meter`.

    Attributes
    ----------
    widget : ipywidgets.HTML
        The view, to be put into other widgets.
    """

    def __init__(self, widget: HTML, read: Callable[[], Status | None], period: float) -> None:
        self.widget = widget
        self._read = read
        self._period = period
        self._bundle = _EMPTY
        self._display_id: str | None = None
        self._closed = threading.Event()
        self._refresh()
        self._thread = threading.Thread(target=self._run, name="sky-cost-meter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop updating; the last status stays in view, as static HTML."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._thread.join(timeout=self._period + 1)
        if self._display_id:
            # JupyterLab prefers a widget even when its model is gone, and then shows an error.
            self._display(self._bundle, update=True)

    def _run(self) -> None:
        while not self._closed.wait(self._period):
            self._refresh()

    def _refresh(self) -> None:
        try:
            status = self._read()
            self._bundle = mimebundle(status) if status else _EMPTY
            self.widget.value = self._bundle["text/html"]
        except Exception:  # a store that is locked for a moment must not end the meter
            _log.debug("the cost meter could not be updated", exc_info=True)

    def _display(self, bundle: dict[str, Any], update: bool = False) -> None:
        from IPython.display import display

        display(bundle, raw=True, display_id=self._display_id, update=update)

    def _ipython_display_(self) -> None:
        self._display_id = self._display_id or secrets.token_hex(8)
        self._display(self._repr_mimebundle_())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {**(self.widget._repr_mimebundle_() or {}), **self._bundle}


def cost_meter(read: Callable[[], Status | None], period: float = 1.0) -> CostMeter:
    """Start a live view of a status.

    Parameters
    ----------
    read : callable
        Gives the status to show, or None to show nothing. Called in a thread of its own.
    period : float
        Seconds between two updates.

    Examples
    --------
    >>> meter = cost_meter(lambda: current_status())  # doctest: +SKIP
    >>> meter.close()  # doctest: +SKIP
    """
    from ipywidgets import HTML

    return CostMeter(HTML(), read, period)
