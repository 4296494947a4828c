"""Runs of graphs as the server answers them: list, pictures, tasks, what users wish."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.remote.processes import identity
from jupyter_sky.decisions.optimizer.plan import Certificate, Plan
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.run_storage import open_journal
from jupyter_sky.workflows.pipelines.run.state import Event, Kind
from tests.server.conftest import Refused

GRAPH = RunGraph([RunTask("load"), RunTask("fit", ("load",))])


@pytest.fixture
def journal(store: Any, data: Path) -> Iterator[RunJournal]:
    """Journal with a run of two tasks of which the first has a kept result."""
    opened = open_journal(data)
    certificate = Certificate("optimal", 0.0, 0.0, 0.0, "", "glpk", 0, 0, 0, 0, 0, 0, 0, True)
    plan = Plan("p", "cost", (), (), 0.0, 0.0, 0.0, certificate)
    opened.add("nightly", GRAPH, {"plan": plan.to_json()}, time.time())
    epoch = opened.take_over("nightly", identity())
    at = time.time()
    opened.append(
        "nightly",
        epoch,
        [Event(Kind.READY, "load", at), Event(Kind.RESULT_FOUND, "load", at)],
    )
    yield opened
    opened.close()


async def test_runs_are_listed_with_their_states(ask: Any, journal: RunJournal) -> None:
    found = await ask("pipelines")
    (run,) = found["runs"]
    assert found["more"] == 0 and run["name"] == "nightly"
    assert run["states"] == {"succeeded": 1, "waiting": 1}
    assert run["carried_out"] and not run["over"]
    journal.take_over("nightly", {**identity(), "born": 1.0})
    (run,) = (await ask("pipelines"))["runs"]
    assert not run["carried_out"], "its process has ended"


async def test_a_run_is_described_and_wished_for(ask: Any, journal: RunJournal) -> None:
    run = await ask("pipelines", "nightly")
    assert run["headline"].startswith("Run nightly: 1 of 2 tasks have ended")
    assert "✓ kept" in run["graph"] and 'data-task="fit"' in run["graph"]
    task = await ask("pipelines", "nightly", "task", task="load")
    assert task["facts"] == [{"name": "load", "words": "succeeded, its result was kept"}]
    assert task["log"] == ""
    assert not journal.has_wishes("nightly")
    assert (await ask("pipelines", "nightly", "act", body={"verb": "pause"}))["name"] == "nightly"
    epoch = journal.take_over("nightly", identity())
    assert [event.kind for event in journal.append("nightly", epoch, [])] == [Kind.PAUSE]
    wrong: list[tuple[tuple[str, ...], Any, str]] = [
        (("nightli",), None, "there is no run called nightli"),
        (("nightly", "task"), None, "there is no task"),
        (("nightly", "act"), {"verb": "explode"}, "not an action"),
    ]
    for path, body, said in wrong:
        with pytest.raises(Refused) as refused:
            await ask("pipelines", *path, body=body)
        assert refused.value.status == 400 and said in refused.value.said["message"]


async def test_cells_of_a_notebook_are_told_of_its_newest_run(
    ask: Any, journal: RunJournal, tmp_path: Path
) -> None:
    assert (await ask("pipelines-of", path="a.ipynb"))["run"] is None
    plan = journal.read("nightly").settings["plan"]
    cells = [
        {"cell_type": "markdown", "source": "text"},
        {"cell_type": "code", "id": "c1", "source": "x = load()"},
        {"cell_type": "code", "id": "c2", "source": "fit(x)"},
    ]
    facts = {"plan": plan, "cells": {"load": 1, "fit": 2}, "source": {"cells": cells}}
    origin = (await ask("pipelines-of", path="a.ipynb"))["path"]
    journal.add("cells", GRAPH, {**facts, "origin": f"notebook {origin}"}, time.time())
    epoch = journal.take_over("cells", identity())
    failed = Event(Kind.GIVEN_UP, "load", time.time(), {"reason": "no file"})
    journal.append("cells", epoch, [Event(Kind.READY, "load", time.time()), failed])
    found = await ask("pipelines-of", path="a.ipynb")
    assert found["run"] == "cells" and not found["over"]
    first, second = found["cells"]
    assert (first["id"], first["source"], first["phase"]) == ("c1", "x = load()", "failed")
    assert first["words"] == "✗ failed · no file" and second["words"] == "○ waiting"
