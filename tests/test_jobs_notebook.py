"""The notebook of bags of jobs, headless: its figures beside what its text says."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks import execute, printed, read, table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "jobs.ipynb"
KEYS = {
    "VCPU_SPOT, VCPU_ON_DEMAND =": "start",
    "def confine": "program",
    "sweep =": "figure1",
    "def exchange_seconds": "measured",
    "figure6 =": "figure6",
    "figure7 =": "figure7",
    "deadlines =": "deadlines",
    "figure9 =": "figure9",
    "figure10 =": "figure10",
    "figure11 =": "figure11",
    "table1 =": "table1",
    "kept =": "kept",
    "nbody =": "nbody",
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, sky_env: dict[str, str]) -> dict[str, Any]:
    """Return the code cells after a run, by a word of their source."""
    data = tmp_path_factory.mktemp("jobs-notebook")
    return execute(read(NOTEBOOK), KEYS, sky_env | {"SKY_DATA_DIR": str(data)}, cwd=data)


def test_nothing_is_printed_on_stderr(cells: dict[str, Any]) -> None:
    for cell in cells.values():
        assert [o for o in cell.outputs if o.get("name") == "stderr"] == []


@pytest.mark.parametrize(
    "key", ["figure1", "figure6", "figure7", "figure9", "figure10", "figure11"]
)
def test_pictures_are_drawn(cells: dict[str, Any], key: str) -> None:
    (picture,) = [
        base64.b64decode(out.data["image/png"])
        for out in cells[key].outputs
        if out.output_type == "display_data"
    ]
    assert picture.startswith(b"\x89PNG") and len(picture) > 8_000


def test_jobs_take_alike_and_walls_attract(cells: dict[str, Any]) -> None:
    jobs, percent = map(int, re.findall(r"\d+", printed(cells["figure1"]))[:2])
    assert jobs == 12 and percent < 30, "a few percent on a machine that does nothing else"
    (density,) = re.findall(r"[\d.]+ times", printed(cells["program"]))
    assert float(density.split()[0]) > 1.2


def test_large_machines_work_and_lose_less(cells: dict[str, Any]) -> None:
    figure = table(cells["figure6"])
    figure.columns = [f"{name}: {app}" for name, app in figure.columns]
    work = figure.loc[["1", "2", "4", "8", "16"], "work, min: ions"]
    assert work.is_monotonic_increasing and work.iloc[0] == pytest.approx(14, abs=0.1)
    assert figure["work, min: no communication"].std() < 0.1
    lost = figure.loc[["1", "2", "4", "8", "16"], "failures, %: ions"]
    assert lost.is_monotonic_increasing and 3 < lost.iloc[0] < 9
    assert printed(cells["figure6"]).count("two rises") == 2


def test_bags_cost_a_quarter_of_on_demand(cells: dict[str, Any]) -> None:
    figure = table(cells["figure7"])
    ours = figure.loc[["ions", "no communication"]]
    assert ours["on demand / chosen"].between(4.2, 4.73).all()
    saved = ours["less than ExoSphere, %"]
    assert saved["ions"] > saved["no communication"] > 0
    assert figure.loc["paper", "on demand / chosen"] == 5


def test_deadlines_hold_where_the_mean_is_late(cells: dict[str, Any]) -> None:
    figure = table(cells["deadlines"])
    late, kept = figure.loc["ceil(n E[T] / D)"], figure.loc["at 95 %"]
    assert (late["in time, %"] < 60).all() and (kept["in time, %"] > 91).all()
    assert (kept["USD"].to_numpy() < 1.03 * late["USD"].to_numpy()).all()
    assert "24 groups for 1,000 jobs" in printed(cells["deadlines"])


def test_scaling_saturates_where_jobs_communicate(cells: dict[str, Any]) -> None:
    figure = table(cells["figure9"])
    assert figure["no communication"].is_monotonic_decreasing
    assert figure["ions"].iloc[2] < 0.5 * figure["ions"].iloc[0]
    assert figure["ions"].iloc[-1] > 1.3 * figure["no communication"].iloc[-1]


def test_more_jobs_at_a_time_take_less(cells: dict[str, Any]) -> None:
    figure = table(cells["figure10"])
    assert figure["ions"].iloc[0] > 1.1 * figure["ions"].iloc[-1]
    free = figure["no communication"]
    assert free.max() < 1.15 * free.min()
    assert list(figure["vCPUs of a job"]) == [256, 128, 64, 32]


def test_many_preemptions_take_a_quarter_more(cells: dict[str, Any]) -> None:
    figure = table(cells["figure11"])
    assert figure["from the start"].max() < 50 and 15 < figure["from the start"].iloc[-1] < 40
    later = figure.loc["6":]
    assert (later["from a checkpoint"] < later["from the start"]).all()


def test_bags_are_those_of_table_1(cells: dict[str, Any]) -> None:
    figure = table(cells["table1"])
    assert list(figure["hours, paper"]) == [1.87, 6.08, 1.47, 4.49]
    over = figure["hours"] / figure["hours, paper"] - 1
    assert over.between(0.03, 0.11).all(), "the text says 4 to 10 %"
    assert ((figure["from"] < figure["hours"]) & (figure["hours"] < figure["to"])).all()
    assert figure["preemptions"].between(0.5, 3).all()


def test_machines_are_kept_up_to_the_cap(cells: dict[str, Any]) -> None:
    figure = table(cells["kept"])
    assert list(figure["exchanged at age, h"]) == [23.75, 23.0, 20.0]
    assert (figure["planned"] <= figure["always kept"]).all()
    assert (figure["planned"] < figure["new for each job"]).all()
    long = figure.loc["jobs of 4 h"]
    assert 0.05 < 1 - long["planned"] / long["always kept"] < 0.15, "the text says a tenth"


def test_nbody_program_is_explored_run_and_plotted(cells: dict[str, Any]) -> None:
    drift = table(cells["nbody"]).drift
    assert len(drift) == 6 and (drift > 0).all()
    assert drift.iloc[:2].mean() < drift.iloc[-2:].mean(), "smaller steps drift less"
    assert "least" in printed(cells["nbody"])
    shown = [o for o in cells["nbody"].outputs if o.output_type == "display_data"]
    assert any("image/png" in out.data for out in shown)


def test_notebook_is_kept_without_outputs() -> None:
    kept = json.loads(NOTEBOOK.read_text())
    for cell in kept["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None
