"""Runs in their notebooks: who looks after them, and what is put into a cell."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.store.store import RunRow, Store
from jupyter_sky.execution.cells.replay import ALL_SHOWN
from jupyter_sky.interfaces.server.runs import LEASE_SECONDS, PageClaims
from jupyter_sky.interfaces.server.service import SkyService
from jupyter_sky.interfaces.widgets.status_line import CARD_MIME
from tests.server.conftest import Refused
from tests.store.rows import CLUSTER, GONE, MINE, RUN

OFFER = {"cloud": "aws", "region": "us-east-1", "instance_type": "g5.xlarge"}
OFFER |= {"vcpus": 4, "memory": 16}


def run(store: Store, run_id: str, age: float = 60.0, **other: Any) -> RunRow:
    now = time.time()
    values = {"run_id": run_id, "started": now - age, "last_beat": now, "cell_id": "c1"}
    values |= {"status": "running", "stage": "running", "ended": None, "owner": MINE}
    row = replace(RUN, **{**values, **other})
    store.begin_run(row)
    return row


# -- who writes --------------------------------------------------------------------------------


def test_one_page_at_a_time_writes_and_a_silent_one_loses_its_place() -> None:
    now = [0.0]
    pages = PageClaims(lambda: now[0])
    assert pages.claim("r", "a", fed=False, age=60)
    assert not pages.claim("r", "b", fed=False, age=60)
    assert pages.claim("other", "b", fed=False, age=60)
    now[0] += LEASE_SECONDS - 1
    assert pages.claim("r", "a", fed=False, age=60)
    now[0] += LEASE_SECONDS - 1
    assert not pages.claim("r", "b", fed=False, age=60)
    now[0] += 2
    assert pages.claim("r", "b", fed=False, age=60)
    assert not pages.claim("r", "a", fed=False, age=60)


def test_the_page_that_the_kernel_feeds_comes_first() -> None:
    pages = PageClaims(lambda: 0.0)
    assert not pages.claim("r", "guest", fed=False, age=1), "its own page may not have asked yet"
    assert pages.claim("r", "host", fed=True, age=1)
    assert not pages.claim("r", "guest", fed=False, age=60)
    assert pages.claim("s", "guest", fed=False, age=60)
    assert pages.claim("s", "host", fed=True, age=60)
    assert not pages.claim("s", "guest", fed=False, age=60)


# -- what is written ---------------------------------------------------------------------------


async def test_a_run_that_goes_on_is_a_card_and_at_its_end_plain_html(
    ask: Any, store: Store
) -> None:
    store.save_cluster(replace(CLUSTER, price=3.6, created=time.time() - 100, offer=OFFER))
    run(store, "r1", cluster=CLUSTER.name, price=3.6, waited=4.2)
    told = await ask("runs", "r1", "follow", body={"page": "a"})
    assert told["writer"] and not told["over"]
    output = told["output"]
    assert output["output_type"] == "display_data"
    assert output["metadata"] == {"jupyter_sky": {"run_id": "r1"}}
    card = output["data"][CARD_MIME]
    assert card["stage"] == "running" and card["cluster"] == CLUSTER.name
    assert 59 <= card["seconds"] <= 65 and card["boot"] == 4.2 and 0.05 < card["cell_usd"] < 0.08
    assert "1 Jan 2026" in card["price_from"]

    store.end_run("r1", "error", time.time())
    told = await ask("runs", "r1", "follow", body={"page": "a"})
    assert told["over"] and set(told["output"]["data"]) == {"text/html", "text/plain"}
    assert told["output"]["data"]["text/plain"].startswith("☁ failed boot 4.2 s, run 1:0")


async def test_values_that_are_still_on_the_cluster_are_said(ask: Any, store: Store) -> None:
    run(store, "r1", cluster="gone", outputs="acc,out/model.pt")
    store.end_run("r1", "ok", time.time())
    told = await ask("runs", "r1", "follow", body={})
    text = told["output"]["data"]["text/plain"]
    assert "result on the cluster: %sky get acc,out/model.pt" in text


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("ok", "done"),
        ("interrupted", "interrupted"),
        ("cancelled", "cancelled"),
        ("lost", "failed"),
    ],
)
async def test_every_end_has_its_word(ask: Any, store: Store, status: str, word: str) -> None:
    run(store, "r1", cluster="gone", price=None)
    if status == "cancelled":
        store.request_stop("r1", "in the browser")
    store.end_run("r1", status, time.time())
    told = await ask("runs", "r1", "follow", body={})
    text = told["output"]["data"]["text/plain"]
    assert told["over"] and text.startswith(f"☁ {word} ")
    assert ("lost: its cluster ended" in text) == (status == "lost")
    assert ("stopped in the browser" in text) == (status == "cancelled")
    assert "$0.00 this cell" not in text, "its price is unknown"


async def test_the_next_kernel_is_told_that_a_page_shows_it(ask: Any, store: Store) -> None:
    run(store, "mine", age=0.0)  # after its kernel was born, which is this process
    run(store, "orphan", owner=GONE)
    for page, fed in (("a", True), ("b", False)):
        for run_id in ("mine", "orphan"):
            await ask("runs", run_id, "follow", body={"page": page, "fed": fed})
        expected = 0 if fed else ALL_SHOWN
        assert [store.run(one).shown for one in ("mine", "orphan")] == [0, expected]
    assert store.run("orphan").ended is None and store.run("orphan").status == "running"


async def test_page_learns_that_a_kernel_is_gone(
    ask: Any, store: Store, service: SkyService, jp_root_dir: Path
) -> None:
    file = jp_root_dir / "a.ipynb"
    file.write_text("{}")
    run(store, "mine", notebook=str(file))
    run(store, "orphan", notebook=str(file), cell_id="c2", cluster="elsewhere")
    before = service.cursor()
    service.check_runs()
    assert service.cursor() == before
    store.database.write(("UPDATE runs SET owner = ? WHERE run_id = 'orphan'", (GONE,)))
    before = service.cursor()
    service.check_runs()
    assert service.cursor() != before
    told = await ask("notebook", path="a.ipynb")
    assert {one["run_id"]: one["unwatched"] for one in told["runs"]} == {
        "mine": False,
        "orphan": True,
    }
    store.end_run("orphan", "ok", time.time())
    service.check_runs()
    assert service.snapshot.unwatched == frozenset()


async def test_cell_that_was_not_sent_ends_with_its_kernel(
    ask: Any, store: Store, service: SkyService, jp_root_dir: Path
) -> None:
    file = jp_root_dir / "a.ipynb"
    file.write_text("{}")
    run(store, "r1", notebook=str(file), nodes=0, status="waiting", stage="booting", owner=GONE)
    service.check_runs()
    [told] = (await ask("notebook", path="a.ipynb"))["runs"]
    assert told["run_id"] == "r1" and told["ended"] is not None
    answer = await ask("runs", "r1", "follow", body={})
    text = answer["output"]["data"]["text/plain"]
    assert answer["over"] and text.startswith("☁ failed ")
    assert "its kernel ended before it was sent" in text and "its cluster ended" not in text


async def test_unknown_notebook_is_refused(ask: Any, store: Store) -> None:
    with pytest.raises(Refused) as refused:
        await ask("runs", "nothing", "follow", body={"page": "a"})
    assert refused.value.status == 404
    run(store, "r1")
    with pytest.raises(Refused) as refused:
        await ask("runs", "r1", "follow", body="[1]")
    assert refused.value.status == 400


# -- whose they are ----------------------------------------------------------------------------


async def test_a_notebook_has_the_latest_run_of_each_cell(
    ask: Any, store: Store, jp_root_dir: Path
) -> None:
    (jp_root_dir / "deep").mkdir()
    for name in ("a.ipynb", "deep/a.ipynb"):
        (jp_root_dir / name).write_text("{}")
    mine, other = str(jp_root_dir / "deep" / "a.ipynb"), str(jp_root_dir / "a.ipynb")
    run(store, "old", age=90, notebook=mine)
    run(store, "new", age=60, notebook=mine)
    run(store, "second", notebook=mine, cell_id="c2")
    run(store, "unnamed", notebook=mine, cell_id=None)
    run(store, "elsewhere", notebook=other, cell_id="c3")
    told = await ask("notebook", path="deep/a.ipynb")
    assert sorted(one["run_id"] for one in told["runs"]) == ["new", "second"]
    assert abs(told["at"] - time.time()) < 10
    told = await ask("notebook", path="a.ipynb")
    assert [one["run_id"] for one in told["runs"]] == ["elsewhere"]


async def test_a_notebook_of_another_name_keeps_its_runs(
    ask: Any, store: Store, jp_root_dir: Path
) -> None:
    (jp_root_dir / "new.ipynb").write_text("{}")
    run(store, "r1", notebook=str(jp_root_dir / "old.ipynb"))
    told = await ask("notebook", path="new.ipynb")
    assert [one["run_id"] for one in told["runs"]] == ["r1"]
