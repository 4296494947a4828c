"""Estimates of bringing data to a cell."""

from __future__ import annotations

from typing import Any, cast

import pytest

from jupyter_sky import catalog
from jupyter_sky.executor.data_estimate import estimate_data, place_of
from jupyter_sky.executor.datasets import CellDataset
from jupyter_sky.storage.listing import Manifest
from jupyter_sky.storage.store import StoredObject
from jupyter_sky.storage.stores import open_store
from jupyter_sky.storage.uri import StorageUri


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
    assert found.egress is not None and listed.usd is not None
    assert found.egress.usd == pytest.approx(listed.usd)
    text = str(found)
    assert "150.0 GB in 3 objects, aws/us-east-1 → gcp/us-central1: about" in text
    assert f"${listed.usd:.2f} egress" in text


def test_data_of_this_machine_cost_no_egress() -> None:
    found = estimate_data(dataset("file:/x/", 1), "aws/us-east-1", catalog.load())
    assert found.egress is None and found.duration is not None
    assert "$0.00 egress" in str(found)


def test_place_of_another_endpoint_is_not_known() -> None:
    uri = StorageUri.parse("s3://bucket/x?endpoint=http://127.0.0.1:1")
    assert place_of(open_store(uri), uri) == ""
    found = estimate_data(dataset(str(uri), 1), "aws/us-east-1", cast(Any, None))
    assert "a place that is not known → aws/us-east-1" in str(found)
