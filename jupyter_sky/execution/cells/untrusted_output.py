"""Outputs of machines that are not trusted: text and pictures, nothing that acts in a browser.

Jupyter trusts what a cell has just shown, so HTML and JavaScript of a machine would act in the page
with the rights of its user. Widgets, HTML, SVG and all other kinds are left out; their plain text
stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_sky.base.store.store import Store
from jupyter_sky.execution.display import Display, WrappedDisplay

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
