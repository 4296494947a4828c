"""Places to go on in after a loss, and replays of jobs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.knowledge.lifetimes.availability import Availability
from jupyter_sky.knowledge.lifetimes.recovery import (
    STRATEGIES,
    Broker,
    Failover,
    Happening,
    IndexStrategy,
    OnDemand,
    Seen,
    SingleRegion,
    Situation,
    SpotPlace,
    ask,
    find_stays,
)
from jupyter_sky.knowledge.lifetimes.replays import ReplayedJob, replay, watch

EAST_A, EAST_B = SpotPlace("east-a", "east", 1.0), SpotPlace("east-b", "east", 1.0)
WEST_A = SpotPlace("west-a", "west", 1.0)
ON_DEMAND = SpotPlace("west-a demand", "west", 3.0, is_spot=False)
PLACES = (EAST_A, EAST_B, WEST_A, ON_DEMAND)
JOB = ReplayedJob(4.0, interval=0.5, save=0.1, boot=0.25, refusal=0.01, egress=0.2)


def lost_in(zone: str, at: float = 1.0) -> tuple[Seen, ...]:
    return Seen(at - 0.5, zone, Happening.LAUNCHED), Seen(at, zone, Happening.LOST)


def zones(places: Sequence[SpotPlace]) -> list[str]:
    return [place.zone for place in places]


def always(zone: str, *, is_up: bool = True) -> Availability:
    return Availability(zone, (), is_up, 100.0)


def test_orders_of_skypilot() -> None:
    after = Situation(1.0, 3.0, PLACES, lost_in("east-a"), region="east")
    assert zones(Broker().order(after)) == ["west-a", "east-a", "east-b"]
    assert zones(Failover().order(after)) == ["east-a", "east-b", "west-a"]
    assert zones(SingleRegion().order(after)) == ["east-a", "east-b"]
    assert zones(OnDemand().order(after)) == ["west-a demand"]


def test_the_index_leaves_a_place_that_loses_machines() -> None:
    seen = tuple(e for at in (1.0, 2.0, 3.0, 4.0) for e in lost_in("east-a", at))
    situation = Situation(4.0, 8.0, PLACES, seen, "east", restart=0.1, loss=0.3, egress=0.2)
    order = zones(IndexStrategy().order(situation))
    assert order[0] == "west-a"
    assert order[-1] == "east-a"
    calm = IndexStrategy().indices(Situation(4.0, 8.0, PLACES, restart=0.1, loss=0.3))
    assert len(set(calm.values())) == 1, "without observations all places are alike"


def test_the_index_weighs_price_and_move() -> None:
    cheap = SpotPlace("west-b", "west", 0.6)
    near = Situation(0.0, 8.0, (EAST_A, cheap), region="east", egress=0.1)
    assert zones(IndexStrategy().order(near))[0] == "west-b"
    far = Situation(0.0, 8.0, (EAST_A, cheap), region="east", egress=50.0)
    assert zones(IndexStrategy().order(far))[0] == "east-a"


def test_the_index_asks_those_that_refused_last() -> None:
    seen = (Seen(0.99, "west-a", Happening.REFUSED),)
    places = (SpotPlace("west-a", "west", 0.5), EAST_A)
    assert zones(IndexStrategy().order(Situation(1.0, 4.0, places, seen))) == ["east-a", "west-a"]
    assert zones(IndexStrategy().order(Situation(3.0, 4.0, places, seen)))[0] == "west-a"


def test_a_known_place_is_waited_for_where_others_lose_machines() -> None:
    lost = tuple(e for at in range(1, 40) for e in lost_in("east-a", float(at)))
    calm = Seen(0.0, "west-a", Happening.LAUNCHED), Seen(40.0, "west-a", Happening.LOST)
    seen = (*sorted([*lost, calm[0]], key=lambda event: event.at), calm[1])
    places = (EAST_A, WEST_A)

    def order(now: float, strategy: IndexStrategy, known: Sequence[Seen] = seen) -> list[str]:
        return zones(strategy.order(Situation(now, 8.0, places, known, "west", 0.2, 0.6)))

    assert order(40.1, IndexStrategy()) == ["west-a"]
    late = (*seen, Seen(64.0, "west-a", Happening.REFUSED))
    assert "east-a" in order(64.0, IndexStrategy(), late), "it has been down for too long"
    assert order(40.1, IndexStrategy(value=1.0)) == ["west-a", "east-a"], "waiting costs something"
    assert order(40.1, IndexStrategy(), lost) == ["west-a", "east-a"], "nothing is known of west"


def test_spot_dearer_than_on_demand_is_left_out() -> None:
    dear = SpotPlace("east-a", "east", 3.5)
    assert zones(IndexStrategy().order(Situation(0.0, 4.0, (dear, ON_DEMAND)))) == ["west-a demand"]


def test_stays_and_ages() -> None:
    seen = (
        Seen(0.0, "a", Happening.LAUNCHED),
        Seen(2.0, "a", Happening.LOST),
        Seen(3.0, "a", Happening.REFUSED),
        Seen(4.0, "a", Happening.LAUNCHED),
        Seen(4.0, "b", Happening.LAUNCHED),
        Seen(5.0, "b", Happening.RELEASED),
    )
    found = {(s.zone, s.hours, s.age, s.is_lost) for s in find_stays(seen, 6.0, unseen_age=8.0)}
    assert found == {("a", 2.0, 8.0, True), ("a", 2.0, 0.0, False), ("b", 1.0, 8.0, False)}


def test_a_job_without_losses_costs_its_time() -> None:
    found = replay(JOB, [EAST_A], [always("east-a")], STRATEGIES["broker"], 0.0)
    assert found.hours == pytest.approx(0.25 + 4 + 7 * 0.1)
    assert found.usd == pytest.approx(found.hours)
    assert (found.preemptions, found.moves) == (0, 0)


def test_a_loss_goes_back_to_the_last_save() -> None:
    east = Availability("east-a", (1.0,), is_up_first=True, end=100.0)
    found = replay(JOB, [EAST_A, WEST_A], [east, always("west-a")], Broker(), 0.0)
    assert (found.preemptions, found.moves) == (1, 1)
    saved = 0.5  # of 0.75 h at work, one interval and its save
    assert found.hours == pytest.approx(1.0 + 0.25 + (4 - saved) + 6 * 0.1)
    assert found.usd == pytest.approx(found.hours + 0.2)


def test_a_notice_saves_what_was_done() -> None:
    east = Availability("east-a", (1.0,), is_up_first=True, end=100.0)
    job = ReplayedJob(4.0, 0.5, 0.01, 0.25, 0.01, notice=1 / 30)
    found = replay(job, [EAST_A, WEST_A], [east, always("west-a")], Broker(), 0.0)
    assert found.hours == pytest.approx(1.0 + 0.25 + (4 - 0.73) + 6 * 0.01)


def test_without_a_notice_nothing_is_saved_at_the_loss() -> None:
    east = Availability("east-a", (1.0,), is_up_first=True, end=100.0)
    scratch = ReplayedJob(4.0, interval=4.0, save=0.0, boot=0.25, refusal=0.01)
    found = replay(scratch, [EAST_A, WEST_A], [east, always("west-a")], Broker(), 0.0)
    assert found.hours == pytest.approx(1.0 + 0.25 + 4)


def test_refusals_take_time_and_are_seen() -> None:
    traces = [always("east-a", is_up=False), always("west-a")]
    found = replay(JOB, [EAST_A, WEST_A], traces, Broker(), 0.0)
    assert found.seen[0] == Seen(0.0, "east-a", Happening.REFUSED)
    assert found.seen[1] == Seen(0.01, "west-a", Happening.LAUNCHED)


def test_waiting_until_a_place_comes_back() -> None:
    late = Availability("east-a", (1.0,), is_up_first=False, end=100.0)
    found = replay(JOB, [EAST_A], [late], Broker(), 0.0)
    assert 5.9 < found.hours < 6.1


def test_a_record_that_ends_too_early() -> None:
    down = Availability("east-a", (), is_up_first=False, end=3.0)
    with pytest.raises(SkyUsageError, match="ends at 3 h"):
        replay(JOB, [EAST_A], [down], Broker(), 0.0)


def test_history_shows_which_place_is_calm() -> None:
    flapping = Availability("east-a", tuple(np.arange(0.5, 99.5, 0.5)), True, 100.0)
    traces = [flapping, always("west-a")]
    seen = watch(traces, 0.0, 20.0)
    assert {e.zone for e in seen if e.what is Happening.LOST} == {"east-a"}
    found = replay(JOB, [EAST_A, WEST_A], traces, IndexStrategy(), 20.0, seen)
    assert found.preemptions == 0
    assert replay(JOB, [EAST_A, WEST_A], traces, Broker(), 20.0).preemptions > 0


class Raising:
    def order(self, situation: Situation) -> Sequence[SpotPlace]:
        raise ZeroDivisionError("1 / 0")


class Elsewhere:
    def order(self, situation: Situation) -> Sequence[SpotPlace]:
        return [SpotPlace("mars", "far", 0.1)]


@pytest.mark.parametrize(
    ("strategy", "piece"), [(Raising(), "Raising has failed: Zero"), (Elsewhere(), "names .*mars")]
)
def test_a_strategy_that_fails_is_named(strategy: Raising | Elsewhere, piece: str) -> None:
    with pytest.raises(SkyUsageError, match=piece):
        ask(strategy, Situation(0.0, 1.0, PLACES))
