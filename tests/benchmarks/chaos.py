"""Launches under a hail of faults: does anything leak, does every cell end in words?

    python tests/benchmarks/run.py clouds --launches 200 --seed 1

Notebooks on three clouds of this machine launch clusters and run cells. At moments drawn from the
seed, kernels, heads, engines and machines are killed, links are cut, the clouds' interfaces stop,
lose answers, take requests twice, throttle and refuse. In the end everything of ours is gone from
here, and nobody reaps: what is still up has to end by itself. Then

* ``chaos_leaked`` counts machines that are up past their lease;
* ``chaos_unexplained`` counts cells with neither their result nor a clear error;
* ``chaos_unbilled`` counts machines that were seen up and of which no ledger has an interval.

A minute takes a second for machines and leases; SSH, kernels, engines and APIs are real.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.conftest import Notebook, Ran  # noqa: E402
from tests.emulators.skies import Skies, skies  # noqa: E402

CLOUDS = ("aws", "gcp", "azure")
WORKERS = 3
CELL_SECONDS = 150.0
SETTINGS = {
    "SKY_LEASE": "90m",  # of a second each
    "SKY_SILENCE": "15s",
    "SKY_IDLE": "15s",
    "SKY_GCP_SERVICE_ACCOUNT": "default",  # else what powers itself off keeps its disk
    "PYTHONPATH": str(ROOT),
}
OURS = re.compile(r"jupyter_sky/(?!.*tests)")
"""In a traceback that a user sees: one of our own lines, and so no clear error."""


@dataclass
class Tally:
    """What has happened, for the table."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    launches: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, fault: str, outcome: str, words: str = "") -> None:
        with self.lock:
            self.outcomes[fault, outcome] += 1
            if outcome == "unexplained":
                self.unexplained.append(f"{fault}: {words}")

    def next(self, most: int) -> int | None:
        """Take the number of a launch, while there are any left."""
        with self.lock:
            if self.launches >= most:
                return None
            self.launches += 1
            return self.launches


class Worker:
    """A user with one notebook after the other, and bad luck.

    Parameters
    ----------
    number
        Which of the users it is; each has a data directory of its own.
    """

    def __init__(self, world: Skies, seed: int, number: int, home: Path, tally: Tally) -> None:
        self.world, self.tally = world, tally
        self.random = random.Random(f"{seed}/{number}")
        self.data, self.folder = home / f"data{number}", home / f"notebooks{number}"
        self.folder.mkdir()
        self.book: Notebook | None = None
        self.cloud, self.killed = "aws", False
        self._stop = threading.Event()

    def work(self, launches: int) -> None:
        while (number := self.tally.next(launches)) is not None:
            try:
                self._one(number)
            except Exception as error:  # of the harness: it counts against us
                self.tally.add("harness", "unexplained", f"{type(error).__name__}: {error}"[:300])
                self._kill_kernel()
        self._kill_kernel()

    def _one(self, number: int) -> None:
        book = self._kernel()
        self.cloud = self.random.choice(CLOUDS)
        fault = self.random.choice(sorted(FAULTS))
        options = f"--cloud {self.cloud} --cpus 2 -c c{number}"
        if fault == "machine taken back":
            options += " --spot"
        elif self.random.random() < 0.15:
            options += " --nodes 2"
        body = "import time\nprint('begun', flush=True)\ntime.sleep(3)\n6 * 7"
        self.killed, begun = False, time.monotonic()
        sent = book.send(f"%%sky {options}\n{body}")
        self._stop = threading.Event()
        trouble = threading.Thread(target=self._trouble, args=(fault,))
        trouble.start()
        ran: Ran | None = None
        try:
            ran = self._collected(book, sent)
        finally:
            self._stop.set()
            trouble.join()
        outcome, words = self._judged(ran)
        self.tally.add(fault, outcome, f"{options}: {words}")
        seconds = time.monotonic() - begun
        asked = f"{number:4} {self.cloud:6} {fault:20} {options.partition(' -c ')[2]:15}"
        line = f"{asked} {seconds:5.1f} s {outcome:14} {words}"
        print(line, flush=True)
        if self.killed:
            self._kill_kernel()
        elif self.random.random() < 0.5 and ran is not None:
            book.run("%sky down --all", CELL_SECONDS)

    def _kernel(self) -> Notebook:
        if self.book is None:
            env = {**self.world.env, **SETTINGS, "SKY_DATA_DIR": str(self.data)}
            self.book = Notebook(self.folder, env, "chaos.ipynb")
        return self.book

    def _collected(self, book: Notebook, sent: str) -> Ran | None:
        begun, ran = time.monotonic(), Ran()
        while time.monotonic() - begun < CELL_SECONDS:
            try:
                return book.collect(sent, 2.0, ran)
            except AssertionError:
                if self.killed:
                    return None
        return Ran(status="timeout", evalue=f"no end within {CELL_SECONDS:g} s")

    def _judged(self, ran: Ran | None) -> tuple[str, str]:
        if ran is None:
            return "kernel killed", ""
        if ran.status == "ok":
            right = ran.result in ("42", "[42, 42]") or "42" in ran.result
            return ("result", "") if right else ("unexplained", f"result {ran.result!r}")
        said = f"{ran.ename}: {' | '.join(ran.evalue.splitlines())[:300]}"
        clear = ran.ename.startswith("Sky") or ran.ename == "KeyboardInterrupt"
        if clear and not OURS.search(ran.traceback) and ran.status == "error":
            return "clear error", said
        return "unexplained", said + ran.traceback[-600:]

    def _trouble(self, fault: str) -> None:
        if self._stop.wait(self.random.uniform(*FAULTS[fault][1])):
            return
        with contextlib.suppress(psutil.Error, ProcessLookupError, OSError):
            FAULTS[fault][0](self)

    def _kill_kernel(self) -> None:
        if self.book is not None:
            with contextlib.suppress(Exception):
                self.book.kill()
            self.book = None

    # -- faults --------------------------------------------------------------------------------

    def none(self) -> None:
        """Nothing goes wrong."""

    def kill_kernel(self) -> None:
        assert self.book is not None
        self.killed = True
        os.kill(self.book.manager.provisioner.pid, signal.SIGKILL)  # type: ignore[union-attr]

    def interrupt(self) -> None:
        assert self.book is not None
        self.book.interrupt()

    def kill_head(self) -> None:
        self._kill("jupyter_sky.engines.head")

    def kill_engine(self) -> None:
        self._kill("jupyter_sky.engines.engine")

    def kill_guardian(self) -> None:
        self._kill("guardian.py")

    def cut_link(self) -> None:
        self._kill("ssh ")

    def stall_link(self) -> None:
        stalled = self._met(lambda: self._processes("ssh "))
        for process in stalled:
            process.suspend()
        time.sleep(3)
        for process in stalled:
            with contextlib.suppress(psutil.Error):
                process.resume()

    def lose_answers(self) -> None:
        action = self.random.choice(["create", "describe", "remove"])
        self.world.tell(self.cloud, "lose", action=action, times=self.random.choice([1, 1, 2, 6]))

    def double_requests(self) -> None:
        self.world.tell(self.cloud, "double", action="create")

    def throttle(self) -> None:
        self.world.tell(self.cloud, "throttle", action="create", times=2)

    def refuse(self) -> None:
        code = {
            "aws": "InsufficientInstanceCapacity",
            "gcp": "ZONE_RESOURCE_POOL_EXHAUSTED",
            "azure": "SkuNotAvailable",
        }[self.cloud]
        self.world.tell(self.cloud, "refuse", code=code, times=self.random.choice([1, 3]))

    def outage(self) -> None:
        """The interfaces of all clouds stop for a while; machines go on."""
        self.world.pause()
        time.sleep(self.random.uniform(0.5, 4.0))
        self.world.resume()

    def take_back(self) -> None:
        for machine in self._met(self._machines):
            self.world.tell(self.cloud, "preempt", id=machine["id"], notice=0.3)

    def power_cut(self) -> None:
        """All processes of the machine at once, as when its power goes."""
        for name in ("guardian.py", "jupyter_sky.engines"):
            self._kill(name)

    def _machines(self) -> list[dict[str, Any]]:
        identity = self.data / "identity"
        mine = identity.read_text() if identity.exists() else "nobody"
        every = self.world.machines()
        return [one for one in every if one["cloud"] == self.cloud and mine in str(one)]

    def _met(self, look: Callable[[], list[Any]]) -> list[Any]:
        """Look for what a fault is to hit until there is some, or the cell has ended."""
        while not (found := look()) and not self._stop.wait(0.1):
            pass
        return found

    def _kill(self, word: str) -> None:
        for process in self._met(lambda: self._processes(word)):
            process.kill()

    def _processes(self, word: str) -> list[psutil.Process]:
        """Processes of our clusters, here or on machines, by a word of their command line."""
        tokens = [path.name for path in self.data.glob("machines/*")]
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                line = " ".join(process.cmdline())
                if word in f"{line} " and any(token in line for token in tokens):
                    found.append(process)
        return found


Fault = tuple[Callable[[Worker], None], tuple[float, float]]
FAULTS: dict[str, Fault] = {
    # what happens, and between which seconds after the cell was sent; what is to be hit is awaited
    "nothing": (Worker.none, (0, 0)),
    "kernel killed": (Worker.kill_kernel, (0.2, 14)),
    "interrupted": (Worker.interrupt, (0.2, 14)),
    "head killed": (Worker.kill_head, (1, 12)),
    "engine killed": (Worker.kill_engine, (1, 12)),
    "guardian killed": (Worker.kill_guardian, (1, 12)),
    "link cut": (Worker.cut_link, (1, 12)),
    "link stalls": (Worker.stall_link, (1, 12)),
    "answers lost": (Worker.lose_answers, (0, 1)),
    "requests doubled": (Worker.double_requests, (0, 0.1)),
    "throttled": (Worker.throttle, (0, 0.1)),
    "places refuse": (Worker.refuse, (0, 0.1)),
    "interfaces stop": (Worker.outage, (0.2, 12)),
    "machine taken back": (Worker.take_back, (1, 10)),
    "power cut": (Worker.power_cut, (1, 12)),
}


class Witness:
    """Writes down every machine that is ever up, as the clouds themselves know it."""

    def __init__(self, world: Skies) -> None:
        self.world, self.seen = world, dict[str, dict[str, Any]]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.3):
            with contextlib.suppress(OSError):
                for machine in self.world.machines():
                    if machine["state"] != "PROVISIONING":  # may be refused yet, costs nothing
                        self.seen[machine["id"]] = machine

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def chaos(launches: int, seed: int) -> dict[str, float]:
    """Let users and faults loose; return the figures."""
    home = Path(tempfile.mkdtemp(prefix="sky-chaos-"))
    tally, begun = Tally(), time.monotonic()
    with skies(*CLOUDS, minute=1.0) as world:
        witness = Witness(world)
        workers = [Worker(world, seed, number, home, tally) for number in range(WORKERS)]
        threads = [threading.Thread(target=one.work, args=(launches,)) for one in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        up = len(world.machines())
        leaked = _leaked(world)
        witness.close()
        for worker in workers:
            _open_once_more(worker)
        unbilled = _unbilled(witness.seen, [worker.data for worker in workers])
    minutes = (time.monotonic() - begun) / 60
    _show(tally, seed, minutes, up, len(witness.seen), leaked, unbilled)
    shutil.rmtree(home, ignore_errors=True)
    return {
        "chaos_launches": tally.launches,
        "chaos_machines": len(witness.seen),
        "chaos_leaked": len(leaked),
        "chaos_unexplained": len(tally.unexplained),
        "chaos_unbilled": len(unbilled),
    }


def _leaked(world: Skies) -> list[dict[str, Any]]:
    """Wait until every lease has ended; return what is up all the same."""
    deadline = time.monotonic() + 120  # the longest lease is 90 s
    while machines := world.machines():
        if time.monotonic() > deadline:
            return machines
        time.sleep(0.5)
    return []


def _open_once_more(worker: Worker) -> None:
    """Let the user come back and look: what ended meanwhile is entered in the ledger."""
    env = {**os.environ, **worker.world.env, **SETTINGS, "SKY_DATA_DIR": str(worker.data)}
    command = [sys.executable, "-m", "jupyter_sky.cli", "reap", "--here"]
    subprocess.run(command, env=env, capture_output=True, timeout=120)


def _unbilled(seen: dict[str, dict[str, Any]], stores: list[Path]) -> list[str]:
    """Return the machines of which no ledger has an interval that is over, and what is known."""
    from jupyter_sky.store import Store

    billed: set[str] = set()
    known: dict[str, str] = {}
    for data in stores:
        store = Store.open(data)
        closed = {(i.cluster, i.cluster_created) for i in store.intervals() if i.ended is not None}
        for row in store.clusters(live_only=False):
            ids = {machine["id"] for machine in row.machines}
            if (row.name, row.created) in closed:
                billed |= ids
            known |= dict.fromkeys(ids, f"its cluster is {row.state}")
        store.close()
        for note in data.glob("machines/*/machines.json"):
            record = json.loads(note.read_text())
            for machine in record["machines"]:
                words = f"note: ended {record.get('ended')}"
                known[machine["id"]] = f"{known.get(machine['id'], 'in no store')}; {words}"
    return [f"{name}: {known.get(name, 'not noted')}" for name in sorted(seen.keys() - billed)]


def _show(
    tally: Tally,
    seed: int,
    minutes: float,
    up: int,
    machines: int,
    leaked: list[Any],
    unbilled: list[str],
) -> None:
    kinds = ("result", "clear error", "kernel killed", "unexplained")
    print(f"{'fault':24}" + "".join(f"{kind:>15}" for kind in kinds))
    for fault in sorted({fault for fault, _ in tally.outcomes}):
        print(f"{fault:24}" + "".join(f"{tally.outcomes[fault, kind]:15}" for kind in kinds))
    print(
        f"{tally.launches} launches with seed {seed} in {minutes:.1f} min, {machines} machines; "
        f"{up} were up when all had left, {len(leaked)} after their leases; "
        f"{len(unbilled)} in no ledger"
    )
    for words in [*tally.unexplained, *map(str, leaked), *unbilled]:
        print(f"  {words}")
