"""A cloud that is built in by one module and one line of the index."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky import clouds
from jupyter_sky.base.clouds import index, register
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.provider.values import LaunchRequest
from jupyter_sky.machines.provisioner.placement import decide_placement
from tests.emulators.fleet import Fleet
from tests.emulators.hosts import USABLE
from tests.emulators.toy import ToyCloud

TOY = Path(__file__).with_name("toy_cloud") / "sky_toy.py"
NAME = '    name, title = "toy", "Toy Cloud"\n'


@pytest.fixture
def built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The module of the toy cloud, with its line of the index."""
    source = TOY.read_text(encoding="utf-8")
    assert NAME in source
    module = source.replace(NAME, f"{NAME}    has_live_offers = True\n")
    (tmp_path / "built_in_toy.py").write_text(module, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(index.VENDORS, "toy", "built_in_toy:Toy")
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path / "data"))
    Sky.clear_instance()
    yield
    clouds.get.cache_clear()
    Sky.clear_instance()
    sys.modules.pop("built_in_toy", None)


@pytest.fixture
def account(built_in: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyCloud]:
    """An account of the toy cloud, with real machines."""
    with Fleet(minute=1.0) as fleet:
        cloud = ToyCloud(fleet)
        for name, value in cloud.env().items():
            monkeypatch.setenv(name, value)
        yield cloud
        cloud.close()


@pytest.mark.usefixtures("built_in")
def test_cloud_is_listed_by_its_line_of_the_index() -> None:
    assert "toy" in register.known_names() and "toy" not in register.installed_names()
    assert "built_in_toy" not in sys.modules
    assert {"toy", "aws", "local"} <= {*clouds.launchable(), *clouds.provider_names(), "local"}
    assert register.find_facts("toy").title == "Toy Cloud" and clouds.is_rented("toy")
    assert register.sort_names(["local", "toy", "aws"]) == ["aws", "toy", "local"]
    rows = {row[0]: row for row in sky.check().rows}
    assert rows["toy"][1] == "no" and rows["toy"][3] == "set TOY_URL and TOY_KEY"


@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_cloud_is_planned_and_launched_as_others(account: ToyCloud) -> None:
    need = Resources.parse(cloud="toy")
    placed = decide_placement(need)
    offer = placed.offer
    assert offer.cloud == "toy" and clouds.launch_obstacle(offer) == ""
    launcher = clouds.get_launcher("toy")
    request = LaunchRequest("train-3f2a91c0", "train", offer, need, 600.0, "ada", "a.ipynb")
    (machine,) = launcher.launch(request)
    assert [each["id"] for each in account.machines()] == [machine.id]
    assert clouds.recorded_names()[-1] == "toy"
    launcher.terminate([machine.id])
    assert account.machines() == []
