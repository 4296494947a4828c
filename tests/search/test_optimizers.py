"""Component optimizers and models: no repeats, same seed same trace, better than chance."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.decisions.search import COMPONENTS, FlatGP, Space, Transfer, component, method
from jupyter_sky.decisions.search.optimizer import expected_improvement
from tests.search.conftest import trace

LIGHT = ("random", "rbf", "cheapest")
INSTALLED = {"bo-gp": "sklearn", "bo-rf": "sklearn", "tpe": "optuna", "smac": "smac"}
INSTALLED["rbfopt"] = "rbfopt"
HEAVY = {
    name: pytest.param(name, marks=pytest.mark.slow) for name in ("bo-gp", "bo-rf", "tpe", "rbfopt")
}


def grid(arms: int = 3) -> Space:
    one = {"family": ["x", "y"], "size": [1, 2], "nodes": [2, 3, 4]}
    return Space.of(
        {f"arm{n}": one for n in range(arms)},
        price=lambda arm, values: float(values["nodes"] * values["size"] * (1 + int(arm[-1]))),
    )


def seconds(space: Space) -> np.ndarray:
    """Faster with more and larger nodes; family y is faster in arm1, which is best."""
    return np.array(
        [
            100 * p.nodes**-0.7 * float(p["size"]) ** -0.4
            * {"arm0": 1.5, "arm1": 1.0, "arm2": 1.3}[p.arm]
            * (0.8 if p["family"] == "y" and p.arm == "arm1" else 1.0)
            for p in space.points
        ]
    )  # fmt: skip


def skip_missing(name: str) -> None:
    if name in INSTALLED:
        pytest.importorskip(INSTALLED[name])


@pytest.mark.parametrize("name", ["gp", *(HEAVY.get(name, name) for name in COMPONENTS)])
def test_all_points_are_tried_exactly_once(name: str) -> None:
    skip_missing(name)
    space = grid(1)
    asked = trace(method(name, space, 12, seed=3), seconds(grid())[:12], 20)
    if name == "random-repeats":
        assert len(asked) == 20 and len(set(asked)) < 12
    else:
        assert sorted(asked) == list(range(12))


@pytest.mark.parametrize("name", ["gp", "random-repeats", *LIGHT, *HEAVY.values()])
def test_same_seed_same_trace(name: str) -> None:
    skip_missing(name)
    space, values = grid(), seconds(grid())
    values[::7] = np.nan
    traces = [trace(method(name, space, 12, seed=seed), values, 7) for seed in (5, 5, 6)]
    assert traces[0] == traces[1]
    if name != "cheapest":
        assert traces[0] != traces[2]


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    values=st.lists(
        st.one_of(st.none(), st.floats(0, 1e6), st.just(float("nan")), st.just(-1.0)),
        min_size=12,
        max_size=12,
    ),
    name=st.sampled_from(["random", "rbf", "gp"]),
    ahead=st.integers(1, 4),
)
def test_each_point_is_returned_once_with_parallel_tries(
    seed: int, values: list, name: str, ahead: int
) -> None:
    space = grid(1)
    optimizer = method(name, space, 12, seed=seed, minimize="time")
    waiting: list[int] = []
    asked = []
    while True:
        index = optimizer.ask()
        if index is not None:
            asked.append(index)
            waiting.append(index)
        if not waiting:
            break
        if index is None or len(waiting) >= ahead:
            done = waiting.pop(0)
            optimizer.tell(done, values[done])
    assert sorted(asked) == list(range(12)) and optimizer.finished


@pytest.mark.parametrize("name", ["rbf", "gp", *HEAVY.values()])
def test_models_find_the_best_sooner_than_chance(name: str) -> None:
    skip_missing(name)
    space, values = grid(), seconds(grid())
    count = 3 if name.startswith("bo") else 6
    options = {"minimize": "time"} if name == "gp" else {}
    best = [
        values[trace(method(name, space, 14, seed=seed, **options), values, 14)].min()
        for seed in range(count)
    ]
    drawn = [values[np.random.default_rng(n).permutation(36)[:14]].min() for n in range(200)]
    assert np.mean(best) < np.mean(drawn)


def test_rbf_starts_with_points_far_apart() -> None:
    space = grid(1)
    asked = trace(component("rbf", space, seed=1, starts=2), seconds(grid())[:12], 2)
    features = space.features(range(12))
    far = np.linalg.norm(features - features[asked[0]], axis=1)
    assert far[asked[1]] == pytest.approx(far.max())


def test_prices_are_known_before_anything_runs() -> None:
    space = grid()
    values = seconds(space) / 3600 * space.prices
    first = trace(FlatGP(space), values, 1)
    assert space.prices[first[0]] == space.prices.min()
    asked = trace(FlatGP(space), values, 8)
    assert values[asked].min() == values.min()
    blind = FlatGP(space, prices=False)
    assert not blind.by_price and FlatGP(space).by_price
    assert {space[i].arm for i in trace(blind, values, 3)} == set(space.arms)


def test_one_unknown_price_disables_all_prices() -> None:
    one = {"nodes": [1, 2]}
    space = Space.of({"A": one, "B": one}, price=lambda arm, v: 1.0 if arm == "A" else None)
    assert not FlatGP(space).by_price
    with pytest.raises(SkyUsageError, match="prices"):
        Transfer(space, history=[{"A nodes=1": 1.0, "A nodes=2": 2.0}])


def test_failures_are_kept_away_from() -> None:
    class Careless(FlatGP):
        def _succeeding(self, points, good, left):  # type: ignore[no-untyped-def]
            return np.ones(len(left))

    space, values = grid(), seconds(grid())
    bad = [n for n, p in enumerate(space.points) if p["size"] == 2]  # the fastest all fail
    values[bad] = np.nan
    failed = {FlatGP: 0, Careless: 0}
    for kind in failed:
        for seed in range(4):
            asked = trace(kind(space, seed=seed, minimize="time"), values, 16)
            failed[kind] += int(np.isnan(values[asked]).sum())
            assert kind is Careless or np.nanmin(values[asked]) == np.nanmin(values)
    assert failed[FlatGP] < 0.8 * failed[Careless]


def test_pending_points_and_their_neighbours_are_avoided() -> None:
    space, values = grid(), seconds(grid())
    optimizer = FlatGP(space, seed=0, minimize="time")
    trace(optimizer, values, 6)
    together = [optimizer.ask() for _ in range(5)]
    assert len(set(together)) == 5 and sorted(optimizer.pending) == sorted(together)  # type: ignore


def test_expected_improvement_is_the_mean_of_what_is_gained() -> None:
    drawn = np.random.default_rng(0).normal(1.0, 0.5, 400_000)
    exact = expected_improvement(0.8, np.array([1.0]), np.array([0.5]))
    assert exact[0] == pytest.approx(np.maximum(0, 0.8 - drawn).mean(), rel=0.01)


def test_statistics_other_than_the_mean_decide_between_repeated_points() -> None:
    space = Space.of({"A": {"nodes": [1, 2]}})
    runs = {0: [1.0, 1.0, 9.0], 1: [3.0, 3.0, 3.0]}
    found = {}
    for name in ("mean", "median", "p90", "min", "max"):
        optimizer = component("random-repeats", space, statistic=name)
        for index, values in runs.items():
            for value in values:
                optimizer.tell(index, value)
        found[name] = optimizer.best
    assert found["mean"] == (1, 3.0) and found["median"] == (0, 1.0)
    assert found["p90"] == (1, 3.0) and found["max"] == (1, 3.0) and found["min"] == (0, 1.0)


# -- transfer ----------------------------------------------------------------------------------


def earlier(space: Space, count: int = 6) -> list[dict[str, float | None]]:
    random, base = np.random.default_rng(4), seconds(space)
    rows = []
    for _ in range(count):
        shift = np.exp(random.normal(0, 1.5) + 0.1 * random.standard_normal(len(space)))
        rows.append({str(p): float(v) for p, v in zip(space.points, base * shift, strict=True)})
    return rows


def test_history_makes_the_first_tries_good() -> None:
    space = grid()
    values = 7 * seconds(space)
    asked = trace(Transfer(space, history=earlier(space), minimize="time"), values, 3)
    assert values[asked].min() <= 1.02 * values.min()
    cold = [
        values[trace(FlatGP(space, seed=s, minimize="time"), values, 3)].min() for s in range(5)
    ]
    assert values[asked].min() < np.mean(cold)


def test_transfer_prefers_one_similar_workload_to_the_mean(monkeypatch) -> None:
    """Four kinds of workloads, each seen twice: three tries say of which kind a new one is."""
    space = grid()

    def regret(seed: int) -> float:
        random = np.random.default_rng(seed)
        kinds = np.exp(0.6 * random.standard_normal((4, len(space))))
        noise = np.exp(0.05 * random.standard_normal((9, len(space))))
        level = np.exp(random.standard_normal((9, 1)))
        *rows, values = [*(kinds[[0, 1, 2, 3, 0, 1, 2, 3, 0]] * noise * level)]
        told = [{str(p): float(v) for p, v in zip(space.points, r, strict=True)} for r in rows]
        asked = trace(Transfer(space, history=told, minimize="time"), values, 3)
        return float(values[asked].min() / values.min() - 1)

    mixture = [regret(seed) for seed in range(8)]
    assert max(mixture) < 0.15
    monkeypatch.setattr(sys.modules[Transfer.__module__], "_NEAR", 0.0)
    assert np.mean(mixture) < 0.5 * np.mean([regret(seed) for seed in range(8)])


def test_history_may_lack_configurations_and_hold_failures() -> None:
    space = grid()
    rows = earlier(space)
    for row in rows:
        for point in space.points:
            if point.arm == "arm1" and point["family"] == "y":
                del row[str(point)]  # nobody ever tried what is best
            elif point["size"] == 2 and point.arm == "arm0":
                row[str(point)] = None
    values = seconds(space)
    optimizer = Transfer(space, history=rows, minimize="time")
    asked = trace(optimizer, values, 12)
    assert values[asked].min() == values.min()
    assert not any(space[i].arm == "arm0" and space[i]["size"] == 2 for i in asked[:4])


def test_a_history_of_another_space_is_refused() -> None:
    with pytest.raises(SkyUsageError, match="earlier workloads"):
        Transfer(grid(), history=[{"elsewhere nodes=1": 3.0}], minimize="time")
    with pytest.raises(SkyUsageError, match="learns nothing from a history"):
        method("rbf", grid(), 4, history=earlier(grid()))


# -- bad input ---------------------------------------------------------------------------------


def test_unknown_names_and_options_are_refused_with_the_nearest() -> None:
    with pytest.raises(SkyUsageError, match="did you mean rbf"):
        component("rbff", grid())
    with pytest.raises(SkyUsageError, match="no method 'gpp'"):
        method("gpp", grid(), 4)
    with pytest.raises(SkyUsageError, match="unexpected keyword"):
        method("rbf", grid(), 4, beginnings=3)
    with pytest.raises(SkyUsageError, match="statistic"):
        component("random", grid(), statistic="average")
    with pytest.raises(SkyUsageError, match="minimize"):
        FlatGP(grid(), minimize="money")  # type: ignore[arg-type]


def test_result_of_an_unknown_point_is_refused() -> None:
    space = grid()
    with pytest.raises(SkyUsageError, match="point 20 is none of the 12"):
        component("random", space, space.members("arm0")).tell(20, 1.0)


@pytest.mark.parametrize("name", ["gp", "random", "rbf", "cheapest"])
def test_a_space_with_one_point(name: str) -> None:
    optimizer = method(name, Space.of({"A": {"nodes": [2]}}, price=lambda a, v: 1.0), 5)
    assert optimizer.ask() == 0
    assert optimizer.ask() is None
    optimizer.tell(0, None)
    assert optimizer.finished and optimizer.ask() is None


@pytest.mark.parametrize("name", ["gp", "rbf", HEAVY["bo-rf"]])
def test_search_ends_although_every_trial_fails(name: str) -> None:
    skip_missing(name)
    space = grid(2)
    assert len(trace(method(name, space, 24), np.full(24, np.nan), 30)) == 24


@pytest.mark.parametrize("learned", [False, True], ids=["without a history", "with one"])
def test_bounds_of_arms_come_from_what_was_tried(learned: bool) -> None:
    space = grid()
    values = seconds(space)
    if learned:
        optimizer: FlatGP = Transfer(space, history=earlier(space), minimize="time")
    else:
        optimizer = FlatGP(space, minimize="time")
    assert optimizer.arm_bounds() == {}, "nothing was tried"
    tried = trace(optimizer, values, 8)
    bounds = optimizer.arm_bounds()
    assert set(bounds) == set(space.arms)
    for arm in space.arms:
        left = [index for index in space.members(arm) if index not in tried]
        assert 0.6 < bounds[arm] / values[left].min() < 1.3
    for index in space.members("arm1"):
        if index not in tried:
            optimizer.tell(index, values[index])
    assert "arm1" not in optimizer.arm_bounds(), "all of it was tried"
