"""A real Slurm of four nodes under the conformance suite."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import ClassVar

import psutil

from jupyter_sky.clouds.launches.rest_provider import write_mark
from jupyter_sky.clouds.provider.values import ErrorCause
from jupyter_sky.clouds.slurm.provider import FOLDER
from jupyter_sky.clouds.testing import Operation, World
from jupyter_sky.clouds.testing.provider import wait_until
from tests.emulators.loopback import warm_cache
from tests.emulators.slurm import slurm
from tests.emulators.slurm_faults import CUT, WORDS, SlurmFaults

NODES = 4
COMMANDS: dict[Operation, str] = {
    "launch": "sbatch",
    "machines": "squeue",
    "terminate": "scancel",
}


class SlurmWorld(World):
    """Slurm on this machine; what accounting would refuse is refused in its words."""

    unsupported: ClassVar = {
        "boots_in": "its nodes take the time that they take",
        "hide_new": "squeue has each job that sbatch has accepted",
    }
    boot_seconds = 40.0

    def __init__(self) -> None:
        warm_cache()
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd looks for it where root runs it
        self._stack = ExitStack()
        self.slurm = self._stack.enter_context(slurm(nodes=NODES))
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="sky-")))
        self.home, commands = self.folder / "home", self.folder / "bin"
        self.home.mkdir()
        commands.mkdir()
        self.faults = SlurmFaults(commands)

    def environment(self) -> dict[str, str]:
        """Return where Slurm is, and what its nodes install from."""
        settings = {"options": "--export=ALL", "queue": "3s"}
        return {
            "SLURM_CONF": self.slurm.env["SLURM_CONF"],
            "SKY_PROVIDERS": repr({"slurm": settings}),
            "PATH": f"{self.faults.folder}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv")),
            "UV_OFFLINE": "1",
            "UV_LINK_MODE": "copy",
        }

    def secrets(self) -> list[str]:
        """Return nothing: no credentials are needed."""
        return []

    def bill(self) -> set[str]:
        """Return the nodes of jobs that are in the queue, without those that hold nodes."""
        rows = self.slurm.ask("squeue", "-h", "-o", "%A %D %j").splitlines()
        jobs = [row.split() for row in rows]
        return {
            f"{number}.{rank}"
            for number, count, name in jobs
            if name.startswith("js-")
            for rank in range(int(count))
        }

    def reset(self) -> None:
        """Cancel all jobs, and bring nodes back."""
        self.faults.clear()
        if self.slurm.jobs():
            self.slurm.ask("scancel", *self.slurm.jobs())
        wait_until(lambda: not self.slurm.jobs())
        self.resume()
        shutil.rmtree(self.home / FOLDER, ignore_errors=True)

    def resume(self) -> None:
        """Bring nodes back that were taken away."""
        states = "sinfo", "-h", "-N", "-o", "%N %T", "-p", "main"
        for line in self.slurm.ask(*states).splitlines():
            if "down" in line:
                self._set_node(line.split()[0], "RESUME")
        wait_until(lambda: "down" not in self.slurm.ask(*states))

    def _set_node(self, name: str, state: str) -> None:
        words = f"NodeName={name}", f"State={state}", "Reason=test"
        self.slurm.ask("scontrol", "update", *words)

    def processes(self) -> list[psutil.Process]:
        """List what runs in the home of the nodes."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                job = process.environ().get("SLURM_JOB_ID")
                if job and process.environ().get("HOME") == str(self.home):
                    found.append(process)
        return found

    def close(self) -> None:
        """Leave nothing of it."""
        self._stack.close()

    def hold(self, nodes: int) -> str:
        """Occupy nodes as another user does; return the number of the job."""
        job = self.slurm.ask(
            "sbatch",
            "--parsable",
            "--exclusive",
            "--job-name=other",
            f"--nodes={nodes}",
            "--output=/dev/null",
            "--wrap=sleep 600",
        )
        state = "squeue", "-h", "-j", job, "-o", "%T"
        wait_until(lambda: self.slurm.ask(*state) == "RUNNING")
        return job

    def refuse(self, cause: ErrorCause, times: int = 1, after: int = 0) -> None:
        """Hold nodes, or refuse jobs in Slurm's words."""
        if cause == "capacity":
            self.hold(NODES - after)
        else:
            self.faults.add("sbatch", WORDS[cause], times)

    def lose_answer(self, operation: Operation) -> None:
        """Lose an answer."""
        self.faults.add(COMMANDS[operation], CUT)

    def delay(self, operation: Operation, seconds: float) -> None:
        """Carry commands out late."""
        self.faults.delay(COMMANDS[operation], seconds)

    def node_folder(self, id: str) -> Path:
        """Return the folder of a machine, once that has begun its lease."""
        number = id.partition(".")[0]
        path = self.home / FOLDER / f"{number}.{self.node_name(id)}"
        wait_until((path / "run/jupyter-sky").exists)
        return path

    def node_name(self, id: str) -> str:
        """Return the name of a machine's node."""
        number, _dot, rank = id.partition(".")
        nodes = self.slurm.ask("squeue", "-h", "-j", number, "-o", "%N")
        return self.slurm.ask("scontrol", "show", "hostnames", nodes).split()[int(rank)]

    def stop(self, id: str) -> None:
        """Let a machine end as its own lease script does."""
        (self.node_folder(id) / "run/jupyter-sky/end").touch()
        wait_until(lambda: id not in self.bill())

    def take_back(self, id: str) -> None:
        """Let a node fail."""
        self._set_node(self.node_name(id), "DOWN")
        wait_until(lambda: id not in self.bill())

    def fill(self, count: int, owner: str) -> set[str]:
        """Submit jobs that are held."""
        names = ("owner", "cluster", "token", "lease-end")
        values = (owner, "many", "many-00000000", "2000000000")
        tags = {f"jupyter-sky-{name}": value for name, value in zip(names, values, strict=True)}
        words = "sbatch", "--parsable", "--hold", "--job-name=js-many", "--wrap=true"
        mark = f"--comment={write_mark(tags)}"
        return {f"{self.slurm.ask(*words, mark)}.0" for _job in range(count)}
