"""What a plan saves against one cloud, as words, and its plans on each single cloud."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_sky.optimizer.planner import plan
from jupyter_sky.pipelines.replanning import make_problem
from jupyter_sky.pipelines.single_clouds import SingleCloud, describe_saving, plan_single_clouds

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


def test_nlp_of_the_paper_is_planned_on_each_cloud() -> None:
    """Only Azure has the enclaves (Table 3)."""
    graph = make_nlp().freeze()
    problem = make_problem(graph, 0.0)
    aws, azure, gcp = plan_single_clouds(problem, ("aws", "azure", "gcp"), plan, 0.0)
    assert aws.usd is None and gcp.usd is None and azure.usd is not None
    best = plan(graph)
    found = describe_saving(best, "cost", [one.to_json() for one in (aws, azure, gcp)])
    assert f"saves ${azure.usd - best.usd:.2f}" in found.headline and best.usd < azure.usd
