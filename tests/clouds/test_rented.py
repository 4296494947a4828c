"""What is said of rented machines by what is noted of them here and what their cloud knows."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import pytest

from jupyter_sky.clouds.base import Machine
from jupyter_sky.clouds.rented import RentedCloud, records_of
from jupyter_sky.config import Sky
from tests.emulators.compute import Compute

pytest_plugins = ["tests.clouds.gcp_fixtures"]
NAME = "us-central1-b/train-0"


@pytest.fixture
def cloud(compute: Compute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RentedCloud:
    from jupyter_sky.clouds.gcp import GcpDriver

    monkeypatch.setattr(Sky.load(), "data_dir", str(tmp_path))
    return RentedCloud(GcpDriver())


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
    records_of().open("train", record | more)


@pytest.mark.parametrize(
    ("age", "more", "state"),
    [
        (5.0, {}, "starting"),  # listings lag behind launches
        (500.0, {}, "ended"),
        (5.0, {"nodes": [{}]}, "ended"),  # it was there already
    ],
)
def test_a_machine_that_its_cloud_does_not_list(
    cloud: RentedCloud, age: float, more: dict[str, object], state: str
) -> None:
    _noted(age, **more)
    assert [seen.state for seen in cloud.describe([NAME])] == [state]
