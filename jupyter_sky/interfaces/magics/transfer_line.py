"""Line that shows how far a transfer of files is, and the sentences that say what has come."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from jupyter_sky.base.requests.quantities import format_duration
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.fetching import FetchedPaths, FetchedValue
from jupyter_sky.execution.files.file_targets import join_names
from jupyter_sky.execution.files.transfer_progress import format_size

FIRST_SECONDS = 1.0
"""Quicker transfers show nothing but their end."""
PERIOD_SECONDS = 0.5


class TransferLine:
    """Progress of a transfer, in the outputs of a notebook's cell or on a terminal."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._shown_at = self._begun + FIRST_SECONDS - PERIOD_SECONDS
        self._handle: Any = None

    def __enter__(self) -> TransferLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            self._write("" if kind is None else _("not all has come"))

    def show(self, done: int, total: int) -> None:
        """Show the bytes done of those in all, now and then."""
        now = time.monotonic()
        if now - self._shown_at < PERIOD_SECONDS:
            return
        self._shown_at = now
        self._write(progress_text(done, total, now - self._begun))

    def _write(self, text: str) -> None:
        from IPython import get_ipython  # type: ignore[attr-defined]

        if getattr(get_ipython(), "kernel", None) is None:
            self._handle = True
            print(f"\r{text:60}", end="" if text else "\r", file=sys.stderr, flush=True)
            return
        from IPython.display import display

        content = {"text/plain": text}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def progress_text(done: int, total: int, seconds: float) -> str:
    """Return the progress of a transfer in words.

    Examples
    --------
    >>> progress_text(250_000_000, 1_000_000_000, 5.0)
    '250.0 MB of 1.0 GB, 50.0 MB/s, 0:15 left'
    """
    rate = done / max(seconds, 1e-6)
    left = _(", {total} left").format(total=format_duration((total - done) / rate)) if rate else ""
    return _("{done} of {total}, {rate}/s{left}").format(
        done=format_size(done), total=format_size(total), rate=format_size(rate), left=left
    )


def describe(found: Sequence[FetchedValue | FetchedPaths], folder: Path) -> list[str]:
    """Return a sentence for each variable, file or folder that has come."""
    lines = []
    for each in found:
        if isinstance(each, FetchedValue):
            lines.append(each.note or _("{name}: a variable here now").format(name=each.name))
            continue
        if each.copied:
            places = join_names([_short(path, folder) for path in each.copied])
            count = (
                ""
                if each.is_file
                else _("{copied_count} files, ").format(copied_count=len(each.copied))
            )
            lines.append(
                _("{name}: {count}{nbytes} brought to {places}").format(
                    name=each.name, count=count, nbytes=format_size(each.nbytes), places=places
                )
            )
        if each.present:
            places = join_names([_short(path, folder) for path in each.present])
            lines.append(
                _("{name}: here already, as it is there: {places}").format(
                    name=each.name, places=places
                )
            )
    return lines


def _short(path: Path, folder: Path) -> Path:
    return path.relative_to(folder) if path.is_relative_to(folder) else path
