"""Matrices of transfers against the catalog asked pair by pair."""

from __future__ import annotations

import random

import numpy as np
import pytest

from jupyter_sky import catalog as rooms
from jupyter_sky.decisions.optimizer.market import get_offer_columns
from jupyter_sky.decisions.optimizer.transfers import TransferPrices, get_transfer_prices
from jupyter_sky.knowledge.catalog import Catalog, Location


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return rooms.load()


@pytest.fixture(scope="module")
def kept(catalog: Catalog) -> TransferPrices:
    return get_transfer_prices(catalog)


def some_sites(catalog: Catalog, count: int, seed: int) -> list[tuple[str, str, str]]:
    return random.Random(seed).sample(get_offer_columns(catalog).sites, count)


@pytest.mark.parametrize("gb", [0.5, 900.0, 5000.0, 30_000.0, 400_000.0])
def test_usd_is_what_the_catalog_says_in_every_tier(
    catalog: Catalog, kept: TransferPrices, gb: float
) -> None:
    sites = some_sites(catalog, 45, int(gb * 10))
    table = kept.table(sites, gb)
    for i, here in enumerate(sites):
        for j, there in enumerate(sites):
            found = catalog.egress(Location(*here), Location(*there), gb).usd
            expected = 0.0 if i == j else gb * kept.assumed_usd_per_gb if found is None else found
            assert table.usd[i, j] == pytest.approx(expected, rel=1e-9, abs=1e-9), (here, there)


def test_a_table_for_one_gb_holds_below_the_first_kink(
    catalog: Catalog, kept: TransferPrices
) -> None:
    sites, gb = some_sites(catalog, 30, 3), kept.tier_bounds[0] * 0.9
    assert not kept.has_tiers(gb) and kept.has_tiers(kept.tier_bounds[0] * 1.1)
    one, whole = kept.table(sites), kept.table(sites, gb)
    for name in ("usd", "hours", "gco2"):
        np.testing.assert_allclose(getattr(one, name) * gb, getattr(whole, name), atol=1e-9)


def test_hours_are_what_the_catalog_says(catalog: Catalog, kept: TransferPrices) -> None:
    sites = some_sites(catalog, 25, 4)
    table = kept.table(sites, 70.0)
    for i, here in enumerate(sites):
        for j, there in enumerate(sites):
            expected = catalog.transfer_hours(Location(*here[:2]), Location(*there[:2]), 70.0).hours
            assert table.hours[i, j] == pytest.approx(expected)


def test_an_unknown_price_is_no_present(catalog: Catalog, kept: TransferPrices) -> None:
    assert catalog.egress("lambda/us-east-1", "aws/us-east-1", 1).usd is None
    ends = [
        np.array([kept.region(*place)]) for place in (("lambda", "us-east-1"), ("aws", "eu-west-1"))
    ]
    assert kept.usd(*ends, 10.0)[0, 0] == pytest.approx(10 * kept.assumed_usd_per_gb)
    assert 0.08 < kept.assumed_usd_per_gb < 0.2
    own = np.array([kept.region("local", "")])
    assert kept.usd(own, ends[1], 10.0)[0, 0] == 0.0, "what leaves an own machine is free"


def test_machines_planned_for_one_place_share_its_zone(
    catalog: Catalog, kept: TransferPrices
) -> None:
    gcp = ("gcp", "us-central1", "us-central1-a"), ("gcp", "us-central1", "us-central1-b")
    table = kept.table(gcp, 100.0)
    assert table.usd[0, 0] == 0.0 and table.usd[0, 1] == pytest.approx(1.0)
    assert table.hours[0, 0] > 0.0
