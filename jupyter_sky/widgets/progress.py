"""How far calls are: a card with a bar in a notebook, one line in a terminal."""

from __future__ import annotations

import shutil
import uuid
from html import escape
from typing import TYPE_CHECKING, Any, TextIO

from ..quantities import format_elapsed
from ..tables import NO_MATHJAX_CLASSES
from .status_line import _ACTIVE, _BAD, _COLOURS, _GOOD, _LINE, _QUIET

if TYPE_CHECKING:
    from ..functions.progress import GatherProgress

# Stripes, so that what failed and what runs differ from what is done by more than colour.
_FAILED = f"repeating-linear-gradient(45deg, {_BAD} 0 3px, transparent 3px 5px)"
_RUNNING = f"repeating-linear-gradient(90deg, {_ACTIVE} 0 2px, transparent 2px 5px)"
_BAR = (
    "display: flex; height: 7px; max-width: 480px; margin: 3px 8px 3px 0; overflow: hidden; "
    "border: 1px solid var(--jp-border-color0, #808080); border-radius: 3px"
)


def to_text(progress: GatherProgress) -> str:
    """The progress in a line.

    Examples
    --------
    >>> from jupyter_sky.functions.progress import Progress
    >>> to_text(Progress(3, 2, 1, 4, nodes=2, seconds=8, rate=0.5))
    '☁ running 0:08 · 3 of 10 calls done, 1 failed · 2 running on 2 nodes · 4 left · 30 calls/min \
· about 0:12 left (est.)'
    >>> to_text(Progress(10, 0, 0, 0, nodes=2, seconds=20, rate=0.5, stage="done"))
    '☁ done 0:20 · 10 calls done · 30 calls/min on 2 nodes'
    """
    return " · ".join(
        [f"☁ {progress.stage} {format_elapsed(progress.seconds)}", *progress_parts(progress)]
    )


def progress_parts(progress: GatherProgress) -> list[str]:
    """The parts after stage and time."""
    total, whole = f"{progress.total:,}", progress.done == progress.total
    failed = f", {progress.failed:,} failed" if progress.failed else ""
    counted = f"{total} calls" if whole else f"{progress.done:,} of {total} calls"
    parts = [f"{counted} done{failed}"]
    if progress.stage != "running":
        left = progress.running + progress.left
        parts += [f"{left:,} stopped"] if left else []
        pace = format_pace(progress.rate)
        return parts + ([f"{pace}{_on(progress.nodes)}"] if pace and progress.done else [])
    parts.append(f"{progress.running:,} running{_on(progress.nodes)}")
    parts += [f"{progress.left:,} left"] if progress.left else []
    parts += [format_pace(progress.rate)] if progress.rate else []
    if progress.seconds_left is not None:
        parts.append(f"about {format_elapsed(max(1.0, progress.seconds_left))} left (est.)")
    return parts


def format_pace(rate: float | None) -> str:
    """Calls by the second, or by the minute or hour where they are slow.

    Examples
    --------
    >>> format_pace(1234.5), format_pace(2.5), format_pace(0.5), format_pace(0.005), format_pace(None)
    ('1,234 calls/s', '2.5 calls/s', '30 calls/min', '18 calls/h', '')
    """
    if not rate:
        return ""
    units = (("s", rate), ("min", 60 * rate), ("h", 3600 * rate))
    unit, pace = next((pair for pair in units if pair[1] >= 1), units[-1])
    return f"{pace:,.0f} calls/{unit}" if pace >= 10 else f"{pace:.2g} calls/{unit}"


def _on(nodes: int) -> str:
    return f" on {nodes} node{'s' if nodes > 1 else ''}" if nodes else ""


def to_html(progress: GatherProgress) -> str:
    """The progress as a card in the look of the status line; at the end the line alone."""
    shown = "".join(f" · {escape(fact)}" for fact in progress_parts(progress))
    colour = _COLOURS.get(progress.stage, _ACTIVE)
    over = progress.stage != "running"
    # a screen reader hears the end, and the bar's value when it asks
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
    """Shows progress in the outputs of the cell that runs when this is made."""

    def __init__(self, shell: Any) -> None:
        from .cell_display import for_cell

        self._display = for_cell(shell)
        self._id = uuid.uuid4().hex
        self._shown: dict[str, str] = {}

    def __call__(self, progress: GatherProgress) -> None:
        bundle = {"text/html": to_html(progress), "text/plain": to_text(progress)}
        if bundle == self._shown:
            return
        kind = "update_display_data" if self._shown else "display_data"
        self._shown = bundle
        transient = {"display_id": self._id}
        self._display.send(kind, {"data": bundle, "metadata": {}, "transient": transient})


class ProgressLine:
    """Shows progress in one line of a terminal that is written over, and ends it at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, progress: GatherProgress) -> None:
        text, width = to_text(progress), shutil.get_terminal_size().columns - 1
        text = text if len(text) <= width else f"{text[: width - 1]}…"
        end = "" if progress.stage == "running" else "\n"
        self._stream.write(f"\r\x1b[K{text}{end}")
        self._stream.flush()
