"""Searches recorded for the paper's tables, tests of ranks, synthetic providers."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import f, friedmanchisquare

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # it is run as a folder of scripts

import mocca
import rank_tests
import recorded_searches
import search_synthetic
import search_tables


def test_iman_davenport_corrects_friedmans_statistic() -> None:
    values = np.random.default_rng(1).random((12, 4)) + np.array([0.0, 0.2, 0.3, 0.1])
    friedman = friedmanchisquare(*values.T).statistic
    statistic, chance = rank_tests.iman_davenport(values)
    assert statistic == pytest.approx(11 * friedman / (36 - friedman))
    assert chance == pytest.approx(f.sf(statistic, 3, 33))


def test_li_rejects_what_its_two_steps_reject() -> None:
    found = np.array([0.001, 0.03, 0.2, 0.6])
    corrected = rank_tests.li_correction(found)
    limit = 0.05 * (1 - found.max()) / 0.95  # second step: reject up to this
    assert ((corrected <= 0.05) == (found <= limit)).all()
    assert (rank_tests.li_correction(np.array([0.01, 0.04])) <= 0.05).all(), (
        "all, by the first step"
    )


def test_cloudbandit_gains_with_the_number_of_providers() -> None:
    two, eight = (search_synthetic.ranks(range(n), 1.0, seeds=400) for n in (2, 8))
    assert eight[0] - eight[1] > two[0] - two[1] > 0
    assert abs(eight[1] - search_synthetic.PAPER["providers"][2][1]) < 0.06


def test_records_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "searches.json"
    monkeypatch.setattr(search_tables, "NESTED", {"once": search_tables.NESTED["once"]})
    monkeypatch.setattr(search_tables, "PLANNED", {"once_sh": search_tables.PLANNED["once_sh"]})
    monkeypatch.setattr(search_tables, "CHOICES", {})
    two = mocca.load(search_tables.FOLDER)[:2]
    monkeypatch.setattr(search_tables, "load_workloads", lambda: {one.name: one for one in two})
    monkeypatch.setattr(search_tables, "SEEDS", 2)
    search_tables.extend(1, path)
    first = json.loads(path.read_text())
    runs = first["runs"]["paper/cost/once_sh"][two[0].name]
    assert len(runs) == 2 and np.shape(runs[0]) == (8, 4) and "minutes" in first["command"]
    monkeypatch.setattr(search_tables, "SEEDS", 3)
    search_tables.extend(1, path)
    again = json.loads(path.read_text())
    assert again["runs"]["paper/cost/once_sh"][two[0].name][:2] == runs
    regret, count = recorded_searches.column(again, "paper/cost/once")
    assert count == 6 and regret[0] >= regret[-1] >= 0
    figures = recorded_searches.figures(again)
    assert figures["paper_cost_once_regret_88"] == pytest.approx(0.0), "all 82 are tried by then"


def test_a_workload_without_failures_is_searched_once_for_both_readings() -> None:
    unit = search_tables.Unit("strict", "time", "rbf_cb", "buzz-kmeans", 0)
    rows = search_tables.measure(replace(unit, table="paper"))
    kept = {"runs": {"paper/time/rbf_cb": {unit.workload: [rows]}}}
    assert search_tables.is_same_in_paper(unit)
    assert search_tables.same_in_paper(unit, kept) == rows
    assert rows == search_tables.measure(unit), "it is the same when it is run"
    assert search_tables.same_in_paper(replace(unit, number=1), kept) is None
    assert not search_tables.is_same_in_paper(replace(unit, workload="creditcard-kmeans"))
    tuned = replace(unit, table=search_tables.TUNING["strict"])
    assert search_tables.same_in_paper(tuned, kept) is None, "another table"


def test_methods_are_compared_on_what_they_have_in_common() -> None:
    def run(*names: str) -> dict[str, list]:
        return {name: [[[float(len(name)), 1.0]] * 8] for name in names}

    runs = {
        "paper/cost/a": run(*"uvwxyz"),
        "paper/cost/b": run(*"uvwxy"),
        "paper/cost/begun": run("z"),
    }
    kept = {"runs": runs}
    over = recorded_searches.common(kept, "paper", "cost", ["a", "b", "begun", "never"])
    assert over == list("uvwxy")
    values, count = recorded_searches.column(kept, "paper/cost/a", 0, over)
    assert count == 5 and (values == 1.0).all()
    assert np.isnan(recorded_searches.column(kept, "paper/cost/begun", 0, over)[0]).all()
    found = recorded_searches.figures(kept)
    assert set(found) == {
        *(f"paper_cost_a_{what}_{b}" for b in range(11, 89, 11) for what in ("regret", "search")),
        "paper_cost_a_n",
    }, "only what is whole"


def test_a_tuned_algorithm_spends_its_budget() -> None:
    one = mocca.load(search_tables.FOLDER)[0]
    for b1 in (1, 2, 3):
        given = {"b1": b1, "rbf": "cubic", "algorithm": "MSRSM"}
        pytest.importorskip("rbfopt")
        made = search_tables.tuned("CB", given)(one, 33, [1], "cost")
        assert made.budget == 33  # type: ignore[attr-defined]
    assert {len(search_tables.settings(name)) for name in search_tables.CHOICES} == {19}
    tune, test = recorded_searches.split([each.name for each in mocca.load(search_tables.FOLDER)])
    assert len(tune) == 13 and len(test) == 7 and not set(tune) & set(test)
