"""The notebook of managed analytics, headless: plans, pictures, one question to three engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.machines.services.spark_node import find_java
from tests.conftest import processes_of
from tests.notebooks import execute, printed, read, table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_java() is None, reason="no Java that is new enough"),
]
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "analytics.ipynb"
KEYS = {
    "%load_ext": "load",
    "prices =": "prices",
    "relative =": "figure8a",
    "savings =": "figure8b",
    "counted =": "counted",
    "def write_trips": "data",
    "def report": "task",
    "seconds, answers = {}": "none",
    "--engine spark": "spark",
    "%sky down spark": "after spark",
    "--engine dask": "dask",
    "%sky down dask": "after dask",
    "--engine ray": "ray",
    "%sky down ray": "after ray",
    "machine =": "engines",
    "nlargest(3)": "cities",
    "shutil.rmtree": "end",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the notebook runs, with its data directory."""
    return tmp_path_factory.mktemp("analytics-notebook")


@pytest.fixture(scope="module")
def cells(data: Path, sky_env: dict[str, str]) -> dict[str, Any]:
    """Return the code cells after a run over little data, by a word of their source."""
    own = {"SKY_DATA_DIR": str(data / "sky"), "ANALYTICS_GB": "0.02", "TMPDIR": str(data)}
    return execute(read(NOTEBOOK), KEYS, sky_env | own, cwd=data, timeout=600)


def test_catalog_prices_the_services_of_the_paper(cells: dict[str, Any]) -> None:
    found = table(cells["prices"])
    assert list(found["USD/h of a node"]) == [0.937, 0.96, 0.77]
    assert found["USD for 1,000"].iloc[0] == pytest.approx(10.2, abs=0.01)
    assert "cheaper than Dataproc: 32%" in printed(cells["figure8a"])


def test_plan_leaves_dataproc_for_graviton_when_moving_pays(cells: dict[str, Any]) -> None:
    assert "between 0.7 and 0.8 thousand queries" in printed(cells["figure8b"])
    output = str(cells["figure8b"].outputs[-1].data["text/html"])
    assert output.count("<td>Dataproc, n2</td>") == 4
    assert output.count("<td>EMR, m6g (Graviton)</td>") == 5
    counted = table(cells["counted"])
    assert list(counted.iloc[0]) == [0.32, 0.45] and list(counted.iloc[1]) == [0.4, 0.53]


@pytest.mark.parametrize("key", ["figure8a", "figure8b", "engines"])
def test_pictures_are_drawn(cells: dict[str, Any], key: str) -> None:
    pictures = [out for out in cells[key].outputs if "image/png" in out.get("data", {})]
    assert len(pictures) == 1


def test_task_runs_on_spark_that_is_started_for_it(cells: dict[str, Any]) -> None:
    assert len(table(cells["task"])) == 3


def test_all_engines_answer_alike_and_nothing_is_left(cells: dict[str, Any], data: Path) -> None:
    found = table(cells["engines"])
    assert list(found.index) == ["Spark", "Dask", "Ray"] and (found["seconds"] > 0).all()
    assert (found["USD on that machine"] >= 0).all()
    assert len(table(cells["cities"])) == 3
    assert "no cluster is up" in str(cells["end"].outputs)
    assert not processes_of(data / "sky")
