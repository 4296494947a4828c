"""Progress of calls as a card with a bar in a notebook."""

from __future__ import annotations

import uuid
from html import escape
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.requests.quantities import format_elapsed
from jupyter_sky.base.tables import NO_MATHJAX_CLASSES
from jupyter_sky.execution.functions.calls.progress import progress_parts, to_text
from jupyter_sky.interfaces.widgets.status_line import _ACTIVE, _BAD, _COLOURS, _GOOD, _LINE, _QUIET

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.progress import GatherProgress

# Stripes, so that what failed and what runs differ from what is done by more than colour.
_FAILED = f"repeating-linear-gradient(45deg, {_BAD} 0 3px, transparent 3px 5px)"
_RUNNING = f"repeating-linear-gradient(90deg, {_ACTIVE} 0 2px, transparent 2px 5px)"
_BAR = (
    "display: flex; height: 7px; max-width: 480px; margin: 3px 8px 3px 0; overflow: hidden; "
    "border: 1px solid var(--jp-border-color0, #808080); border-radius: 3px"
)


def to_html(progress: GatherProgress) -> str:
    """Return the progress as a card with a bar; at the end the line alone."""
    shown = "".join(f" · {escape(fact)}" for fact in progress_parts(progress))
    colour = _COLOURS.get(progress.stage, _ACTIVE)
    over = progress.stage != "running"
    # a screen reader announces the end, and the bar's value on demand
    return (
        f'<div class="{NO_MATHJAX_CLASSES}" style="{_LINE}"{" role=status" if over else ""}>'
        f'<span aria-hidden="true" style="color: {colour}">●</span> '
        f"<b>{escape(progress.stage)}</b> {format_elapsed(progress.seconds)}"
        f'<span style="{_QUIET}">{shown}</span>{"" if over else _bar(progress)}</div>'
    )


def _bar(progress: GatherProgress) -> str:
    total = max(progress.total, 1)
    said = ", ".join(progress_parts(progress)[:3])
    parts = ((progress.done, _GOOD), (progress.failed, _FAILED), (progress.running, _RUNNING))
    shown = "".join(
        f'<span style="width: {100 * count / total:.2f}%; min-width: 2px; '
        f'background: {fill}"></span>'
        for count, fill in parts
        if count
    )
    return (
        f'<div role="progressbar" aria-label="calls" aria-valuemin="0" '
        f'aria-valuemax="{progress.total}" aria-valuenow="{progress.ended}" '
        f'aria-valuetext="{escape(said)}" style="{_BAR}">{shown}</div>'
    )


class ProgressCard:
    """Progress card in the outputs of the cell that runs when the object is made."""

    def __init__(self, shell: Any) -> None:
        from jupyter_sky.interfaces.widgets.cell_display import for_cards

        self._display = for_cards(shell)
        self._id = uuid.uuid4().hex
        self._shown: dict[str, str] = {}

    def __call__(self, progress: GatherProgress) -> None:
        """Show or replace the card."""
        bundle = {"text/html": to_html(progress), "text/plain": to_text(progress)}
        if bundle == self._shown:
            return
        kind = "update_display_data" if self._shown else "display_data"
        self._shown = bundle
        transient = {"display_id": self._id}
        self._display.send(kind, {"data": bundle, "metadata": {}, "transient": transient})
