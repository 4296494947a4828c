"""The tally of the chaos: how cells ended, by fault, and where the time went."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

PHASES = 16
"""Number of phases that are shown, the longest first."""


@dataclass
class Tally:
    """Counts of all that happened, for the table."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    injected: set[str] = field(default_factory=set)
    unavailable: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    kinds: frozenset[str] = frozenset()  # of faults
    launches: int = 0
    seed: int = 1
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, fault: str, outcome: str, words: str = "") -> None:
        with self.lock:
            self.outcomes[fault, outcome] += 1
            if outcome == "unexplained":
                self.unexplained.append(f"{fault}: {words}")

    @contextlib.contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Note how long a phase takes."""
        begun = time.monotonic()
        try:
            yield
        finally:
            with self.lock:
                self.seconds[phase].append(time.monotonic() - begun)

    def next(self, most: int) -> int | None:
        """Take the number of a launch, while there are any left."""
        with self.lock:
            if self.launches >= most:
                return None
            self.launches += 1
            return self.launches

    def show(self) -> None:
        """Print all of it as tables."""
        outcomes = ("result", "clear error", "kernel killed", "unexplained")
        print(f"{'fault':24}" + "".join(f"{kind:>15}" for kind in outcomes))
        for fault in sorted({fault for fault, _ in self.outcomes}):
            print(f"{fault:24}" + "".join(f"{self.outcomes[fault, kind]:15}" for kind in outcomes))
        for kind, why in sorted(self.unavailable.items()):
            print(f"{kind} cannot be injected here: {why}")
        print(f"{'phase':44}{'times':>8}{'sum':>10}{'median':>10}{'most':>10}")
        for phase, each in sorted(self.seconds.items(), key=lambda item: -sum(item[1]))[:PHASES]:
            figures = f"{sum(each):8.1f} s{statistics.median(each):8.1f} s{max(each):8.1f} s"
            print(f"{phase:44}{len(each):8}{figures}")
        if missing := sorted(self.kinds - self.injected - self.unavailable.keys()):
            print(f"not injected by chance: {', '.join(missing)}")
