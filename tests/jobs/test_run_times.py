"""Run times of jobs: censoring by those that still run, and what is not known."""

from __future__ import annotations

import numpy as np
import pytest

from jupyter_sky.workflows.bags.decisions.run_times import RunTimes


def test_running_jobs_are_not_left_out() -> None:
    """Of 200 jobs only those below 1 h have ended after an hour; the mean is above theirs."""
    hours = np.random.default_rng(0).lognormal(0.0, 0.5, 200)
    ended, running = hours[hours < 1], np.full((hours >= 1).sum(), 1.0)
    naive, whole = RunTimes.of(ended).mean, RunTimes.of(ended, running).mean
    assert naive < 0.75 and whole == pytest.approx(hours.mean(), rel=0.15)


def test_draws_are_less_sure_with_fewer_jobs() -> None:
    hours = np.random.default_rng(1).lognormal(0.0, 0.3, 400)
    rng = np.random.default_rng(2)
    spreads = [
        RunTimes.of(hours[:count]).draw(rng, 400).mean(axis=1).std() for count in (4, 40, 400)
    ]
    assert spreads[0] > 2 * spreads[1] > 4 * spreads[2]
    expected = hours[:40].std() / 40**0.5
    assert spreads[1] == pytest.approx(expected, rel=0.25)


def test_jobs_past_all_others_are_expected_to_run_on() -> None:
    times = RunTimes((1.0, 2.0), (3.0, 1.0))
    assert times.beyond(1.2).hours == (2.0,)
    assert times.beyond(3.0).mean == 6.0


def test_samples_follow_the_weights() -> None:
    drawn = RunTimes((1.0, 2.0), (3.0, 1.0)).sample(4000, np.random.default_rng(0))
    assert (drawn == 2.0).mean() == pytest.approx(0.25, abs=0.03)


def test_sizes_of_jobs_scale_their_times() -> None:
    """The longest ran first: what is left is short."""
    rng = np.random.default_rng(3)
    sizes = np.linspace(10, 1, 100)
    hours = 0.1 * sizes * rng.lognormal(0, 0.1, 100)
    left = RunTimes.by_size(hours[:40].tolist(), sizes[:40].tolist(), sizes[40:].tolist())
    assert left.mean == pytest.approx(hours[40:].mean(), rel=0.05)
    assert left.quantile(0.95) == pytest.approx(np.quantile(hours[40:], 0.95), rel=0.15)
    assert sum(left.weights) == pytest.approx(41)
