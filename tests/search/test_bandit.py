"""CloudBandit: budgets, rounds, eliminations, and the exact mean of its random search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.decisions.search import (
    CloudBandit,
    Independent,
    RisingBandits,
    Space,
    SuccessiveHalving,
    first_budget,
    method,
    round_arms,
    round_budgets,
    total_budget,
)
from tests.benchmarks.expected_regret import bandit_regret, random_search
from tests.search.conftest import trace


def space_of(*sizes: int) -> Space:
    return Space.of({f"arm{n}": {"kind": list(range(size))} for n, size in enumerate(sizes)})


def test_the_papers_budgets() -> None:
    """Section 5.1: B = 11 b1 for three providers and eta = 2; appendix E: the same for eta = 4."""
    assert [total_budget(3, b1) for b1 in range(1, 9)] == list(range(11, 89, 11))
    assert [total_budget(3, b1, 4, keep=2) for b1 in (1, 2)] == [11, 22]
    assert round_budgets(4, 2, 3) == [2, 6, 18, 54]


@given(arms=st.integers(1, 6), b1=st.integers(1, 5), eta=st.floats(1, 4), keep=st.integers(1, 3))
def test_the_formula_is_the_sum_over_rounds(arms: int, b1: int, eta: float, keep: int) -> None:
    keep = min(keep, arms)
    exact = sum((arms - i + 1) * b1 * eta ** (i - 1) for i in range(1, arms - keep + 2))
    found = total_budget(arms, b1, eta, keep)
    assert exact - arms * (arms + 1) / 2 <= found <= exact + 1e-6
    assert first_budget(arms, found, eta, keep) >= b1


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    budget=st.integers(1, 60),
    keep=st.integers(1, 2),
    mode=st.sampled_from(["continuous", "intermittent"]),
    component=st.sampled_from(["random", "random-repeats", "rbf"]),
    ahead=st.integers(1, 5),
)
def test_the_budget_is_never_exceeded(sizes, seed, budget, keep, mode, component, ahead) -> None:
    space, keep = space_of(*sizes), min(keep, len(sizes))
    values = np.random.default_rng(seed).lognormal(size=len(space))
    least = total_budget(len(sizes), 1, 2, keep)
    options = {"component": component, "mode": mode, "keep": keep, "seed": seed}
    if budget < least:
        with pytest.raises(SkyUsageError, match=f"needs {least}"):
            CloudBandit.for_budget(space, budget, **options)
        return
    bandit = CloudBandit.for_budget(space, budget, **options)
    asked, waiting = [], []
    while not bandit.finished:
        index = bandit.ask() if len(waiting) < ahead else None
        if index is None:
            assert waiting or bandit.finished, "it neither asks nor waits"
            if not waiting:
                break
            done = waiting.pop(0)
            bandit.tell(done, values[done])
        else:
            asked.append(index)
            waiting.append(index)
    assert len(asked) <= budget == bandit.budget
    if component == "random-repeats":
        assert len(asked) == budget
    if component != "random-repeats" and mode == "continuous":
        assert len(set(asked)) == len(asked)
    assert len(bandit.active) == keep
    assert bandit.best is not None
    assert bandit.best[1] == pytest.approx(min(values[i] for i in asked))


def test_rounds_pull_each_active_arm_and_drop_the_worst() -> None:
    space = space_of(20, 20, 20)
    values = np.concatenate([np.full(20, 3.0), np.full(20, 1.0), np.full(20, 2.0)])
    values += np.linspace(0, 0.5, 60)
    bandit = CloudBandit(space, "random", b1=2)
    arms = [space[i].arm for i in trace(bandit, values, 99)]
    assert arms[:6] == ["arm0"] * 2 + ["arm1"] * 2 + ["arm2"] * 2
    assert sorted(arms[6:14]) == ["arm1"] * 4 + ["arm2"] * 4
    assert arms[14:] == ["arm1"] * 8
    assert [name for name, _, _ in bandit.ranking] == ["arm1", "arm2", "arm0"]
    assert bandit.arm == "arm1" and bandit.best and bandit.best[0] in range(20, 40)


def test_two_arms_kept_are_searched_equally() -> None:
    space = space_of(30, 30, 30)
    values = np.arange(90.0) % 30 + 1
    values[60:] += 100
    bandit = CloudBandit(space, "random", b1=1, eta=4, keep=2)
    asked = trace(bandit, values, 99)
    counts = [sum(space[i].arm == f"arm{n}" for i in asked) for n in range(3)]
    assert counts == [5, 5, 1] and len(asked) == 11
    assert {name for name, _, _ in bandit.ranking[:2]} == {"arm0", "arm1"}


def test_continuous_components_remember_and_intermittent_ones_do_not() -> None:
    space, values = space_of(7, 7, 7), np.arange(1.0, 22.0)
    kept = trace(CloudBandit(space, "random", mode="continuous"), values, 99)
    assert len(kept) == len(set(kept)) == 11
    repeated = [
        len(asked) - len(set(asked))
        for seed in range(10)
        for asked in [
            trace(CloudBandit(space, "random", mode="intermittent", seed=seed), values, 99)
        ]
    ]
    assert sum(repeated) > 0


def test_an_arm_where_everything_fails_is_dropped_first() -> None:
    space = space_of(10, 10, 10)
    values = np.concatenate([np.arange(2.0, 12.0), np.full(10, np.nan), np.arange(1.0, 11.0)])
    bandit = CloudBandit(space, "rbf", b1=2)
    trace(bandit, values, 99)
    assert bandit.ranking[-1][0] == "arm1" and bandit.ranking[-1][1] is None


def test_same_seed_same_trace_other_seed_another() -> None:
    space, values = space_of(12, 12, 12), np.random.default_rng(0).lognormal(size=36)
    for name in ("random", "random-repeats", "rbf"):
        traces = [trace(CloudBandit(space, name, b1=2, seed=s), values, 99) for s in (1, 1, 2)]
        assert traces[0] == traces[1] != traces[2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"b1": 0}, "b1=0"),
        ({"eta": 0.5}, "eta=0.5"),
        ({"eta": float("nan")}, "eta=nan"),
        ({"keep": 4}, "keep=4"),
        ({"mode": "sometimes"}, "mode='sometimes'"),
        ({"component": "none"}, "no component 'none'"),
        ({"statistic": "none"}, "statistic 'none'"),
    ],
)
def test_bad_parameters_are_refused(options: dict, words: str) -> None:
    with pytest.raises(SkyUsageError, match=words):
        CloudBandit(space_of(3, 3, 3), **options)


def test_too_small_budget_names_the_least_sufficient_one() -> None:
    space = space_of(3, 3, 3)
    for name in ("cloudbandit", "independent", "rising-bandits"):
        with pytest.raises(SkyUsageError, match="budget of 2 for 3 arms"):
            method(name, space, 2)
    with pytest.raises(SkyUsageError, match="eta=1 needs 6"):
        method("cloudbandit", space, 10)


# -- the exact mean ----------------------------------------------------------------------------


@given(values=st.lists(st.floats(0.1, 9), min_size=1, max_size=6), draws=st.integers(1, 6))
def test_chances_of_a_best_value_add_up(values: list[float], draws: int) -> None:
    chances = random_search(np.array(values), draws)
    assert chances.sum() == pytest.approx(1) and (chances >= -1e-12).all()


def test_the_sampled_mean_is_the_exact_one() -> None:
    space = space_of(5, 3, 6)
    values = np.random.default_rng(1).lognormal(size=14)
    values[3] = values[6]  # a tie between arms
    exact = bandit_regret(space, values, b1=1)
    found = []
    for seed in range(1500):
        bandit = CloudBandit(space, "random-repeats", b1=1, seed=seed)
        trace(bandit, values, 99)
        assert bandit.best
        found.append(100 * (bandit.best[1] / values.min() - 1))
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - exact) < 3 * error
    assert error < 0.1 * exact


def test_the_exact_mean_is_not_given_where_it_is_not_known() -> None:
    with pytest.raises(SkyUsageError):
        bandit_regret(space_of(2, 2), np.ones(4))
    with pytest.raises(SkyUsageError):
        bandit_regret(space_of(2, 2, 2), np.array([1, 2, 3, 4, 5, np.nan]))


# -- baselines ---------------------------------------------------------------------------------


def test_independent_search_gives_each_arm_the_same_share() -> None:
    space, values = space_of(9, 9, 2), np.arange(1.0, 21.0)
    optimizer = Independent(space, 11, "random")
    asked = trace(optimizer, values, 99)
    counts = [sum(space[i].arm == f"arm{n}" for i in asked) for n in range(3)]
    assert counts == [4, 4, 2], "what an arm lacks points for is not spent"
    assert optimizer.finished and optimizer.best == (min(asked), values[min(asked)])


def test_rising_bandits_drop_an_arm_that_cannot_catch_up() -> None:
    space = space_of(40, 40)
    values = np.concatenate([np.full(40, 1.0), np.full(40, 5.0)])
    optimizer = RisingBandits(space, 30, "random", window=3)
    asked = trace(optimizer, values, 99)
    assert optimizer.active == ["arm0"] and len(asked) == 30
    assert sum(space[i].arm == "arm1" for i in asked) == 4
    assert optimizer.best and optimizer.best[1] == 1.0
    rising = np.concatenate([np.full(40, 1.0), np.linspace(9.0, 0.5, 40)])
    kept = RisingBandits(space, 30, "cheapest", window=3)
    trace(kept, rising, 30)
    assert kept.finished


@pytest.mark.slow
def test_smac_searches_without_repeats() -> None:
    pytest.importorskip("smac")
    space = Space.of({"A": {"k": ["x", "y"], "n": [1, 2, 3]}, "B": {"n": [1, 2, 3, 4]}})
    values = np.arange(1.0, 11.0)
    traces = [trace(method("smac", space, 8, seed=4), values, 8) for _ in range(2)]
    assert traces[0] == traces[1] and len(set(traces[0])) == 8
    for facade in ("hpo", "ac"):
        given = {"facade": facade, "challengers": 50, "random": 0.5}
        assert len(set(trace(method("smac", space, 8, seed=4, **given), values, 8))) == 8


def test_several_arms_are_eliminated_after_a_round() -> None:
    assert total_budget(12, 8) == 65_424 and total_budget(12, 8, drop=4) == 416
    assert round_arms(5, keep=2, drop=2) == [5, 3, 2] and round_arms(3, drop=0.3) == [3, 2, 1]
    space = space_of(9, 9, 9, 9)
    values = np.array([10.0 * space.arms.index(p.arm) + int(p["kind"]) for p in space.points])
    bandit = CloudBandit.for_budget(space, 14, "random", drop=2, seed=1)
    asked = trace(bandit, values, 99)
    assert len(asked) == 14 and bandit.sizes == [4, 2, 1] and bandit.arm == "arm0"
    assert [sum(space[i].arm == arm for i in asked) for arm in space.arms] == [9, 3, 1, 1]
    for wrong in (0, 1.5, float("nan")):
        with pytest.raises(SkyUsageError, match="drop"):
            CloudBandit(space, "random", drop=wrong)


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=7), more=st.integers(0, 40))
def test_successive_halving_shares_its_budget_by_rounds(sizes: list[int], more: int) -> None:
    space = space_of(*sizes)
    rounds = max(1, int(np.ceil(np.log2(len(sizes)))))
    budget = len(sizes) * rounds + more
    halving = SuccessiveHalving(space, budget, "random-repeats")
    asked = trace(halving, np.arange(float(len(space))), budget + 5)
    assert len(asked) == budget and len(halving.sizes) == rounds
    assert all(
        after == int(np.ceil(before / 2))
        for before, after in zip(halving.sizes, halving.sizes[1:], strict=False)
    )
    if len(sizes) > 1:
        with pytest.raises(SkyUsageError, match=f"{len(sizes)} arms in {rounds} rounds"):
            SuccessiveHalving(space, len(sizes) * rounds - 1)
