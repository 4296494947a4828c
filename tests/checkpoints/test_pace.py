"""Times between saves."""

from __future__ import annotations

import math

import pytest

from jupyter_sky.execution.checkpoints.state import (
    CHEAP_INTERVAL,
    Pace,
    is_worth_saving,
    remaining_seconds,
)
from jupyter_sky.knowledge.lifetimes import next_checkpoint, reference

HOUR = 3600.0


def test_cheap_saves_are_made_each_minute() -> None:
    assert Pace().interval(0.05, 10 * HOUR, 0.0) == CHEAP_INTERVAL


def test_dear_saves_follow_the_schedule_of_machines_without_notice() -> None:
    cost = 64.0  # a power of the step between costs
    found = Pace(notice_share=0.9, restart=0.0).interval(cost, 4 * HOUR, HOUR)
    model = reference().base.times(0.1)
    assert found == pytest.approx(HOUR * next_checkpoint(4.0, 1.0, cost / HOUR, model))


def test_notices_make_saves_rarer() -> None:
    often = Pace(restart=0.0).interval(64.0, 4 * HOUR, HOUR)
    seldom = Pace(notice_share=0.9, restart=0.0).interval(64.0, 4 * HOUR, HOUR)
    assert often < seldom <= 4 * HOUR


def test_a_notice_that_is_too_short_for_a_save_is_none() -> None:
    assert Pace(0.0, 0.9, 30.0, restart=0.0).interval(64.0, 4 * HOUR, HOUR) == Pace(
        restart=0.0
    ).interval(64.0, 4 * HOUR, HOUR)
    assert Pace(0.0, 0.9, 120.0, restart=0.0).interval(64.0, 4 * HOUR, HOUR) > Pace(
        0.0, 0.9, 30.0, restart=0.0
    ).interval(64.0, 4 * HOUR, HOUR)


def test_work_that_is_done_is_not_saved_again() -> None:
    assert Pace().interval(60.0, 0.0, HOUR) == math.inf


def test_machines_older_than_the_model_knows() -> None:
    assert 0 < Pace().interval(64.0, HOUR, 400 * HOUR) <= HOUR


def test_remaining_time_by_the_speed_on_this_machine() -> None:
    assert remaining_seconds(100.0, 20.0, 30.0, 100.0) == 700.0
    assert remaining_seconds(100.0, 0.0, 0.0, 0.0) == 100.0
    assert remaining_seconds(100.0, 0.0, 12.0, 10.0) == 0.0


def test_saves_that_do_not_fit_in_a_notice() -> None:
    assert is_worth_saving(None, 5.0)
    assert is_worth_saving(5.0, None)
    assert not is_worth_saving(5.0, 4.0)
