"""Availability that is drawn, and jobs that are replayed side by side."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jupyter_sky.knowledge.lifetimes.availability import Availability
from jupyter_sky.knowledge.lifetimes.models import Exponential
from jupyter_sky.knowledge.lifetimes.observations import Happening
from jupyter_sky.knowledge.lifetimes.recovery import Broker, IndexStrategy, SingleRegion, SpotPlace
from jupyter_sky.knowledge.lifetimes.replays import ReplayedJob, replay, replay_together
from jupyter_sky.knowledge.lifetimes.synthetic import (
    AGES,
    FACTORS,
    LOSSES,
    MachineLives,
    draw_availability,
    draw_places,
)

EAST, WEST = SpotPlace("east-a", "east", 1.0), SpotPlace("west-a", "west", 1.0)


def job(work: float = 4.0) -> ReplayedJob:
    return ReplayedJob(work, interval=work, save=0.0, boot=0.1, refusal=0.01)


@pytest.mark.parametrize("begin", [0.5, 4.0, 24.0])
def test_drawn_places_lose_machines_as_often_as_fitted(begin: float) -> None:
    place = draw_availability("a", 100_000.0, np.random.default_rng(0))
    lives = np.array([e - b for b, e, is_up in place.periods(0.0, place.end) if is_up])
    end = min([age for age in AGES if age > begin], default=math.inf)
    hours = (np.minimum(lives, end) - begin).clip(0.0).sum()
    losses = ((lives > begin) & (lives < end)).sum()
    assert losses / hours == pytest.approx(LOSSES[AGES.index(begin)], rel=0.15)


def test_places_have_hazards_of_their_own() -> None:
    places = draw_places(5000.0, np.random.default_rng(1), {"calm": (0.5, 1.0), "busy": (2.0, 1.0)})
    calm, busy = (len(place.changes) for place in places)
    assert busy > 1.5 * calm


def test_drawn_zones_are_up_as_much_as_those_of_the_recording() -> None:
    recorded = dict(zip(FACTORS, (11, 33, 33, 42, 71, 60, 84, 85, 83), strict=True))  # %
    for place in draw_places(20_000.0, np.random.default_rng(1)):
        hours = sum(end - begin for begin, end, is_up in place.periods(0.0, place.end) if is_up)
        assert 100 * hours / place.end == pytest.approx(recorded[place.place], abs=10)


def test_machines_of_one_place_have_lives_of_their_own() -> None:
    place = MachineLives("east-a", Exponential(0.5, 24.0), seed=3)
    lives = [place.until_change(at / 60) for at in range(3000)]
    assert np.mean(lives) == pytest.approx(2.0, rel=0.1)
    assert MachineLives("east-a", Exponential(0.5, 24.0), seed=4).until_change(0.0) != lives[0]


def test_jobs_learn_from_each_other_and_not_from_the_future() -> None:
    early = Availability("east-a", (1.0,), is_up_first=True, end=1000.0)
    late = Availability("east-a", (3.0,), is_up_first=True, end=1000.0)
    west = Availability("west-a", (), is_up_first=True, end=1000.0)
    jobs, traces = [job(20.0), job(2.5)], [(early, west), (late, west)]
    asked: list[tuple[float, int]] = []

    class Watching(Broker):
        def order(self, situation):  # type: ignore[no-untyped-def]
            losses = [e for e in situation.seen if e.what is Happening.LOST]
            asked.append((situation.now, len(losses)))
            return super().order(situation)

    first, second = replay_together(jobs, (EAST, WEST), traces, Watching(), 0.0)
    assert asked == [(0.0, 0), (0.0, 0), (1.0, 1)]
    assert (first.preemptions, second.preemptions) == (1, 0)
    assert [e.at for e in first.seen] == sorted(e.at for e in first.seen)
    assert second.hours == pytest.approx(2.6)


def test_jobs_side_by_side_do_as_one_alone_where_nothing_is_learnt() -> None:
    lives = [[MachineLives("east-a", Exponential(0.2, 24.0), seed)] for seed in range(5)]
    together = replay_together([job()] * 5, (EAST,), lives, SingleRegion(), 0.0)
    alone = [replay(job(), (EAST,), own, SingleRegion(), 0.0) for own in lives]
    assert [run.hours for run in together] == [run.hours for run in alone]


def test_the_index_leaves_a_region_that_others_were_lost_in() -> None:
    models = {"east-a": Exponential(1.0, 24.0), "west-a": Exponential(0.01, 24.0)}
    lives = [
        [MachineLives(zone, model, seed) for zone, model in models.items()] for seed in range(20)
    ]
    index, single = (
        replay_together([job()] * 20, (EAST, WEST), lives, strategy, 0.0)
        for strategy in (IndexStrategy(), SingleRegion())
    )
    lost = [sum(run.preemptions for run in runs) for runs in (index, single)]
    assert lost[0] < lost[1] / 3
