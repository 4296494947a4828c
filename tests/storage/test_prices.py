"""Prices of transfers: pure arithmetic on the catalog's figures."""

from __future__ import annotations

import pytest

from jupyter_sky import catalog
from jupyter_sky.machines.storage.stores.object_transfer import TransferItem
from jupyter_sky.machines.storage.stores.places import Amount, ColdBytes, price_transfer
from jupyter_sky.machines.storage.stores.store import MIB, Capability, StoredObject
from jupyter_sky.machines.storage.stores.traffic import Traffic, TransferTraffic
from jupyter_sky.machines.storage.transfers.estimate import estimate_transfer, expected_traffic

AWS, GOOGLE = "aws/us-east-1", "gcp/us-central1"


def test_small_files_between_clouds_cost_what_the_guide_says() -> None:
    """150 GB in 1,281,167 objects: 13.50 USD of egress and 6.92 USD of requests."""
    size = 150 * 10**9 // 1_281_167
    objects = [StoredObject(f"x/{n}", size, "v") for n in range(1000)]
    one = expected_traffic([TransferItem(each, each.key) for each in objects], True, Capability())
    assert (one.source.reads, one.target.writes, one.moved) == (1000, 1000, 1000 * size)
    whole = TransferTraffic(Traffic(reads=1_281_167), Traffic(writes=1_281_167), 150 * 10**9)
    charge = price_transfer(catalog.load(), (AWS, GOOGLE), whole)
    assert charge.egress.usd == pytest.approx(13.50) and charge.egress.basis == "listed"
    assert charge.requests.usd == pytest.approx(6.92, abs=0.005)
    assert str(charge) == "$13.50 egress (listed) + $6.92 requests (listed)"


def test_estimate_says_amount_way_time_and_price() -> None:
    found = [StoredObject("x/1", 150 * 10**9, "v", {"crc32c": "00000000"})]
    traffic = expected_traffic([TransferItem(found[0], "y")], True, Capability())
    estimate = estimate_transfer(catalog.load(), (AWS, GOOGLE), found, traffic)
    text = str(estimate)
    assert text.startswith("150.0 GB in 1 object, aws/us-east-1 → gcp/us-central1: about 4 min")
    assert "$13.50 egress (listed) + $0.05" in text
    assert traffic.target.writes == traffic.source.reads + 2, "begin, parts, complete"
    assert estimate.usd == pytest.approx(13.50 + traffic.source.reads * 5.4e-6 + 10e-6)


def test_machine_between_two_clouds_pays_twice() -> None:
    traffic = TransferTraffic(target=Traffic(sent=10**9), moved=10**9)
    prices = catalog.load()
    first = prices.egress(AWS, "azure/eastus", 1).usd
    second = prices.egress("azure/eastus", GOOGLE, 1).usd
    charge = price_transfer(prices, (AWS, "azure/eastus", GOOGLE), traffic)
    assert first and second and charge.egress.usd == pytest.approx(first + second)
    here = price_transfer(prices, (AWS, "local", GOOGLE), traffic)
    assert here.egress.usd == pytest.approx(prices.egress(AWS, "internet", 1).usd)


def test_what_is_not_known_is_never_nothing() -> None:
    traffic = TransferTraffic(Traffic(reads=1), Traffic(writes=1), 10)
    charge = price_transfer(catalog.load(), ("", GOOGLE), traffic)
    assert charge.usd is None and charge.known_usd == 0.0
    assert "price of the egress not known" in str(charge)


def test_r2_charges_requests_and_no_egress() -> None:
    traffic = TransferTraffic(Traffic(reads=10**6), Traffic(writes=10**6), 10**12)
    charge = price_transfer(catalog.load(), ("r2", GOOGLE), traffic)
    assert charge.egress.usd == 0.0 and charge.requests.usd == pytest.approx(0.36 + 5.0)


def test_cold_classes_cost_for_reading() -> None:
    cold = [ColdBytes("STANDARD_IA", 10**12)]
    charge = price_transfer(catalog.load(), (AWS, AWS), TransferTraffic(), cold)
    assert charge.retrieval.usd == pytest.approx(10.0)
    assert "+ $10.00 retrieval (assumed)" in str(charge)


def test_copies_inside_a_store_read_nothing() -> None:
    big = StoredObject("x", 600 * MIB, "v")
    traffic = expected_traffic([TransferItem(big, "y")], True, Capability(), inside=True)
    assert traffic.source.reads == 1, "its checksum"
    assert traffic.target.writes == 3 + 2


def test_sum_is_as_sure_as_its_least_sure_part() -> None:
    assert Amount(1.0, "listed") + Amount(2.0, "assumed") == Amount(3.0, "assumed")
    assert (Amount(1.0) + Amount(None, "not known")).usd is None
