"""The notebook of recovery, headless: tables, pictures, and a training that is really killed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.store.store import Store
from tests.conftest import processes_of, wait_until
from tests.notebooks import execute, printed, read, table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "recovery.ipynb"
KEYS = {
    "%load_ext": "load",
    "shares =": "record",
    "table5 =": "table5",
    "def stays": "stays",
    "figure7 =": "figure7",
    "top.step": "curves",
    "losing =": "losing",
    "def take_machines_away": "killer",
    "%%sky": "training",
    "epochs_run =": "loss",
    "%sky down": "down",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the notebook runs, with its data directory."""
    return tmp_path_factory.mktemp("recovery-notebook")


@pytest.fixture(scope="module")
def cells(data: Path, sky_env: dict[str, str]) -> dict[str, Any]:
    """Return the code cells after a run, by a word of their source."""
    own = {"SKY_DATA_DIR": str(data / "sky"), "SPOT_TRACES": "", "TMPDIR": str(data)}
    return execute(read(NOTEBOOK), KEYS, sky_env | own, cwd=data, timeout=300)


@pytest.mark.parametrize("key", ["stays", "curves", "losing", "loss"])
def test_pictures_are_drawn(cells: dict[str, Any], key: str) -> None:
    pictures = [out for out in cells[key].outputs if "image/png" in out.get("data", {})]
    assert len(pictures) == 1


def test_table_5_has_the_papers_order(cells: dict[str, Any]) -> None:
    found = table(cells["table5"])
    assert list(found["USD, paper"].dropna()) == [61.2, 21.8, 18.4]
    assert list(found["hours, paper"].dropna()) == [20, 34, 21]
    usd, hours = found["USD"], found["hours"]
    assert usd["index"] < usd["Broker"] < usd["SingleRegion"] < usd["On-Demand"] / 2
    assert hours["On-Demand"] < hours["Broker"] < hours["SingleRegion"]


def test_broker_is_ahead_as_in_figure_7(cells: dict[str, Any]) -> None:
    broker = table(cells["figure7"]).loc["Broker"]
    sooner, makespan, preemptions = broker[-3:]
    assert sooner >= 1.2 and makespan >= 1.4 and preemptions >= 2.3, "as the text says"


def test_moving_loses_from_a_calm_region(cells: dict[str, Any]) -> None:
    found = table(cells["losing"])
    lost, done = found["preemptions"], found["all done, h"]
    assert lost["Broker"] > 1.2 * lost["SingleRegion"]
    assert done["Broker"] > done["SingleRegion"]
    assert lost["index"] < lost["Broker"]


def test_the_training_is_whole_after_three_losses(cells: dict[str, Any]) -> None:
    said = printed(cells["loss"])
    (numbers,) = re.findall(r"^(\d+) epochs, (\d+) machines lost, (\d+) epochs twice$", said, re.M)
    epochs, lost, twice = map(int, numbers)
    assert (epochs, lost) == (150, 3)
    assert 0 <= twice < 150
    goes_on = re.findall(r"digits: goes on from the save of", printed(cells["training"]))
    assert len(goes_on) == 3


def test_nothing_is_left(cells: dict[str, Any], data: Path) -> None:
    assert cells["down"].outputs, "it says what has ended"
    wait_until(lambda: not processes_of(data), "processes are left")
    assert not Store.open(data / "sky").clusters()


def test_nothing_is_printed_on_stderr(cells: dict[str, Any]) -> None:
    for cell in cells.values():
        said = [out.text for out in cell.outputs if out.get("name") == "stderr"]
        # ipykernel does not close the pipe of a thread that has ended
        assert [text for text in said if "Unclosed socket <zmq.Socket(zmq.PAIR)" not in text] == []


def test_notebook_is_kept_without_outputs() -> None:
    kept = json.loads(NOTEBOOK.read_text())
    for cell in kept["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None
