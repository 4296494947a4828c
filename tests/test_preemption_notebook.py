"""The preemption notebook, headless: the figures in its tables and the pictures it draws."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks import execute, printed, read, table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "preemption.ipynb"
KEYS = {
    "google_2019()": "start",
    "stops as preemptions": "ends",
    "to_25 =": "figure2",
    "edges =": "hazard",
    "central =": "figure3",
    "CLOCKS =": "night",
    "equation1_table": "parameters",
    "ranking =": "ranking",
    "lifetimes =": "lifetimes",
    "figure6 =": "figure6",
    "choice =": "choice",
    "figure8 =": "figure8",
    "table1 =": "table1",
    "daly =": "schedule",
    "saved =": "overhead",
    "posterior(": "priors",
}
FOUR = ["n1-highcpu-2", "n1-highcpu-4", "n1-highcpu-8", "n1-highcpu-16"]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, sky_env: dict[str, str]) -> dict[str, Any]:
    """Return the code cells after a run, by a word of their source."""
    data = tmp_path_factory.mktemp("preemption-notebook")
    return execute(read(NOTEBOOK), KEYS, sky_env | {"SKY_DATA_DIR": str(data)}, cwd=data)


def pictures(cell: Any) -> list[bytes]:
    found = [out for out in cell.outputs if out.output_type == "display_data"]
    return [base64.b64decode(out.data["image/png"]) for out in found]


def test_nothing_is_printed_on_stderr(cells: dict[str, Any]) -> None:
    for cell in cells.values():
        assert [o for o in cell.outputs if o.get("name") == "stderr"] == []


@pytest.mark.parametrize("key", ["figure2", "hazard", "figure3", "figure6", "figure8", "schedule"])
def test_pictures_are_drawn(cells: dict[str, Any], key: str) -> None:
    (picture,) = pictures(cells[key])
    assert picture.startswith(b"\x89PNG") and len(picture) > 12_000


def test_stops_counted_or_dropped_shorten_lives(cells: dict[str, Any]) -> None:
    found = table(cells["ends"])
    assert found.machines.sum() == 967
    kinds = found[["preempted", "stopped", "reached the cap"]].sum(axis=1)
    assert (kinds == found.machines).all()
    assert (found["stops as preemptions"] < found["stops dropped"]).all()
    assert (found["stops dropped"] < found["Kaplan-Meier"]).all()
    assert (
        found.loc["n1-highcpu-32", "stops dropped"]
        < 7
        < 13
        < found.loc["n1-highcpu-32", "Kaplan-Meier"]
    )


def test_the_hazard_falls_and_stays(cells: dict[str, Any]) -> None:
    rates = table(cells["hazard"])["per hour"]
    assert rates.iloc[:7].is_monotonic_decreasing and rates.iloc[0] > 10 * rates.iloc[6]
    assert rates.iloc[7:].between(0.003, 0.02).all(), "the text says that there is no rise"


def test_larger_machines_and_busier_zones_fail_more(cells: dict[str, Any]) -> None:
    said = printed(cells["figure3"])
    ratio, low, high = map(
        float, re.findall(r"hazard by ([\d.]+) \(([\d.]+) to ([\d.]+)\)", said)[0]
    )
    assert 1 < low < ratio < high < 1.6
    zones = dict(re.findall(r"'([\w-]+)': ([\d.]+)", said))
    assert float(zones["us-central1-c"]) > 2 * float(zones["us-west1-a"])


def test_night_and_day_do_not_differ(cells: dict[str, Any]) -> None:
    found = table(cells["night"])
    assert found.machines.sum() == 967 and found.machines.min() > 100
    means = found["mean life, h"]
    assert means.max() - means.min() < 3, "the text says that they hardly differ"


def test_equation_1_has_the_papers_parameters_and_is_no_distribution(cells: dict[str, Any]) -> None:
    found = table(cells["parameters"]).loc[FOUR]
    assert found["1/tau1"].between(0.5, 1.5).all() and found["1/tau2"].between(1.2, 1.9).all()
    assert found.b.between(24, 24.5).all()
    assert table(cells["parameters"])["F(24)"].dropna().between(0.5, 0.96).all()


def test_the_models_rank_as_the_text_says(cells: dict[str, Any]) -> None:
    scores = table(cells["ranking"]).iloc[:, 0]
    assert scores.is_monotonic_decreasing
    assert scores.index[0].startswith("floor + hyperbolic, size")
    assert scores.index[-1] == "equation (1), the paper's fit"


def test_equation_3_is_two_to_three_times_too_short(cells: dict[str, Any]) -> None:
    found = table(cells["lifetimes"])
    ratio = found["Kaplan-Meier"] / found["equation (3)"]
    assert ratio.between(1.7, 3.6).all()
    close = found["floor + hyperbolic"] / found["Kaplan-Meier"] - 1
    assert close.abs().max() < 0.06
    # the paper's own sentence, against its own equation
    assert (found["equation (3)"] < 10).all()


def test_turnaround_is_predicted_better_than_by_the_paper(cells: dict[str, Any]) -> None:
    found = table(cells["figure6"])
    ours, theirs = found["turnaround"], found["equations (5)-(9)"]
    assert ours.abs().to_numpy().max() < 4 < 14 < theirs.abs().to_numpy().max()
    assert theirs.to_numpy().min() < -10 and theirs.to_numpy().max() > 10, "it goes both ways"


def test_a_shape_is_chosen_from_the_catalog(cells: dict[str, Any]) -> None:
    said = printed(cells["choice"])
    assert said.startswith("2 x gcp us-central1") and "n1-highcpu-32 spot" in said.splitlines()[0]
    assert "USD more" in said and len(re.findall(r"^\d+ x gcp", said, re.MULTILINE)) == 6


def test_checkpoints_make_length_harmless(cells: dict[str, Any]) -> None:
    found = table(cells["figure8"])
    assert found["equations (5)-(9)"].max() == 50 and found.loc["4.00", "equations (5)-(9)"] == 44
    middle = found.loc["2.00":"10.00", "no checkpoints"]
    assert middle.between(12, 19).all(), "the text says about 15 %"
    assert (found.loc["16.00":, "no checkpoints"] > 25).all()
    assert found["planned checkpoints"].max() < 8


def test_bags_match_the_paper(cells: dict[str, Any]) -> None:
    found = table(cells["table1"])
    assert list(found["hours, paper"]) == [1.87, 6.08, 1.47, 4.49]
    assert list(found["preemptions, paper"]) == [0, 1, 0, 5]
    near = found["hours, reused"] / found["hours, paper"]
    assert near.between(1.0, 1.15).all()
    assert (found["preemptions, reused"] < found["preemptions, new for each job"]).all()


def test_plans_beat_young_and_daly_on_unseen_machines(cells: dict[str, Any]) -> None:
    found = table(cells["overhead"])
    plan, best = found.loc["planned on floor + hyperbolic"], found.loc["planned on the truth"]
    for rule in ("Young-Daly, equation (3)", "Young-Daly, Kaplan-Meier", "no checkpoint"):
        assert (plan < found.loc[rule]).all()
    assert (best <= plan).all()


def test_beliefs_are_shown_with_their_evidence(cells: dict[str, Any]) -> None:
    lines = printed(cells["priors"]).splitlines()
    assert len(lines) == 5
    assert "interruption band" in lines[0] and "none seen" in lines[0]
    assert "15 machines seen" in lines[1] and "2019" in lines[2]
    hours = [float(re.findall(r"lives ([\d.]+) of", line)[0]) for line in lines[:3]]
    assert hours[0] > hours[1] > hours[2]
    plain, saved = ([float(x) for x in re.findall(r"\d\.\d{3}", line)] for line in lines[3:])
    assert 1 < saved[0] < plain[0] * 1.05 < 1.2 < plain[1] and saved[1] < 1.15, "by cloud"


def test_notebook_is_kept_without_outputs() -> None:
    kept = json.loads(NOTEBOOK.read_text())
    for cell in kept["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None
