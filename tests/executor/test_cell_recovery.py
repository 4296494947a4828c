"""Cells that go on elsewhere when their machine is lost."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.errors import (
    SkyClusterLost,
    SkyEngineLost,
    SkyNodeLost,
    SkyPreempted,
    SkyUsageError,
)
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.execution.cells.cell_recovery import FOLDER, CellRecovery, LossCount, is_loss
from jupyter_sky.execution.cells.inputs import Sending
from jupyter_sky.execution.checkpoints.places import SaveNumber
from jupyter_sky.execution.checkpoints.state import (
    EVERY_VARIABLE,
    FOLDER_VARIABLE,
    GENERATION_VARIABLE,
)
from tests.conftest import Notebook, part
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import loopback

GONE = SkyClusterLost("cluster a is gone: it was killed")


def recovery_in(folder: Path, line: str = "--recover") -> CellRecovery:
    return CellRecovery(parse_cell_line(line), "run1", folder)


def save_in(folder: Path, step: int) -> None:
    path = folder / "checkpoints" / "runs" / "run1" / FOLDER / "run1" / "fit" / "0"
    path.mkdir(parents=True, exist_ok=True)
    (path / SaveNumber(0, step).name).touch()


@pytest.mark.parametrize(
    ("line", "recover", "checkpoint"),
    [
        ("", None, None),
        ("--recover", "", None),
        ("--recover index --checkpoint 10m", "index", 600.0),
        ("--recover --checkpoint auto", "", None),
    ],
)
def test_options(line: str, recover: str | None, checkpoint: float | None) -> None:
    options = parse_cell_line(line)
    assert (options.recover, options.checkpoint) == (recover, checkpoint)


@pytest.mark.parametrize("line", ["--recover 4x", "--checkpoint 0", "--checkpoint often"])
def test_invalid_options(line: str) -> None:
    with pytest.raises(SkyUsageError):
        parse_cell_line(line)


def test_losses_that_are_none() -> None:
    assert is_loss(GONE) and is_loss(SkyNodeLost("node 1 was lost")) and is_loss(SkyPreempted(""))
    assert not is_loss(SkyEngineLost("the cell has killed its engine"))
    ended = SkyClusterLost("cluster a is gone: ended by your budget")
    ended.is_intended = True  # as its connection says
    assert not is_loss(ended)
    assert not is_loss(ValueError("the cell's own"))


def test_a_loss_without_recovery_is_raised(tmp_path: Path) -> None:
    with pytest.raises(SkyClusterLost):
        recovery_in(tmp_path, "").take_loss(GONE)
    with pytest.raises(SkyEngineLost):
        recovery_in(tmp_path).take_loss(SkyEngineLost("its own doing"))


def test_a_cell_that_is_lost_again_and_again_ends(tmp_path: Path) -> None:
    recovery = recovery_in(tmp_path)
    assert "begins anew elsewhere" in recovery.take_loss(GONE)
    recovery.take_loss(GONE)
    with pytest.raises(SkyClusterLost):
        recovery.take_loss(GONE)


def test_new_saves_and_preemptions_keep_it_going(tmp_path: Path) -> None:
    recovery = recovery_in(tmp_path)
    for step in range(10):
        save_in(tmp_path, step)
        assert "from its last save" in recovery.take_loss(GONE)
    for _number in range(10):
        recovery.take_loss(SkyPreempted("cluster a is gone: the cloud took it back"))
    assert recovery.losses == LossCount(20, 0, SaveNumber(0, 9))


def test_variables_of_the_cell(tmp_path: Path) -> None:
    recovery = recovery_in(tmp_path, "--recover --checkpoint 90s")
    recovery.take_loss(GONE)
    sent = recovery.prepare(Sending("1", CellOptions(), env={"A": "b"})).env
    assert sent == {
        "A": "b",
        FOLDER_VARIABLE: f"{FOLDER}/run1",
        GENERATION_VARIABLE: "1",
        EVERY_VARIABLE: "90.0",
    }
    assert recovery_in(tmp_path, "").prepare(Sending("1", CellOptions())).env == {}


TRAINING = """%%sky --recover --checkpoint 1s -o total
import time
import jupyter_sky as sky
with sky.checkpointed("sum") as state:
    for number in sky.resumable(range(60), state):
        state["total"] = state.get("total", 0) + number
        print(f"item {number}", flush=True)
        time.sleep(0.1)
    total = state["total"]
"""


@pytest.mark.slow
def test_a_cell_goes_on_from_its_save_on_another_cluster(fresh: Any) -> None:
    book: Notebook = fresh()
    sent = book.send(TRAINING)
    before = book.wait_output("item 35")
    killed = time.monotonic()
    part(fresh.data, "controller")[0].kill()
    after = book.wait_output("sum: goes on from the save of")
    gap = time.monotonic() - killed
    ran = book.collect(sent)
    assert ran.status == "ok", ran.evalue
    items = [int(found) for found in re.findall(r"item (\d+)", before + after + ran.stdout)]
    again = len(items) - len(set(items))
    assert set(items) == set(range(60)), "no item is skipped"
    assert 0 <= again < 30, f"{again} items were done twice"
    assert "it goes on elsewhere from its last save" in ran.status_line
    assert book.run("total").result == str(sum(range(60)))
    assert not list((fresh.data / "checkpoints" / "runs").iterdir()), "saves have been removed"
    print(f"gap {gap:.1f} s, {again} items twice")


LEAVING = """%%sky --recover -o done
import json, os, time
from pathlib import Path
import jupyter_sky as sky
from jupyter_sky.machines.engines.node.engine_process import ENGINE_VARIABLE
from jupyter_sky.machines.engines.node.notices import NOTICES_FILE
mark = Path("../first-machine").resolve()
if is_first := not mark.exists():
    mark.touch()
    notice = {"kind": "preempt", "id": "a", "seen": 0.0, "ends": time.time()}
    file = Path(os.environ[ENGINE_VARIABLE].rpartition(":")[0], NOTICES_FILE)
    file.write_text(json.dumps({"service": "AwsNotices", "notices": [notice]}))
with sky.checkpointed("work"):
    until = time.monotonic() + (60 if is_first else 0)
    while time.monotonic() < until:
        time.sleep(0.01)
done = not is_first
"""


@pytest.mark.slow
def test_a_cell_that_is_interrupted_before_the_end_goes_on_elsewhere(
    fresh: Any, tmp_path: Path
) -> None:
    book: Notebook = fresh()
    ran = book.run(LEAVING.replace("../first-machine", str(tmp_path / "mark")), 120)
    assert ran.status == "ok", ran.evalue
    assert "it begins anew elsewhere: nothing was saved" in ran.status_line
    assert book.run("done").result == "True"


@pytest.mark.slow
def test_the_dry_run_says_what_a_loss_does(fresh: Any) -> None:
    ran = fresh().run("%%sky --cpus 1 --recover --dry-run\n1 + 1")
    assert ran.status == "ok", ran.evalue
    assert "after a loss: on a new cluster of the same kind" in str(ran.messages)


def test_unknown_strategies_are_told_before_anything_is_spent(tmp_path: Path) -> None:
    with pytest.raises(SkyUsageError, match="nowhere"):
        recovery_in(tmp_path, "--recover nowhere").check({})


APPROVED = """%%sky --cloud azure --cpus 2 --spot --recover --checkpoint 10m -o total
import time
import jupyter_sky as sky
with sky.checkpointed("sum") as state:
    for number in sky.resumable(range(150), state):
        state["total"] = state.get("total", 0) + number
        print(f"item {number}", flush=True)
        time.sleep(0.1)
    total = state["total"]
"""


@pytest.mark.slow
@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_azure_may_take_a_machine_once_its_state_is_saved(fresh: Any) -> None:
    with loopback("azure") as cloud:
        book: Notebook = fresh(**cloud.env)
        sent = book.send(APPROVED)
        before = book.wait_output("item 20", 120)
        (machine,) = cloud.machines()
        cloud.api.preempt(machine["id"], 600.0)  # far beyond the end of the cell
        ran = book.collect(sent, 240)
        assert ran.status == "ok", ran.evalue
        assert "it goes on elsewhere from its last save" in ran.status_line
        items = [int(found) for found in re.findall(r"item (\d+)", before + ran.stdout)]
        assert set(items) == set(range(150)), "no item is skipped"
        assert book.run("total").result == str(sum(range(150)))
        assert machine["id"] not in {each["id"] for each in cloud.machines()}
