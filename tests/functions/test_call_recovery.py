"""Calls that go on from their saved states when their node is lost."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyCancelled, SkyTaskLost, SkyUsageError
from jupyter_sky.execution.functions.calls.dispatch import ResultHandler
from jupyter_sky.execution.functions.calls.nodes import PoolNode, SentBatch
from jupyter_sky.execution.functions.calls.output import OutputSink
from jupyter_sky.execution.functions.calls.tasks import CallTask, PackedCall, RemoteFuture
from jupyter_sky.execution.functions.node.messages import Saved
from jupyter_sky.execution.functions.pools.pool import Pool
from jupyter_sky.machines.engines.node.engine_process import ENGINE_VARIABLE
from jupyter_sky.machines.engines.node.notices import NOTICES_FILE

slow = pytest.mark.slow


@sky.function(recover=True)
def add_up(count: int, log: Path, deaths: dict[int, str]) -> int:
    """Add up numbers, and kill the node at some of them, once each."""
    with sky.checkpointed("sum", every=0.05) as state:
        for number in sky.resumable(range(count), state):
            state["sum"] = state.get("sum", 0) + number
            with log.open("a") as file:
                file.write(f"{number}\n")
            time.sleep(0.05)
            mark = log.with_suffix(f".{number}")
            if number in deaths and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return state["sum"]


@sky.function(recover=True)
def die_at_the_same_item(log: Path) -> None:
    with sky.checkpointed("deaths", every=0.01) as state:
        for number in sky.resumable(range(10), state):
            time.sleep(0.1)
            if number == 5:
                log.write_text(log.read_text() + "5\n" if log.exists() else "5\n")
                os.kill(os.getpid(), signal.SIGKILL)


@sky.function(recover=True, retry=1)
def fail_once(log: Path, *, is_lost_first: bool) -> int:
    with sky.checkpointed("once", every=0.01) as state:
        for number in sky.resumable(range(10), state):
            time.sleep(0.05)
            for kind, at in (("lost", 3), ("failed", 6)):
                mark = log.with_suffix(f".{kind}")
                if number == at and not mark.exists() and (is_lost_first or kind == "failed"):
                    mark.touch()
                    if kind == "lost":
                        os.kill(os.getpid(), signal.SIGKILL)
                    raise ValueError("once")
            state["last"] = number
        return state["last"]


@sky.function(recover=True)
def work_without_safe_points(log: Path) -> str:
    """Work on a machine that says, the first time, that it will be taken away at once."""
    notices = Path(os.environ[ENGINE_VARIABLE].rpartition(":")[0], NOTICES_FILE)
    is_first = not log.exists()
    ends = [{"kind": "preempt", "id": "a", "seen": 0.0, "ends": time.time()}] if is_first else []
    partial = notices.with_suffix(".partial")
    partial.write_text(json.dumps({"service": "AwsNotices", "notices": ends}))
    partial.replace(notices)
    with sky.checkpointed("work"):
        log.touch()
        until = time.monotonic() + (60.0 if is_first else 0.1)
        while time.monotonic() < until:
            time.sleep(0.01)
    return "interrupted and done again" if not is_first else "not interrupted"


def items(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()]


@slow
def test_a_call_goes_on_from_its_save(executors: Pool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    deaths = dict.fromkeys((10, 20, 30, 35), "killed")  # more than losses without progress may be
    assert add_up(40, log, deaths) >> executors == sum(range(40))
    done = items(log)
    assert set(done) == set(range(40)), "no item is skipped"
    assert len(done) < 40 + 4 * 10, "it did not begin anew"


@slow
def test_calls_do_not_share_their_states(executors: Pool, tmp_path: Path) -> None:
    logs = [tmp_path / "a", tmp_path / "b"]
    calls = sky.gather(*(add_up(10 + n, log, {5: ""}) for n, log in enumerate(logs)))
    assert list(calls >> executors) == [sum(range(10)), sum(range(11))]


@slow
def test_a_call_for_one_node_waits_for_it(compute: Pool, tmp_path: Path) -> None:
    assert compute.call_on(1, add_up, 12, tmp_path / "log", {6: ""}).result(60) == sum(range(12))


@slow
def test_a_call_that_dies_without_progress_is_given_up(compute: Pool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(SkyTaskLost, match="was lost 3 times"):
        die_at_the_same_item(log) >> compute
    assert items(log) == [5] * 3


@slow
@pytest.mark.parametrize("is_lost_first", [False, True])
def test_losses_do_not_use_up_retries(compute: Pool, tmp_path: Path, is_lost_first: bool) -> None:
    assert fail_once(tmp_path / "log", is_lost_first=is_lost_first) >> compute == 9


@slow
def test_a_call_that_is_interrupted_before_the_end_is_sent_again(
    executors: Pool, tmp_path: Path
) -> None:
    assert work_without_safe_points(tmp_path / "log") >> executors == "interrupted and done again"


@slow
def test_states_are_of_one_call(compute: Pool, tmp_path: Path) -> None:
    for name in ("first", "second"):
        assert add_up(3, tmp_path / name, {}) >> compute == 3
        assert items(tmp_path / name) == [0, 1, 2], "the state of another call is not its own"


def test_wait_for_an_engine_ends_with_its_pool(compute: Pool) -> None:
    with pytest.raises(SkyCancelled):
        compute.cluster.await_engines([99], is_wanted=lambda: False)


def numbers() -> Iterator[int]:
    yield 1


def test_generators_begin_anew() -> None:
    with pytest.raises(SkyUsageError, match="numbers is a generator"):
        sky.function(recover=True)(numbers)


def test_at_most_once_and_again_do_not_go_together() -> None:
    with pytest.raises(SkyUsageError, match="retry=0 forbids it"):
        sky.function(recover=True, retry=0)
    call = sky.function(recover=True)(len)([])
    with pytest.raises(SkyUsageError, match="retry=0 forbids it"):
        call.with_retry(0)
    assert call.with_retry(2).retry.recover


def test_a_save_that_is_too_large_names_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    from jupyter_sky.execution.checkpoints import call_saves
    from jupyter_sky.execution.checkpoints.places import PlaceError, SaveNumber
    from jupyter_sky.execution.checkpoints.save_format import pack_state

    monkeypatch.setattr(call_saves, "MAX_SAVE_BYTES", 1000)
    sent: list[str] = []
    place = call_saves.NotebookPlace("fit", lambda state, name, data: sent.append(name))
    place.write(SaveNumber(0, 0), pack_state({"a": 1}, {}), keep=2)
    with pytest.raises(PlaceError, match="too large to come to the notebook") as caught:
        place.write(SaveNumber(0, 1), pack_state({"a": bytes(2000)}, {}), keep=2)
    assert "s3://" in str(caught.value)
    assert sent == [SaveNumber(0, 0).name]


def test_a_save_of_a_node_that_was_given_up_comes_too_late() -> None:
    call = sky.function(recover=True)(len)([])
    task = CallTask(call, PackedCall((), (), (), [], {}), RemoteFuture(), OutputSink(many=False))
    node: Any = PoolNode(0, None, 0, 1, "main")  # pyright: ignore[reportArgumentType]
    batch, handler = SentBatch(node, {0: task}), ResultHandler(None)  # pyright: ignore
    assert task.recovery is not None
    task.losses.append("node 0: its engine died")
    handler.dispatch(Saved(0, "fit", "000000-0000000001.sky", b"1"), batch)
    assert task.losses == [], "it has made progress"
    batch.take_all()
    handler.dispatch(Saved(0, "fit", "000000-0000000002.sky", b"2"), batch)
    assert task.recovery.saves == {"fit": ("000000-0000000001.sky", b"1")}
