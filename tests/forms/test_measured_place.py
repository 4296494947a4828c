"""Measurements of own runs beside the place where a cell would run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from jupyter_sky import tracker
from jupyter_sky.base.requests.offers import Offer, Place
from jupyter_sky.base.store.store import Store
from jupyter_sky.interfaces.forms.completion import CompletionContext
from jupyter_sky.interfaces.forms.measured_place import measured_place
from jupyter_sky.interfaces.forms.rpc import make_handlers
from jupyter_sky.knowledge.tracker.transfer_rates import TransferObservation
from tests.store.rows import CLUSTER, RUN

DAY = 86400.0
HERE = Offer("aws", "us-east-1", "g5.xlarge", 4, 16, gpu="A10G", gpu_count=1, price=1.0)


@pytest.fixture
def store(own_data: None, tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path)
    opened.save_cluster(replace(CLUSTER, offer=asdict(HERE), spot=False))
    opened.save_cluster(replace(CLUSTER, name="other", cloud="gcp", instance_type="g2-standard-4"))
    yield opened
    opened.close()


def run(store: Store, id: str, ago: float, status: str = "ok", took: float = 720.0, **more: object):
    at = time.time() - ago
    store.begin_run(replace(RUN, run_id=id, started=at - took, name="fit", **more))
    store.end_run(id, status, at)


def facts(store: Store, application: str = "fit") -> dict[str, tuple[str, ...]]:
    return {each.about: each.facts for each in measured_place(HERE, application, store)}


def test_nothing_is_told_where_nothing_was_measured(store: Store) -> None:
    run(store, "r1", 60.0, cluster="other")
    tracker.observe("launched", Place("aws", "eu-west-1", "", "g5.xlarge"), seconds=40.0)
    assert facts(store) == {}


def test_runs_of_the_application_stand_before_all_runs_there(store: Store) -> None:
    run(store, "r1", 3 * DAY, waited=90.0)
    run(store, "r2", 2 * DAY, took=1440.0, waited=30.0)
    run(store, "r3", 2.5 * DAY, status="error")
    run(store, "r4", 2.5 * DAY, status="lost")
    assert facts(store) == {
        "fit on aws g5.xlarge": (
            "4 runs, 2 failed (50 %)",
            "18:00 each",
            "waited 0:15",
            "paid $0.30 each at $1.00/h",
            "latest 2 days ago",
        )
    }, "all runs there are its own"
    store.begin_run(replace(RUN, run_id="r5", started=time.time() - 60, name="plot"))
    store.end_run("r5", "ok", time.time())
    found = facts(store)
    assert list(found) == ["fit on aws g5.xlarge", "all runs on aws g5.xlarge"]
    assert found["all runs on aws g5.xlarge"][0] == "5 runs, 2 failed (40 %)"
    assert list(facts(store, "never seen")) == ["all runs on aws g5.xlarge"]


def test_starts_and_transfers_of_the_place(store: Store) -> None:
    known, zone = tracker.current(), Place("aws", "us-east-1", "us-east-1b", "g5.xlarge")
    for seconds in (40.0, 50.0):
        tracker.observe("launched", zone, seconds=seconds)
    tracker.observe("refused", Place("aws", "us-east-1"), cause="quota", why="VcpuLimitExceeded")
    tracker.observe("refused", replace(zone, spot=True), cause="capacity", why="no spot")
    for target in ("gcp/us-west1", "local"):
        seen = TransferObservation("aws/us-east-1", target, 16, 1, 10**9, 4.0, time.time() - DAY)
        known.record_transfer(seen)
    known.record_transfer(replace(seen, source="gcp/us-west1"))
    assert facts(store) == {
        "starts at aws us-east-1 g5.xlarge": (
            "3 starts, 1 failed (33 %)",
            "ready after 0:45",
            "latest less than a day ago",
        ),
        "aws/us-east-1 to gcp/us-west1": ("1 transfer", "2 Gbit/s", "latest 1 day ago"),
        "aws/us-east-1 to local": ("1 transfer", "2 Gbit/s", "latest 1 day ago"),
    }


def test_place_is_answered_with_what_was_measured_there(store: Store) -> None:
    run(store, "r1", 60.0)
    (up,) = (row for row in store.clusters() if row.name == "train")
    known = CompletionContext((up,), "", store=store)
    asked = {"fields": {"values": {"cluster": "train", "name": "fit"}}, "source": "%%sky\nfit(X)"}
    answer = make_handlers(lambda __: known)["place"](asked)
    assert "would run on cluster train" in answer["words"]
    assert [each["about"] for each in answer["measured"]] == ["fit on aws g5.xlarge"]
    without = make_handlers(lambda __: replace(known, store=None))["place"](asked)
    assert without["measured"] == []
    nowhere = make_handlers(lambda __: known)["place"]({"fields": {"values": {"cpus": "many"}}})
    assert nowhere == {"words": "", "measured": []}
