"""States of rented machines, from the records here and the answers of their cloud."""

from __future__ import annotations

import socket
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyNoCapacity
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.launches.base import SshAccessibleCloud
from jupyter_sky.clouds.launches.launch_records import FILE
from jupyter_sky.clouds.launches.launcher import Launcher
from jupyter_sky.clouds.launches.machine_records import launch_records
from jupyter_sky.clouds.launches.ssh_slot import Slot
from jupyter_sky.clouds.provider.values import Machine
from tests.clouds.gcp_requests import order
from tests.emulators.gce import Compute

pytest_plugins = ["tests.clouds.gcp_fixtures"]
NAME = "us-central1-b/train-0"


@pytest.fixture
def cloud(compute: Compute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    from jupyter_sky.clouds.gcp.provider import Gcp

    monkeypatch.setattr(Sky.load(), "data_dir", str(tmp_path))
    return Launcher(Gcp())


def _noted(age: float, **more: object) -> None:
    """Note a machine that the cloud does not list."""
    machine = Machine(
        NAME,
        "gcp",
        cluster="train",
        rank=0,
        state="starting",
        started=time.time() - age,
        token="train",
        owner="ada-1234abcd",
    )
    record = {"cloud": "gcp", "region": "us-central1", "machines": [asdict(machine)]}
    launch_records().create("train", record | more)


@pytest.mark.parametrize(
    ("age", "more", "state"),
    [
        (5.0, {}, "starting"),  # listings lag behind launches
        (500.0, {}, "ended"),
        (5.0, {"nodes": [{}]}, "ended"),  # it was there already
    ],
)
def test_a_machine_that_its_cloud_does_not_list(
    cloud: Launcher, age: float, more: dict[str, object], state: str
) -> None:
    _noted(age, **more)
    assert [seen.state for seen in cloud.describe([NAME])] == [state]


def test_slots_that_were_taken_are_read_without_a_word_to_anybody(
    cloud: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = Address("sky", "192.0.2.7")
    slots = [Slot(0, "train.0", NAME, address, private="10.0.0.7", packages=("torch",))]
    _noted(500.0, nodes=[asdict(node) for node in slots])
    (machine,) = [Machine(**each) for each in launch_records().read("train")["machines"]]
    for name in ("_await_running", "_connect_slot", "_describe"):
        monkeypatch.setattr(cloud._startup, name, lambda *_: pytest.fail("it was asked"))
    assert isinstance(cloud, SshAccessibleCloud)
    assert cloud.recorded_slots([machine]) == slots


def test_machine_that_has_ended_is_not_asked_for_its_log(cloud: Launcher) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # SSH would wait for it for long
        address = Address("sky", *silent.getsockname())
        slot = Slot(0, "train.0", NAME, address, directory="/home/sky/train")
        _noted(500.0, nodes=[asdict(slot)])
        cloud.terminate([NAME])
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()
    missing = launch_records().read("train")["ended"]["missing"]
    assert missing == "its machine has ended"


def test_machines_that_came_up_in_vain_are_noted_for_the_ledger(
    cloud: Launcher, compute: Compute
) -> None:
    compute.refuse("ZONE_RESOURCE_POOL_EXHAUSTED")
    asked = order("gang-00000001", nodes=4)
    with pytest.raises(SkyNoCapacity):
        cloud.launch(asked)
    assert not compute.machines()
    assert len({machine.id for machine in cloud.recorded_machines(asked.token)}) == 3


def test_notes_that_have_not_changed_are_not_read_again(
    cloud: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a week of work there are hundreds, and clouds are asked several times a second."""
    _noted(500.0)
    for number in range(20):
        launch_records().create(f"other-{number}", {"cloud": "gcp", "machines": []})
    cloud.describe([NAME])
    read: list[str] = []
    text = Path.read_text

    def read_text(path: Path) -> str:
        read.extend([path.parent.name] if path.name == FILE else [])
        return text(path)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert [seen.state for seen in cloud.describe([NAME])] == ["ended"] and read == []
    _noted(5.0)  # another process may have written it
    assert [seen.state for seen in cloud.describe([NAME])] == ["starting"]
    assert read == ["train"]
