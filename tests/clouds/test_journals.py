"""A machine is ended whatever goes wrong while its journal is copied."""

from __future__ import annotations

import io
import json
import logging
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyUnreachable
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds import LaunchRequest, get
from jupyter_sky.clouds.launches import journals
from jupyter_sky.clouds.launches.base import is_reached_by_ssh
from jupyter_sky.clouds.launches.launcher import Launcher
from jupyter_sky.clouds.launches.machine_records import launch_records
from jupyter_sky.clouds.launches.ssh_slot import Slot
from jupyter_sky.clouds.provider.values import Machine
from jupyter_sky.machines.engines.controller.journal import Journal
from tests.clouds.gcp_requests import order as gcp_order
from tests.conftest import wait_until
from tests.emulators.gce import Compute
from tests.emulators.hosts import USABLE, SshHost

pytest_plugins = ["tests.clouds.gcp_fixtures"]
LINE = json.dumps({"time": 1.0, "rank": 0, "type": "stream", "content": {"text": "x"}}) + "\n"
needs_ssh = pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")


def packed(*entries: tuple[str, bytes], links: bool = False) -> bytes:
    """Pack entries as GNU tar does."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in entries:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        if links:
            link = tarfile.TarInfo("link")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc"
            archive.addfile(link)
    return buffer.getvalue()


# -- what comes from a machine is not trusted ----------------------------------------------------


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "link/evil"])
def test_hostile_names_leave_nothing_outside(tmp_path: Path, name: str) -> None:
    data = packed(("run.jsonl", LINE.encode()), (name, b"x"), links=True)
    into = tmp_path / "a" / "journal"
    assert "refused" in journals.unpack(io.BytesIO(data), into)
    assert (into / "run.jsonl").read_text() == LINE, "the rest is kept"
    assert not list(tmp_path.glob("evil")) and not (into / "link").is_symlink()
    assert not Path("/etc/evil").exists() and not Path("/evil").exists()


def test_damaged_archive_keeps_its_beginning(tmp_path: Path) -> None:
    whole = packed(("run.jsonl", LINE.encode()), ("other.jsonl", os.urandom(200_000)))
    said = journals.unpack(io.BytesIO(whole[:-100_000]), tmp_path)
    assert said == "its end could not be read"
    assert (tmp_path / "run.jsonl").read_text() == LINE
    assert journals.unpack(io.BytesIO(b"\x1f\x8b\x08garbage"), tmp_path / "b")


def test_archive_that_unpacks_to_too_much_is_cut(tmp_path: Path) -> None:
    bomb = packed(("run.jsonl", LINE.encode()), ("zeros", bytes(10**7)))
    assert "longer than 1 MB" in journals.unpack(io.BytesIO(bomb), tmp_path, 10**6)
    assert not (tmp_path / "zeros").exists() and (tmp_path / "run.jsonl").exists()


# -- rented machines -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        EOFError("Compressed file ended before the end-of-stream marker was reached"),
        tarfile.TarError("unexpected end of data"),
        TypeError("extractall() got an unexpected keyword argument 'filter'"),
        MemoryError(),
        SkyUnreachable("it does not answer"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_machine_ends_though_its_journal_cannot_be_had(
    compute: Compute,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from jupyter_sky.clouds.gcp.provider import Gcp

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Sky.load(), "data_dir", str(tmp_path))
    cloud = Launcher(Gcp())
    asked = gcp_order("train-00000001")
    machines = cloud.launch(asked)
    node = Slot(0, "t.0", machines[0].id, Address("sky", "192.0.2.7"), directory="/x")
    record = launch_records().read(asked.token)
    launch_records().write(asked.token, record | {"nodes": [asdict(node)]})
    monkeypatch.setattr(journals.ssh, "start", fail)
    ids = [machine.id for machine in machines]
    if isinstance(error, Exception):
        with caplog.at_level(logging.WARNING):
            cloud.terminate(ids)
        assert "is not complete" in caplog.text
        assert launch_records().read(asked.token)["ended"]["missing"]
    else:
        with pytest.raises(KeyboardInterrupt):
            cloud.terminate(ids)
    assert compute.machines() == []


@pytest.mark.parametrize("nodes", [[{}], [7], "text", [{"address": None}]])
def test_machine_ends_though_the_note_of_it_is_damaged(
    compute: Compute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: object
) -> None:
    from jupyter_sky.clouds.gcp.provider import Gcp

    monkeypatch.setattr(Sky.load(), "data_dir", str(tmp_path))
    cloud = Launcher(Gcp())
    asked = gcp_order("train-00000001")
    ids = [machine.id for machine in cloud.launch(asked)]
    launch_records().write(asked.token, launch_records().read(asked.token) | {"nodes": nodes})
    cloud.terminate(ids)
    assert compute.machines() == []
    record = launch_records().read(asked.token)
    assert "is damaged" in record["ended"]["missing"]
    states = [machine.state for machine in cloud.describe(ids)]
    assert states == ["ended"], "its end is noted, however young it is"


# -- real SSH ------------------------------------------------------------------------------------

FAKES = {
    "hostile": 'cat "$0.data"',
    "truncated": 'head -c 60 "$0.data"',
    "endless": "cat /dev/zero",
    "silent": "sleep 600",
    "failing": 'cat "$0.data"; echo "cannot read" >&2; exit 2',
}


@pytest.fixture
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tools")


@pytest.fixture
def host(tools: Path) -> Iterator[SshHost]:
    made = SshHost(57, PATH=f"{tools}:/usr/local/bin:/usr/bin:/bin")
    yield made
    made.close()


@pytest.fixture
def launched(
    host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Machine]]:
    """Take the slot of a machine of one's own, with a log on it."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    (tmp_path / "hosts.toml").write_text(host.toml("box"))

    def launch() -> Machine:
        cloud = get("ssh")
        offer = cloud.offers(Resources())[0]
        order = LaunchRequest("logged", "train", offer, Resources(), 60.0, "me", "a.ipynb")
        (machine,) = cloud.launch(order)
        (folder,) = host.clusters()
        (folder / "journal").mkdir()
        (folder / "journal" / "run.jsonl").write_text(LINE)
        return machine

    yield launch
    Sky.clear_instance()


@needs_ssh
@pytest.mark.slow
@pytest.mark.parametrize("how", FAKES)
def test_slot_is_given_back_whatever_comes_as_its_journal(
    launched: Callable[[], Machine],
    host: SshHost,
    tools: Path,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(journals, "TRANSFER_SECONDS", 2.0, raising=False)
    monkeypatch.setattr(journals, "MAX_BYTES", 10**6, raising=False)
    machine = launched()
    fake = tools / "tar"
    sent = [("run.jsonl", LINE.encode()), ("../../evil", b"x")]
    Path(f"{fake}.data").write_bytes(packed(*sent[: 2 if how == "hostile" else 1]))
    fake.write_text(f"#!/bin/sh\n{FAKES[how]}\n")
    fake.chmod(0o755)
    get("ssh").terminate([machine.id])
    wait_until(lambda: not host.taken() + host.clusters(), "its slot is not given back")
    assert not list(tmp_path.rglob("evil"))
    folder = tmp_path / "ssh" / "logged"
    assert json.loads((folder / "machines.json").read_text())["ended"]["missing"]
    if how in ("hostile", "failing"):
        texts = [
            entry["content"]["text"] for entry in Journal(folder / "journal").read("run", 0)[0]
        ]
        assert texts[0] == "x" and "is not complete" in texts[-1]


@needs_ssh
@pytest.mark.slow
def test_log_that_grows_while_it_is_read_is_kept(
    launched: Callable[[], Machine], tools: Path, tmp_path: Path
) -> None:
    machine = launched()
    fake = tools / "tar"  # as GNU tar: all of it, and then exit code 1
    fake.write_text(
        '#!/bin/sh\n/usr/bin/env -i PATH=/usr/bin:/bin tar "$@"\n'
        'echo "tar: ./run.jsonl: file changed as we read it" >&2\nexit 1\n'
    )
    fake.chmod(0o755)
    get("ssh").terminate([machine.id])
    folder = tmp_path / "ssh" / "logged"
    assert (folder / "journal" / "run.jsonl").read_text() == LINE
    assert json.loads((folder / "machines.json").read_text())["ended"]["missing"] == ""


@needs_ssh
@pytest.mark.slow
def test_event_logs_of_spark_come_home_behind_the_journal(
    launched: Callable[[], Machine], host: SshHost, tmp_path: Path
) -> None:
    machine = launched()
    (folder,) = host.clusters()
    logs = folder / "journal" / "spark"
    logs.mkdir()
    (logs / "app-1.zstd").write_bytes(b"events")
    cloud = get("ssh")
    assert is_reached_by_ssh(cloud)
    (node,) = cloud.await_slots([machine])
    assert journals.collect_event_logs(node, tmp_path / "now") == ""
    assert [path.name for path in (tmp_path / "now").rglob("*.*")] == ["app-1.zstd"]
    get("ssh").terminate([machine.id])
    (log,) = tmp_path.glob("*/*/journal/spark/app-1.zstd")
    assert log.read_bytes() == b"events" and log.stat().st_mode & 0o77 == 0
    assert log.parent.stat().st_mode & 0o77 == 0
    assert (log.parents[1] / "run.jsonl").read_text() == LINE
