"""A world for controllers of runs: a SQLite file of clusters, attempts and results.

It stands for clouds, engines and stores as a controller sees them: what was asked for is kept when
the controller dies, a token launches once, an attempt begins once. It refuses and loses what its
settings say.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.run.actions import (
    Action,
    FindResult,
    Follow,
    Launch,
    MakePlan,
    Move,
    Release,
    Send,
    Stop,
    World,
)
from jupyter_sky.workflows.pipelines.run.controller import Controller
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.state import Event, Kind, RunState

_TABLES = """
CREATE TABLE IF NOT EXISTS cluster (token TEXT PRIMARY KEY, name TEXT, launches INT, is_up INT);
CREATE TABLE IF NOT EXISTS attempt (task TEXT, number INT, token TEXT, ended TEXT,
    PRIMARY KEY (task, number));
CREATE TABLE IF NOT EXISTS result (task TEXT PRIMARY KEY);
"""

DIAMOND = (
    RunTask("prepare"),
    RunTask("left", ("prepare",), retries=1),
    RunTask("right", ("prepare",)),
    RunTask("join", ("left", "right")),
    RunTask("report", ("join",)),
)


class Clock:
    """Time that passes only when it is looked at: delays cost nothing."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class PretendedWorld(World):
    """Clouds, engines and a store of results in one file.

    Parameters
    ----------
    path
        Of the file, which outlives controllers.
    clusters
        Cluster of each task by its plan; one cluster for all unless given.
    slots
        Number of tasks that a cluster holds at once.
    hours
        Time that each task takes.
    """

    def __init__(
        self,
        path: Path,
        clusters: Mapping[str, str] | None = None,
        slots: int = 2,
        hours: float = 0.5,
    ) -> None:
        self.hours = hours
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.executescript(_TABLES)
        self.clusters, self.slots = clusters or {}, slots
        self.refusals: dict[str, int] = {}
        """Number of launches of a cluster that are still to be refused."""
        self.errors: dict[str, int] = {}
        """Number of attempts of a task that are still to end with an error."""
        self.losses: dict[str, int] = {}
        """Number of attempts of a task during which its cluster is still to be lost."""
        self.returns: dict[str, int] = {}
        """Number of attempts of a task that are still to be returned without being begun."""
        self.stalled: set[str] = set()
        """Tasks that run until they are stopped."""
        self.order: list[tuple[str, str]] = []
        self.plans: list[int] = []
        self.at_once = self.most_at_once = 0

    def prepare(self, run: str, graph: RunGraph, settings: Mapping[str, Any]) -> None:
        self.graph = graph

    async def perform(self, action: Action, task: RunTask | None) -> Sequence[Event]:
        for __ in range(5 if isinstance(action, Follow) else 1):
            await asyncio.sleep(0)
        answers = {
            MakePlan: self._plan,
            FindResult: self._find,
            Launch: self._launch,
            Move: self._move,
            Send: self._send,
            Follow: self._follow,
            Stop: self._stop,
            Release: self._release,
        }
        events = answers[type(action)](action)
        while events is None:  # a stalled task
            await asyncio.sleep(0.01)
            assert isinstance(action, Follow)
            events = self._follow(action)
        return events

    def _plan(self, action: MakePlan) -> list[Event]:
        self.plans.append(action.number)
        clusters = {name: self.clusters.get(name, "pool") for name in self.graph.tasks}
        offers = {name: {"slots": self.slots, "place": name} for name in set(clusters.values())}
        return [Event(Kind.PLANNED, data={"clusters": clusters, "offers": offers})]

    def _find(self, action: FindResult) -> list[Event]:
        found = self.db.execute("SELECT 1 FROM result WHERE task = ?", (action.task,)).fetchone()
        return [Event(Kind.RESULT_FOUND if found else Kind.NO_RESULT, action.task)]

    def _launch(self, action: Launch) -> list[Event]:
        known = self.db.execute(
            "SELECT is_up FROM cluster WHERE token = ?", (action.token,)
        ).fetchone()
        if known is not None:
            kind = Kind.LAUNCHED if known[0] else Kind.REFUSED
            return [Event(kind, action.cluster, data={"reason": "it has ended"})]
        if self.refusals.get(action.cluster, 0) > 0:
            self.refusals[action.cluster] -= 1
            data = {"reason": "no capacity", "place": action.offer["place"]}
            return [Event(Kind.REFUSED, action.cluster, data=data)]
        self.db.execute("INSERT INTO cluster VALUES (?, ?, 1, 1)", (action.token, action.cluster))
        return [Event(Kind.LAUNCHED, action.cluster)]

    def _move(self, action: Move) -> list[Event]:
        return [Event(Kind.MOVED, action.task)]

    def _send(self, action: Send) -> list[Event]:
        self.db.execute(
            "INSERT OR IGNORE INTO attempt VALUES (?, ?, ?, '')",
            (action.task, action.attempt, action.token),
        )
        self.order.append(("send", action.task))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        return [Event(Kind.BEGUN, action.task)]

    def _follow(self, action: Follow) -> list[Event] | None:
        if action.task in self.stalled:
            return None
        if not self.db.execute(
            "SELECT is_up FROM cluster WHERE token = ?", (action.token,)
        ).fetchone()[0]:
            return [Event(Kind.CLUSTER_LOST, action.cluster, data={"reason": "preempted"})]
        key = (action.task, action.attempt)
        ended = self.db.execute("SELECT ended FROM attempt WHERE task = ? AND number = ?", key)
        how = ended.fetchone()[0] or self._end(action)
        self.db.execute("UPDATE attempt SET ended = ? WHERE task = ? AND number = ?", (how, *key))
        if how == "lost":
            self.db.execute("UPDATE cluster SET is_up = 0 WHERE token = ?", (action.token,))
            return [Event(Kind.CLUSTER_LOST, action.cluster, data={"reason": "preempted"})]
        if how == "returned":
            return [Event(Kind.RETURNED, action.task)]
        if how == "error":
            return [Event(Kind.FAILED, action.task, data={"reason": "ValueError"})]
        self.db.execute("INSERT OR IGNORE INTO result VALUES (?)", (action.task,))
        return [Event(Kind.SUCCEEDED, action.task, data={"hours": self.hours, "usd": 1.0})]

    def _end(self, action: Follow) -> str:
        self.order.append(("end", action.task))
        self.at_once -= 1
        troubles = ("lost", self.losses), ("error", self.errors), ("returned", self.returns)
        for how, left in troubles:
            if left.get(action.task, 0) > 0:
                left[action.task] -= 1
                return how
        return "result"

    def _stop(self, action: Stop) -> list[Event]:
        self.stalled.discard(action.task)
        self.order.append(("stop", action.task))
        return [Event(Kind.STOPPED, action.task)]

    def _release(self, action: Release) -> list[Event]:
        self.db.execute("UPDATE cluster SET is_up = 0 WHERE token = ?", (action.token,))
        return [Event(Kind.RELEASED, action.cluster)]

    def attempts(self) -> dict[str, int]:
        """Return the number of attempts that began, by task."""
        return dict(self.db.execute("SELECT task, count(*) FROM attempt GROUP BY task"))

    def clusters_up(self) -> list[str]:
        """Return the names of the clusters that cost money."""
        return [row[0] for row in self.db.execute("SELECT name FROM cluster WHERE is_up")]

    def launches(self) -> int:
        """Return the number of clusters that were ever launched."""
        return self.db.execute("SELECT count(*) FROM cluster").fetchone()[0]

    def dump(self) -> str:
        """Return all rows, to compare."""
        return json.dumps([list(row) for row in self.db.execute("SELECT * FROM attempt")])


def run_graph(
    journal: RunJournal,
    world: PretendedWorld,
    tasks: tuple[RunTask, ...] = DIAMOND,
    at_point: Callable[[str], None] = lambda name: None,
) -> RunState:
    """Carry a run out, from wherever it stands; return its state."""
    if "r" not in journal.names():
        journal.add("r", RunGraph(tasks), {}, 0.0)
    return asyncio.run(Controller(journal, "r", world, Clock(), at_point).run())


def phases_of(state: RunState) -> dict[str, str]:
    """Return the phase of each task."""
    return {name: str(task.phase) for name, task in state.tasks.items()}


def set_trouble(world: PretendedWorld) -> None:
    """Let an attempt fail, a place refuse and a cluster be lost."""
    world.errors, world.refusals, world.losses = {"left": 1}, {"pool": 1}, {"join": 1}
