"""Emulated clouds in one process: ``python -m tests.emulators.multi_cloud aws gcp``.

Beside those of `loopback` it has the accounts of `tests.clouds.controlled_worlds`. It prints, on
one line, the environment of each as JSON, and ends with its standard input. What the clouds know,
and what befalls them, goes over each one's own ``/_sky/`` address. A process that is stopped
(SIGSTOP) is an outage of all their interfaces; machines go on.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .loopback import CLOUDS, loopback

ROOT = Path(__file__).parents[2]


@dataclass
class EmulatedClouds:
    """The process as its parent has it.

    Attributes
    ----------
    clouds : dict
        For each cloud ``url`` and ``env``.
    minute : float
        Seconds that a minute takes for leases and schedules.
    """

    process: subprocess.Popen[str]
    clouds: dict[str, dict[str, Any]]
    authority: Path
    minute: float = 60.0

    @property
    def env(self) -> dict[str, str]:
        """Environment of a process that has an account with each of the clouds."""
        merged: dict[str, str] = {}
        settings: dict[str, dict[str, str]] = {}
        for cloud in self.clouds.values():
            merged |= cloud["env"]
            settings |= ast.literal_eval(cloud["env"].get("SKY_PROVIDERS", "{}"))
        return merged | ({"SKY_PROVIDERS": repr(settings)} if settings else {})

    def tell(self, cloud: str, method: str, **words: Any) -> Any:
        """Call a method of a cloud's emulator."""
        context = ssl.create_default_context(cafile=str(self.authority))
        request = urllib.request.Request(
            f"{self.clouds[cloud]['url']}/_sky/{method}", json.dumps(words).encode()
        )
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def machines(self) -> list[dict[str, Any]]:
        """Machines of all clouds that have not ended, each with its ``cloud``."""
        return [
            {**machine, "cloud": cloud}
            for cloud in self.clouds
            for machine in self.tell(cloud, "machines")
        ]

    def bills(self) -> list[dict[str, Any]]:
        """Return what each cloud charges for each machine that ever was, with its ``cloud``.

        Times are real seconds, as in the ledger; leases and schedules alone go by `minute`. See
        `tests.emulators.provider_billing`: `Bills.listed` for what is in each, `units_apart` to
        compare.
        """
        return [
            {**bill, "cloud": cloud} for cloud in self.clouds for bill in self.tell(cloud, "bills")
        ]

    def pause(self) -> None:
        """No interface answers until `resume`."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let the interfaces answer again."""
        os.kill(self.process.pid, signal.SIGCONT)


@contextlib.contextmanager
def emulate_clouds(*names: str, minute: float = 60.0) -> Iterator[EmulatedClouds]:
    """Open clouds in a process of their own."""
    command = [sys.executable, "-m", "tests.emulators.multi_cloud", *names, "--minute", str(minute)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        said = json.loads(process.stdout.readline())
        yield EmulatedClouds(process, said["clouds"], Path(said["authority"]), minute)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
        process.stdin.close()
        process.wait(120)


def main(argv: list[str]) -> None:
    """Run until the standard input ends."""
    import argparse
    import tempfile

    from tests.clouds.controlled_worlds import WORLDS, open_worlds

    from .server import write_authority

    parser = argparse.ArgumentParser(description="Several clouds on loopback.")
    parser.add_argument("names", nargs="+", choices=[*CLOUDS, *WORLDS])
    parser.add_argument("--minute", type=float, default=60.0, metavar="SECONDS")
    options = parser.parse_args(argv)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="emulated-clouds-")))
        authority = folder / "authority.pem"
        write_authority(authority)
        opened = {
            name: stack.enter_context(loopback(name, options.minute))
            for name in options.names
            if name in CLOUDS
        }
        clouds = {name: {"url": one.api.url, "env": one.env} for name, one in opened.items()}
        if others := [name for name in options.names if name not in CLOUDS]:
            clouds |= stack.enter_context(open_worlds(others, options.minute, opened))
        print(json.dumps({"clouds": clouds, "authority": str(authority)}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
