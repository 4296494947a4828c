"""Memory of a cluster whose cells print faster than somebody reads."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import zmq

from jupyter_sky.machines.engines.wire.private_sockets import PrivateSockets, output_socket_name
from tests.conftest import Notebook, nothing_left, part, wait_until

pytestmark = pytest.mark.slow

MEGABYTES = 120
FLOOD = f"for number in range({MEGABYTES}):\n    print('y' * 999_990, 'end of', number)"
HELD_UP_SECONDS = 4.0
MAX_GROWTH_MB = 70.0
"""Growth of a process while nobody reads what would be 90 MB and more."""


def memory(data: Path) -> float:
    """Return the memory of the engine or of the controller, whichever has more, in MB."""
    found = [process for name in ("engine", "controller") for process in part(data, name)]
    return max(process.memory_info().rss for process in found) / 1e6


def printed(data: Path) -> int:
    """Return how many bytes the journals of the clusters have."""
    return sum(path.stat().st_size for path in data.rglob("journal/*.jsonl"))


@contextmanager
def suspended_notebook(notebook: Notebook, data: Path) -> Iterator[None]:
    """Suspend the kernel, which reads what its engine prints."""
    kernel = psutil.Process(notebook.manager.provisioner.pid)  # type: ignore[union-attr]
    kernel.suspend()
    try:
        yield
    finally:
        kernel.resume()


@contextmanager
def idle_reader(notebook: Notebook, data: Path) -> Iterator[None]:
    """Subscribe to the outputs of the controller, as a notebook elsewhere does, and read none."""
    (path,) = data.rglob("security/client.json")
    private = PrivateSockets(path.parent)
    reader = zmq.Context.instance().socket(zmq.SUB)
    reader.rcvhwm = 1
    reader.subscribe(b"")
    reader.connect(private.url(output_socket_name(json.loads(path.read_text())["iopub"])))
    try:
        yield
    finally:
        reader.close(linger=0)
        private.close()


@pytest.mark.parametrize("hold_up", [idle_reader, suspended_notebook])
def test_cell_waits_for_whoever_does_not_read(
    notebook: Notebook, data_dir: Path, hold_up: Callable
) -> None:
    name = hold_up.__name__
    assert notebook.run("%%sky\npass").status == "ok"
    before, amount = memory(data_dir), printed(data_dir)
    sent = notebook.send(f"%%sky --name {name}\n{FLOOD}")
    wait_until(lambda: printed(data_dir) > amount + 2e6)
    with hold_up(notebook, data_dir):
        time.sleep(HELD_UP_SECONDS)
        assert memory(data_dir) - before < MAX_GROWTH_MB
        assert printed(data_dir) - amount < 80e6
    ran = notebook.collect(sent)
    assert ran.status == "ok" and ran.stdout.endswith(f"end of {MEGABYTES - 1}\n")
    text = f"import jupyter_sky as sky; text = sky.logs({name!r})\n"
    found = notebook.run(f"{text}text.count('end of'), len(text) // 10**6").result
    assert found == f"({MEGABYTES}, {MEGABYTES})"


def test_flood_of_a_killed_notebook_goes_on_without_filling_the_memory(
    notebook: Notebook, data_dir: Path
) -> None:
    assert notebook.run("%%sky\npass").status == "ok"
    before, amount = memory(data_dir), printed(data_dir)
    notebook.send("%%sky\nimport subprocess\nsubprocess.run('yes')")
    wait_until(lambda: printed(data_dir) > amount + 5e6)
    notebook.kill()
    amount = printed(data_dir)
    wait_until(lambda: printed(data_dir) > amount + 30e6, "the cell does not go on")
    assert memory(data_dir) - before < MAX_GROWTH_MB
    notebook.start()
    assert "ended" in notebook.run("%sky down").stdout
    nothing_left(data_dir)
