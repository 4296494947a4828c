"""Accounts of the conformance suite as clouds whose machines boot, with faults by another process.

Each understands the words of the emulators of AWS, Google Cloud and Azure (`lose`, `refuse`, ...)
at an address of its own below that of one server.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from typing import Any, cast

from jupyter_sky.clouds.testing import Operation
from tests.clouds.emulated_worlds import GcpTpu
from tests.clouds.rest_world import RestWorld
from tests.emulators.loopback import Loopback, warm_cache
from tests.emulators.server import Emulator, Request, Response

WORLDS = {
    "container": "tests.clouds.container_world:ContainerWorld",
    "hyperstack": "tests.clouds.neo_worlds:HyperstackWorld",
    "kubernetes": "tests.clouds.kube_world:KubernetesWorld",
    "lambda": "tests.clouds.lambda_world:LambdaWorld",
    "nebius": "tests.clouds.neo_worlds:NebiusWorld",
    "runpod": "tests.clouds.neo_worlds:RunPodWorld",
    "slurm": "tests.clouds.slurm_world:SlurmWorld",
    "tpu": "tests.clouds.emulated_worlds:GcpTpu",
    "vast": "tests.clouds.neo_worlds:VastWorld",
    "verda": "tests.clouds.neo_worlds:VerdaWorld",
}
"""World of each cloud; ``tpu`` is the TPU API of the emulated project of Google Cloud."""
OPERATIONS: Mapping[str, Operation] = {
    "create": "launch",
    "describe": "machines",
    "remove": "terminate",
}
"""Operation of a provider by the name that the other emulators have for its request."""
HELD_SECONDS = 20.0
"""Time for which nodes of Slurm are held."""
LISTED_SECONDS = 1.0
"""Age of a list of machines that commands of this machine have made, up to which it is told."""
_TOKEN = re.compile(r"jupyter-sky-token\W+(?:value\W+)?([\w.-]+-[0-9a-f]{8})\b")


class ControlledWorld:
    """An account whose machines boot.

    Parameters
    ----------
    name
        Of the cloud.
    world
        Its account, one of `WORLDS`.
    """

    def __init__(self, name: str, world: Any) -> None:
        self.name, self.world = name, world
        self._tags: dict[str, dict[str, str]] = {}
        self._listed: tuple[float, list[dict[str, Any]]] = (0.0, [])

    def machines(self) -> list[dict[str, Any]]:
        """List the machines that cost, each with the token of its order."""
        if self.name not in ("container", "slurm"):
            return self._list()
        if time.monotonic() - self._listed[0] > LISTED_SECONDS:
            self._listed = (time.monotonic(), self._list())
        return self._listed[1]

    def _list(self) -> list[dict[str, Any]]:
        if hasattr(api := getattr(self.world, "api", None), "pass_time"):
            cast(Any, api).pass_time(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        return [
            {"id": id, "state": "RUNNING", "tags": self._read_tags(id)}
            for id in sorted(self.world.bill())
        ]

    def _read_tags(self, id: str) -> dict[str, str]:
        if id not in self._tags:
            found = _TOKEN.search(self._describe(id))
            self._tags[id] = {"jupyter-sky-token": found[1]} if found else {}
        return self._tags[id]

    def _describe(self, id: str) -> str:
        """Return what an account knows of a machine."""
        if self.name == "container":
            with suppress(RuntimeError):  # it has ended meanwhile
                return self.world.podman.call("inspect", "--format", "{{.Config.Labels}}", id)
            return ""
        if self.name == "slurm":
            with suppress(RuntimeError):
                job = id.partition(".")[0]
                return self.world.slurm.ask("squeue", "-h", "-j", job, "-o", "%k")
            return ""
        if self.name == "tpu":
            nodes = self.world.api.tpus.nodes.items()
            return next((str(node) for key, node in list(nodes) if id.split("/")[1] in key), "")
        return str(self.world.api.rented[id].entry)

    def bills(self) -> list[dict[str, Any]]:
        """Return nothing: these clouds keep no bills."""
        return []

    def lose(self, action: str, times: int = 1) -> None:
        """Carry requests out, and lose their answers."""
        for _ in range(times):
            self.world.lose_answer(OPERATIONS[action])

    def refuse(self, code: str, times: int = 1) -> None:
        """Refuse requests for machines, for a cause."""
        if (self.name, code) == ("slurm", "capacity"):
            job = self.world.hold(len(self.world.slurm.nodes))
            threading.Timer(HELD_SECONDS, self.world.slurm.ask, ("scancel", job)).start()
        else:
            self.world.refuse(cast(Any, code), times)

    def throttle(self, action: str, times: int = 1) -> None:
        """Refuse requests for machines that come too often."""
        self.refuse("throttled", times)

    def preempt(self, id: str, notice: float = 0.0) -> None:
        """Take a machine back; there is no notice."""
        with suppress(KeyError, StopIteration):  # it has ended meanwhile
            self.world.take_back(id)

    def power_off(self, id: str) -> None:
        """Power a machine off from within."""
        with suppress(KeyError, StopIteration):
            self.world.stop(id)


class Controls(Emulator):
    """Server by which another process controls worlds.

    Attributes
    ----------
    worlds : dict
        By the name of their cloud.
    """

    METHODS = frozenset("bills lose machines power_off preempt refuse throttle".split())

    def __init__(self) -> None:
        self.worlds: dict[str, ControlledWorld] = {}
        super().__init__()

    def answer(self, request: Request) -> Response:
        """Call a method of a world: ``POST /NAME/_sky/METHOD`` with JSON."""
        _, name, _, method = request.path.split("/")
        if method not in self.METHODS:
            return Response.json({"error": f"no such method: {method}"}, 404)
        try:
            given = json.loads(request.body or b"{}")
            return Response.json(getattr(self.worlds[name], method)(**given))
        except (AssertionError, RuntimeError, TypeError) as error:
            return Response.json({"error": repr(error)}, 400)


class _ProjectTpus(GcpTpu):
    """TPUs of a project that is open already."""

    def __init__(self, opened: Loopback) -> None:
        self.fleet, self.api = opened.fleet, opened.api

    def environment(self) -> dict[str, str]:
        """Return nothing beside what the project has."""
        return {}

    def close(self) -> None:
        """Leave the project to whoever opened it."""


@contextmanager
def open_worlds(
    names: list[str], minute: float, opened: Mapping[str, Loopback]
) -> Iterator[dict[str, dict[str, Any]]]:
    """Open accounts; yield the address and the environment of each.

    Parameters
    ----------
    minute
        Seconds that a minute takes on their machines.
    opened
        Clouds that are open already: ``tpu`` needs ``gcp``.
    """
    warm_cache()
    with ExitStack() as stack:
        controls = Controls()
        stack.callback(controls.close)
        for name in names:
            module, _, kind = WORLDS[name].partition(":")
            made: Any = getattr(import_module(module), kind)
            if name == "tpu":
                world = _ProjectTpus(opened["gcp"])
            elif issubclass(made, RestWorld):
                world = made(minute)
                world.api.boots = world.api.refills = True
            else:
                world = made()
            stack.callback(world.close)
            controls.worlds[name] = ControlledWorld(name, world)
        yield {
            name: {"url": f"{controls.url}/{name}", "env": dict(one.world.environment())}
            for name, one in controls.worlds.items()
        }
