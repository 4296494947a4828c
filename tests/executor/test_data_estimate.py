"""Estimates of bringing data to a cell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

import jupyter_sky as sky
from jupyter_sky import catalog
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.dag.dag import Data
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.decisions.optimizer.planning import plan
from jupyter_sky.execution.clusters.cluster_request import data_settings
from jupyter_sky.execution.files.data_estimate import (
    area_names,
    estimate_data,
    estimate_lines,
    place_of,
    planned_data,
)
from jupyter_sky.execution.files.dataset_listing import CellDataset
from jupyter_sky.machines.storage.datasets.data import usage_memory
from jupyter_sky.machines.storage.datasets.residency import ResidencyRule, Station, check_residency
from jupyter_sky.machines.storage.stores.errors import SkyResidency
from jupyter_sky.machines.storage.stores.listing import Manifest
from jupyter_sky.machines.storage.stores.store import StoredObject
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.uri import StorageUri


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


def dataset(text: str, gb: float, count: int = 3) -> CellDataset:
    uri = StorageUri.parse(text)
    objects = [StoredObject(f"x/{n}", int(gb * 1e9 / count), "v") for n in range(count)]
    return CellDataset("data/x", open_store(uri), Manifest(uri, tuple(objects), "x/"))


def test_egress_between_clouds_is_that_of_the_catalog() -> None:
    prices = catalog.load()
    found = estimate_data(dataset("s3://bucket/x/", 150), "gcp/us-central1", prices)
    listed = prices.egress("aws/us-east-1", "gcp/us-central1", 150)
    assert listed.usd is not None
    assert found.charge.egress.usd == pytest.approx(listed.usd)
    text = str(found)
    assert "150.0 GB in 3 objects, aws/us-east-1 → gcp/us-central1: about" in text
    assert f"${listed.usd:.2f} egress (listed) + " in text and "requests (listed)" in text


def test_several_machines_pay_for_one_download() -> None:
    data, prices = dataset("s3://bucket/x/", 150), catalog.load()
    one = estimate_lines([data], "gcp/us-central1", prices)
    assert estimate_lines([data], "gcp/us-central1", prices, nodes=3) == one


def test_data_of_this_machine_cost_no_egress() -> None:
    found = estimate_data(dataset("file:/x/", 1), "aws/us-east-1", catalog.load())
    assert found.usd == 0.0 and found.duration is not None
    assert "$0.00 egress" in str(found)


def test_place_of_another_endpoint_is_not_known() -> None:
    uri = StorageUri.parse("s3://bucket/x?endpoint=http://127.0.0.1:1")
    assert place_of(open_store(uri), uri) == ""
    found = estimate_data(dataset(str(uri), 1), "aws/us-east-1", cast(Any, None))
    assert "a place that is not known → aws/us-east-1" in str(found)


def test_cached_dataset_costs_nothing() -> None:
    data = dataset("s3://bucket/x/", 150)
    prices = catalog.load()
    (line,) = estimate_lines([data], "gcp/us-central1", prices, there=frozenset([data.dataset.id]))
    assert line == "data/x: 150.0 GB in 3 objects of s3://bucket/x/: there already, 0 bytes, $0.00"


def test_dataset_draws_the_cell_to_its_region() -> None:
    """More egress than a machine costs elsewhere: the plan goes where the data are."""
    need = Resources.parse(cpus="2+", cloud=["aws", "gcp"], on_demand=True)
    free = plan(need, tracked=False)
    assert free.tasks[0].offer.place != "aws/eu-central-1"
    cell = CellDataset(
        "data/x",
        open_store(uri := StorageUri.parse("s3://bucket/x/?region=eu-central-1")),
        Manifest(uri, (StoredObject("x/1", 500 * 10**9, "v"),), "x/"),
    )
    (data,) = planned_data([cell])
    assert (data.cloud, data.region, data.objects) == ("aws", "eu-central-1", 1)
    drawn = plan(need, tracked=False, **data_settings([data], ()))
    assert (drawn.tasks[0].offer.cloud, drawn.tasks[0].offer.region) == ("aws", "eu-central-1")
    assert any("measured: 500 GB in 1 objects of s3://bucket" in note for note in drawn.notes)
    little = replace(data, gb=0.0001)
    near = plan(need, tracked=False, **data_settings([little], ()))
    assert near.tasks[0].offer.place == free.tasks[0].offer.place, "little data draw nothing"


def test_requests_enter_the_price_of_a_plan() -> None:
    need = Resources.parse(cpus="2", cloud=["aws"], region="us-east-1", on_demand=True)
    data = Data("s3://bucket/x", 1.0, "aws", "us-east-1", objects=10**6)
    many = plan(need, tracked=False, inputs=[data])
    few = plan(need, tracked=False, inputs=[replace(data, objects=0)])
    assert many.usd - few.usd == pytest.approx(0.4)
    assert many.certificate.checked


def test_cell_stays_in_the_area_of_its_data() -> None:
    uri = StorageUri.parse("s3://patients/x/")
    configured = {"s3://patients/": "eu", "s3://other": "us"}
    assert area_names([uri], configured) == ("EU",)
    assert area_names([uri], {"s3://patients": "eu, local"}) == ()
    assert area_names([uri], {"s3://patient": "eu"}) == ()
    need = Resources.parse(cpus="2", cloud=["aws"], on_demand=True)
    found = plan(need, tracked=False, **data_settings((), ("EU",)))
    assert found.tasks[0].offer.region.startswith("eu-")


def test_plan_takes_the_size_that_was_measured(own_data: None) -> None:
    uri = StorageUri.parse("s3://bucket/x/")
    task = sky.Task("train").set_input("s3://bucket/x/", region="us-east-1")
    task.set_resources(cpus=2, cloud=["gcp"], on_demand=True)
    with pytest.raises(SkyUsageError, match=r"%sky storage du s3://bucket/x/ measures it"):
        sky.plan(task)
    objects = tuple(StoredObject(f"x/{n}", 10**9, "v") for n in range(100))
    usage_memory().remember(Manifest(uri, objects, "x/"))
    found = sky.plan(task)
    assert any("measured: 100 GB in 100 objects of s3://bucket/x/" in n for n in found.notes)
    (move,) = found.moves
    assert move.usd == pytest.approx(100 * 0.09 + 100 * 0.4e-6) and move.objects == 100


def test_every_station_is_checked_and_this_machine_too() -> None:
    prices, rule = catalog.load(), ResidencyRule.parse("eu, local", "--residency")
    good = [Station("s3://a", "aws/eu-central-1"), Station("gs://b", "gcp/eu")]
    check_residency(prices, [rule], [*good, Station("here", "local")])
    with pytest.raises(SkyResidency, match=r"train: gcp/us-central1 is in US, not in EU, local"):
        check_residency(prices, [rule], [*good, Station("train", "gcp/us-central1")])
    with pytest.raises(SkyResidency, match=r"box: the country of its place is not known"):
        check_residency(prices, [rule], [*good, Station("box", "ssh/basement")])
