"""Kills of the benchmark `storage`: what transfers lose, and what they leave behind.

Transfers run in processes of their own (`storage_moves`), which are killed at random moments, or
their worker is, or their connections are cut. Afterwards the same command runs to its end, or is
given up; then leftovers are removed as ``%sky storage gc`` removes them, and everything is counted
that should not be there.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MOVES = [sys.executable, str(HERE / "storage_moves.py")]
ACTIONS = ("up", "down", "copy", "relay", "cache")
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret-of-the-test"}
STALL = 0.004
"""Seconds that each request takes, so that kills come in its middle."""
PATIENCE = 60.0
SETTLE_SECONDS = 0.5
"""Time without a request after which the store has served all of a killed process."""


@dataclass
class Tally:
    """Kills so far, the seconds that each action takes, and what was found wrong."""

    wanted: int
    kills: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, count: int) -> int:
        """Return how many more kills a chain may do, and count them."""
        with self.lock:
            count = min(count, self.wanted - self.kills)
            self.kills += count
            return count


@dataclass
class Chain:
    """One command that is killed several times, in a bucket and a folder of its own."""

    server: Any
    action: str
    folder: Path
    bucket: str
    draw: random.Random
    tally: Tally
    contents: dict[str, bytes] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"s3://{self.bucket}/?endpoint={self.server.url}"

    def prepare(self) -> None:
        """Draw the objects and put them where they come from."""
        sizes = [0, 1, 4096, *(self.draw.randrange(80_000) for _ in range(4))]
        self.contents = {f"d/{n}": self.draw.randbytes(size) for n, size in enumerate(sizes)}
        self.server.create(self.bucket)
        self.server.fail(f"^[A-Z]+ /{self.bucket}", "stall", times=10**9, seconds=STALL)
        for key, content in self.contents.items():
            if self.action in ("up", "relay"):
                path = self.folder / "from" / key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            else:
                self.server.put(self.bucket, f"in/{key}", content)

    def start(self) -> subprocess.Popen[str]:
        """Start the command and return when it begins to move."""
        process = subprocess.Popen(
            [*MOVES, self.action, self.address, str(self.folder)],
            env={**os.environ, **KEYS, "STORAGE_CHAIN": str(self.folder)},
            cwd=HERE.parents[1],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def kill_once(self) -> None:
        """Kill the process, its worker, or its connections, at a random moment."""
        kind = self.draw.choice(["process", "process", "process", "connection", "worker"])
        if kind == "connection":
            self._cut()
        process = self.start()
        time.sleep(self.draw.random() * self.tally.seconds.get(self.action, 0.3))
        if kind == "worker" and self.action == "relay":
            end_process(int(process.stdout.readline() or 0))  # type: ignore[union-attr]
        if kind == "process":
            end_process(process.pid)
        self._wait(process)

    def _wait(self, process: subprocess.Popen[str]) -> str:
        """Wait for the end and return what it says; a process that hangs is wrong."""
        try:
            return process.communicate(timeout=PATIENCE)[1]
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR1)
            time.sleep(1)
            end_process(process.pid)
            errors = process.communicate()[1]
            self.tally.findings.append(f"{self.action} hangs")
            print(errors, file=sys.stderr, flush=True)
            return errors

    def _cut(self) -> None:
        """Let a few of the next requests be cut off, or carried out without an answer."""
        from tests.emulators.object_store.faults import Fault

        match, kind = f"/{self.bucket}", self.draw.choice(["cut", "lose"])
        times, after = self.draw.randrange(1, 4), self.draw.randrange(12)
        with self.server.faults._lock:  # before the stall, which matches everything
            self.server.faults._faults.insert(0, Fault(match, kind, times, after))

    def finish(self) -> list[str]:
        """Run the command to its end; return what is wrong."""
        process, began = self.start(), time.monotonic()
        errors = self._wait(process)
        self.tally.seconds[self.action] = time.monotonic() - began
        if process.returncode:
            return [f"{self.action} did not go on: {errors[-300:]}"]
        return [
            f"{self.action} lost {key}"
            for key, content in self.contents.items()
            if self._arrived(key) != content
        ]

    def _arrived(self, key: str) -> bytes | None:
        if self.action in ("down", "cache"):
            folder = self.folder / ("to" if self.action == "down" else "cache/trees")
            found = list(folder.glob(key if self.action == "down" else f"*/{key}"))
            return found[0].read_bytes() if found else None
        name = f"{'out' if self.action == 'copy' else 'in'}/{key}"
        here = name in self.server.keys(self.bucket)
        return self.server.content(self.bucket, name) if here else None

    def settle(self) -> None:
        """Wait until requests of a killed process, which the store still has, have been served."""
        count, since = -1, time.monotonic()
        while time.monotonic() - since < SETTLE_SECONDS:
            if (found := self.server.count(f"/{self.bucket}")) != count:
                count, since = found, time.monotonic()
            time.sleep(0.05)

    def leftovers(self) -> list[str]:
        """Remove what may be removed; return what is still there."""
        from jupyter_sky.machines.storage.stores.cache import DatasetCache
        from jupyter_sky.machines.storage.stores.journal import Journal
        from jupyter_sky.machines.storage.transfers.leftovers import remove_leftovers

        journal = Journal.open(self.folder)
        found = list(remove_leftovers(journal).failures)
        rows = len(journal.resumable_ids()) + len(journal.abandoned_transfers())
        journal.close()
        DatasetCache(self.folder / "cache").evict_unused()
        found += [f"row of the journal: {rows}"] * rows
        found += ["open upload"] * self.server.open_uploads(self.bucket)
        found += [str(path) for path in self.folder.rglob("*") if is_temporary(path)]
        found += [f"process {pid}" for pid in processes_of(str(self.folder))]
        return [f"{self.action} left {each}" for each in found]


def is_temporary(path: Path) -> bool:
    """Whether a path is a file or lock that exists only while something is on its way."""
    names = (".sky-part-", "partial-")
    is_lock = path.parent.name == "locks" and path.name != "fill"
    is_object = path.is_file() and path.parent.parent.name == "objects"
    return path.name.startswith(names) or is_lock or is_object


def end_process(pid: int) -> None:
    """Kill a process that this benchmark started."""
    if pid:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def processes_of(mark: str, patience: float = 3.0) -> list[int]:
    """Return the processes that a chain started and that live on, after some seconds."""
    ends = time.monotonic() + patience
    while (found := _marked(f"STORAGE_CHAIN={mark}".encode())) and time.monotonic() < ends:
        time.sleep(0.05)
    return found


def _marked(mark: bytes) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def run_chain(server: Any, tally: Tally, number: int) -> bool:
    """Kill one command one to three times, then finish it or give it up."""
    draw = random.Random(number)
    kills = tally.take(draw.randrange(1, 4))
    if not kills:
        return False
    with tempfile.TemporaryDirectory() as name:
        bucket, action = f"chain{number}", ACTIONS[number % len(ACTIONS)]
        chain = Chain(server, action, Path(name), bucket, draw, tally)
        chain.prepare()
        for _ in range(kills):
            chain.kill_once()
        wrong = chain.finish() if draw.random() < 0.7 else []
        chain.settle()
        wrong += chain.leftovers()
    tally.findings += wrong
    for each in wrong:
        print(f"chain {number}: {each}", file=sys.stderr, flush=True)
    return True


def lost_or_left(quick: bool = False) -> float:
    """Return the objects that were lost and the things that were left after 200 kills."""
    from tests.emulators.object_store import ObjectStore

    os.environ.update(KEYS)
    tally = Tally(5 if quick else 200)
    with ObjectStore("r2", min_part=1024) as server, ThreadPoolExecutor(2) as pool:
        numbers = iter(range(10**6))
        while all(pool.map(lambda _: run_chain(server, tally, next(numbers)), range(10))):
            pass
        tally.findings += server.crashes
    print(f"{tally.kills} kills: {len(tally.findings)} findings", file=sys.stderr, flush=True)
    return float(len(tally.findings))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))
    lost_or_left("--quick" in sys.argv)
