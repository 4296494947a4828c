"""Crashes at every step: a process that launches, uses, ends or reaps is killed at each action.

One run of each scenario is recorded with `failpoints`; each moment before and after an action that
others can see is a crash point. For each, a process with a data directory of its own is killed
there with SIGKILL. Then everything is opened anew by another process, at once for every other
crash point, and for the rest only when what was up has ended by itself (nobody came back). It
reaps, looks, runs a cell on a cluster of the same name, and ends it. The judgement:

* ``crash_points``: how many processes were killed at the action meant;
* ``crash_leaked``: machines, and processes of clusters on this machine, that are up in the end;
* ``crash_unbilled``: machines whose time up, as their cloud knows it, the ledger has not billed;
* ``crash_unusable``: names on which no cell ran any more, or stores with something left open.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.conftest import clean, processes_of  # noqa: E402
from tests.emulators.multi_cloud import EmulatedClouds, emulate_clouds  # noqa: E402

PROGRAM = Path(__file__).with_name("failpoints.py")
WORKERS = 3
PROCESS_SECONDS = 120.0
UNIT_SECONDS = 2.0
"""Tolerance of the ledger against the cloud: a unit, and the interval between two checks."""
SETTINGS = {
    "SKY_LEASE": "60m",  # of a second each
    "SKY_HEARTBEAT_TIMEOUT": "12s",
    "SKY_IDLE": "12s",
    "PYTHONPATH": str(ROOT),
}
OVER_SECONDS = 120.0
"""By when leases, silence and idle limits have ended everything."""
_SEEN_AFTER = ("store", "request", "ssh", "tunnel", "cell")
"""Actions whose end is another moment than the beginning of the next one."""
_READS = ("request Describe", "request Get")
MOST_READS = 1


@dataclass(frozen=True, slots=True)
class Scenario:
    """A process to be killed.

    Attributes
    ----------
    verb : str
        A scenario of `failpoints`.
    after : str
        The point at which a process of scenario ``use`` was killed before, if one was.
    lost : bool
        Whether its machines have powered off since.
    points : int
        Crash points to try, spread evenly; 0 for all there are.
    """

    verb: str
    cloud: str = "aws"
    nodes: int = 1
    after: str = ""
    lost: bool = False
    points: int = 0

    def __str__(self) -> str:
        where = f"{self.cloud} x{self.nodes}" + (" lost" if self.lost else "")
        return f"{self.verb} {where}" + (f" after {self.after}" if self.after else "")


SCENARIOS = (
    Scenario("use"),
    Scenario("reap", after="after:request RunInstances:1"),
    Scenario("reap", after="before:cell sent:1", lost=True),
    Scenario("use", nodes=2, points=12),
    Scenario("use", cloud="local", points=10),
)


@dataclass
class Crash:
    """One crash point and what came of it."""

    scenario: Scenario
    point: str
    data: Path
    late: bool
    reached: bool = False
    troubles: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    unbilled: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        when = "when all had ended" if self.late else "at once"
        return f"{self.scenario}, {self.point}, looked at {when}"


class Witness:
    """Record of every machine that is ever up, and of how long, as the clouds know it."""

    def __init__(self, world: EmulatedClouds) -> None:
        self.world, self.spans = world, dict[str, tuple[float, float, str]]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            with contextlib.suppress(OSError):
                for machine in self.world.machines():
                    now, name = time.time(), machine["id"]
                    begun = self.spans[name][0] if name in self.spans else now
                    self.spans[name] = (begun, now, str(machine))

    def of(self, data: Path) -> dict[str, tuple[float, float]]:
        """Return the spans of the machines of one data directory."""
        mine = _owner(data)
        return {
            name: (begun, ended)
            for name, (begun, ended, words) in list(self.spans.items())
            if mine in words
        }

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join()


class Harness:
    """Runs scenarios, kills them, comes back and judges."""

    def __init__(self, world: EmulatedClouds, home: Path) -> None:
        self.world, self.home = world, home
        self._numbers = iter(range(10**6))
        self._template = self._new()

    def _new(self) -> Path:
        with threading.Lock():
            data = self.home / f"data{next(self._numbers):04}"
        data.mkdir()
        return data

    def make(self) -> Path:
        """Make a data directory; the catalog in it is ready, as in one that was used before."""
        data = self._new()
        if (cache := self._template / "cache").exists():
            shutil.copytree(cache, data / "cache", symlinks=True)
        return data

    def run(self, verb: str, data: Path, cloud: str, nodes: int, kill: str = "") -> dict[str, Any]:
        """Run a process to its end; return what it said, and how it ended."""
        log = data.with_suffix(f".{verb.replace(' ', '-')}.log")
        command = [sys.executable, str(PROGRAM), verb, "--data", str(data), "--log", str(log)]
        command += ["--cloud", cloud, "--nodes", str(nodes), "--kill", kill]
        env = {**os.environ, **self.world.env, **SETTINGS, "SKY_DATA_DIR": str(data)}
        with open(data.with_suffix(".err"), "ab") as errors:
            process = subprocess.Popen(
                command, env=env, cwd=self.home, stdout=subprocess.PIPE, stderr=errors
            )
            try:
                out, _ = process.communicate(timeout=PROCESS_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                return {"code": -9, "error": f"no end within {PROCESS_SECONDS:g} s"}
        told = json.loads(out.splitlines()[-1]) if out.strip() else {}
        return {**told, "code": process.returncode, "log": log.read_text().splitlines()}

    def record(self, scenario: Scenario) -> list[str]:
        """Return the crash points of a scenario, in order."""
        data = self.make()
        if scenario.after:
            self._prepare(scenario, data)
        told = self.run(scenario.verb, data, scenario.cloud, scenario.nodes)
        assert told["code"] == 0, f"{scenario} fails unharmed: {told}"
        if not (cache := self._template / "cache").exists():
            shutil.copytree(data / "cache", cache, symlinks=True)
        return [point for point in told["log"] if _is_crash_point(point)]

    def _prepare(self, scenario: Scenario, data: Path) -> None:
        self.run("use", data, scenario.cloud, scenario.nodes, kill=scenario.after)
        if scenario.lost:
            mine = _owner(data)
            for machine in self.world.machines():
                if mine in str(machine):
                    self.world.tell(scenario.cloud, "power_off", id=machine["id"])

    def crash(self, crash: Crash) -> None:
        """Kill a process at a point, and come back if it is to be at once."""
        scenario = crash.scenario
        if scenario.after:
            self._prepare(scenario, crash.data)
        told = self.run(scenario.verb, crash.data, scenario.cloud, scenario.nodes, kill=crash.point)
        crash.reached = crash.point in told.get("log", []) and told["code"] == -9
        if not crash.late:
            self.come_back(crash)

    def come_back(self, crash: Crash) -> None:
        """Open everything anew and use the name again."""
        scenario = crash.scenario
        told = self.run("come back", crash.data, scenario.cloud, scenario.nodes)
        right = "42" if scenario.nodes == 1 else "[42, 42]"
        crash.troubles += told.get("trouble", [])
        if told["code"] or told.get("value") != right or told.get("live"):
            said = {name: value for name, value in told.items() if name != "log"}
            crash.troubles.append(f"{said} {_log_tail(crash.data)}")
        crash.troubles += _left_open(crash.data)

    def judge(self, crash: Crash, spans: dict[str, tuple[float, float]]) -> None:
        """Compare what the world knows with what the ledger says."""
        mine = _owner(crash.data)
        crash.leaked = [m["id"] for m in self.world.machines() if mine in str(m)]
        with contextlib.suppress(psutil.Error):
            crash.leaked += [" ".join(p.cmdline()) for p in processes_of(crash.data)]
        crash.unbilled = _unbilled(crash.data, spans)


def crashes(limit: int = 0) -> dict[str, float]:
    """Crash at every point; return the figures.

    Parameters
    ----------
    limit
        Most crash points of each scenario; as many as each says unless given.
    """
    home = Path(tempfile.mkdtemp(prefix="sky-crash-"))
    done: list[Crash] = []
    begun = time.monotonic()
    try:
        with emulate_clouds("aws", minute=1.0) as world:
            witness, harness = Witness(world), Harness(world, home)
            planned = _plan(harness, limit)
            print(f"{len(planned)} crash points, recorded in {time.monotonic() - begun:.0f} s")
            with ThreadPoolExecutor(WORKERS) as workers:
                list(workers.map(harness.crash, planned))
                print(f"killed after {time.monotonic() - begun:.0f} s")
                _wait_for_ends(world, planned)
                print(f"all had ended after {time.monotonic() - begun:.0f} s")
                list(workers.map(harness.come_back, [one for one in planned if one.late]))
            time.sleep(1.0)
            for one in planned:
                harness.judge(one, witness.of(one.data))
            witness.close()
            done = [one for one in planned if one.reached]
            _show(planned, time.monotonic() - begun)
    finally:
        clean(home)
        shutil.rmtree(home, ignore_errors=True)
    return {
        "crash_points": len(done),
        "crash_leaked": sum(len(one.leaked) for one in planned),
        "crash_unbilled": sum(len(one.unbilled) for one in planned),
        "crash_unusable": sum(bool(one.troubles) for one in planned),
    }


def _plan(harness: Harness, limit: int) -> list[Crash]:
    found: list[Crash] = []
    for scenario in SCENARIOS:
        points = _spread(harness.record(scenario), limit or scenario.points)
        found += [
            Crash(scenario, point, harness.make(), late=bool(number % 2))
            for number, point in enumerate(points)
        ]
    return found


def _spread(points: Sequence[str], limit: int) -> list[str]:
    if not limit or len(points) <= limit:
        return list(points)
    return [points[number * len(points) // limit] for number in range(limit)]


def _is_crash_point(line: str) -> bool:
    moment, label, number = line.split(":", 2)
    if label.endswith(".partial"):  # nobody reads it before it has its name
        return False
    if label.startswith(_READS):
        return moment == "before" and int(number) <= MOST_READS
    if moment == "after":
        return label.startswith(_SEEN_AFTER)
    return True


def _owner(data: Path) -> str:
    path = data / "identity"
    return path.read_text().strip() if path.exists() else f"nobody of {data.name}"


def _wait_for_ends(world: EmulatedClouds, planned: Sequence[Crash]) -> None:
    """Wait until what nobody came back to has ended by itself, or should have."""
    deadline = time.monotonic() + OVER_SECONDS
    late = [one.data for one in planned if one.late]
    while time.monotonic() < deadline:
        owners = [_owner(data) for data in late]
        machines = [m for m in world.machines() if any(owner in str(m) for owner in owners)]
        here = [p for data in late for p in processes_of(data)] if not machines else [None]
        if not machines and not here:
            return
        time.sleep(1.0)
    print("some have not ended by themselves")


def _left_open(data: Path) -> list[str]:
    """Return what the store of a user who has ended everything still has open."""
    from jupyter_sky.base.store.store import Store

    store = Store.open(data)
    try:
        found = [f"cluster {row.name} is {row.state}" for row in store.live_clusters()]
        found += [f"bill of {i.cluster} is open" for i in store.intervals() if i.ended is None]
        for status in ("running", "waiting"):
            found += [f"run {run.run_id} is {status}" for run in store.runs(status=status)]
        return found
    finally:
        store.close()


def _unbilled(data: Path, spans: dict[str, tuple[float, float]]) -> list[str]:
    """Return the machines whose time up no bill covers."""
    from jupyter_sky.base.store.store import Store

    store, found = Store.open(data), []
    try:
        rows, intervals = store.clusters(live_only=False), store.intervals()
    finally:
        store.close()
    for name, (begun, ended) in spans.items():
        ids = {row.id for row in rows if any(m["id"] == name for m in row.machines)}
        bills = [i for i in intervals if i.cluster_id in ids]
        if not bills:
            found.append(f"{name}: up {ended - begun:.1f} s, in no ledger")
            continue
        first = min(i.started for i in bills)
        last = max(i.ended or i.last_beat for i in bills)
        if first > begun + UNIT_SECONDS or last < ended - UNIT_SECONDS:
            found.append(
                f"{name}: up {begun:.1f} to {ended:.1f}, billed from {first - begun:+.1f} s "
                f"to {last - ended:+.1f} s of that"
            )
    return found


def _log_tail(data: Path) -> str:
    path = data.with_suffix(".err")
    return path.read_text()[-1500:] if path.exists() else ""


def _show(planned: Sequence[Crash], seconds: float) -> None:
    for scenario in SCENARIOS:
        mine = [one for one in planned if one.scenario is scenario]
        reached = sum(one.reached for one in mine)
        print(f"{scenario!s:50} {len(mine):4} points, {reached:4} reached")
    for one in planned:
        for words in (*one.troubles, *one.leaked, *one.unbilled):
            print(f"{one}: {words}")
    for one in planned:
        if not one.reached:
            print(f"not reached: {one}")
    print(f"{seconds:.0f} s")


if __name__ == "__main__":
    print(crashes(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
