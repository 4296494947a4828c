"""Faults of the chaos: each is real, and hits one cluster, kernel, cloud or store.

A fault gets the worker whose cell runs. It waits for what it is to hit, and undoes what would stay
(a full disk, a lock, a stopped process) before it returns. One that is not possible here raises
`Unavailable` and counts as not injected: namespaces and mounts need root.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
from chaos_clouds import EMULATED, FLEETS, NETWORKED, SILENT, SPOT, THREE, WATCHED, WORLDS

if TYPE_CHECKING:
    from chaos import Worker

MACHINE_BYTES = "4g"
"""Size of an emulated machine's disk: see `tests.emulators.isolation`."""
COMMAND_SECONDS = 150.0
REVOKED = {"aws": "AuthFailure", "gcp": "ACCOUNT_STATE_INVALID", "azure": "AuthorizationFailed"}
NO_CAPACITY = {
    "aws": "InsufficientInstanceCapacity",
    "gcp": "ZONE_RESOURCE_POOL_EXHAUSTED",
    "azure": "SkuNotAvailable",
}


class Unavailable(Exception):
    """A fault that cannot be injected on this machine."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of trouble.

    Attributes
    ----------
    act : callable
        Injects it into the cell that a worker runs.
    after : tuple of float
        Between which seconds after the cell was sent; what is to be hit is awaited besides.
    options : str
        Words of the cell's line that it needs.
    own_store : bool
        Whether the cell gets a kernel with a data directory of its own: what is broken must not be
        what everybody else uses.
    env : callable, optional
        Environment of the kernel that it needs, which is started anew for it.
    clouds : tuple of str
        Where it can strike; everywhere unless given.
    """

    act: Callable[[Worker], None]
    after: tuple[float, float]
    options: str = ""
    own_store: bool = False
    env: Callable[[], dict[str, str]] | None = None
    clouds: tuple[str, ...] = ()


# -- processes ------------------------------------------------------------------------------


def none(worker: Worker) -> None:
    """Let nothing go wrong."""


def kill_kernel(worker: Worker) -> None:
    worker.killed = True
    os.kill(worker.kernel_pid, signal.SIGKILL)


def interrupt(worker: Worker) -> None:
    assert worker.book is not None
    worker.book.interrupt()


def kill(word: str) -> Callable[[Worker], None]:
    """Return the fault that kills processes of the cluster by a word of their command line."""

    def act(worker: Worker) -> None:
        for process in worker.met(lambda: worker.processes(word)):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended with another one
                process.kill()

    return act


def power_cut(worker: Worker) -> None:
    """Kill all processes of the machine at once."""
    for name in ("supervisor.py", "jupyter_sky.machines.engines"):
        kill(name)(worker)


def stall_link(worker: Worker) -> None:
    with _stopped(worker.met(lambda: worker.processes("ssh "))):
        time.sleep(3)


def suspend_kernel(worker: Worker) -> None:
    """Let the user's machine sleep for a while."""
    with _stopped([psutil.Process(worker.kernel_pid)]):
        time.sleep(worker.random.uniform(2, 8))


def suspend_machine(worker: Worker) -> None:
    """Let the cluster's machine stand still for a while, as in a live migration."""
    with _stopped(worker.met(lambda: worker.processes(""))):
        time.sleep(worker.random.uniform(2, 12))


@contextlib.contextmanager
def _stopped(processes: list[psutil.Process]) -> Iterator[None]:
    try:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.resume()


# -- clouds ---------------------------------------------------------------------------------


def lose_answers(worker: Worker) -> None:
    action = worker.random.choice(["create", "describe", "remove"])
    times = worker.random.choice([1, 1, 2, 6])
    worker.world.tell(worker.cloud, "lose", action=action, times=times)


def double_requests(worker: Worker) -> None:
    worker.world.tell(worker.cloud, "double", action="create")


def throttle(worker: Worker) -> None:
    worker.world.tell(worker.cloud, "throttle", action="create", times=2)


def refuse(worker: Worker) -> None:
    code, times = NO_CAPACITY.get(worker.cloud, "capacity"), worker.random.choice([1, 3])
    worker.world.tell(worker.cloud, "refuse", code=code, times=times)


def revoke(worker: Worker) -> None:
    """Let the cloud accept the credentials no more, for a few requests."""
    if worker.cloud not in REVOKED:
        worker.world.tell(worker.cloud, "refuse", code="permission")
        return
    for action, times in {"describe": 4, "remove": 4, "create": 1}.items():
        code = REVOKED[worker.cloud]
        worker.world.tell(worker.cloud, "refuse", code=code, action=action, times=times)


def outage(worker: Worker) -> None:
    """Stop the interfaces of all clouds for a while; machines go on."""
    worker.world.pause()
    try:
        time.sleep(worker.random.uniform(0.5, 4.0))
    finally:
        worker.world.resume()


def take_back(worker: Worker) -> None:
    for machine in worker.met(worker.machines):
        worker.world.tell(worker.cloud, "preempt", id=machine["id"], notice=0.3)


def reboot(worker: Worker) -> None:
    """Restart the cluster's machines: all that runs there is gone, what is enabled starts again."""
    for machine in worker.met(worker.machines):
        try:
            worker.world.tell(worker.cloud, "reboot", id=machine["id"])
        except urllib.error.HTTPError as error:
            raise Unavailable(f"{worker.cloud} reboots no machines: {error}") from error


def power_off(worker: Worker) -> None:
    """Power the cluster's machines off from within, as somebody on them does."""
    if worker.cloud in SILENT:  # else they would be waited for, for ten minutes
        worker.met(lambda: worker.processes("jupyter_sky.machines.engines.controller "))
    for machine in worker.met(worker.machines):
        worker.world.tell(worker.cloud, "power_off", id=machine["id"])


def kill_watch(worker: Worker) -> None:
    """Kill the process that ends machines which cannot end themselves."""

    def watches(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            words, data = process.cmdline(), process.environ().get("SKY_DATA_DIR")
            return "jupyter_sky.clouds.lease_watcher" in words and data == str(worker.data)
        return False

    for process in worker.met(lambda: list(filter(watches, psutil.process_iter()))):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


# -- the machine's own ----------------------------------------------------------------------


def fill_machine(worker: Worker) -> None:
    """Let the disk of the controller's machine be full for a while."""
    heads = worker.met(lambda: worker.processes("jupyter_sky.machines.engines.controller "))
    for head in heads[:1]:
        _inside(head.pid, "mr", "mount -o remount,size=$(df -Pk / | awk 'END {print $3 + 16}')k /")
        try:
            time.sleep(worker.random.uniform(1, 5))
        finally:
            with contextlib.suppress(Unavailable):  # its machine may have ended
                _inside(head.pid, "mr", f"mount -o remount,size={MACHINE_BYTES} /")


def partition(worker: Worker) -> None:
    """Let the second node hear nothing of the first for a while."""
    node_agents = worker.met(
        lambda: worker.processes("jupyter_sky.machines.engines.node.node_agent")
    )
    private = next(
        (m["private"] for m in worker.noted_machines() if m["rank"] == 0 and m["private"]), ""
    )
    if not private:
        raise Unavailable("the machines have no private addresses")
    for node_agent in node_agents[:1]:
        rule = f"pref 50 from {private} blackhole"
        _inside(node_agent.pid, "n", f"ip rule add {rule}")
        try:
            time.sleep(worker.random.uniform(2, 15))
        finally:
            with contextlib.suppress(Unavailable):  # its machine may have ended
                _inside(node_agent.pid, "n", f"ip rule del {rule}")


def hang_ssh_while_ended(worker: Worker) -> None:
    """Let SSH accept connections and say nothing while the cluster is ended."""
    worker.met(lambda: worker.processes("jupyter_sky.machines.engines.controller "))

    def stop_ssh() -> contextlib.AbstractContextManager[None]:
        found = {p.pid: p for one in worker.processes("") for p in _neighbours(one, "sshd")}
        return _stopped(list(found.values()))

    worker.while_ended = stop_ssh


def _neighbours(process: psutil.Process, name: str) -> list[psutil.Process]:
    """Return the processes of some name on the emulated machine that a process is on."""
    with contextlib.suppress(psutil.Error):
        for parent in process.parents():
            if any(word.endswith("machine.py") for word in parent.cmdline()):
                return [p for p in parent.children(recursive=True) if p.name() == name]
    return []


def _inside(pid: int, namespaces: str, script: str) -> None:
    """Run a script in namespaces of another process."""
    if os.geteuid() != 0:
        raise Unavailable("namespaces need root")
    words = [f"-{letter}" for letter in namespaces]
    command = ["nsenter", "-t", str(pid), *words, "sh", "-c", script]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"{script}: {error.stderr}") from error


# -- this machine's own ---------------------------------------------------------------------


def jump_clock(worker: Worker) -> None:
    """Set the clock of the kernel's machine, by less than a minute: see `clock_jump`."""
    worker.clock.write_text(str(worker.random.choice([-1, 1]) * worker.random.uniform(5, 45)))


def daylight_saving() -> dict[str, str]:
    """Return a time zone whose summer time begins, or ends, in a few seconds (POSIX rules)."""
    when = time.gmtime(time.time() + 8)
    switch = f"J{when.tm_yday - (when.tm_yday > 59 and _is_leap(when.tm_year))}"
    switch += f"/{when.tm_hour}:{when.tm_min:02}:{when.tm_sec:02}"
    begins = bool(random.getrandbits(1))
    other = f"J{1 if when.tm_yday > 180 else 364}/0"
    return {"TZ": f"WIN0SUM-1,{switch},{other}" if begins else f"WIN-1SUM-2,{other},{switch}"}


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def rename_host(worker: Worker) -> None:
    """Give the kernel's machine another name, as a laptop gets one from each network."""
    if not worker.isolated:
        raise Unavailable("the kernel has no namespace of its own")
    _inside(worker.kernel_pid, "u", f"hostname chaos-{worker.random.randrange(10**6)}")


def fill_disk(worker: Worker) -> None:
    """Let the disk of everybody's data directory be full for a while."""
    if not os.path.ismount(worker.home.disk):
        raise Unavailable("the data directory is on this machine's own disk")
    ballast = worker.home.disk / f"ballast{worker.number}"
    worker.home.roomy.clear()
    try:
        with contextlib.suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(b"\0" * 65536)
                file.flush()
        time.sleep(worker.random.uniform(1, 5))
    finally:
        ballast.unlink(missing_ok=True)
        worker.home.roomy.set()


def read_only(worker: Worker) -> None:
    """Let the kernel write nothing new in its data directory for a while."""
    if not worker.isolated:
        raise Unavailable("the kernel has no namespace of its own")
    data, pid = worker.data, worker.kernel_pid
    _inside(pid, "m", f"mount --bind {data} {data} && mount -o remount,bind,ro {data}")
    try:
        time.sleep(worker.random.uniform(2, 8))
    finally:
        with contextlib.suppress(Unavailable):
            _inside(pid, "m", f"umount -l {data}")


def lock_store(worker: Worker) -> None:
    """Hold the store of everybody locked for a while."""
    script = (
        "import sqlite3, sys, time\n"
        "db = sqlite3.connect(sys.argv[1], timeout=10, isolation_level=None)\n"
        "db.execute('BEGIN EXCLUSIVE')\n"
        "time.sleep(float(sys.argv[2]))\n"
    )
    seconds = str(worker.random.uniform(1, 8))
    command = [sys.executable, "-c", script, str(worker.data / "sky.db"), seconds]
    subprocess.run(command, capture_output=True, timeout=60)


def corrupt_store(worker: Worker) -> None:
    """Write noise over a page of the store (of this cell's own)."""
    path = worker.data / "sky.db"
    worker.met(lambda: [path] if path.exists() and path.stat().st_size else [])
    with contextlib.suppress(sqlite3.Error):  # what waits in the journal would mend it
        db = sqlite3.connect(path, timeout=5)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
    if not path.exists():
        return
    page = worker.random.randrange(max(1, path.stat().st_size // 4096))
    with path.open("r+b") as file:
        file.seek(4096 * page)
        file.write(worker.random.randbytes(4096))


# -- other users of the same store ----------------------------------------------------------


def reap_at_once(worker: Worker) -> None:
    """Let two processes reap at the same time as the cell runs."""
    both = [worker.command_line("reap", "--here") for _ in range(2)]
    for process in both:
        _await(process)


def end_everything(worker: Worker) -> None:
    """Let somebody end the clusters of all notebooks."""
    _await(worker.command_line("down", "--all", "--yes"))


def _await(process: subprocess.Popen[bytes]) -> None:
    """Wait for a command; one that takes too long writes where it stands, and is ended."""
    try:
        process.wait(COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        process.wait()
        raise


def end_in_panel(worker: Worker) -> None:
    """Let somebody end the cluster in JupyterLab's panel."""
    worker.met(lambda: worker.processes("jupyter_sky.machines.engines.controller "))
    worker.home.panel("POST", f"clusters/{worker.name}/down", {})


# -- all of them ----------------------------------------------------------------------------

FAULTS: dict[str, Fault] = {
    "nothing": Fault(none, (0, 0)),
    "kernel killed": Fault(kill_kernel, (0.2, 14)),
    "interrupted": Fault(interrupt, (0.2, 14)),
    "head killed": Fault(kill("jupyter_sky.machines.engines.controller "), (1, 12)),
    "engine killed": Fault(kill("jupyter_sky.machines.engines.node.engine"), (1, 12)),
    "supervisor killed": Fault(kill("supervisor.py"), (1, 12)),
    "link cut": Fault(kill("ssh "), (1, 12)),
    "link stalls": Fault(stall_link, (1, 12)),
    "answers lost": Fault(lose_answers, (0, 1)),
    "requests doubled": Fault(double_requests, (0, 0.1), clouds=THREE),
    "throttled": Fault(throttle, (0, 0.1)),
    "places refuse": Fault(refuse, (0, 0.1)),
    "interfaces stop": Fault(outage, (0.2, 12)),
    "machine taken back": Fault(take_back, (1, 10), options="--spot", clouds=SPOT),
    "power cut": Fault(power_cut, (1, 12)),
    "machine rebooted": Fault(reboot, (1, 12), clouds=THREE),
    "kernel suspended": Fault(suspend_kernel, (0.2, 10)),
    "machine suspended": Fault(suspend_machine, (1, 10)),
    "clock jumps": Fault(jump_clock, (0.2, 10)),
    "summer time": Fault(none, (0, 0), env=daylight_saving),
    "host renamed": Fault(rename_host, (0.2, 8)),
    "disk full here": Fault(fill_disk, (0.0, 8)),
    "disk full there": Fault(fill_machine, (1, 8), clouds=FLEETS),
    "store locked": Fault(lock_store, (0.0, 8)),
    "store corrupt": Fault(corrupt_store, (0.5, 8), own_store=True),
    "store read-only": Fault(read_only, (0.0, 8)),
    "nodes parted": Fault(partition, (1, 8), options="--nodes 2", clouds=NETWORKED),
    "reaped at once": Fault(reap_at_once, (0.2, 8)),
    "all ended": Fault(end_everything, (0.2, 10)),
    "ended in the panel": Fault(end_in_panel, (1, 8)),
    "SSH hangs at the end": Fault(hang_ssh_while_ended, (0.5, 3), clouds=EMULATED),
    "credentials revoked": Fault(revoke, (0.2, 10)),
    # on clouds that cannot all end a machine by themselves
    "machine powered off": Fault(power_off, (1, 12), clouds=WORLDS),
    "watch killed": Fault(kill_watch, (1, 12), clouds=WATCHED),
}


def machines_in(notes: Any) -> list[dict[str, Any]]:
    """Return the machines in some notes of orders."""
    found = []
    for path in notes:
        with contextlib.suppress(OSError, ValueError):
            found += json.loads(path.read_text()).get("machines", [])
    return found
