"""Names of runs that their user has not named."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

import jupyter_sky as sky
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.workflows.bags.bag_run import BagRun
from jupyter_sky.workflows.pipelines.run.names import dated_name
from jupyter_sky.workflows.pipelines.run.pipeline_run import PipelineRun


def test_runs_that_begin_in_one_second_have_different_names() -> None:
    names: list[str] = []
    for _ in range(3):
        names.append(dated_name("wine", names, now=0.0))
    first = time.strftime("wine-%m%d-%H%M%S", time.localtime(0))
    assert names == [first, f"{first}-2", f"{first}-3"]


def test_stem_is_made_a_part_of_a_file_name() -> None:
    assert re.fullmatch(r"my-graph-\d{4}-\d{6}", dated_name("my graph/", ()))


@pytest.fixture
def in_one_second(own_data: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make all runs begin in the same second, and carry out none of them."""
    sessions.close()  # of a test before: its data are elsewhere
    monkeypatch.setattr(time, "strftime", lambda *_: "0101-000000")
    for kind in (PipelineRun, BagRun):
        monkeypatch.setattr(kind, "start", lambda run, *_, **__: run)
    yield
    sessions.close()


@pytest.mark.usefixtures("in_one_second")
def test_second_run_of_the_same_second() -> None:
    with sky.Dag("one") as dag:
        sky.Task("first", run=int)
    begun = [sky.run(dag), sky.run(dag), *(sky.sweep(int, {"x": [1]}) for _ in range(2))]
    names = ("one-0101-000000", "one-0101-000000-2", "int-0101-000000", "int-0101-000000-2")
    assert tuple(run.name for run in begun) == names
