"""The functions notebook, headless: each block of the documented page works."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ANSI, processes_of, wait_until
from tests.notebooks import execute, printed, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "functions.ipynb"
KEYS = {
    "here = sky.Local()": "start",
    "pending = train(10)": "lazy",
    "train.local(10)": "local",
    "OMP_NUM_THREADS": "pool",
    "on_aws": "described",
    "desired=1": "ready",
    "nodes=(1, 2)": "elastic",
    "concurrency=2": "workers",
    "cluster=False": "standalone",
    'sky.up("demo"': "up",
    "call {number}": "one",
    "def initialize_model": "all",
    "def preprocess": "and",
    "future = train(10)": "future",
    "def process_chunk": "gather",
    "ordered=False": "streamed",
    "described.digest": "page-image",
    "def greeting": "image",
    "surely-no-such": "no-package",
    "def distributed_task": "info",
    "def process_share": "shard",
    "def aligned": "aligned",
    "def count_up": "shared",
    "def expensive_sample": "generator",
    "def consume": "iterator",
    "def running_mean": "both",
    "H100(count=4)": "accelerators",
    "allocations = [": "allocation",
    "max_hourly_cost": "spec",
    'selection="cheapest"': "selection",
    "spot.machine": "offers",
    "def train_together": "training",
    "picture.update": "watched",
    "GridSearchCV(": "sklearn",
    "compute.dask": "dask",
    "compute.down()": "down",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("functions-notebook")


@pytest.fixture(scope="module")
def cells(data: Path, sky_env: dict[str, str]) -> dict[str, Any]:
    """Return the code cells after a run."""
    folder = data / "notebooks"
    folder.mkdir()
    env = sky_env | {"SKY_DATA_DIR": str(data)}
    return execute(read(NOTEBOOK), KEYS, env, cwd=folder, timeout=240)


def result(cell: Any) -> str:
    """Return the text of a cell's last expression."""
    (found,) = [out for out in cell.outputs if out.output_type == "execute_result"]
    return found.data["text/plain"]


def value(cell: Any) -> Any:
    import ast

    return ast.literal_eval(result(cell))


def test_lazy_calls(cells: dict[str, Any]) -> None:
    assert result(cells["lazy"]) == "train(10)"
    assert value(cells["local"]) > 0.85
    assert value(cells["pool"]) == value(cells["local"]) == value(cells["future"])


def test_pools(cells: dict[str, Any]) -> None:
    assert value(cells["described"]) == "--gpus A100:1+ --nodes 4 --cloud aws"
    assert "begins with ['first: node 0 of 1']" in printed(cells["ready"])
    assert "later: node 1 of 2" in printed(cells["ready"])
    assert "{0:" in printed(cells["elastic"]) and "1:" in printed(cells["elastic"])
    assert "4 calls of a second each took 1." in printed(cells["workers"])
    assert len(value(cells["standalone"])) == 3
    assert result(cells["up"]) == "<pool demo: 2 nodes>"
    assert "ended" in result(cells["down"])


def test_operators(cells: dict[str, Any]) -> None:
    _, calls = value(cells["one"])
    nodes = [call.split()[3] for call in calls]
    assert nodes in (["0", "1", "0", "1"], ["1", "0", "1", "0"]), "by turns"
    assert value(cells["all"]) == [f"node {node} has {{'hidden': 64}}" for node in (0, 1)]
    first, accuracy, third = value(cells["and"])
    assert first == [1, 2, 3] and accuracy > 0.8 and third == 0.97
    assert "is done: False" in printed(cells["future"])
    assert value(cells["gather"]) == (45, 145, 245, 345, 445)
    in_order, as_they_finish = value(cells["streamed"])
    assert in_order == [45, 145, 245, 345, 445] == sorted(as_they_finish)
    assert as_they_finish[-1] == 45, "the slow one is the last"


def test_images(cells: dict[str, Any]) -> None:
    assert len(value(cells["page-image"])) == 16
    assert "from my own module, with jax" in printed(cells["image"])
    (error,) = [out for out in cells["no-package"].outputs if out.output_type == "error"]
    shown = ANSI.sub("", "\n".join(error.traceback))
    assert error.ename == "SkyBootstrapError" and "surely-no-such-package-9" in shown
    assert "no machine was asked for" in shown and "File" not in shown


def test_on_nodes(cells: dict[str, Any]) -> None:
    said = printed(cells["info"])
    assert "[0] Node 0 of 2, RANK=0" in said and "[1] Node 1 of 2, RANK=1" in said
    assert said.count("I am the head") == 1 and value(cells["info"]) == [6, 6]
    assert value(cells["shard"]) == [(51, [0, 2, 4, 6]), (50, [1, 3, 5, 7])]
    assert value(cells["aligned"]) == [("ndarray", (50, 2), "list", True)] * 2
    assert value(cells["shared"]) == (200, 200)


def test_streams(cells: dict[str, Any]) -> None:
    assert value(cells["generator"]) == ([0, 1, 4, 9, 16], 100)
    assert value(cells["iterator"]) == sum(range(10_000))
    assert value(cells["both"]) == [1.0, 1.5, 3.0, 3.0]


def test_hardware(cells: dict[str, Any]) -> None:
    asked = ["A100:1 of 40 GiB", "H100:4 of 80 GiB", "A100:1 of 40 GiB"]
    assert value(cells["accelerators"]) == asked
    assert value(cells["allocation"]) == ["spot-if-available", "spot", "on-demand", "cheapest"]
    assert "--cloud vast" in value(cells["spec"]) and "2.5" in value(cells["spec"])
    assert value(cells["selection"]) == "taken: node 0 of 1"
    text = printed(cells["offers"])
    assert "the same machine: True with A100:8" in text and "on demand $" in text


def test_the_training_is_watched(cells: dict[str, Any]) -> None:
    outputs = cells["watched"].outputs
    (picture,) = [out for out in outputs if "image/png" in out.get("data", {})]
    assert len(base64.b64decode(picture.data["image/png"])) > 10_000
    said = printed(cells["watched"])
    assert "50 rows" in said and float(said.split()[-1]) > 0.85


def test_others_on_the_same_nodes(cells: dict[str, Any]) -> None:
    best, accuracy = value(cells["sklearn"])
    assert best["C"] == 10 and accuracy > 0.97
    assert printed(cells["dask"]) == "1000000.0 2 workers\n"


def test_nothing_is_left(cells: dict[str, Any], data: Path) -> None:
    assert cells
    wait_until(lambda: not processes_of(data))
