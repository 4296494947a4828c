"""An account of AWS without machines behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky import clouds
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.launches.launcher import Launcher
from tests.emulators.ec2 import Ec2


@pytest.fixture(scope="module")
def account() -> Iterator[Ec2]:
    cloud = Ec2()
    yield cloud
    cloud.close()


@pytest.fixture
def aws(
    account: Ec2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Ec2, Launcher]]:
    """An account with nothing in it, and a fresh connection to it."""
    account.reset()
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    for name, value in account.env().items():
        monkeypatch.setenv(name, value)
    Sky.clear_instance()
    clouds.get.cache_clear()
    monkeypatch.delitem(__import__("sys").modules, "jupyter_sky.clouds.aws.provider", raising=False)
    cloud = clouds.get("aws")
    assert isinstance(cloud, Launcher)
    yield account, cloud
    clouds.get.cache_clear()
    Sky.clear_instance()
