"""A folder that somebody else has prepared has no effect on a server that is opened in it."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import zmq

from jupyter_sky.offers import Offer
from jupyter_sky.processes import identity
from jupyter_sky.store import ClusterRow, RunRow, Store

KEY = b"k"
VICTIM = """
import os
from types import SimpleNamespace
from traitlets.config import SingletonConfigurable

class App(SingletonConfigurable):
    root_dir = os.getcwd()

from jupyter_sky.server.desk import Desk

desk = Desk(App.instance(), SimpleNamespace(emit=lambda **k: None))
try:
    desk.patrol()
except Exception as error:
    print("patrol:", type(error).__name__, error)
from jupyter_sky.config import Sky
print("data_dir", Sky.load().data_dir)
desk.close()
"""


class Touch:
    """A pickle that makes a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


class EvilController:
    """A socket that answers every request with pickles, signed with the key of the folder."""

    def __init__(self, canary: Path) -> None:
        self.socket = zmq.Context.instance().socket(zmq.ROUTER)
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.requests, self.canary, self._closed = 0, canary, threading.Event()
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        parts = [pickle.dumps(Touch(self.canary)), *[pickle.dumps({})] * 3]
        signed = hmac.new(KEY, digestmod=hashlib.sha256)
        for part in parts:
            signed.update(part)
        while not self._closed.is_set():
            if self.socket.poll(50):
                frames = self.socket.recv_multipart()
                self.requests += 1
                answer = [frames[0], b"<IDS|MSG>", signed.hexdigest().encode(), *parts]
                self.socket.send_multipart(answer)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self.socket.close(linger=0)


@pytest.fixture
def evil(tmp_path: Path) -> Iterator[EvilController]:
    made = EvilController(tmp_path / "canary")
    yield made
    made.close()


def prepare(data: Path, port: int) -> None:
    """Make a data directory with a cluster that is up and a run that goes on, both invented."""
    home = data / "local" / "x-1"
    (home / "security").mkdir(parents=True)
    now = time.time()
    machine = {"id": "x-1/0", "cloud": "local", "cluster": "x", "rank": 0, "state": "running"}
    offer = Offer("local", "this-machine", "x", 1, 1, price=0.0)
    file = str(home / "security" / "client.json")
    with_file = {"file": file}
    store = Store.open(data)
    store.put_cluster(
        ClusterRow(
            *("x", "up", "local", "this-machine", "x86_64", False, 0.0, 1, "", asdict(offer)),
            *([{**machine, "started": now}], with_file, "a.ipynb", now, 600, "", ""),
        )
    )
    store.begin_run(
        RunRow(
            *("r1", "a.ipynb", "s", 1, None, "x", "", 0.0, 1, now, None, now, "running", 0, 999999)
        )
    )
    store.close()
    (home / "guardian.json").write_text(json.dumps(identity()))
    (home / "machine.json").write_text(json.dumps({"cluster": "x", "nodes": 1, "started": now}))
    connection = {"interface": "tcp://127.0.0.1", "key": KEY.decode(), "ssh": "", "location": None}
    ports = "registration control mux task iopub notification broadcast".split()
    chosen = {"pack": "pickle", "unpack": "pickle", "signature_scheme": "hmac-sha256"}
    text = json.dumps(connection | dict.fromkeys(ports, port) | chosen | {"task_scheme": "pure"})
    Path(file).write_text(text)


def serve(folder: Path, home: Path, **more: str) -> str:
    """Let a server's service look after clusters in a folder, in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKY_")}
    env = {**kept, "HOME": str(home), "JUPYTER_DATA_DIR": str(home / "jupyter"), **more}
    done = subprocess.run(
        [sys.executable, "-c", VICTIM],
        cwd=folder,
        env=env | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_server_reads_no_project_file(tmp_path: Path, evil: EvilController) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "nice"\n[tool.jupyter_sky]\ndata_dir = "{folder}/.notes"\n'
    )
    prepare(folder / ".notes", evil.port)
    said = serve(folder, tmp_path / "home")
    assert f"data_dir {tmp_path / 'home' / 'jupyter' / 'sky'}" in said
    assert evil.requests == 0 and not evil.canary.exists(), said


@pytest.mark.slow
def test_server_never_unpickles_answers_of_controllers(
    tmp_path: Path, evil: EvilController
) -> None:
    prepare(tmp_path / "data", evil.port)
    said = serve(tmp_path, tmp_path / "home", SKY_DATA_DIR=str(tmp_path / "data"))
    assert evil.requests > 0, said  # it was asked, so that its answer was heard
    assert not evil.canary.exists(), said
