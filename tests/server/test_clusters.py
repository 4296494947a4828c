"""A real cluster on this machine, seen and handled from a server, with kernels busy or dead."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.remote import processes
from jupyter_sky.base.store.store import Store
from jupyter_sky.execution.sessions import extension
from jupyter_sky.interfaces.server import runs
from jupyter_sky.interfaces.server.service import SkyService
from jupyter_sky.machines.engines.wire.controller_requests import Extend, UseReply
from tests.conftest import WAIT, Notebook, part
from tests.server.conftest import Refused
from tests.store.rows import CLUSTER, GONE, RUN


@pytest.fixture
def book(data: Path, tmp_path: Path, sky_env: dict[str, str]) -> Iterator[Notebook]:
    """A kernel that works with the same data directory."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    made = Notebook(folder, {**sky_env, "SKY_DATA_DIR": str(data)}, "analysis.ipynb")
    yield made
    try:
        made.stop()
    except Exception:  # the test has killed it
        pass


async def until(true: Callable[[], Any]) -> Any:
    """Wait for something that is asked of the server; return it."""
    begun = time.monotonic()
    while not (found := await true()):
        assert time.monotonic() - begun < WAIT, f"not within {WAIT} s"
        await asyncio.sleep(0.1)
    return found


async def refused(asking: Any, status: int) -> str:
    """Return the message of an answer that is an error."""
    with pytest.raises(Refused) as caught:
        await asking
    assert caught.value.status == status, caught.value
    return caught.value.said["message"] + "\n" + caught.value.said["hint"]


@pytest.mark.slow
async def test_the_life_of_a_cluster(
    ask: Any, service: SkyService, book: Notebook, store: Store
) -> None:
    assert book.run("%%sky -c train --nodes 2\nprint('begun')").status == "ok"

    async def sampled() -> Any:
        told = await ask("clusters", "train", "metrics")
        return told if len(told["nodes"]) == 2 and told["nodes"][1]["cpu"] else None

    told = await until(sampled)
    while told["running"]:  # what a quick cell prints last may come up to a second after it
        told = await ask("clusters", "train", "metrics")
    assert told["period"] > 0 and 590 < told["idle_left"] <= 600
    for rank, node in enumerate(told["nodes"]):
        assert node["rank"] == rank and node["host"] and node["gpus"] == []
        assert 0 < node["memory"][-1] < node["memory_total"]
    (shown,) = (await ask("state"))["clusters"]
    assert (shown["name"], shown["state"], shown["usd"]) == ("train", "up", 0.0)
    assert shown["where"].startswith("this machine, 2 nodes")

    assert len(service.connections) == 1
    service.connections.close_unused()
    assert len(service.connections) == 1, "it was asked a moment ago"
    service.connections.close_unused(0.0)
    assert len(service.connections) == 0

    assert (await ask("clusters", "train", "extend", body={"time": "1h"}))["idle_left"] > 3595
    (shown,) = (await ask("state"))["clusters"]
    assert 3590 < shown["idle_left"] <= 3600
    status = book.run("%sky status").result
    assert "kept, ends in 1h" in status or "kept, ends in 59:" in status, status
    for body, said in (
        ({"time": "soon"}, "soon"),
        ({}, "1h"),
        ({"time": 5}, "1h"),
        ("[", "object"),
    ):
        assert said in await refused(ask("clusters", "train", "extend", body=body), 400)

    assert "this machine" in await refused(ask("clusters", "train", "ssh"), 409)
    assert "this machine" in (await ask("clusters", "train", "log"))["text"]
    ended = await ask("clusters", "train", "down", body={})
    assert ended == {"ended": "train", "place": "this machine, 2 nodes"}
    assert store.clusters() == [] and len(service.connections) == 0
    (shown,) = (await ask("state"))["clusters"]
    by_panel = "ended by you in the panel"
    assert (shown["state"], shown["note"], shown["idle_left"]) == ("down", by_panel, None)
    for path in (("metrics",), ("down", {}), ("extend", {"time": "1h"}), ("ssh",)):
        asking = ask("clusters", "train", path[0], body=path[1] if len(path) > 1 else None)
        assert "ended by you" in await refused(asking, 409)
    again = book.run("%%sky -c train\n6 * 7")
    if again.ename == "SkyClusterLost":  # this kernel has not heard of it yet
        again = book.run("%%sky -c train\n6 * 7")
    assert again.result == "42", again
    assert (await ask("clusters", "train", "metrics"))["nodes"] is not None, "it is another one"


@pytest.mark.slow
async def test_looking_keeps_no_cluster_up(ask: Any, service: SkyService, book: Notebook) -> None:
    assert book.run("%%sky -c train --idle 4s\n1").status == "ok"
    book.kill()

    async def gone() -> bool:
        try:
            assert (await ask("clusters", "train", "metrics"))["idle_left"] <= 4.0
        except Refused as error:
            assert error.status in (409, 502)
            return True
        return False

    await until(gone)

    async def told() -> Any:
        service.poller.reconcile_soon()
        (shown,) = (await ask("state"))["clusters"]
        return shown if shown["state"] == "down" else None

    assert (await until(told))["note"] == "idle"


LOOP = """
import time
for number in range(600):
    print('line', number, flush=True)
    time.sleep(0.1)
"""


@pytest.mark.slow
async def test_a_busy_cell_is_read_and_stopped_from_outside(
    ask: Any, book: Notebook, store: Store
) -> None:
    assert book.run("%%sky\n1").status == "ok"
    sent = book.send("%%sky --name loop" + LOOP)

    async def going() -> Any:
        return next((r for r in (await ask("state"))["runs"] if r["ended"] is None), None)

    run = await until(going)
    assert (run["name"], run["stage"], run["stoppable"]) == ("loop", "running", True)
    path = ("runs", run["run_id"])

    async def printed() -> Any:
        told = await ask(*path, "outputs")
        return told if "line 5\n" in "".join(o["text"] for o in told["outputs"]) else None

    told = await until(printed)
    assert told["outputs"][0]["text"].startswith("line 0\nline 1\n") and len(told["outputs"]) == 1
    more = (await ask(*path, "log", since=told["next"]))["lines"]
    assert all(line["stream"] == "stdout" and line["rank"] == 0 for line in more)
    everything = await ask(*path, "log")
    numbers = [int(line["text"].split()[1]) for line in everything["lines"]]
    assert numbers == list(range(len(numbers))) and everything["next"] >= told["next"]
    assert "since=-1" in await refused(ask(*path, "outputs", since="-1"), 400)

    assert (await ask(*path, "stop", body={}))["run"]["stoppable"] is False
    ran = await asyncio.get_running_loop().run_in_executor(None, book.collect, sent)
    assert ran.ename == "SkyCancelled" and runs.STOP_REQUESTER in ran.evalue
    assert (await ask(*path))["status"] == "cancelled"
    assert "ended already" in await refused(ask(*path, "stop", body={}), 409)
    after = await ask(*path, "outputs")
    assert after["run"]["status"] == "cancelled" and after["next"] >= everything["next"]
    assert book.run("%%sky\n6 * 7").result == "42"


@pytest.mark.slow
async def test_a_cell_whose_kernel_is_dead_is_read_and_stopped_all_the_same(
    ask: Any, service: SkyService, book: Notebook, store: Store
) -> None:
    book.send("%%sky -c train --name loop" + LOOP)

    async def going() -> Any:
        return next((r for r in (await ask("state"))["runs"] if r["status"] == "running"), None)

    run = await until(going)
    path = ("runs", run["run_id"])

    async def prints() -> Any:
        with suppress(Refused):  # its cluster may still start
            return (await ask(*path, "log"))["lines"]

    await until(prints)  # a kernel that dies before that may not have sent the cell
    book.kill()
    before = (await ask(*path, "log"))["next"]

    async def goes_on() -> Any:
        told = await ask(*path, "log", since=before)
        return told if len(told["lines"]) > 3 else None

    assert (await until(goes_on))["run"]["ended"] is None
    assert run["run_id"] in (await ask("clusters", "train", "metrics"))["running"]
    await ask(*path, "stop", body={})

    async def ended() -> Any:
        found = await ask(*path)
        return found if found["ended"] else None

    assert (await until(ended))["status"] == "interrupted"
    row = store.run(run["run_id"])
    assert row and row.status == "running", "the next kernel shows the rest, and closes it"
    outputs = (await ask(*path, "outputs"))["outputs"]
    assert outputs[-1]["output_type"] == "error" and outputs[-1]["ename"] == "KeyboardInterrupt"


@pytest.mark.slow
async def test_engine_without_a_kernel_is_restarted_only_when_that_is_asked_for(
    ask: Any, book: Notebook, store: Store
) -> None:
    book.send("%%sky -c train --name held\nsum(range(10**12))")

    async def going() -> Any:
        found = store.runs(status="running")
        with suppress(Refused):  # a busy machine: it has not answered in time, and is asked again
            metrics = await ask("clusters", "train", "metrics")
            return found and found[0].run_id in metrics["running"]
        return False

    await until(going)
    [row] = store.runs(status="running")
    book.kill()
    path = ("runs", row.run_id, "stop")
    await ask(*path, body={})

    async def warned() -> Any:
        return (await ask("runs", row.run_id))["warning"]

    warning = await until(warned)
    assert warning.startswith("engine 0 does not answer: stop again to restart it")
    told = (await ask(*path, body={}))["run"]  # by a page that does not know of the warning yet
    assert told["stoppable"] and told["stage"] == "interrupting"
    assert row.run_id in (await ask("clusters", "train", "metrics"))["running"]
    await ask(*path, body={"restart": True})

    async def ended() -> Any:
        found = await ask("runs", row.run_id)
        return found["status"] if found["ended"] else None

    assert await until(ended) == "lost"


@pytest.mark.slow
async def test_a_head_that_does_not_answer_is_told_as_such(
    ask: Any, data: Path, book: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jupyter_sky.machines.engines.client import observer

    monkeypatch.setattr(observer.Observer.ask, "__defaults__", (1.0,))
    assert book.run("%%sky -c train\n1").status == "ok"
    book.kill()
    deadline = time.monotonic() + 10  # the head hears of it a little later
    while (await ask("clusters", "train", "metrics"))["running"]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    (head,) = part(data, "controller")
    head.suspend()
    said = await refused(ask("clusters", "train", "metrics"), 502)
    assert "has not answered" in said
    head.resume()

    async def answers() -> Any:
        try:
            return await ask("clusters", "train", "metrics")
        except Refused:
            return None

    assert await until(answers), "by a new connection"

    head.suspend()  # its supervisor gives it three seconds
    ending = asyncio.ensure_future(ask("clusters", "train", "down", body={}))

    async def shown_as(state: str) -> Any:
        return [c["state"] for c in (await ask("state"))["clusters"]] == [state]

    await until(lambda: shown_as("ending"))
    assert "already" in await refused(ask("clusters", "train", "down", body={}), 409)
    assert (await ending)["ended"] == "train" and await shown_as("down")


@pytest.mark.slow
async def test_orphan_of_the_same_name_is_distinguished(
    ask: Any, service: SkyService, book: Notebook, store: Store, data: Path
) -> None:
    assert book.run("%%sky -c train\n1").status == "ok"
    store.end_cluster(
        store.cluster("train").id, "down", time.time()
    )  # as after a crash in the middle
    book.run("%reload_ext jupyter_sky")
    assert book.run("%%sky -c train\n1").status == "ok"
    assert len(part(data, "supervisor")) == 2

    async def orphan() -> Any:
        service.poller.reconcile_soon()
        found = (await ask("state"))["clusters"]
        return found if len(found) == 2 else None

    first, second = await until(orphan)
    assert (first["name"], first["orphan"], second["orphan"]) == ("train", False, True)
    assert second["name"] == "train (orphaned)" and second["price"] is None
    await ask("clusters", "train (orphaned)", "down", body={})
    assert len(part(data, "supervisor")) == 1
    assert [c["name"] for c in (await ask("state"))["clusters"]] == ["train"]
    assert book.run("%%sky -c train\n6 * 7").result == "42", "the one in use goes on"


@pytest.mark.slow
async def test_a_cell_that_waits_for_its_engine_is_stopped_when_its_turn_comes(
    ask: Any, service: SkyService, book: Notebook
) -> None:
    assert book.run("%%sky\nimport time").status == "ok"
    for name in ("first", "second"):
        body = f"print('{name} begins', flush=True)\ntime.sleep({4 if name == 'first' else 60})"
        assert book.run(f"%%sky --bg {name}\n{body}").status == "ok"

    async def both() -> Any:
        runs = {run["name"]: run for run in (await ask("state"))["runs"] if run["ended"] is None}
        return runs if len(runs) == 2 else None

    second = (await until(both))["second"]
    book.kill()
    await ask("runs", second["run_id"], "stop", body={})

    async def ended() -> Any:
        service.poller.reconcile_soon()
        found = await ask("runs", second["run_id"])
        return found if found["ended"] else None

    # its code would take a minute; in its very first moment an interrupt leaves no error behind
    assert (await until(ended))["status"] in ("interrupted", "ok")
    assert (await ask("clusters", second["cluster"], "metrics"))["running"] == []


# -- without a cluster ---------------------------------------------------------------------------


async def test_unknown_cluster_is_told_with_the_known_ones(ask: Any, store: Store) -> None:
    store.save_cluster(replace(CLUSTER, name="other"))
    for path, body in (("metrics", None), ("down", {}), ("ssh", None), ("log", None)):
        said = await refused(ask("clusters", "nobody", path, body=body), 404)
        assert "'nobody'" in said and "other" in said
    asking = ask("clusters", "nobody", "extend", body={"time": "1h"})
    assert "'nobody'" in await refused(asking, 404)


async def test_a_cluster_that_comes_up_is_not_asked_yet(ask: Any, store: Store) -> None:
    launcher = {"launcher": processes.identity(os.getppid())}
    store.save_cluster(replace(CLUSTER, state="starting", connection=launcher, cloud="local"))
    assert "coming up" in await refused(ask("clusters", "train", "metrics"), 409)
    assert "being launched" in await refused(ask("clusters", "train", "down", body={}), 409)
    assert "runs on this machine" in (await ask("clusters", "train", "log"))["text"]


async def test_missing_record_of_a_cluster(ask: Any, store: Store) -> None:
    store.save_cluster(replace(CLUSTER, connection={"file": "/nowhere/client.json"}))
    assert "cannot be read" in await refused(ask("clusters", "train", "metrics"), 502)
    assert "cannot be read" in await refused(ask("clusters", "train", "ssh"), 502)


async def test_a_waiting_cell_of_a_dead_kernel_is_closed_by_a_stop(ask: Any, store: Store) -> None:
    waiting = replace(RUN, status="waiting", nodes=0, cluster="", owner=GONE)
    store.begin_run(waiting)
    assert (await ask("runs", "r1", "stop", body={}))["run"]["status"] == "cancelled"


async def test_outputs_that_are_no_longer_kept(ask: Any, store: Store) -> None:
    store.begin_run(RUN)
    store.end_run("r1", "ok", 1010.0)
    assert "no longer kept" in await refused(ask("runs", "r1", "outputs"), 404)
    store.begin_run(replace(RUN, run_id="r2", status="waiting", nodes=0))
    assert (await ask("runs", "r2", "outputs"))["outputs"] == []


def test_a_lease_cannot_be_extended(store: Store) -> None:
    asked: list[Any] = []

    def head(request: Extend) -> UseReply:
        asked.append((request.op, request.seconds))
        return UseReply(request.seconds, 600.0, [], {"what": "a cell", "ago": 0.0}, [])

    machine = {"id": "i-1", "lease_end": time.time() + 1800.0}
    row = replace(CLUSTER, machines=[machine, {"id": "i-2", "lease_end": time.time() + 9e6}])
    store.save_cluster(row)
    with pytest.raises(
        SkyUsageError, match=r"train cannot be kept for 1:00:00: the lease .* in 29:59"
    ):
        extension.extend_cluster(store, row, 3600.0, head)
    for wrong in (0.0, -5.0, float("inf"), float("nan")):
        with pytest.raises(SkyUsageError):
            extension.extend_cluster(store, row, wrong, head)
    assert asked == [] and store.clusters()[0].kept == 0.0
    assert extension.extend_cluster(store, row, 1200.0, head) == 1200.0
    assert store.clusters()[0].kept == pytest.approx(time.time() + 1200.0, abs=5)
    extension.extend_cluster(store, row, 60.0, head)
    assert store.clusters()[0].kept == pytest.approx(time.time() + 60.0, abs=5), "the last counts"
