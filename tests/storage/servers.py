"""Servers of others, as processes of a test."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

AZURITE = Path(__file__).parents[1] / "azurite/node_modules/azurite/dist/src/blob/main.js"


@contextmanager
def serving(
    command: list[str],
    port: int,
    scheme: str = "http",
    environment: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Run a server until the block ends; return its address once it listens."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
        start_new_session=True,  # the commands of some packages start the server as a child
    )
    ends = time.monotonic() + 60
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < ends
                time.sleep(0.05)
        yield f"{scheme}://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def azurite_command() -> list[str]:
    """Return the command of Azurite; skip the test where it is not installed, except on CI."""
    node = shutil.which("node")
    if node is None or not AZURITE.exists():
        assert not os.environ.get("CI"), "Azurite is missing: npm ci in tests/azurite"
        pytest.skip("Azurite is missing: tests/run.sh installs it by npm ci in tests/azurite")
    return [node, str(AZURITE), "--inMemoryPersistence", "--disableTelemetry", "--silent"]
