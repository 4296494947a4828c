"""Records of real launches in the tracker, and the provisioner's use of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky import tracker
from jupyter_sky.base.errors import SkyClusterLost, SkyNoCapacity
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds import LaunchRequest, get
from jupyter_sky.machines.provisioner import provision
from tests.conftest import clean, processes_of, wait_until

cloud = get("local")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data directory of the test alone."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    yield tmp_path
    clean(tmp_path)
    Sky.clear_instance()


def quiet(stage: str, detail: str) -> None:
    """Report nothing."""


def order(token: str = "train-1") -> LaunchRequest:
    resources = Resources.parse(cpus="1")
    (offer,) = cloud.offers(resources)
    return LaunchRequest(token, "train", offer, resources, 60.0, "me", "a.ipynb")


def stand_in_the_way(data: Path) -> None:
    """A file where the cluster's directory should be: this machine cannot make one."""
    (data / "local").mkdir()
    (data / "local" / "train-1").write_text("in the way")


def test_a_refusal_is_observed_and_its_place_skipped_for_a_while(data: Path) -> None:
    stand_in_the_way(data)
    with pytest.raises(SkyNoCapacity, match="this machine refuses a cluster"):
        provision(order(), quiet)
    (seen,) = tracker.current().observations()
    assert (seen.kind, seen.cause) == ("refused", "capacity")
    assert seen.place == tracker.Place.of(order().offer)
    assert "this machine refuses a cluster" in seen.why and abs(time.time() - seen.at) < 60
    with pytest.raises(SkyNoCapacity) as caught:
        provision(order(), quiet)
    assert "is skipped for another 0:0" in caught.value.message
    assert "no capacity (this machine refuses a cluster" in caught.value.message
    assert "%sky tracker clear" in str(caught.value)
    assert tracker.current().observations() == (seen,), "it was not asked"
    tracker.clear("local")
    with pytest.raises(SkyNoCapacity, match="this machine refuses"):
        provision(order(), quiet)
    assert tracker.chance(order().offer).tried == 2


def test_another_market_is_not_skipped(data: Path) -> None:
    """The same machine as spot is another place: it is asked, and refuses by itself."""
    stand_in_the_way(data)
    first = order()
    with pytest.raises(SkyNoCapacity, match="refuses"):
        provision(first, quiet)
    with pytest.raises(SkyNoCapacity, match="refuses"):
        provision(replace(first, offer=replace(first.offer, spot=True)), quiet)


def test_a_store_that_cannot_be_used_stops_no_launch(data: Path) -> None:
    import sqlite3

    db = sqlite3.connect(data / "sky.db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    stand_in_the_way(data)
    for _ in range(2):
        with pytest.raises(SkyNoCapacity, match="this machine refuses a cluster"):
            provision(order(), quiet)


@pytest.mark.slow
def test_a_launch_that_works_is_observed_with_its_time(data: Path) -> None:
    begun = time.monotonic()
    lease = provision(order(), quiet)
    took = time.monotonic() - begun
    try:
        (seen,) = tracker.current().observations()
        assert (seen.kind, seen.place) == ("launched", tracker.Place.of(order().offer))
        assert seen.seconds is not None and 0 < seen.seconds <= took
        assert tracker.chance(order().offer).seconds == pytest.approx(seen.seconds)
        assert tracker.blocked() == ()
    finally:
        cloud.terminate([machine.id for machine in lease.machines])
    wait_until(lambda: not processes_of(data))


@pytest.mark.slow
def test_a_controller_that_does_not_start_is_a_passing_failure(data: Path) -> None:
    """A file where the controller's directory should be: the head ends before it listens."""
    (data / "local" / "train-1").mkdir(parents=True)
    (data / "local" / "train-1" / "security").write_text("in the way")
    with pytest.raises(SkyClusterLost):
        provision(order(), quiet)
    (seen,) = tracker.current().observations()
    assert (seen.kind, seen.cause) == ("refused", "transient") and seen.why
    assert processes_of(data) == [], "what came up was ended"
    (block,) = tracker.blocked(now=seen.at)
    assert block.until - seen.at == 2.0, "this machine may be asked again soon"


@pytest.mark.slow
def test_a_machine_that_is_given_back_is_observed_with_its_age(fresh: Any) -> None:
    book = fresh()
    assert book.run("%%sky --nodes 2 --cpus 1\n1").status == "ok"
    assert "ended" in book.run("%sky down all").stdout
    table = book.run(
        "import jupyter_sky as sky\n"
        "[(o.kind, o.seconds > 0) for o in sky.tracker.current().observations()]"
    )
    assert table.result == "[('launched', True), ('ended', True), ('ended', True)]"
