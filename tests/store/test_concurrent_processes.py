"""Accounts of clusters under interleaved processes that are killed between any two statements.

Two processes work on one store: each launches clusters of the same few names, ends them, and
repeats late what it has seen before, as notebooks, reapers and the Jupyter server do. Each may be
killed before any SQL statement of its own. Whatever happens, accounts stay right.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.base.store.store import ClusterId, ClusterRow, Store
from tests.store.rows import CLUSTER

pytestmark = pytest.mark.slow

SPAWN = multiprocessing.get_context("spawn")
ACTORS, NAMES = st.integers(0, 1), st.sampled_from(["train", "eval"])


def serve(directory: str, pipe: Any) -> None:
    """Call the store as told, and die before the SQL statement that was named."""
    store = Store.open(Path(directory))
    left: list[int] = []

    def trace(statement: str) -> None:
        if left:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    store.database._db.set_trace_callback(trace)
    while True:
        method, args, statements = pipe.recv()
        left[:] = [] if statements is None else [statements]
        try:
            answer = getattr(store, method)(*args)
        except SkyStoreError as error:
            answer = error
        pipe.send(answer)


class Actor:
    """One process with the store open."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.start()

    def start(self) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(self.directory, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def call(self, method: str, *args: Any, die_at: int | None = None) -> Any:
        """Call a method of the store; None when the process was killed on the way."""
        self.pipe.send((method, args, die_at))
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            assert self.process.exitcode == -signal.SIGKILL
            self.start()
            return None

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Accounts(RuleBasedStateMachine):
    """Clusters of two names under two processes."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.actors = [Actor(self.folder.name) for _ in range(2)]
        self.reader = Store.open(Path(self.folder.name))
        self.clock = 1000.0
        self.known: list[ClusterRow] = []
        self.ends: Counter[ClusterId] = Counter()
        self.closed: dict[ClusterId, float] = {}

    def teardown(self) -> None:
        if hasattr(self, "actors"):
            for actor in self.actors:
                actor.close()
            self.reader.close()
            self.folder.cleanup()

    def now(self) -> float:
        self.clock += 1.0
        return self.clock

    def pick(self, index: int) -> ClusterRow | None:
        return self.known[index % len(self.known)] if self.known else None

    @rule(actor=ACTORS, name=NAMES, die_at=st.none() | st.integers(0, 4))
    def announce(self, actor: int, name: str, die_at: int | None) -> None:
        now = self.now()
        row = replace(CLUSTER, name=name, state="starting", created=now, machines=[])
        self.known.append(row)
        self.actors[actor].call("save_cluster", row, die_at=die_at)

    @rule(actor=ACTORS, index=st.integers(0, 50), die_at=st.none() | st.integers(0, 4))
    def launched(self, actor: int, index: int, die_at: int | None) -> None:
        if (row := self.pick(index)) is None:
            return
        started = replace(row, machines=[{"id": f"i-{row.created:g}", "started": row.created}])
        answer = self.actors[actor].call("record_launch", started, self.now(), die_at=die_at)
        stored = self.reader.find_cluster(row.id)
        if answer is True and stored is not None and stored.is_live:
            up = replace(started, state="up")
            self.actors[actor].call("save_cluster", up, die_at=die_at)

    @rule(
        actor=ACTORS,
        index=st.integers(0, 50),
        state=st.sampled_from(["down", "lost"]),
        die_at=st.none() | st.integers(0, 5),
    )
    def end(self, actor: int, index: int, state: str, die_at: int | None) -> None:
        if (row := self.pick(index)) is None:
            return
        before = self.reader.find_cluster(row.id)
        ended = self.actors[actor].call("end_cluster", row.id, state, self.now(), die_at=die_at)
        if ended is True:
            assert before is not None and before.is_live
            self.ends[row.id] += 1
        elif ended is False:
            assert before is None or not before.is_live

    @rule(actor=ACTORS, index=st.integers(0, 50))
    def forget(self, actor: int, index: int) -> None:
        if row := self.pick(index):
            self.actors[actor].call("delete_cluster", row.id)

    @rule(actor=ACTORS, index=st.integers(0, 50), die_at=st.none() | st.integers(0, 4))
    def beat(self, actor: int, index: int, die_at: int | None) -> None:
        if row := self.pick(index):
            self.actors[actor].call("record_heartbeat", row.id, self.now(), die_at=die_at)

    @rule(actor=ACTORS, index=st.integers(0, 50), price=st.sampled_from([1.0, 2.0, None]))
    def change_price(self, actor: int, index: int, price: float | None) -> None:
        if row := self.pick(index):
            self.actors[actor].call("change_price", row.id, price, self.now())

    @rule(actor=ACTORS, index=st.integers(0, 50))
    def remember_late(self, actor: int, index: int) -> None:
        """Forget a cluster that another process has ended."""
        row = self.pick(index)
        if row is None:
            return
        before = self.reader.find_cluster(row.id)
        if before is not None and not before.is_live:
            self.actors[actor].call("save_cluster", replace(row, state="up"))
            after = self.reader.find_cluster(row.id)
            assert after is not None and after.state == before.state

    @invariant()
    def accounts_are_right(self) -> None:
        if not hasattr(self, "reader"):
            return
        rows = self.reader.clusters(live_only=False)
        live = Counter(row.name for row in rows if row.is_live)
        assert all(count == 1 for count in live.values()), f"two live clusters of a name: {live}"
        open_now = Counter(i.cluster_id for i in self.reader.intervals() if i.ended is None)
        for row in rows:
            if row.state == "up":
                assert open_now[row.id] == 1, f"{row.id} is up and has {open_now[row.id]} bills"
            if not row.is_live:
                assert open_now[row.id] == 0, f"{row.id} has ended and is billed on"
        assert all(count == 1 for count in self.ends.values()), "an account was closed twice"
        for interval in self.reader.intervals():
            assert interval.ended is None or interval.ended >= interval.started
        ends = {i.cluster_id: i.ended for i in self.reader.intervals() if i.ended is not None}
        last = {row.id: ends[row.id] for row in rows if not row.is_live and row.id in ends}
        for cluster, at in self.closed.items():
            assert last.get(cluster, at) == at, f"the end of {cluster} was changed afterwards"
        self.closed = last
        needed = Counter(m["id"] for row in rows if row.is_live for m in row.machines)
        ended = {m["id"] for row in rows if not row.is_live for m in row.machines}
        assert not ended & needed.keys(), "a machine is both needed and ended"


Accounts.TestCase.settings = settings(
    max_examples=15,
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
test_accounts_stay_right = Accounts.TestCase
