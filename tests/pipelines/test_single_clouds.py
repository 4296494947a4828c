"""What a plan saves against one cloud, as words, and its plans on each single cloud."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.run import placing
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.replanning import make_problem
from jupyter_sky.workflows.pipelines.run.single_clouds import (
    Saving,
    SingleCloud,
    describe_saving,
    note_single_clouds,
    read_saving,
)

from .paper_graphs import make_nlp

PLANNED: Any = SimpleNamespace(usd=30.0, hours=10.0)


def _describe(*singles: SingleCloud, minimize: str = "cost") -> Any:
    return describe_saving(PLANNED, minimize, [one.to_json() for one in singles])


def test_the_best_single_cloud_is_compared_with() -> None:
    found = _describe(SingleCloud("aws", 60.0, 9.0), SingleCloud("gcp", 40.0, 20.0))
    assert found.headline == "placement saves $10.00 (25%) against gcp alone"
    assert found.text == (
        f"{found.headline}; on one cloud alone: aws $60.00, 9:00:00, gcp $40.00, 20:00:00"
    )


def test_times_are_compared_where_the_plan_makes_them_small() -> None:
    singles = SingleCloud("aws", 60.0, 12.5), SingleCloud("gcp", 40.0, 20.0)
    found = _describe(*singles, minimize="time_then_cost")
    assert found.headline == "placement saves 2:30:00 (20%) against aws alone"


@pytest.mark.parametrize(
    ("singles", "headline", "text"),
    [
        ([], "", ""),
        ([SingleCloud("aws", 60.0, 9.0)], "", ""),
        ([SingleCloud("aws", 0.0, 9.0), SingleCloud("gcp", 0.0, 9.0)], "", ""),
        (
            [SingleCloud("aws", 30.0, 10.0), SingleCloud("gcp")],
            "",
            "placement saves nothing against aws alone; "
            "on one cloud alone: aws $30.00, 10:00:00, gcp not possible",
        ),
        ([SingleCloud("aws"), SingleCloud("gcp")], *["no single cloud could run it"] * 2),
    ],
)
def test_runs_for_which_one_cloud_is_as_good_or_none_is_enough(
    singles: list[SingleCloud], headline: str, text: str
) -> None:
    found = _describe(*singles)
    assert (found.headline, found.text) == (headline, text)


def test_nlp_of_the_paper_is_planned_on_each_cloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only Azure has the enclaves (Table 3)."""
    monkeypatch.setattr(placing, "usable_providers", lambda need: ("aws", "azure", "gcp"))
    graph = make_nlp(has_tpus=False).freeze()
    journal = RunJournal(tmp_path / "runs.db")
    settings = {"problem": make_problem(graph, 0.0).to_text()}
    journal.add("nlp", RunGraph([RunTask("proc")]), settings, 0.0)
    best = placing.plan_graph(graph)
    assert read_saving(journal, "nlp", best) == Saving(), "nothing is known yet"
    note_single_clouds(journal, "nlp")
    aws, azure, gcp = journal.noted("nlp", "single_clouds")
    assert aws["usd"] is None and gcp["usd"] is None and azure["usd"] > best.usd
    found = read_saving(journal, "nlp", best)
    assert found.headline.startswith(f"placement saves ${azure['usd'] - best.usd:.2f} (")
    assert "against azure alone" in found.headline and "aws not possible" in found.text
