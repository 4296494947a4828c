"""Launches under a hail of faults: does anything leak, does every cell end in words?

    python tests/benchmarks/run.py clouds --launches 300 --seed 1

Notebooks of users with one home folder, on three clouds of this machine, launch clusters and run
cells, some on a cluster of the same name. At moments drawn from the seed one of the faults of
`chaos_faults` strikes. In the end everything of ours is gone from here, and nobody reaps: what is
still up has to end by itself. Then

* ``chaos_faults`` counts the kinds of faults that were injected;
* ``chaos_leaked`` counts machines that are up past their lease;
* ``chaos_unexplained`` counts cells with neither their result nor a clear error;
* ``chaos_unbilled`` counts machines that cost something and of which no ledger has an interval;
* ``chaos_unbilled_units`` is the largest difference between what a cloud charges for a machine and
  what the ledger has for it, in billing units of a minute;
* ``over_budget_usd`` is the largest sum by which a cloud's bill has passed a day's budget and what
  its stated grace costs;
* ``double_launched`` counts machines launched twice for one order, and clusters of one name that
  were up at the same time.

Scenes are in `chaos_clouds`. In that of all clouds there are some on which a machine ends only by a
request, or is billed in full when it has powered itself off (Lambda, Verda, Hyperstack, Nebius, TPU
VMs). Their leases are kept by a process of the user's that stays when the notebooks are gone, and
may be killed by a fault. So the user comes back once when all leases are over and something is up,
as a notebook does that is opened (it reaps), and a machine has leaked that is up after that too;
what was up before is printed. No ledger is compared there with clouds that keep no bills.

Leases are short, and all times are real: SSH, kernels, engines and APIs too.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from chaos_budget import Miser  # noqa: E402
from chaos_checks import Ledgers, Witness, doubles, leaked  # noqa: E402
from chaos_clouds import BIG_CLOUDS, Scene  # noqa: E402
from chaos_environment import Home, IsolatedNotebook  # noqa: E402
from chaos_faults import FAULTS, Fault, Unavailable, machines_in  # noqa: E402
from chaos_tally import Tally  # noqa: E402

from tests.clouds.rest_world import end_lease_watchers  # noqa: E402
from tests.conftest import Notebook, Ran  # noqa: E402
from tests.emulators.multi_cloud import EmulatedClouds, emulate_clouds  # noqa: E402

WORKERS = 4
ROOM_SECONDS = 30.0
"""Seconds that a full disk is waited for; else all launches would be refused meanwhile."""
RETURN_SECONDS = 30.0
"""Seconds after a user has come back and reaped, in which machines are gone."""
SHARED = 0.3
"""Share of the cells that run on a cluster whose name all users know."""
CLOCK = Path(__file__).with_name("clock_jump")
SETTINGS = {
    "SKY_PROVIDERS_GCP_SERVICE_ACCOUNT": "default",  # else what powers itself off keeps its disk
    "PYTHONPATH": os.pathsep.join([str(CLOCK), str(ROOT)]),
}
OURS = re.compile(r"jupyter_sky/(?!.*tests)")
"""In a traceback that a user sees: one of our own lines, and so no clear error."""


class Worker:
    """A user with one notebook after the other, and bad luck.

    Attributes
    ----------
    name : str
        Of the cluster of the present cell.
    data : Path
        The data directory of the present kernel.
    clock : Path
        Says how much the clock of its kernels is set wrong: see `clock_jump`.
    while_ended : callable, optional
        What a fault does while the present cluster is ended.
    """

    def __init__(
        self,
        world: EmulatedClouds,
        seed: int,
        number: int,
        home: Home,
        tally: Tally,
        scene: Scene,
    ) -> None:
        self.world, self.home, self.tally, self.number = world, home, tally, number
        self.scene, self.faults = scene, scene_faults(scene)
        self.random = random.Random(f"{seed}/{number}")
        self.data, self.folder = home.data, home.root / f"notebooks{number}"
        self.folder.mkdir()
        self.clock = home.root / f"clock{number}"
        self.book: Notebook | None = None
        self.own: list[Path] = []
        self.cloud, self.name, self.killed, self.missed = "aws", "", False, False
        self.while_ended: Callable[[], AbstractContextManager[None]] | None = None
        self._stop = threading.Event()

    @property
    def kernel_pid(self) -> int:
        """The process of its kernel."""
        assert self.book is not None
        return self.book.manager.provisioner.pid  # type: ignore[union-attr]

    @property
    def isolated(self) -> bool:
        """Whether its kernel has namespaces of its own."""
        return self.home.isolated

    def work(self, launches: int) -> None:
        """Run cells until there are none left."""
        while (number := self.tally.next(launches)) is not None:
            try:
                self._one(number)
            except Exception as error:  # of the harness: it counts against us
                self.tally.add("harness", "unexplained", f"{type(error).__name__}: {error}"[:300])
                self._kill_kernel()
        self._kill_kernel()

    def _one(self, number: int) -> None:
        kind = self._drawn(number)
        fault = self.faults[kind]
        options = self._options(number, fault)
        with self.tally.timed("kernel"):
            book = self._kernel(number, fault)
        body = "import time\nprint('begun', flush=True)\ntime.sleep(3)\n6 * 7"
        self.killed, self.while_ended, begun = False, None, time.monotonic()
        sent = book.send(f"%%sky {options}\n{body}")
        self._stop = threading.Event()
        trouble = threading.Thread(target=self._trouble, args=(kind, fault))
        trouble.start()
        ran: Ran | None = None
        try:
            with self.tally.timed("cell"):
                ran = self._collected(book, sent)
        finally:
            self._stop.set()
            with self.tally.timed(f"rest of the fault {kind!r}"):
                trouble.join()
        outcome, words = self._judged(ran)
        self.tally.add(kind, outcome, f"{options}: {words}")
        seconds = time.monotonic() - begun
        asked = f"{number:4} {kind:20} {options:45}"
        print(f"{asked} {seconds:5.1f} s {outcome:14} {words}", flush=True)
        if outcome == "clear error" and "SkyStoreError" in words:
            self.home.roomy.wait(ROOM_SECONDS)  # a user makes room before the next cell
        with self.tally.timed("end of the cluster"):
            self._finish(fault, kind, ran)

    def _drawn(self, number: int) -> str:
        """Return the fault of a cell: each once before any comes again, in an order by chance."""
        kinds = sorted(self.faults)
        turn, place = divmod(number - 1, len(kinds))
        random.Random(f"{self.tally.seed}/{turn}").shuffle(kinds)
        return kinds[place]

    def _options(self, number: int, fault: Fault) -> str:
        """Return the words of a cell's line."""
        there = [cloud for cloud in self.scene.clouds if cloud in (fault.clouds or (cloud,))]
        self.cloud, self.name = self.random.choice(there), f"c{number}"
        alone = bool(fault.options or fault.own_store)
        if not alone and self.random.random() < SHARED:
            self.name = f"shared-{self.cloud}"
        options = f"{self.scene.line(self.cloud)} -c {self.name} {fault.options}".rstrip()
        many = self.name == f"c{number}" and "--nodes" not in options
        if many and self.random.random() < 0.15 and self.cloud not in self.scene.alone:
            options += " --nodes 2"
        self.tally.nodes[self.name] = 2 if "--nodes" in options else 1
        return options

    def _finish(self, fault: Fault, kind: str, ran: Ran | None) -> None:
        """End the cluster sometimes; kernels of special faults always."""
        answered = not self.killed and ran is not None and ran.status != "timeout"
        if self.while_ended is not None and answered:
            with self.while_ended():
                self._end_cluster(kind)
        elif answered and self.random.random() < 0.5:
            self._end_cluster("cluster ended")
        if not answered or fault.own_store or fault.env:  # a user restarts what does not answer
            self._kill_kernel()
        self.clock.unlink(missing_ok=True)

    def _end_cluster(self, kind: str) -> None:
        """Run ``%sky down``, after which the cluster has ended or a clear error says why not."""
        assert self.book is not None
        ran = self.book.run(f"%sky down {self.name}", self.scene.patience)
        outcome, words = ("result", "") if ran.status == "ok" else self._judged(ran)
        self.tally.add(kind, outcome, f"%sky down {self.name}: {words}")

    def _kernel(self, number: int, fault: Fault) -> Notebook:
        """Return its kernel; a new one where the fault needs another than it has."""
        if fault.own_store or fault.env:
            self._kill_kernel()
        if self.book is None:
            self.data = self.home.own_data(number) if fault.own_store else self.home.data
            self.own += [self.data] if fault.own_store else []
            env = self.env() | {"SKY_CHAOS_CLOCK": str(self.clock)}
            env |= fault.env() if fault.env else {}
            kind = IsolatedNotebook if self.isolated else Notebook
            self.book = kind(self.folder, env, "chaos.ipynb")
        return self.book

    def env(self) -> dict[str, str]:
        """Return the environment of its processes."""
        return {**self.world.env, **settings(self.scene), "SKY_DATA_DIR": str(self.data)}

    def command_line(self, *words: str) -> subprocess.Popen[bytes]:
        """Start ``jupyter sky`` with some words."""
        command = [sys.executable, "-m", "jupyter_sky.cli", *words]
        log = (self.home.root / "commands.log").open("ab")
        env = {**os.environ, **self.env(), "PYTHONFAULTHANDLER": "1"}
        return subprocess.Popen(command, cwd=self.folder, env=env, stdout=log, stderr=log)

    def _collected(self, book: Notebook, sent: str) -> Ran | None:
        begun, ran = time.monotonic(), Ran()
        while time.monotonic() - begun < self.scene.patience:
            try:
                return book.collect(sent, 2.0, ran)
            except AssertionError:
                if self.killed:
                    return None
        return Ran(status="timeout", evalue=f"no end within {self.scene.patience:g} s")

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

    def _trouble(self, kind: str, fault: Fault) -> None:
        if self._stop.wait(self.random.uniform(*fault.after)):
            return
        self.missed = False
        try:
            fault.act(self)
        except Unavailable as error:
            self.tally.unavailable[kind] = str(error)
        except (psutil.Error, OSError, subprocess.SubprocessError) as error:
            print(f"{kind} was not injected: {type(error).__name__}: {error}", flush=True)
        else:
            if not self.missed:
                self.tally.injected.add(kind)

    def _kill_kernel(self) -> None:
        if self.book is not None:
            with contextlib.suppress(Exception):
                self.book.kill()
            self.book = None

    # -- what faults are to hit --------------------------------------------------------------

    def met(self, look: Callable[[], list[Any]]) -> list[Any]:
        """Look for what a fault is to hit until there is some, or the cell has ended."""
        while not (found := look()) and not self._stop.wait(0.1):
            pass
        self.missed = not found
        return found

    def machines(self) -> list[dict[str, Any]]:
        """Return the machines of the present cluster, as their cloud has them."""
        mine = re.compile(rf"\b{self.name}-[0-9a-f]{{8}}\b")
        every = self.world.machines()
        return [one for one in every if one["cloud"] == self.cloud and mine.search(str(one))]

    def noted_machines(self) -> list[dict[str, Any]]:
        """Return the machines of clusters of the present name, as they are noted here."""
        return machines_in(self.data.glob(f"machines/{self.name}-*/machines.json"))

    def processes(self, word: str) -> list[psutil.Process]:
        """Return processes of the present cluster, by a word of their command line.

        Without a word, all that are on its machines.
        """
        tokens = [path.name for path in self.data.glob(f"machines/{self.name}-*")]
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                line = f"{' '.join(process.cmdline())} "
                wanted = word in line if word else not line.startswith("ssh ")
                if wanted and any(token in line for token in tokens):
                    found.append(process)
        return found


def settings(scene: Scene) -> dict[str, str]:
    """Return the settings of all users of a scene."""
    silence = f"{scene.silence:g}s"
    times = {"SKY_LEASE": f"{scene.lease:g}s", "SKY_IDLE": silence}
    return {**SETTINGS, **times, "SKY_HEARTBEAT_TIMEOUT": silence}


def scene_faults(scene: Scene) -> dict[str, Fault]:
    """Return the faults that can befall the clouds of a scene."""
    return {
        kind: fault
        for kind, fault in FAULTS.items()
        if not fault.clouds or {*fault.clouds} & {*scene.clouds}
    }


def chaos(launches: int, seed: int, scene: Scene = BIG_CLOUDS) -> dict[str, float]:
    """Let users and faults loose; return the figures."""
    tally, begun = Tally(seed=seed, kinds=frozenset(scene_faults(scene))), time.monotonic()
    # as on a user's machine, packages are compiled once and not by each process
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with contextlib.ExitStack() as stack:
        home = Home({})
        stack.callback(home.close)
        stack.callback(end_lease_watchers, str(home.root))
        world = stack.enter_context(emulate_clouds(*scene.clouds))
        home.env = {**world.env, **settings(scene)}
        home.open_panel()
        witness = Witness(world)
        workers = [Worker(world, seed, number, home, tally, scene) for number in range(WORKERS)]
        threads = [threading.Thread(target=one.work, args=(launches,)) for one in workers]
        misers = [Miser(world, home, 10**6 + n, bool(n)) for n in range(scene.misers)]
        threads += [miser.start() for miser in misers]
        for thread in threads[:WORKERS]:
            thread.start()
        with tally.timed("all launches"):
            for thread in threads:
                thread.join()
        home.close_panel()
        with tally.timed("leases"):
            up, left = len(world.machines()), leaked(world, scene.lease + 30)
        stores = [
            home.data,
            *(miser.data for miser in misers),
            *(data for worker in workers for data in worker.own),
        ]
        if scene.returns and left:
            print(f"{len(left)} were up when their leases were over: {left}", flush=True)
            for data in stores:
                _open_once_more(home, data)
            left = leaked(world, RETURN_SECONDS)
        bills = witness.bills()
        witness.close()
        with tally.timed("stores opened once more"):
            for data in stores:
                _open_once_more(home, data)
        ledgers = Ledgers.read(stores)
        kept = [bill for bill in bills if bill.kept]
        unbilled, differences = ledgers.unbilled(kept), ledgers.differences(kept)
        twice = doubles(bills, tally.nodes)
    minutes = (time.monotonic() - begun) / 60
    apart = [f"{units:.2f} units: {words}" for units, words in differences if units > 1]
    print(
        f"{tally.launches} launches with seed {seed} in {minutes:.1f} min, {len(bills)} machines; "
        f"{up} were up when all had left, {len(left)} after their leases; "
        f"{len(unbilled)} in no ledger, {len(ledgers.bounded)} with a bill that is bounded"
    )
    tally.show()
    for miser in misers:
        print(f"budget: {miser.words}")
    for words in [*tally.unexplained, *map(str, left), *unbilled, *apart, *twice]:
        print(f"  {words}")
    return {
        "chaos_launches": tally.launches,
        "chaos_machines": len(bills),
        "chaos_faults": len(tally.injected - {"nothing"}),
        "chaos_leaked": len(left),
        "chaos_unexplained": len(tally.unexplained),
        "chaos_unbilled": len(unbilled),
        "chaos_unbilled_units": differences[0][0] if differences else 0.0,
        "over_budget_usd": max((miser.over_usd for miser in misers), default=0.0),
        "double_launched": len(twice),
    }


def _open_once_more(home: Home, data: Path) -> None:
    """Let the user come back and look: what ended meanwhile is entered in the ledger."""
    env = {**os.environ, **home.env, "SKY_DATA_DIR": str(data)}
    command = [sys.executable, "-m", "jupyter_sky.cli", "reap", "--here"]
    subprocess.run(command, cwd=home.root, env=env, capture_output=True, timeout=300)


if __name__ == "__main__":
    print(chaos(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
