"""Forecast of places that were seen up or down."""

from __future__ import annotations

import numpy as np
import pytest

from jupyter_sky.knowledge.lifetimes.availability import LOSS, RETURN
from jupyter_sky.knowledge.lifetimes.observations import Happening, Seen
from jupyter_sky.knowledge.lifetimes.recovery import (
    AGES,
    PlaceForecast,
    PlaceState,
    forecast_places,
    last_states,
)


def forecast(now: float, *states: PlaceState, losses: float = 1.0) -> PlaceForecast:
    zones, ones = [str(number) for number in range(len(states))], np.ones(len(states))
    known = dict(zip(zones, states, strict=True))
    return forecast_places(zones, known, now, losses * ones, ones, LOSS, RETURN)


def test_what_was_seen_just_now_is_certain() -> None:
    found = forecast(3.0, PlaceState(True, 3.0, 1.0), PlaceState(False, 3.0, 3.0))
    assert found.is_up().tolist() == [1.0, 0.0]
    assert AGES[found.up[0].argmax()] == pytest.approx(2.0)


def test_a_place_stays_up_with_the_chance_of_its_hazard() -> None:
    later = forecast(1.0, PlaceState(True, 0.0, 0.0))
    never_lost = later.up[0, np.isclose(AGES, 1.0)]
    assert never_lost == pytest.approx(np.exp(-LOSS.integral(1.0)))
    assert later.is_up()[0] > never_lost, "some have come back"
    assert (later.up + later.down).sum() == pytest.approx(1.0)


def test_rows_that_were_seen_at_other_times_do_not_mix() -> None:
    states = PlaceState(True, 0.0, -2.0), PlaceState(False, 4.0, 3.0)
    both = forecast(5.0, *states).is_up()
    assert both == pytest.approx([forecast(5.0, state).is_up()[0] for state in states])


def test_long_ago_tells_nothing() -> None:
    up, down = forecast(80.0, PlaceState(True, 0.0, 0.0), PlaceState(False, 0.0, 0.0)).is_up()
    assert up == pytest.approx(down, abs=0.05)


def test_places_that_lose_machines_have_a_higher_rate() -> None:
    state = PlaceState(True, 0.0, 0.0)
    calm, hot = (forecast(0.0, state, losses=f).loss_rates()[0] for f in (0.5, 2.0))
    assert hot > 3 * calm


def test_a_refusal_after_a_loss_leaves_the_age() -> None:
    seen = [
        Seen(1.0, "a", Happening.LAUNCHED),
        Seen(2.0, "a", Happening.LOST),
        Seen(5.0, "a", Happening.REFUSED),
        Seen(6.0, "b", Happening.LAUNCHED),
    ]
    assert last_states(seen, 8.0) == {
        "a": PlaceState(False, 5.0, 2.0),
        "b": PlaceState(True, 6.0, -2.0),
    }
