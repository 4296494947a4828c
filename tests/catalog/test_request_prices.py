"""Prices of requests to object stores."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from jupyter_sky import catalog
from jupyter_sky.knowledge.catalog import schema
from jupyter_sky.knowledge.catalog.catalog import RequestPrices


def test_shipped_prices_are_those_of_the_file_they_are_made_from() -> None:
    path = Path(catalog.__file__).parents[2] / "catalog/requests.csv"
    if not path.is_file():
        pytest.skip("not a checkout")
    with path.open() as file:
        rows = [{**row, "usd": float(row["usd"])} for row in csv.DictReader(file)]
    assert catalog.load().rows("requests") == rows
    assert list(rows[0]) == list(schema.columns("requests"))
    assert all(row["source"] and row["basis"] in ("listed", "assumed") for row in rows)


def test_region_wins_over_cloud_and_the_rest_is_assumed() -> None:
    prices = catalog.load()
    here = prices.request_price("aws", "us-east-1", "write")
    assert here.usd == pytest.approx(5e-6) and here.basis == "listed" and here.date == "2025-10-28"
    there = prices.request_price("aws", "eu-west-1", "read")
    assert there.usd == pytest.approx(0.4e-6) and there.basis == "assumed" and there.note


def test_classes_that_charge_for_reading() -> None:
    prices = catalog.load()
    assert prices.request_price("aws", "us-east-1", "retrieval").usd == 0.0
    assert prices.request_price("aws", "us-east-1", "retrieval", "STANDARD_IA").usd == 0.01
    assert prices.request_price("aws", "us-east-1", "retrieval", "OTHER").usd is None
    cool = prices.request_price("azure", "eastus", "write", "cool")
    assert cool.usd == pytest.approx(13e-6)


def test_unknown_store_has_no_price() -> None:
    found = RequestPrices([]).find("aws", "us-east-1", "write")
    assert found.usd is None and found.basis == "not known"
    assert catalog.load().request_price("vast", "", "read").usd is None
