"""Accounts of one's own machines, for the conformance suite."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO, Any, ClassVar

import psutil

from jupyter_sky.clouds.provider.values import ErrorCause
from jupyter_sky.clouds.testing import World
from tests.emulators.hosts import SshHost
from tests.emulators.loopback import warm_cache

SLOTS = 4


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
