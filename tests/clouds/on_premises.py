"""Clouds of one's own machines under the conformance suite: as providers, and as accounts."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from threading import Event
from typing import IO, Any, ClassVar

import psutil

from jupyter_sky import clouds
from jupyter_sky.clouds.base import OnPremisesCloud
from jupyter_sky.errors import SkyCancelled, SkyNoCapacity, SkyUnreachable
from jupyter_sky.offers import Offer
from jupyter_sky.provider import CloudError, LaunchRequest, Machine, MachineConfig, Provider
from jupyter_sky.provider.facts import LocalFacts, SshFacts
from jupyter_sky.provider.values import ErrorCause
from jupyter_sky.resources import Resources
from jupyter_sky.testing import World
from tests.emulators.hosts import SshHost
from tests.emulators.loopback import warm_cache

SLOTS = 4


class OnPremises(Provider):
    """The six operations, by the methods of a cloud of one's own machines."""

    @property
    def cloud(self) -> OnPremisesCloud:
        """The cloud itself."""
        return clouds.on_premises_cloud(self.name)

    def configured(self) -> str:
        """Return that it needs no credentials."""
        return "machines of one's own"

    def offers(self) -> Iterable[Offer]:
        """Return what any request is offered."""
        return self.cloud.offers(Resources())

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Take slots."""

        def tick() -> None:
            if stop.is_set():
                raise SkyCancelled("the machines are no longer wanted")

        return self.cloud.launch(request, tick)

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List what this data directory holds, which is of one owner."""
        return [each for each in self.cloud.list_mine() if token in ("", each.token)]

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Say how machines are."""
        return self.cloud.describe(ids)

    def terminate(self, ids: Sequence[str]) -> None:
        """Give slots back."""
        self.cloud.terminate(ids)

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete nothing: a slot that is given back leaves nothing."""
        return []

    def explain(self, error: Exception) -> CloudError | None:
        """Classify by the kind of error."""
        if isinstance(error, SkyNoCapacity):
            return CloudError("capacity", type(error).__name__, error.message)
        if isinstance(error, SkyUnreachable):
            return CloudError("transient", type(error).__name__, error.message)
        return None


class Ssh(SshFacts, OnPremises):
    """Machines reached by SSH."""


class Local(LocalFacts, OnPremises):
    """This machine; each cluster runs something that waits."""

    _lock = threading.Lock()

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Start a cluster's supervisor, once."""
        with self._lock:
            machines = super().launch(request, config, stop)
            ids = [machine.id for machine in machines]
            if self.cloud.describe(ids)[0].state != "running":
                clouds.get("local").host(machines).start("tests.clouds.waiting_process", {})  # type: ignore[attr-defined]
            return machines


class OnPremisesWorld(World):
    """Account of machines of one's own."""

    unsupported: ClassVar = {
        "delay": "no request is sent to a cloud",
        "fill": "no list has pages",
        "hide_new": "nothing is listed late",
        "leases": "machines of one's own do not end",
        "lose_answer": "no request is sent to a cloud",
        "owners": "a data directory has one owner",
        "refuse": "nothing else is refused",
        "stop": "a machine of one's own stays on",
        "take_back": "nobody takes them back",
    }

    def secrets(self) -> list[str]:
        """Return nothing: no credentials are needed."""
        return []


class SshWorld(OnPremisesWorld):
    """One machine with several slots, each of which counts."""

    def __init__(self) -> None:
        self.host, self._taken = SshHost(87), list[IO[Any]]()
        self.folder = tempfile.TemporaryDirectory(prefix="sky-pool-")
        public = " ".join((self.host.folder / "host.pub").read_text().split()[:2])
        table = self.host.toml("box", slots=SLOTS, host_key=public)
        (Path(self.folder.name) / "hosts.toml").write_text(table)

    def environment(self) -> dict[str, str]:
        """Return the list of machines."""
        return {"SKY_HOSTS": f"{self.folder.name}/hosts.toml"}

    def bill(self) -> set[str]:
        """Return the slots that are held, by the folders of their clusters."""
        parts = [path.name.rsplit(".", 2) for path in self.host.clusters()]
        return {f"{token}/{number}" for token, _, number in parts}

    def refuse(self, cause: ErrorCause, times: int = 1, after: int = 0) -> None:
        """Hold slots as other users do."""
        if cause != "capacity":
            super().refuse(cause, times, after)
        self.host.slots.mkdir(mode=0o777, exist_ok=True)
        for number in range(after, SLOTS):
            self._taken.append((self.host.slots / str(number)).open("w"))
            fcntl.flock(self._taken[-1], fcntl.LOCK_EX)

    def reset(self) -> None:
        """End what runs there."""
        for file in self._taken:
            file.close()
        self._taken.clear()
        for process in self.host.own():
            process.kill()
        last = time.monotonic() + 10
        while self.host.own() and time.monotonic() < last:
            time.sleep(0.05)
        for path in (*self.host.clusters(), self.host.slots):
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Leave nothing of it."""
        self.host.close()
        self.folder.cleanup()


class LocalWorld(OnPremisesWorld):
    """This machine."""

    unsupported: ClassVar = OnPremisesWorld.unsupported | {"ssh": "it is not reached by SSH"}

    def __init__(self) -> None:
        warm_cache()

    def environment(self) -> dict[str, str]:
        """Return nothing."""
        return {}

    def bill(self) -> set[str]:
        """Return the nodes whose supervisor runs."""
        words = [process.cmdline() for process in self._supervisors()]
        folders = [Path(each[4]) for each in words]  # python -I -S supervisor.py FOLDER ...
        return {
            f"{folder.name}/{rank}"
            for folder in folders
            for rank in range(json.loads((folder / "machine.json").read_text())["nodes"])
        }

    def _supervisors(self) -> list[psutil.Process]:
        data = os.environ["SKY_DATA_DIR"]
        found = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            if any(word.endswith("supervisor.py") for word in words) and data in " ".join(words):
                found.append(process)
        return found

    def reset(self) -> None:
        """End what runs."""
        for process in self._supervisors():
            process.terminate()
        psutil.wait_procs(self._supervisors(), 10)

    def close(self) -> None:
        """Leave nothing."""
