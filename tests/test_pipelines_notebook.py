"""The notebook of pipelines, headless: its sweep, its states, and the notebook that it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup

from tests.notebooks import execute, printed, read, texts

pytestmark = pytest.mark.slow
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "pipelines.ipynb"
KEYS = {
    "%load_ext": "load",
    "def prepare": "functions",
    "fit-{C}": "run",
    "table.pivot": "scores",
    "run.state.tasks.items()": "states",
    "sky.status()": "status",
    "def on_clouds": "paper",
    "figure_5 =": "figure_5",
    "figure_6 =": "figure_6",
    "def clean_reviews": "executed_paper",
    "hours planned": "paper_states",
    'AIRFLOW = """': "airflow_edges",
    "figure_10c =": "figure_10c",
    "airflow =": "airflow",
    "parameters = new_code_cell": "graph",
    "pipeline run": "notebook",
    "executed =": "executed",
    "powers =": "edited",
    "again = ": "again",
    "again.save": "saved",
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, sky_env: dict[str, str]) -> dict[str, Any]:
    """Return the code cells after a run, by a word of their source."""
    data = tmp_path_factory.mktemp("pipelines-notebook")
    own = {"SKY_DATA_DIR": str(data / "sky")}
    return execute(read(NOTEBOOK), KEYS, sky_env | own, cwd=data)


def rows(cell: Any) -> list[list[str]]:
    """Return the rows of the table that a cell ends with."""
    (html,) = [out.data["text/html"] for out in cell.outputs if out.output_type == "execute_result"]
    return [texts(row) for row in BeautifulSoup(html, "html.parser").select("tr")[1:]]


def test_nothing_is_printed_on_stderr(cells: dict[str, Any]) -> None:
    for cell in cells.values():
        said = [out.text for out in cell.outputs if out.get("name") == "stderr"]
        # ipykernel does not close the pipe of a thread that has ended
        assert [text for text in said if "Unclosed socket <zmq.Socket(zmq.PAIR)" not in text] == []


def test_nine_are_tried_and_the_best_is_chosen(cells: dict[str, Any]) -> None:
    scores = [float(text) for row in rows(cells["scores"])[1:] for text in row[1:]]
    assert len(scores) == 9 and f"{max(scores):.3f} of the digits" in printed(cells["run"])


def test_each_task_ran_once_and_nothing_is_left(cells: dict[str, Any]) -> None:
    states = [row[2:4] for row in rows(cells["states"])]
    assert states == [["succeeded", "1"]] * 12
    assert "no cluster is up" in str(cells["status"].outputs)


def test_paper_pipelines_are_planned_beside_each_cloud(cells: dict[str, Any]) -> None:
    figure_5 = {(row[1], row[2]): row[3:] for row in rows(cells["figure_5"])}
    assert figure_5["vision", "all"][0] == "gcp tpu-v3-8, aws Inferentia"
    saved = [float(figure_5["vision", cloud][4]) for cloud in ("aws", "gcp", "azure")]
    assert min(saved) > 12 and max(saved) < 50, "18 to 47 % in the paper"
    assert figure_5["nlp", "aws"][0] == "no machine has what it needs"
    assert float(figure_5["nlp", "azure"][4]) == pytest.approx(80, abs=2)
    figure_6 = {(row[1], row[2], row[3]): row[4:] for row in rows(cells["figure_6"])}
    inferentia = float(figure_6["vision", "infer", "aws Inferentia"][1])
    t4 = min(float(row[1]) for key, row in figure_6.items() if "T4" in key[2] and "vision" in key)
    assert inferentia < 0.4 * t4


def test_paper_pipelines_are_executed(cells: dict[str, Any]) -> None:
    assert "stars of the reviews: [5, 1]" in printed(cells["executed_paper"])
    assert [row[3] for row in rows(cells["paper_states"])] == ["succeeded"] * 5
    assert printed(cells["airflow_edges"]) == "37 tasks, 59 edges\n"
    assert printed(cells["figure_10c"]).startswith("optimal: $")
    assert "before the last task ran 20 of 37" in printed(cells["airflow"])


def test_cells_of_a_notebook_run_as_a_graph(cells: dict[str, Any]) -> None:
    assert "evens, odds" in str(cells["graph"].outputs)
    assert "evens: succeeded" in printed(cells["notebook"])
    assert printed(cells["executed"]) == "even 20, odd 25, all 45\n\n"


def test_second_run_takes_what_is_kept_and_sweeps(cells: dict[str, Any]) -> None:
    reasons = {row[0]: row[2] for row in rows(cells["again"])}
    assert {name for name, why in reasons.items() if why == "its result was kept"} == {
        *("evens", "odds")
    }
    assert "powers[exponent=2]" in reasons
    assert printed(cells["saved"]) == "[25, 625, 15625]\n\n"


def test_notebook_is_kept_without_outputs() -> None:
    assert not any(cell.get("outputs") for cell in read(NOTEBOOK).cells)
