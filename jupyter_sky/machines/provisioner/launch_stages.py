"""Stages of a launch and later events of a cluster, for ``%sky logs --provision``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class LaunchStages:
    """Log of the stages of a launch, one after the other.

    Parameters
    ----------
    path
        File to which each stage is appended as a line when it ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name, self._begun = "", 0.0

    def record(self, name: str, begun: float) -> None:
        """Write down a stage that has just ended."""
        _append(self.path, name, begun, time.time())

    def begin(self, name: str) -> None:
        """Begin a stage, and so end the one before; a repeated name changes nothing."""
        if name != self._name:
            self.end()
            self._name, self._begun = name, time.time()

    def report_callback(self, report: Callable[[str, str], None]) -> Callable[[str], None]:
        """Return a function that begins a stage and shows it; ``(3 of 4 nodes)`` is shown only."""

        def begin_and_report(stage: str) -> None:
            if stage:
                self.begin(stage.partition(" (")[0])
            report("booting", stage)

        return begin_and_report

    def end(self) -> None:
        """End the current stage."""
        if self._name:
            self.record(self._name, self._begun)
            self._name = ""


def record_event(path: Path, text: str) -> None:
    """Write down an event that has just happened to a cluster, such as the loss of a machine."""
    now = time.time()
    _append(path, text, now, now)


def _append(path: Path, name: str, begun: float, ended: float) -> None:
    record = {"stage": name, "begun": begun, "ended": ended}
    # nothing fails for the sake of its times
    with suppress(OSError), path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def format_stages(path: Path) -> str:
    """Return the stages of a launch and later events as text, a line each with its seconds.

    Examples
    --------
    >>> print(format_stages(Path("stages.jsonl")))  # doctest: +SKIP
      0.0 s   0.6 s  slot
      0.6 s   4.2 s  packages
    """
    if not path.exists():
        return ""
    stages = [json.loads(line) for line in path.read_text().splitlines()]
    return "".join(
        f"{stage['begun'] - stages[0]['begun']:7.1f} s "
        f"{stage['ended'] - stage['begun']:7.1f} s  {stage['stage']}\n"
        for stage in stages
    )
