"""Clusters of the version before: they are listed, read and ended, and take no cells."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyVersionError
from jupyter_sky.machines.engines.client.connection import ClusterConnection
from jupyter_sky.machines.engines.client.observer import Observer
from jupyter_sky.machines.engines.wire import connection_file
from jupyter_sky.machines.engines.wire.controller_requests import (
    ABSENT,
    PROTOCOL,
    Beat,
    BeatReply,
    Extend,
    FilesReply,
    HelloReply,
    Interrupt,
    Kill,
    ListEngines,
    ReadFiles,
    ReadJournal,
    ReadMetrics,
    SetDeadline,
    Use,
)
from jupyter_sky.machines.engines.wire.engine_requests import ListNames, Same
from tests.conftest import WAIT, clean, wait_until

VERSION_BEFORE = """
import json, sys
from jupyter_sky.machines.engines.controller.__main__ import main
from jupyter_sky.machines.engines.controller.controller import ClusterController

handle_request = ClusterController.handle_request

# what the controller of version 1 looked up in each request, and so failed without
FIELDS = {
    "deadline": ["left"], "extend": ["seconds"], "journal": ["run", "start"], "give_up": ["ranks"],
    "interrupt": ["run", "ranks"], "kill": ["run", "ranks"], "approve_end": ["run"],
    "data_engine": ["engine", "version", "start"], "outgoing": ["do", "path"],
}

def handle_as_before(self, content):
    for name in FIELDS.get(content["op"], ()):
        content[name]
    if content.get("do") == "read":
        content["start"], content["stop"]
    reply = handle_request(self, {k: v for k, v in content.items() if k != "protocol"})
    if content["op"] == "hello":
        object.__setattr__(reply, "protocol", 1)  # the default, which is left out
    return reply

ClusterController.handle_request = handle_as_before
main(sys.argv[1:])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Folder of a cluster whose controller answers as that of version 1."""
    for name in ("security", "work", "journal"):
        (tmp_path / name).mkdir()
    config = {"directory": str(tmp_path), "cluster": "c", "nodes": 1, "idle": 600}
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = [sys.executable, "-c", VERSION_BEFORE, str(tmp_path / "config.json")]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    client = tmp_path / "security" / "client.json"
    wait_until(lambda: client.exists() or process.poll() is not None)
    yield tmp_path
    process.terminate()
    process.wait(WAIT)
    clean(tmp_path)


@pytest.mark.slow
def test_cluster_of_version_before_is_read_and_takes_no_cells(folder: Path) -> None:
    (folder / "work" / "a.txt").write_text("abc")
    client = folder / "security" / "client.json"
    connection = ClusterConnection("c", client)
    observer = Observer("c", connection_file.read(client, "c"))
    try:
        assert connection.hello.protocol == 1 and connection.hello.nodes == 1
        connection.wait_ranks([0], WAIT, lambda: None)
        assert connection.ask_controller(ListEngines()).engines[0]["running"] is None
        beat = connection.ask_controller(connection.use.describe("a.ipynb"))
        assert beat.stopping == "" and observer.ask(Use()).connected == ["a.ipynb"]
        assert observer.ask(ReadMetrics()).running == []
        assert observer.ask(ReadJournal("r", 0)).status == "unknown"
        assert observer.ask(Interrupt("r", [0])).interrupted == []
        assert observer.ask(Kill("r", [0])).killed == []
        assert observer.ask(SetDeadline(1e6)).left is not None
        assert observer.ask(Extend(900.0)).idle_left > 800
        assert observer.ask(ReadFiles("read", "a.txt", 0, 3)).buffers[0] == b"abc"
        assert connection.ask_engine(0, ListNames()).names == []
        facts = {"run": "r", "rank": 0, "ranks": [0]}
        for send in (
            lambda: connection.execute(0, "1", facts, {}, lambda message: None),
            lambda: connection.ask_engine(0, Same("x", "digest")),
            connection.check_protocol,
        ):
            with pytest.raises(SkyVersionError, match=r"end it with %sky down c, or use") as caught:
                send()
            assert "\n" not in str(caught.value)
    finally:
        connection.close()
        observer.close()


def test_requests_hold_what_a_controller_before_looks_up() -> None:
    """It has no defaults for these; a field that is left out has a meaning of its own."""
    read = ReadFiles("read", "a", 0, 3).encode()
    assert read == {"op": "outgoing", "protocol": PROTOCOL, "do": "read", "path": "a"} | {
        "start": 0,
        "stop": 3,
    }
    assert "left" not in Beat("a.ipynb").encode() and Beat("a.ipynb").left is ABSENT
    assert Beat("a.ipynb", left=None).encode()["left"] is None
    assert Kill(None, [0]).encode() == {
        "op": "kill",
        "protocol": PROTOCOL,
        "run": None,
        "ranks": [0],
    }


def test_replies_of_a_controller_before_are_read() -> None:
    hello = {"cluster": "c", "python": "3.11", "version": "0", "nodes": 1, "running": []}
    assert HelloReply.decode(hello).protocol == 1
    assert FilesReply.decode({"refused": "no"}).refused == "no"
    use = {"idle_left": 1.0, "idle": 2.0, "users": [], "last_use": {}, "connected": []}
    assert BeatReply.decode(use).notices == {}
