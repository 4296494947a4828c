"""Pipelines of the SkyPilot paper on machines of three emulated clouds, with scaled-down work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Notebook, wait_until
from tests.emulators.hosts import USABLE
from tests.emulators.multi_cloud import EmulatedClouds, emulate_clouds

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
    pytest.mark.timeout(600),
]
ROOT = Path(__file__).parents[2]
CLOUDS = ("aws", "gcp", "azure")


@pytest.fixture(scope="module")
def clouds() -> Iterator[EmulatedClouds]:
    with emulate_clouds(*CLOUDS, minute=1.0) as opened:
        yield opened


@pytest.fixture
def book(fresh: Any, clouds: EmulatedClouds) -> Notebook:
    return fresh("paper.ipynb", **clouds.env)


NLP = """
import sys
sys.path.insert(0, {root!r})
from tests.pipelines.paper_graphs import make_nlp
import jupyter_sky as sky

reviews = ["good card 1234", "bad", "good"]
work = dict(
    proc=lambda: [text.replace("card 1234", "") for text in reviews],
    train=lambda texts: {{"good": 5, "bad": 1}},
    infer=lambda stars: [stars[text] for text in ("bad", "good")],
)
"""


def _begin(make: str, only: str) -> str:
    return f"""
dag = {make}({only!r}, has_tpus=False)
for task in dag:  # values go along the edges, as the stores of the paper are not here
    task.run = work[task.name]
    task.inputs.clear()
    task.outputs.clear()
run = sky.run(dag, name={make + "-" + only.replace(",", "-")!r}, fresh=True).wait(280)
"""


def _places(book: Notebook) -> dict[str, str]:
    code = "{name: c.offer['offer']['cloud'] for name, c in run.state.clusters.items()}"
    return eval(book.run(code).result)


def test_nlp_runs_on_machines_of_three_clouds(book: Notebook, clouds: EmulatedClouds) -> None:
    """Table 3 without TPUs, which cannot be launched: enclaves, then V100s, then Inferentia."""
    before = len(clouds.bills())
    assert book.run(NLP.format(root=str(ROOT))).status == "ok"
    ran = book.run(_begin("make_nlp", ",".join(CLOUDS)) + "run.result('infer')", 300)
    assert ran.result == "[1, 5]", ran.traceback
    assert book.run("[one.text for one in run.replans()]").result == "[]"
    assert _places(book) == {"proc": "azure", "train": "gcp", "infer": "aws"}
    broker = float(book.run("run.plan.usd").result)
    kinds = eval(book.run("[t.offer.gpu for t in run.plan.tasks]").result)
    assert kinds == [None, "V100", "Inferentia"]
    wait_until(lambda: not clouds.machines(), "machines are given back")
    assert len(clouds.bills()) == before + 3, "one machine for each task"

    ran = book.run(_begin("make_nlp", "azure") + "run.result('infer')", 300)
    assert ran.result == "[1, 5]", ran.traceback
    assert set(_places(book).values()) == {"azure"}
    assert float(book.run("run.plan.usd").result) > broker
    wait_until(lambda: not clouds.machines(), "machines are given back")
