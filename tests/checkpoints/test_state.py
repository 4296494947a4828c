"""States that outlive their process: what is saved, when, and what is read again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_sky.base.errors import SkyCheckpointError, SkyUsageError
from jupyter_sky.base.remote.supervisor import ENGINE_VARIABLE
from jupyter_sky.execution.checkpoints.leave_watch import LEAVING_SECONDS, LOOK_SECONDS, SkyLeaving
from jupyter_sky.execution.checkpoints.leaving import leaving
from jupyter_sky.execution.checkpoints.places import FolderPlace, SaveNumber
from jupyter_sky.execution.checkpoints.resumable import resumable
from jupyter_sky.execution.checkpoints.state import (
    CheckpointedState,
    Pace,
    checkpoint,
    checkpointed,
)
from jupyter_sky.machines.engines.node.notices import NOTICES_FILE, Notice, NoticeKind, start_watch


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Stopped(Exception):
    """Stands for the end of a machine."""


def state_in(folder: Path, every: float = 1.0, **options: object) -> CheckpointedState:
    return CheckpointedState("fit", FolderPlace(folder), Pace(every), **options)  # pyright: ignore


@pytest.fixture
def notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ENGINE_VARIABLE, f"{tmp_path}:1")
    return tmp_path / NOTICES_FILE


def write_notice(path: Path, seconds: float) -> None:
    """Tell of the end of a machine of AWS as its watch does: at once or not at all."""
    now = time.time()
    record = Notice(NoticeKind.PREEMPT, "terminate", now, now + seconds).record()
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"service": "AwsNotices", "notices": [record]}))
    partial.replace(path)


def test_a_new_state_is_empty_and_its_values_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with checkpointed("fit", to=tmp_path) as state:
        assert len(state) == 0
        state["n"] = 3
        state.progress(3, 10)
    with checkpointed("fit", to=tmp_path) as state:
        assert dict(state) == {"n": 3}
    assert "fit: was completed on" in capsys.readouterr().out
    with checkpointed("fit", to=tmp_path, fresh=True) as state:
        assert dict(state) == {}


def test_saves_are_made_when_they_are_due(tmp_path: Path) -> None:
    clock = Clock()
    with state_in(tmp_path, every=10.0, clock=clock) as state:
        assert not state.safe_point()
        clock.now = 10.0
        assert state.safe_point()
        clock.now = 19.0
        assert not state.safe_point()
        clock.now = 20.0
        assert state.safe_point()
        assert state.saves == 2


def test_the_last_saves_are_kept(tmp_path: Path) -> None:
    with state_in(tmp_path, keep=2) as state:
        for number in range(5):
            state["n"] = number
            state.save()
    assert len(list(tmp_path.glob("*.sky"))) == 2


def test_a_damaged_save_is_passed_over(tmp_path: Path) -> None:
    with state_in(tmp_path) as state:
        for number in range(2):
            state["n"] = number
            state.save()
        newest = FolderPlace(tmp_path).path(FolderPlace(tmp_path).numbers()[0])
        newest.write_bytes(newest.read_bytes()[:-3])
        again = state_in(tmp_path)
        with pytest.warns(UserWarning, match="damaged; an older save is used"):
            again.__enter__()
        assert again["n"] == 0


def test_the_save_of_a_replaced_machine_does_not_overtake(tmp_path: Path) -> None:
    old, new = state_in(tmp_path, generation=0), state_in(tmp_path, generation=1)
    old.__enter__()
    old["n"] = "old"
    old.save()
    new.__enter__()
    new["n"] = "new"
    new.save()
    for _number in range(5):
        old.save()
    with state_in(tmp_path, generation=2) as state:
        assert state["n"] == "new"


def test_an_error_saves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Stopped), state_in(tmp_path) as state:
        state["n"] = 1
        state.save()
        state["n"] = "half of an item"
        raise Stopped
    with state_in(tmp_path) as state:
        assert state["n"] == 1


def test_values_that_cannot_be_saved_end_the_work(tmp_path: Path) -> None:
    clock = Clock()
    with (
        pytest.raises(SkyCheckpointError, match="'lock'"),
        state_in(tmp_path, clock=clock) as state,
    ):
        state["lock"] = threading.Lock()
        clock.now = 5.0
        state.safe_point()


def test_a_place_that_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    clock = Clock()
    state = state_in(tmp_path / "file" / "folder", clock=clock)
    clock.now = 5.0
    with pytest.raises(SkyCheckpointError, match="does not fit in"):
        state.safe_point()
    state.saves = 1  # an earlier one went well: the work matters more
    with pytest.warns(UserWarning, match="does not fit in"):
        assert not state.safe_point()


def test_a_notice_saves_once(tmp_path: Path, notice: Path) -> None:
    clock = Clock()
    with state_in(tmp_path / "s", every=1000.0, clock=clock) as state:
        assert not state.safe_point()
        assert leaving() is None
        write_notice(notice, 60.0)
        assert 55.0 < (leaving() or 0.0) <= 60.0
        clock.now = 1.0
        assert state.safe_point()
        clock.now = 2.0
        assert not state.safe_point(), "the same notice"
        notice.write_text(json.dumps({"notices": []}))  # it was withdrawn
        clock.now = 3.0
        assert not state.safe_point()
        write_notice(notice, 60.0)
        clock.now = 4.0
        assert state.safe_point()


def test_the_work_on_a_machine_sees_its_notices(
    notice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = time.time() + 30.0
    monkeypatch.setattr(
        "jupyter_sky.machines.engines.node.notices.make_service",
        lambda name: SimpleNamespace(
            ask=lambda: (Notice(NoticeKind.PREEMPT, "terminate", ends - 30.0, ends),)
        ),
    )
    told = threading.Event()
    assert checkpointed("fit", to=notice.parent).pace.notice_share == 0.0
    watch = start_watch("AwsNotices", notice.parent, lambda records: told.set())
    assert watch is not None and told.wait(5.0)
    watch.stop()
    assert 20.0 < (leaving() or 0.0) <= 30.0
    pace = checkpointed("fit", to=notice.parent).pace
    assert (pace.notice_share, pace.notice_seconds) == (0.9, 120.0)


def test_a_save_that_is_longer_than_the_notice_is_not_begun(tmp_path: Path, notice: Path) -> None:
    clock = Clock()
    with state_in(tmp_path / "s", every=1000.0, clock=clock) as state:
        state._cost = 90.0
        write_notice(notice, 30.0)
        clock.now = 1.0
        with pytest.warns(UserWarning, match="ends in 30 s and a save takes 90 s"):
            assert not state.safe_point()


def run_until(folder: Path, stop: int | None, log: list[int]) -> dict[str, object]:
    """Run a loop that saves after each item, and stop it in the middle of one."""
    clock = Clock()
    with state_in(folder, every=1.0, clock=clock) as state:
        for item in resumable(range(10), state):
            clock.now += 1.0
            state.safe_point()  # before the item is done: it must not be skipped
            if item == stop:
                raise Stopped
            log.append(item)
            state["sum"] = state.get("sum", 0) + item
        return dict(state)


def test_each_item_is_done_once(tmp_path: Path) -> None:
    log: list[int] = []
    for stop in (3, 4, 9):
        with pytest.raises(Stopped):
            run_until(tmp_path, stop, log)
    assert run_until(tmp_path, None, log) == {"sum": 45}
    assert log == list(range(10))
    assert run_until(tmp_path, None, log) == {"sum": 45}, "it was completed before"


def test_loops_in_loops(tmp_path: Path) -> None:
    def work(stop: tuple[int, str] | None, log: list[tuple[int, str]]) -> None:
        clock = Clock()
        with state_in(tmp_path, every=1.0, clock=clock) as state:
            for epoch in resumable(range(3), state):
                for batch in resumable("abc", state):
                    clock.now += 1.0
                    if (epoch, batch) == stop:
                        raise Stopped
                    log.append((epoch, batch))
                for batch in resumable("x", state):
                    clock.now += 1.0
                    log.append((epoch, batch))

    log: list[tuple[int, str]] = []
    for stop in ((0, "b"), (1, "a"), (2, "c")):
        with pytest.raises(Stopped):
            work(stop, log)
    work(None, log)
    assert log == [(epoch, batch) for epoch in range(3) for batch in "abcx"]


def test_generators_pass_over_what_was_done(tmp_path: Path) -> None:
    with state_in(tmp_path) as state:
        items = resumable((n * n for n in range(5)), state)
        assert [next(items) for _number in range(3)] == [0, 1, 4]
        state.save()
    with state_in(tmp_path) as state:
        assert list(resumable((n * n for n in range(5)), state)) == [4, 9, 16]


def test_an_iterator_that_was_begun_cannot_be_resumed(tmp_path: Path) -> None:
    with state_in(tmp_path) as state:
        assert len(list(resumable(range(5), state))) == 5
    with state_in(tmp_path) as state, pytest.raises(SkyCheckpointError, match="5 items were done"):
        list(resumable(iter(range(3)), state))
    with state_in(tmp_path) as state, pytest.raises(SkyCheckpointError, match="only 4 are there"):
        list(resumable([1, 2, 3, 4], state))
    with state_in(tmp_path) as state, pytest.raises(SkyUsageError, match="another order"):
        resumable({"a", "b"}, state)
    with pytest.raises(SkyUsageError, match="the second argument is a state"):
        resumable([1], {})  # pyright: ignore


class Loader:
    """Loader after the protocol of torchdata's `StatefulDataLoader`."""

    def __init__(self) -> None:
        self.at = 0

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[int]:
        for number in range(self.at, 4):
            self.at = number + 1
            yield number * 10
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def test_loaders_restore_their_own_position(tmp_path: Path) -> None:
    with pytest.raises(Stopped), state_in(tmp_path) as state:
        for number in resumable(Loader(), state):
            if number == 20:
                state.save()
                raise Stopped
    with state_in(tmp_path) as state:
        assert list(resumable(Loader(), state)) == [20, 30]
    with state_in(tmp_path) as state:
        assert list(resumable(Loader(), state)) == [], "it does not begin anew after its end"


@pytest.mark.parametrize("name", ["", "a/b", "..", "."])
def test_names_are_words(name: str, tmp_path: Path) -> None:
    with pytest.raises(SkyUsageError, match="cannot be named"):
        checkpointed(name, to=tmp_path)


@pytest.mark.parametrize("options", [{"every": "soon"}, {"every": 0}, {"keep": 0}])
def test_invalid_options(options: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(SkyUsageError):
        checkpointed("fit", to=tmp_path, **options)  # pyright: ignore


def test_one_object_under_a_name(tmp_path: Path) -> None:
    checkpoint({"a": 1}, "model", to=tmp_path)
    with checkpointed("model", to=tmp_path) as state:
        assert state["value"] == {"a": 1}


def test_partial_files_of_ended_processes_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    number = SaveNumber(0, 1)
    gone = tmp_path / f"{number.name}.{ended.pid}.partial"
    alive = tmp_path / f"{number.name}.{os.getpid()}.partial"
    gone.touch(), alive.touch()
    with state_in(tmp_path):
        assert not gone.exists()
        assert alive.exists()


def test_an_idle_safe_point_is_cheap(tmp_path: Path) -> None:
    with state_in(tmp_path, every=1000.0) as state:
        state.safe_point()
        begun = time.perf_counter()
        for _number in range(1000):
            state.safe_point()
        assert (time.perf_counter() - begun) / 1000 < 20e-6


KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from types import SimpleNamespace
import numpy as np
from jupyter_sky.execution.checkpoints.state import Pace
from jupyter_sky.execution.checkpoints.places import FolderPlace
from jupyter_sky.execution.checkpoints.state import CheckpointedState

def state():
    return CheckpointedState("fit", FolderPlace(Path(sys.argv[1])), Pace(1.0))

random.seed(3)
confirmed = wrong = lost = 0
for number in range(25):
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        kept = state().__enter__()
        while True:
            kept["n"] = kept.get("n", 0) + 1
            kept["array"] = np.full(250_000, kept["n"])
            kept.save()
            os.write(write, kept["n"].to_bytes(8, "little"))
    os.close(write)
    time.sleep(random.uniform(0.02, 0.2))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    told = b""
    while piece := os.read(read, 1 << 16):
        told += piece
    os.close(read)
    if told:
        confirmed = int.from_bytes(told[-8:], "little")
    again = state().__enter__()
    lost += again.get("n", 0) < confirmed
    wrong += bool(again) and not (again["array"] == again["n"]).all()
print(confirmed, lost, wrong)
"""


@pytest.mark.slow
def test_no_kill_loses_or_damages_a_confirmed_save(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    confirmed, lost, wrong = map(int, ended.stdout.split()[-3:])
    assert confirmed > 10
    assert (lost, wrong) == (0, 0)
    assert not list(tmp_path.glob("*.partial"))


def test_work_that_reaches_no_safe_point_is_interrupted(tmp_path: Path, notice: Path) -> None:
    notice.write_text(json.dumps({"service": "AwsNotices", "notices": []}))
    ends = time.monotonic() + 60
    with pytest.raises(SkyLeaving), state_in(tmp_path / "s", every=1000.0) as state:
        state["a"] = 1
        state.save()
        state["a"] = 2
        write_notice(notice, LEAVING_SECONDS + 0.5)
        while time.monotonic() < ends:
            time.sleep(0.01)
    assert (leaving() or 0.0) <= LEAVING_SECONDS
    with state_in(tmp_path / "s") as state:
        assert state["a"] == 1, "half an item is not saved"


def test_work_that_has_saved_goes_on_to_the_end(tmp_path: Path, notice: Path) -> None:
    notice.write_text(json.dumps({"service": "AwsNotices", "notices": []}))
    with state_in(tmp_path / "s", every=1000.0) as state:
        write_notice(notice, 60.0)
        assert state.safe_point()
        write_notice(notice, LEAVING_SECONDS - 0.1)
        until = time.monotonic() + 4 * LOOK_SECONDS
        while time.monotonic() < until:
            time.sleep(0.01)
