"""Podman on this machine under the conformance suite."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import ClassVar

import pytest

from jupyter_sky.clouds.provider.values import ErrorCause
from jupyter_sky.clouds.testing import Operation, World
from tests.emulators import podman
from tests.emulators.loopback import warm_cache

COMMANDS: dict[Operation, str] = {"launch": "run", "machines": "ps", "terminate": "rm"}
PULL = "initializing source docker://x:latest: reading manifest latest in docker.io/library/x: "
REFUSALS: dict[ErrorCause, str] = {
    "capacity": "creating container storage: mkdir /var/lib/containers: no space left on device",
    "quota": "creating container storage: mkdir /var/lib/containers: disk quota exceeded",
    "permission": "permission denied while trying to connect to the Docker daemon socket",
    "invalid": f"{PULL}manifest unknown",
    "throttled": f"{PULL}toomanyrequests: You have reached your pull rate limit.",
}


class ContainerWorld(World):
    """Real containers; what podman does not do by itself is done in its place."""

    unsupported: ClassVar = {
        "boots_in": "containers take the time that they take",
        "fill": "no list has pages",
        "hide_new": "nothing is listed late",
        "take_back": "nobody takes containers back",
    }
    boot_seconds = 60.0

    def __init__(self) -> None:
        if why := podman.problem():
            pytest.skip(why)
        warm_cache()
        self.podman = podman.Podman()

    def environment(self) -> dict[str, str]:
        """Return the program, its storage and the image."""
        settings = {
            "image": podman.IMAGE,
            "options": podman.options(),
            "program": str(self.podman.program),
        }
        return {**self.podman.env, "SKY_PROVIDERS": repr({"container": settings})}

    def secrets(self) -> list[str]:
        """Return nothing: no credentials are needed."""
        return []

    def bill(self) -> set[str]:
        """Return the containers that run."""
        return self.podman.running()

    def reset(self) -> None:
        """Remove all containers."""
        self.podman.reset()

    def close(self) -> None:
        """Leave nothing of it."""
        self.podman.close()

    def refuse(self, cause: ErrorCause, times: int = 1, after: int = 0) -> None:
        """Refuse starts in the words of podman, of Docker and of registries."""
        with (self.podman.folder / "refusals").open("a") as file:
            file.write("\n" * after + f"{REFUSALS[cause]}\n" * times)

    def lose_answer(self, operation: Operation) -> None:
        """Kill the next command of an operation when it has done its work."""
        (self.podman.folder / f"lost-{COMMANDS[operation]}").touch()

    def delay(self, operation: Operation, seconds: float) -> None:
        """Start containers late."""
        assert operation == "launch"
        (self.podman.folder / "delay").write_text(f"{seconds}\n")

    def stop(self, id: str) -> None:
        """End the first process of a container from within."""
        while id in self.podman.running():
            with suppress(RuntimeError):  # the command ends with the container
                self.podman.call("exec", id, "kill", "1")
            time.sleep(0.1)
