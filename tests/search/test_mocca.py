"""Recorded workloads: interpretation of failures, and results of the methods on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.decisions.search import CloudBandit, FlatGP, Transfer
from tests.benchmarks import mocca
from tests.benchmarks.expected_regret import bandit_regret

DATA = Path(__file__).parents[2] / "notebooks" / "data" / "mocca"
HEAD = "provider,A_family,A_vcpu,B_family,B_vcpu,nodes,workload,target_cost,target_runtime,status\n"


@pytest.fixture(scope="module")
def workloads() -> list[mocca.Workload]:
    return mocca.load(DATA)


def test_the_shipped_workloads(workloads: list[mocca.Workload]) -> None:
    assert len(workloads) == 20 and sum(one.succeeds for one in workloads) == 19
    for one in workloads:
        assert one.space.arms == ("A", "B", "C") and 78 <= len(one.space) <= 82
        assert one.space.shared == ("size", "nodes")
        # what a configuration cost is its time, priced
        assert np.allclose(one.usd, one.seconds / 3600 * one.space.prices, rtol=1e-6)


def test_repeats_are_averaged_and_failures_are_results_in_one_reading(tmp_path: Path) -> None:
    (tmp_path / mocca.FILE).write_text(
        HEAD
        + "A,0,1,,,2,w,0.02,36,ok\nA,0,1,,,2,w,0.04,72,ok\n"
        + "B,,,1,0,3,w,0.01,18,worker lost\nB,,,1,0,3,w,0.03,54,ok\n"
        + "A,1,0,,,2,w,0.001,3,timeout\n"
    )
    (one,) = mocca.load(tmp_path)
    named = {str(p): n for n, p in enumerate(one.space.points)}
    assert set(named) == {
        "A family=family0 size=2 nodes=2",
        "B family=family1 size=1 nodes=3",
        "A family=family1 size=1 nodes=2",
    }
    order = [named[name] for name in sorted(named)]
    assert one.results("time", "paper")[order].tolist() == [54.0, 3.0, 36.0]
    assert one.results("time", "strict")[order].tolist()[::2] == [54.0, 54.0]
    assert np.isnan(one.results("time", "strict")[order][1])
    assert one.results("cost", "strict")[order][2] == pytest.approx(0.03)
    assert one.space.prices[order][0] == pytest.approx(2.0)
    assert mocca.regret(one.results("time", "strict"), np.inf) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("provider,workload\nA,w\n", "line 2: KeyError"),
        (HEAD + "A,0,1,,,two,w,1,1,ok\n", "two"),
        (HEAD + "A,x,1,,,2,w,1,1,ok\n", "line 2"),
    ],
)
def test_files_of_another_schema_are_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / mocca.FILE).write_text(text)
    with pytest.raises(SkyUsageError, match=words):
        mocca.load(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SkyUsageError, match="there is no multi-cloud"):
        mocca.load(tmp_path)


def mean_regret(workloads: list, target: str, budget: int, make, reading: str = "paper") -> float:
    ends = [
        mocca.replay(make(one, seed), one, target, reading, budget)[0][-1]  # type: ignore[arg-type]
        for number, one in enumerate(workloads)
        for seed in ([number, 0], [number, 1])
    ]
    return float(np.mean(ends))


def test_cloudbandit_with_rbf_beats_the_exact_mean_of_random_search(workloads) -> None:
    exact = np.mean([bandit_regret(w.space, w.results("time", "paper"), 2) for w in workloads])
    found = mean_regret(
        workloads, "time", 22, lambda w, s: CloudBandit.for_budget(w.space, 22, "rbf", seed=s)
    )
    assert found < 0.8 * exact


def test_arms_prices_and_history_each_reduce_regret(workloads) -> None:
    some = [one for one in workloads if one.succeeds][::5]

    def blind(one, seed):
        return FlatGP(one.space, seed=seed, prices=False)

    def priced(one, seed):
        return FlatGP(one.space, seed=seed)

    def learned(one, seed):
        others = mocca.history((w for w in workloads if w is not one), "strict")
        return Transfer(one.space, seed=seed, minimize="time", history=others)

    assert mean_regret(some, "cost", 8, priced) < mean_regret(some, "cost", 8, blind)
    cold = mean_regret(
        some, "time", 5, lambda w, s: FlatGP(w.space, seed=s, minimize="time"), "strict"
    )
    assert mean_regret(some, "time", 5, learned, "strict") < cold


def test_replays_count_what_was_spent(workloads) -> None:
    one = workloads[0]
    regret, spent = mocca.replay(FlatGP(one.space), one, "cost", "paper", len(one.space) + 3)
    assert len(regret) == len(spent) == len(one.space) + 3
    assert spent[-1] == pytest.approx(100) and regret[-1] == 0
    assert (np.diff(regret) <= 0).all() and (np.diff(spent) >= 0).all()


def test_prices_can_be_scaled_by_provider(workloads) -> None:
    one = workloads[0]
    new = one.repriced({"A": 1, "B": 0.5, "C": 2})
    members = one.space.members("B")
    assert np.allclose(new.usd[members], one.usd[members] / 2)
    assert np.allclose(new.space.prices[members], one.space.prices[members] / 2)
