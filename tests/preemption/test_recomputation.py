"""The hook of placement: a factor for each spot offer and run time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from jupyter_sky.errors import SkyUsageError
from jupyter_sky.offers import Offer
from jupyter_sky.preemption import (
    Beliefs,
    Exponential,
    FloorHyperbolic,
    KaplanMeier,
    Recomputation,
    google_2019,
    turnaround,
)

SPOT = Offer("aws", "us-east-1", "m5.large", 2, 8, spot=True, price=0.04)
YOUNG = FloorHyperbolic(0.005, 0.41, 0.3, 24.0)


def test_the_factor_is_the_expected_run_time_over_the_work() -> None:
    again = Recomputation(lambda offer: Exponential(0.1))
    assert again(SPOT, 4.0) == pytest.approx(math.expm1(0.4) / 0.4)
    young = Recomputation(lambda offer: YOUNG)
    for hours, nodes in ((0.5, 1), (3.0, 1), (3.0, 4)):
        assert young(SPOT, hours, nodes) == pytest.approx(
            turnaround(YOUNG, hours, nodes).hours / hours
        )
        assert young.expected(SPOT, hours, nodes) == turnaround(YOUNG, hours, nodes)


def test_longer_runs_and_more_machines_lose_more() -> None:
    again = Recomputation(lambda offer: YOUNG)
    factors = [again(SPOT, 2.0, nodes) for nodes in (1, 2, 8)]
    assert factors == sorted(factors) and factors[0] > 1
    assert again(SPOT, 12.0) > again(SPOT, 3.0)
    assert again(SPOT, 25.0) == math.inf, "longer than the cap"


def test_checkpoints_bound_the_loss() -> None:
    plain, saving = (Recomputation(lambda offer: YOUNG, cost) for cost in (None, 1 / 60))
    assert 1 < saving(SPOT, 12.0) < plain(SPOT, 12.0)
    assert 1 < saving(SPOT, 60.0) < 1.2, "longer than the cap, but saved"
    assert saving(SPOT, 12.0, 4) > saving(SPOT, 12.0)
    assert saving(SPOT, 1 / 120) == pytest.approx(plain(SPOT, 1 / 120))
    measured = Recomputation(lambda offer: KaplanMeier.of(google_2019()), 1 / 60)
    assert 1 < measured(SPOT, 6.0, 2) < 1.3


def test_restarts_are_counted() -> None:
    quick, slow = (Recomputation(lambda offer: YOUNG, restart=hours) for hours in (0.0, 0.2))
    assert slow(SPOT, 2.0) > quick(SPOT, 2.0)


def test_on_demand_is_not_charged() -> None:
    def forbidden(offer: Offer) -> Exponential:
        raise AssertionError

    assert Recomputation(forbidden)(replace(SPOT, spot=False), 100.0) == 1.0


def test_beliefs_are_what_it_takes() -> None:
    again = Recomputation(Beliefs())
    google = Offer("gcp", "us-west1", "n1-highcpu-32", 32, 29, spot=True)
    assert 1.05 < again(google, 2.0) < 1.6
    assert again(google, 2.0) > again(replace(google, vcpus=2, instance_type="n1-highcpu-2"), 2.0)


@pytest.mark.parametrize("hours, nodes", [(0.0, 1), (math.nan, 1), (-1.0, 1), (1.0, 0)])
def test_runs_that_make_no_sense_are_refused(hours: float, nodes: int) -> None:
    with pytest.raises(SkyUsageError):
        Recomputation(Beliefs())(SPOT, hours, nodes)
