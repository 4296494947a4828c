"""Runs that another machine carries out, while this one is switched off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import psutil
import pytest

from tests.conftest import clean, wait_until
from tests.emulators.hosts import USABLE, SshHost
from tests.emulators.loopback import Loopback
from tests.emulators.object_store import ObjectStore

from .notebook_files import write_notebook

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(500),
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]
CELLS = (
    "from helper import double\nprint('on', __import__('socket').gethostname())",
    "%%sky --task slow --cloud local -o x\nimport time\ntime.sleep(5)\nx = 4",
    "%%sky --task rented --cloud aws --cpus 2 -i x -o y\ny = bytes(100_000 * x)",
    "%%sky --task last --cloud local -i y -o z\nz = len(y)\nprint(z)",
)


@pytest.fixture(scope="module")
def shell(
    tmp_path_factory: pytest.TempPathFactory,
    cloud: Loopback,
    bucket: ObjectStore,
    sky_env: dict[str, str],
) -> Iterator[dict[str, str]]:
    """Environment of a shell here, and a machine of one's own with rights at the cloud.

    The shell knows no package index but the public one: what the package needs is asked of it on
    the machine (uv's cache has it), and not sent, as it would be from beside a private index.
    """
    host = SshHost(78, **cloud.env)
    data = tmp_path_factory.mktemp("data")
    (data / "hosts.toml").write_text(host.toml("box"))
    results = f"s3://bucket/results/?endpoint={bucket.url}"
    settings = {"SKY_DATA_DIR": str(data), "SKY_RESULTS": results}
    settings |= {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}
    try:
        yield {**sky_env, **cloud.env, **settings}
    finally:
        clean(data)
        host.close()


def sky(shell: dict[str, str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``jupyter sky`` in a folder."""
    command = [sys.executable, "-m", "jupyter_sky.cli", *words]
    return subprocess.run(command, env=shell, cwd=folder, capture_output=True, text=True)


def test_a_run_goes_on_while_this_machine_is_off(
    shell: dict[str, str], cloud: Loopback, bucket: ObjectStore, tmp_path: Path
) -> None:
    write_notebook(tmp_path, *CELLS)
    (tmp_path / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    machine = ["--controller", "-c control --cloud ssh --cpus 1", "--name", "night"]
    begun = sky(shell, tmp_path, "pipeline", "run", "work.ipynb", *machine)
    assert begun.returncode == 0, begun.stderr
    assert "night goes on by itself: jupyter sky logs night -f" in begun.stdout
    assert "☁ syncing" in begun.stdout, "what takes long is shown"
    asked = sky(shell, tmp_path, "pipeline", "status", "night")
    assert "carried out by another machine" in asked.stderr and "logs night" in asked.stderr
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "launch" in words and "night" in words:
            os.kill(process.pid, signal.SIGKILL)  # the lid is closed
    done = "results/runs/night/executed.ipynb"
    wait_until(lambda: done in bucket.keys("bucket"), "the run ends there")
    book = nbformat.reads(bucket.content("bucket", done).decode(), 4)
    assert book.cells[-1].outputs[0].text == "400000\n"
    assert not cloud.machines(), "the rented machine was given back"
    again = sky(shell, tmp_path, "pipeline", "run", "work.ipynb", "--name", "morning")
    assert again.returncode == 0, again.stderr
    assert "last: succeeded" in again.stdout
    assert len(cloud.api.bills()) == 1, "all of it is taken from the store"


def test_a_run_that_is_cancelled_gives_its_machines_back(
    shell: dict[str, str], cloud: Loopback, bucket: ObjectStore, tmp_path: Path
) -> None:
    write_notebook(tmp_path, "%%sky --task long --cloud aws --cpus 2\nimport time\ntime.sleep(900)")
    machine = ["--controller", "-c control --cloud ssh --cpus 1", "--name", "stopped"]
    begun = sky(shell, tmp_path, "pipeline", "run", "work.ipynb", *machine)
    assert begun.returncode == 0, begun.stderr
    wait_until(cloud.machines, "its machine is rented")
    stopped = sky(shell, tmp_path, "cancel", "stopped")
    assert stopped.returncode == 0, stopped.stderr
    wait_until(lambda: not cloud.machines(), "the machine is given back")
    done = "results/runs/stopped/executed.ipynb"
    wait_until(lambda: done in bucket.keys("bucket"), "what there is of it is kept")


def test_what_cannot_be_done_there_is_refused(shell: dict[str, str], tmp_path: Path) -> None:
    write_notebook(tmp_path, *CELLS)
    words = ("pipeline", "run", "work.ipynb", "--controller", "--cloud ssh")
    refused = sky(shell, tmp_path, *words, "-o", "out.ipynb")
    assert refused.returncode == 2 and "runs/NAME/executed.ipynb" in refused.stderr
    changed = "%%sky --task change -i x -o y\nx.append(1)\ny = 1"
    write_notebook(tmp_path, "%%sky -o x\nx = [4]", changed, "%%sky -i x,y -o z\nz = x")
    refused = sky(shell, tmp_path, *words)
    assert refused.returncode == 2 and "changes x in place" in refused.stderr, refused.stderr
    write_notebook(tmp_path, *CELLS)
    (tmp_path / "task.yaml").write_text("run: echo hello\n")
    refused = sky(shell, tmp_path, "pipeline", "run", "task.yaml", *words[3:])
    assert refused.returncode == 2 and "only notebooks" in refused.stderr
    for results in ("", str(tmp_path / "results")):
        refused = sky({**shell, "SKY_RESULTS": results}, tmp_path, *words)
        assert refused.returncode == 2 and "name a bucket: Sky.results" in refused.stderr
