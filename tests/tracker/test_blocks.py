"""Blocked places: how wide, how long, what takes them away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_sky.base.requests.offers import Place
from jupyter_sky.knowledge.tracker.blocks import (
    FIRST_SECONDS,
    MAX_SECONDS,
    SAME_REFUSAL_SECONDS,
    STREAK_MEMORY,
    block_seconds,
    blocked,
    make_scope,
)
from jupyter_sky.knowledge.tracker.observations import CAUSES, Observation

HERE = Place("aws", "us-east-1", "us-east-1a", "g5.xlarge", True)
causes = st.sampled_from(CAUSES)
times = st.floats(0, 1e7)
places = st.builds(
    Place,
    cloud=st.sampled_from(["aws", "gcp"]),
    region=st.sampled_from(["us-east-1", "us-west1"]),
    zone=st.sampled_from(["", "a", "b"]),
    instance_type=st.sampled_from(["g5.xlarge", "g5.4xlarge", "n2-standard-8", "c7i.large"]),
    spot=st.booleans(),
)
observations = st.lists(
    st.one_of(
        st.builds(Observation, st.just("refused"), places, times, causes),
        st.builds(Observation, st.just("launched"), places, times),
        st.builds(Observation, st.just("cleared"), places, times, causes),
    ),
    max_size=25,
)


def refused(at: float, cause: str = "capacity", place: Place = HERE, why: str = "") -> Observation:
    return Observation("refused", place, at, cause, why=why)


@pytest.mark.parametrize(
    ("cause", "first", "most"),
    [
        ("capacity", 5 * 60, 4 * 3600),
        ("quota", 3600, 86400),
        ("permission", 3600, 86400),
        ("transient", 15, 600),
    ],
)
def test_first_block_and_longest(cause: str, first: float, most: float) -> None:
    assert block_seconds(cause, 1) == first
    assert block_seconds(cause, 50) == block_seconds(cause, 10**9) == most


@given(causes, st.integers(1, 1000))
def test_time_grows_with_repeats_up_to_its_cap(cause: str, repeats: int) -> None:
    one, next_one = block_seconds(cause, repeats), block_seconds(cause, repeats + 1)
    assert FIRST_SECONDS[cause] <= one <= next_one <= MAX_SECONDS[cause]
    assert next_one == MAX_SECONDS[cause] or next_one == 2 * one


@given(causes, st.integers(1, 40), st.floats(1, 5))
def test_a_row_of_refusals_counts_each(cause: str, repeats: int, patience: float) -> None:
    """Asked again somewhat after each block has ended, a place is blocked for longer and longer."""
    seen, at = [], 0.0
    for number in range(1, repeats + 1):
        seen.append(refused(at, cause))
        (block,) = blocked(seen, at)
        assert block.times == number and block.since == 0.0
        assert block.until == at + block_seconds(cause, number)
        at = block.until + patience
        assert blocked(seen, at) == ()


def test_a_row_ends_when_the_last_refusal_is_long_ago() -> None:
    later = 300 + STREAK_MEMORY * MAX_SECONDS["capacity"] + 1
    (block,) = blocked([refused(0), refused(300), refused(later)], later)
    assert (block.times, block.since, block.until) == (1, later, later + 300)


def test_refusals_at_the_same_time_are_one_event() -> None:
    """Four kernels that ask together must not lengthen the block eightfold."""
    burst = [refused(at) for at in (0.0, 0.1, 3.0, SAME_REFUSAL_SECONDS)]
    (block,) = blocked(burst, SAME_REFUSAL_SECONDS)
    assert block.times == 1 and block.until == SAME_REFUSAL_SECONDS + 300
    (block,) = blocked([*burst, refused(SAME_REFUSAL_SECONDS + 1)], SAME_REFUSAL_SECONDS + 1)
    assert block.times == 2, "a slow drip is not one endless event"


@given(observations, times)
def test_blocks_are_sound(seen: list[Observation], now: float) -> None:
    blocks = blocked(seen, now)
    assert blocks == blocked(list(reversed(seen)), now) or len({o.at for o in seen}) < len(seen)
    refusals = [one for one in seen if one.kind == "refused" and one.at <= now]
    for block in blocks:
        assert now < block.until <= now + MAX_SECONDS[block.cause]
        assert block.since <= now and 1 <= block.times <= len(refusals)
        assert block.scope in {make_scope(one.cause, one.place) for one in refusals}
        assert block.scope.covers(block.place)
    assert len({block.scope for block in blocks}) == len(blocks)


@given(observations, places, times)
def test_success_unblocks_its_place(seen: list[Observation], where: Place, now: float) -> None:
    """Whatever was seen before, nothing blocks the place of a launch that has just worked."""
    earlier = [one for one in seen if one.at < now]
    after = blocked([*earlier, Observation("launched", where, now)], now)
    assert not any(block.scope.covers(where) for block in after)
    kept = {block.scope for block in after}
    for block in blocked(earlier, now):
        assert block.scope in kept or block.scope.covers(where), "others stay"


@given(observations, times)
def test_clearing_removes_exactly_one_block(seen: list[Observation], now: float) -> None:
    seen = [one for one in seen if one.at < now]
    before = blocked(seen, now)
    for block in before:
        cleared = Observation("cleared", block.place, now, block.cause)
        assert blocked([*seen, cleared], now) == tuple(b for b in before if b != block)


def test_after_a_success_a_row_begins_anew() -> None:
    seen = [refused(0), refused(400), Observation("launched", HERE, 500.0), refused(600)]
    (block,) = blocked(seen, 600)
    assert (block.times, block.until) == (1, 900)


@pytest.mark.parametrize(
    ("cause", "covered", "free"),
    [
        (
            "capacity",
            [HERE],
            [
                Place("aws", "us-east-1", "us-east-1b", "g5.xlarge", True),
                Place("aws", "us-east-1", "us-east-1a", "g5.2xlarge", True),
                Place("aws", "us-east-1", "us-east-1a", "g5.xlarge", False),
                Place("aws", "us-east-1", "", "g5.xlarge", True),
            ],
        ),
        (
            "quota",
            [
                Place("aws", "us-east-1", "us-east-1b", "g5.48xlarge", True),
                Place("aws", "us-east-1", "", "g4dn.xlarge", True),
            ],
            [
                Place("aws", "us-east-1", "us-east-1a", "g5.xlarge", False),
                Place("aws", "us-east-1", "us-east-1a", "c7i.large", True),
                Place("aws", "us-west-2", "us-west-2a", "g5.xlarge", True),
            ],
        ),
        (
            "permission",
            [Place("aws", "eu-west-1", "", "c7i.large", False)],
            [Place("gcp", "us-west1", "us-west1-a", "n2-standard-8", True)],
        ),
        ("transient", [HERE], [Place("aws", "us-east-1", "us-east-1b", "g5.xlarge", True)]),
    ],
)
def test_scope_is_as_wide_as_its_cause(cause: str, covered: list, free: list) -> None:
    found = make_scope(cause, HERE)
    assert [found.covers(place) for place in covered] == [True] * len(covered)
    assert [found.covers(place) for place in free] == [False] * len(free)


def test_a_wide_refusal_blocks_all_within() -> None:
    """A region that refuses as a whole, as Azure does, blocks its zones and types."""
    found = make_scope("capacity", Place("azure", "westeurope", spot=True))
    assert found.covers(Place("azure", "westeurope", "westeurope-az1", "Standard_D4s_v5", True))
    assert not found.covers(Place("azure", "northeurope", "", "Standard_D4s_v5", True))


def test_words_of_the_last_refusal_are_kept() -> None:
    seen = [refused(0, why="InsufficientInstanceCapacity"), refused(400)]
    assert blocked(seen, 400)[0].why == "InsufficientInstanceCapacity"


def test_later_observations_do_not_count() -> None:
    assert blocked([refused(1000)], 999) == ()


def test_this_machine_is_never_blocked_for_long() -> None:
    place = Place("local", "this-machine", "", "x86_64")
    seen = [refused(60.0 * n, place=place) for n in range(5)]
    (block,) = blocked(seen, 240)
    assert block.until - 240 <= 2
