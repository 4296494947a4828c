"""The notebook about JupyterLab, headless: its outputs stay readable without a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.notebooks import execute, printed, read

pytestmark = pytest.mark.slow
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "lab.ipynb"
KEYS = {
    "%load_ext": "load",
    "sky.form": "form",
    "%%sky": "run",
    "sky.logs": "logs",
    "%sky plan": "plan",
    "sky.cost": "cost",
    "%sky down": "down",
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, sky_env: dict[str, str]) -> dict[str, Any]:
    data = tmp_path_factory.mktemp("lab-notebook")
    return execute(read(NOTEBOOK), KEYS, sky_env | {"SKY_DATA_DIR": str(data)}, cwd=data)


def bundle(cell: Any) -> dict[str, str]:
    """Return the forms of the last value or picture of a cell."""
    return [out.data for out in cell.outputs if "data" in out][-1]


def test_form_shows_its_line_and_offers(cells: dict[str, Any]) -> None:
    text = bundle(cells["form"])["text/plain"]
    assert "%%sky --gpus V100:1 --timeout 2h" in text and "/h" in text
    assert "V100" in bundle(cells["form"])["text/html"]


def test_the_cell_ran_and_its_log_has_all_of_it(cells: dict[str, Any]) -> None:
    steps = "step 1\nstep 2\nstep 3\n"
    assert printed(cells["run"]) == steps
    status = bundle(cells["run"])
    assert set(status) == {"text/html", "text/plain"}  # over: nothing of it is live
    assert status["text/plain"].startswith("☁ done")
    assert bundle(cells["logs"])["text/plain"].strip() == steps.strip()


def test_the_plan_has_alternatives(cells: dict[str, Any]) -> None:
    assert "next best" in bundle(cells["plan"])["text/html"]


def test_cost_names_the_cell(cells: dict[str, Any]) -> None:
    text = bundle(cells["cost"])["text/plain"]
    assert "count" in text and "$0.00" in text  # this machine is free, and that is known
    assert "this machine" in str(cells["down"].outputs)
