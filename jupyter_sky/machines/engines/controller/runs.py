"""Runs of a cluster and their states, derived from passing messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from jupyter_sky.machines.engines.wire.messages import CellFacts, Content

MAX_RUNS = 1000
"""Approximate number of remembered runs; of older ones the journal's file remains."""
SETTLE_SECONDS = 1.0
"""Time after its reply for a cell's last outputs, which come by another route."""
LIMIT_GRACE_SECONDS = 15.0
"""Time for the notebook to stop a cell at its limit, before the controller does it."""
KILL_SECONDS = 5.0
"""Time between the interrupt of an overdue cell and its kill."""

_STATUS_BY_REPLY = {"ok": "ok", "aborted": "cancelled", "abort": "cancelled"}


@dataclass(slots=True)
class RankState:
    """State of a cell on one engine."""

    rank: int
    replied: float | None = None
    is_drained: bool = False
    """Whether everything that it prints has passed."""

    def is_open(self) -> bool:
        """Whether more messages may follow."""
        if self.replied is None:
            return True
        return not self.is_drained and time.monotonic() - self.replied < SETTLE_SECONDS


@dataclass(slots=True)
class Run:
    """Cell on all of its engines.

    Attributes
    ----------
    facts : CellFacts
        Facts from the notebook; ``limit`` is the longest that it may take, in seconds.
    outcome : str
        Its status once it has ended: ``ok``, ``error``, ``interrupted``, ``cancelled`` or ``lost``.
    began : float or None
        Time at which an engine started it, by the monotonic clock.
    """

    facts: CellFacts
    ranks: dict[str, RankState] = field(default_factory=dict)
    outcome: str = "ok"
    began: float | None = None
    ended: float | None = None
    warned: bool = False

    @property
    def status(self) -> str:
        """``running`` until all messages have arrived, then its outcome."""
        return "running" if any(part.is_open() for part in self.ranks.values()) else self.outcome

    def mark_started(self) -> None:
        """Record that an engine has started this cell."""
        self.began = self.began or time.monotonic()

    def mark_finished(self, msg_id: str, quiet: bool = False) -> None:
        """Record the end of this cell on an engine; `quiet`: all outputs have passed, too."""
        part = self.ranks.get(msg_id)
        if part is not None:
            part.is_drained = part.is_drained or quiet
            if part.replied is None:  # its reply comes by another route
                part.replied, self.ended = time.monotonic(), time.time()

    def mark_failed(self, ename: str) -> None:
        """Record an error of an engine."""
        if self.outcome == "ok":
            self.outcome = "interrupted" if ename == "KeyboardInterrupt" else "error"

    def mark_rank_lost(self, part: RankState) -> None:
        """Record that a rank is lost."""
        part.replied, part.is_drained = time.monotonic(), True
        self.outcome, self.ended = "lost", time.time()


class Runs:
    """The runs of a cluster by id, the oldest first."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._open: dict[str, Run] = {}

    def get(self, run: str) -> Run | None:
        """Return a run, or None if unknown."""
        return self._runs.get(run)

    def running(self) -> Iterator[tuple[str, Run]]:
        """Iterate over unfinished runs."""
        for name, run in list(self._open.items()):
            if run.status == "running":
                yield name, run
            else:
                self._open.pop(name, None)

    def record_sent(self, facts: CellFacts, msg_id: str, engine_lives: bool) -> list[str]:
        """Record a cell on its way to an engine; return runs that were dropped for it."""
        run = self._open[facts["run"]] = self._runs.setdefault(facts["run"], Run(facts))
        part = run.ranks.setdefault(msg_id, RankState(facts["rank"]))
        if not engine_lives:
            run.mark_rank_lost(part)
        if len(self._runs) <= MAX_RUNS + MAX_RUNS // 10:
            return []
        surplus = len(self._runs) - MAX_RUNS
        old = [name for name, run in self._runs.items() if run.status != "running"][:surplus]
        for name in old:
            del self._runs[name]
        return old

    def record_reply(self, run: Run, msg_id: str, content: Content) -> None:
        """Record the end of a cell on one engine."""
        part = run.ranks.get(msg_id)
        if part is None:
            return
        part.replied, run.ended = part.replied or time.monotonic(), time.time()
        outcome = _STATUS_BY_REPLY.get(content.get("status", "ok"), "error")
        if outcome == "error" and content.get("ename") == "KeyboardInterrupt":
            outcome = "interrupted"
        if run.outcome == "ok":
            run.outcome = outcome

    def mark_rank_lost(self, rank: int) -> None:
        """Record the loss of an engine and of all cells sent to it."""
        for _, run in self.running():
            for part in run.ranks.values():
                if part.rank == rank and part.replied is None:
                    run.mark_rank_lost(part)

    def iter_overdue(self) -> Iterator[tuple[str, CellFacts, bool]]:
        """Iterate over runs past their limit, with their facts and whether it is time to kill.

        Each is given once to be interrupted, then again and again to be killed.
        """
        now = time.monotonic()
        for name, run in self.running():
            limit = run.facts.get("limit")
            if limit is None or run.began is None:
                continue
            over = now - run.began - limit - LIMIT_GRACE_SECONDS
            if over > KILL_SECONDS:
                yield name, run.facts, True
            elif over > 0 and not run.warned:
                run.warned = True
                yield name, run.facts, False
