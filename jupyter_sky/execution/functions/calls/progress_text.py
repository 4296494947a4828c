"""Progress of calls as text: one line, rewritten in a terminal, updated in a notebook."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING, TextIO

from jupyter_sky.base.requests.quantities import format_elapsed
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.progress import GatherProgress


def to_text(progress: GatherProgress) -> str:
    """Return the progress in a line.

    Examples
    --------
    >>> from jupyter_sky.execution.functions.calls.progress import GatherProgress
    >>> to_text(GatherProgress(3, 2, 1, 4, nodes=2, seconds=8, rate=0.5))
    '☁ running 8.0 s · 3 of 10 calls done, 1 failed · 2 running on 2 nodes · 4 left · 30 calls/min \
· about 0:12 left (est.)'
    >>> to_text(GatherProgress(10, 0, 0, 0, nodes=2, seconds=20, rate=0.5, stage="done"))
    '☁ done 0:20 · 10 calls done · 30 calls/min on 2 nodes'
    """
    return " · ".join(
        [f"☁ {progress.stage} {format_elapsed(progress.seconds)}", *progress_parts(progress)]
    )


def progress_parts(progress: GatherProgress) -> list[str]:
    """Return the parts after stage and time."""
    total, whole = f"{progress.total:,}", progress.done == progress.total
    failed = _(", {failed:,} failed").format(failed=progress.failed) if progress.failed else ""
    counted = (
        _("{total} calls").format(total=total)
        if whole
        else _("{done:,} of {total} calls").format(done=progress.done, total=total)
    )
    parts = [_("{counted} done{failed}").format(counted=counted, failed=failed)]
    if progress.stage != "running":
        left = progress.running + progress.left
        parts += [_("{left:,} stopped").format(left=left)] if left else []
        pace = format_pace(progress.rate)
        return parts + ([f"{pace}{_on(progress.nodes)}"] if pace and progress.done else [])
    parts.append(
        _("{running:,} running{nodes}").format(running=progress.running, nodes=_on(progress.nodes))
    )
    parts += [_("{left:,} left").format(left=progress.left)] if progress.left else []
    parts += [format_pace(progress.rate)] if progress.rate else []
    if progress.seconds_left is not None:
        parts.append(f"about {format_elapsed(max(1.0, progress.seconds_left))} left (est.)")
    return parts


def format_pace(rate: float | None) -> str:
    """Format a rate [calls/s] per second, or per minute or hour if it is slow.

    Examples
    --------
    >>> [format_pace(rate) for rate in (1234.5, 2.5, 0.5, 0.005, None)]
    ['1,234 calls/s', '2.5 calls/s', '30 calls/min', '18 calls/h', '']
    """
    if not rate:
        return ""
    units = (("s", rate), ("min", 60 * rate), ("h", 3600 * rate))
    unit, pace = next((pair for pair in units if pair[1] >= 1), units[-1])
    return (
        _("{pace:,.0f} calls/{unit}").format(pace=pace, unit=unit)
        if pace >= 10
        else _("{pace:.2g} calls/{unit}").format(pace=pace, unit=unit)
    )


def _on(nodes: int) -> str:
    return f" on {nodes} node{'s' if nodes > 1 else ''}" if nodes else ""


class ProgressLine:
    """Progress in one line of a terminal, rewritten until the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, progress: GatherProgress) -> None:
        """Rewrite the line; end it after the last progress."""
        text, width = to_text(progress), shutil.get_terminal_size().columns - 1
        text = text if len(text) <= width else f"{text[: width - 1]}…"
        end = "" if progress.stage == "running" else "\n"
        self._stream.write(f"\r\x1b[K{text}{end}")
        self._stream.flush()


class ProgressOutput:
    """Progress as text in the outputs of a cell, for kernels without the extension."""

    def __init__(self) -> None:
        self._id, self._shown = uuid.uuid4().hex, ""

    def __call__(self, progress: GatherProgress) -> None:
        """Show or replace the line."""
        from IPython.display import display

        text = to_text(progress)
        if text != self._shown:
            data, update = {"text/plain": text}, bool(self._shown)
            self._shown = text
            display(data, raw=True, display_id=self._id, update=update)
