"""``%sky plan``: words, and the arguments of the function."""

from __future__ import annotations

from typing import Any

import pytest
from bs4 import BeautifulSoup

import jupyter_sky as sky
from jupyter_sky import cli
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.interfaces.magics import verbs


@pytest.fixture
def notebook(tmp_path, monkeypatch) -> Any:
    """A session with variables of its own, as a kernel has it."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    with sky.Dag("pipeline") as pipeline:
        a = sky.Task("a").set_resources(gpus="T4").set_time_estimator("2h")
        a >> sky.Task("b").set_resources(cpus="4").set_time_estimator("1h")
    sessions.open_session({"pipeline": pipeline, "x": 1}, str(tmp_path / "n.ipynb"), lasting=False)
    yield
    sessions.close()


def test_a_graph_by_the_name_of_its_variable(notebook) -> None:
    made = verbs.call_verb("plan pipeline --minimize time_then_cost --deadline 4h".split())
    assert [one.task for one in made.tasks] == ["a", "b"] and made.hours <= 4
    assert made.objective == "least time, then least cost, within 4:00:00"


def test_a_single_request_with_options_of_both_kinds(notebook) -> None:
    made = verbs.call_verb("plan --gpus A100:8 --spot --budget=100 --cloud aws,gcp".split())
    offer = made.tasks[0].offer
    assert (offer.gpu, offer.gpu_count, offer.spot) == ("A100", 8, True)
    assert "for $100 at most" in made.objective and offer.cloud in ("aws", "gcp")
    assert any("cannot launch here yet" in why for why in made.obstacles)
    assert "cannot launch here yet" in str(made)


def test_a_plan_that_cannot_be_launched_says_so_outside_of_its_folds(notebook) -> None:
    made = verbs.call_verb("plan pipeline".split())
    assert made.obstacles
    soup = BeautifulSoup(made._repr_html_(), "html.parser")
    for why in made.obstacles:
        (shown,) = soup.find_all(string=why)
        assert shown.find_parent("details") is None
    assert Plan.from_json(made.to_json()).obstacles == made.obstacles


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("plan", "what is to be planned"),
        ("plan pipelin", "there is no Dag of that name"),
        ("plan x", "there is no Dag of that name"),
        ("plan pipeline --cpus 4", "pipeline and cpus at once"),
        ("plan a b", "'b' is not understood"),
        ("plan --deadline", "--deadline needs a value"),
        ("plan --deadline=", "--deadline needs a value"),
        ("plan --deadline --spot", "--deadline needs a value"),
        ("plan --budget 1 --budget 2", "--budget is given twice"),
        ("plan --gpus T4 --deadline 5", "not a duration"),
        ("plan --gpus T4 --minimize speed", "minimize='speed'"),
        ("plan --gpus T4 --carbon-cap much", "not a number"),
        ("plan --gpus T4 --minimise cost", "unknown option --minimise"),
    ],
)
def test_invalid_lines(notebook, line: str, said: str) -> None:
    with pytest.raises(SkyUsageError) as caught:
        verbs.call_verb(line.split())
    assert said in caught.value.message


def test_on_the_command_line(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    assert cli.main(["plan", "--gpus", "T4", "--on-demand"]) == 0
    shown = capsys.readouterr().out
    assert "T4:1" in shown and "least cost: $" in shown and "proven best of" in shown
    assert cli.main(["plan", "--gpus", "T4", "--budget", "0.000001"]) == 3
    assert "the cheapest costs" in capsys.readouterr().err
