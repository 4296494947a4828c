"""Rates of transfers: observed ones replace those of the catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky import catalog
from jupyter_sky.base.requests.dag.dag import Data
from jupyter_sky.base.store.store import Store
from jupyter_sky.decisions.optimizer.market import Market
from jupyter_sky.decisions.optimizer.pricing import Pricer
from jupyter_sky.knowledge.tracker import Tracker
from jupyter_sky.knowledge.tracker.transfer_rates import TransferObservation, TransferRates

AWS, GOOGLE = "aws/us-east-1", "gcp/us-central1"


def seen(gbit_s: float, at: float = 100.0, part_size: int = 16, machines: int = 1):
    nbytes = 10**9
    return TransferObservation(AWS, GOOGLE, part_size, machines, nbytes, nbytes * 8e-9 / gbit_s, at)


def test_median_of_the_latest_of_one_kind() -> None:
    rates = TransferRates.of([seen(1), seen(2), seen(4), seen(50, at=1.0, machines=8)], 200.0)
    found = rates.find(AWS, GOOGLE)
    assert found is not None and (found.gbit_s, found.count, found.machines) == (2.0, 3, 1)
    assert rates.find(GOOGLE, AWS) is None


def test_short_and_old_transfers_tell_nothing() -> None:
    short = TransferObservation(AWS, GOOGLE, 16, 1, 10**9, 0.1, 100.0)
    small = TransferObservation(AWS, GOOGLE, 16, 1, 1000, 10.0, 100.0)
    assert not TransferRates.of([short, small], 101.0).rates
    assert not TransferRates.of([seen(1)], 100.0 + 31 * 24 * 3600).rates


def test_tracker_keeps_rates_for_other_processes(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    Tracker(store.database).record_transfer(seen(2))
    other = Store.open(tmp_path)
    found = Tracker(other.database).transfer_rates(101.0).find(AWS, GOOGLE)
    assert found is not None and found.gbit_s == pytest.approx(2.0)
    store.close()
    other.close()


def test_duration_says_what_it_rests_on() -> None:
    rates, prices = TransferRates.of([seen(0.5)], 101.0), catalog.load()
    took = rates.duration(prices, AWS, GOOGLE, 100)
    assert (took.basis, took.gbit_s) == ("observed", 0.5)
    assert took.hours == pytest.approx(100 * 8 / 0.5 / 3600)
    assert rates.duration(prices, GOOGLE, AWS, 100) == prices.transfer_hours(GOOGLE, AWS, 100)


def test_plan_uses_observed_rates() -> None:
    prices = catalog.load()
    hours = []
    for rates in (None, TransferRates.of([seen(0.5)], 101.0)):
        pricer = Pricer(Market(prices, rates=rates))
        store = pricer.store(Data("s3://x", 100.0, "aws", "us-east-1"))
        there = pricer.store(Data("gs://x", 100.0, "gcp", "us-central1"))
        hours.append(float(pricer.moves.hours_per_gb(store, there)[0, 0]))
    assert hours[1] == pytest.approx(8 / 0.5 / 3600) and hours[0] < hours[1]
