"""Bags on engines of this machine, from a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Notebook, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _loaded(notebook: Notebook) -> Iterator[None]:
    assert notebook.run("import jupyter_sky as sky, time, os").status == "ok"
    yield
    notebook.run("%sky down --all --yes")


def test_sweep_gives_a_frame_and_ends_its_machines(notebook: Notebook) -> None:
    ran = notebook.run("""
def train(lr, seed):
    print("training", lr)
    return {"loss": lr * seed, "path": [1, 2]}

ranges = {"lr": [0.5, 0.25], "seed": range(3)}
bag = sky.sweep(train, ranges, where="seed > 0", name="one").wait(120)
frame = bag.frame()
print(*frame.columns)
print(frame.loss.tolist(), bag.status(), bag.result(3), repr(bag.logs(0)))
""")
    assert ran.status == "ok", ran.traceback
    assert ran.stdout.splitlines() == [
        "lr seed loss path state attempts losses seconds usd machine error",
        "[0.5, 1.0, 0.25, 0.5] {'succeeded': 4} {'loss': 0.5, 'path': [1, 2]} 'training 0.5\\n'",
    ]
    assert notebook.run("sky.status().rows").result == "()", "nothing is left running"
    assert (
        "there is a bag called one"
        in notebook.run("sky.bag(train, frame[['lr', 'seed']], name='one')").evalue
    )
    assert notebook.run(
        "bag.more([{'lr': 1, 'seed': 7}]), bag.wait(120).result(4)['loss']"
    ).result == ("(1, 7)")


def test_failures_are_told_and_tried_again(notebook: Notebook, tmp_path: Path) -> None:
    ran = notebook.run(f"""
def work(n):
    if n > 2 and not os.path.exists({str(tmp_path / "mended")!r}):
        raise ValueError(f"job {{n}} is not ready")
    return n

bag = sky.bag(work, range(5), name="two")
try:
    bag.wait(120)
except sky.SkyBagFailed as error:
    print(error)
""")
    assert "2 failed" in ran.stdout and "ValueError: job # is not ready (2)" in ran.stdout, (
        ran.stdout
    )
    (tmp_path / "mended").touch()
    ran = notebook.run("again = sky.bag('two')\nagain.retry(), again.wait(120).results()")
    assert ran.result == "(2, {0: 0, 1: 1, 2: 2, 3: 3, 4: 4})", ran.traceback


def test_job_that_kills_its_engine_fails_alone(notebook: Notebook) -> None:
    ran = notebook.run("""
def fatal(n):
    if n == 2:
        os.kill(os.getpid(), 9)
    return n

bag = sky.bag(fatal, range(4), name="fatal")
try:
    bag.wait(170)
except sky.SkyBagFailed as error:
    print(error)
bag.status(), bag.results()
""")
    assert ran.result == "({'succeeded': 3, 'failed': 1}, {0: 0, 1: 1, 3: 3})", ran.traceback
    assert "bag.logs(2)" in ran.stdout, "the hint names a job that has failed"


def test_command_has_parameters_and_its_index(notebook: Notebook) -> None:
    ran = notebook.run("""
bag = sky.bag('echo "job $SKY_JOB_INDEX $lr"; echo "{\\\\"twice\\\\": $((2 * {n}))}"',
              [{"lr": "a b", "n": 4}], name="command").wait(120)
bag.result(0), bag.logs(0)
""")
    assert ran.result == r"""({'twice': 8}, 'job 0 a b\n{"twice": 8}\n')""", ran.traceback


def test_bag_goes_on_after_the_kernel_was_killed(notebook: Notebook, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    ran = notebook.run(f"""
def slow(n):
    with open({str(notes)!r}, "a") as file:
        file.write(f"{{n}} ")
    time.sleep(0.2)
    return n

bag = sky.bag(
    slow, range(60), name="killed")
""")
    assert ran.status == "ok", ran.traceback
    wait_until(lambda: notes.exists() and len(notes.read_text().split()) > 10)
    wait_until(lambda: int(notebook.run("bag.counts().succeeded").result) > 4)
    kept = set(eval(notebook.run("list(bag.results())").result))
    notebook.kill()
    before = notes.read_text().split()
    notebook.start()
    assert notebook.run("import jupyter_sky as sky, time, os").status == "ok"
    ran = notebook.run(
        "bag = sky.bag('killed').start().wait(170)\nbag.results() == {n: n for n in range(60)}"
    )
    assert ran.result == "True", ran.traceback
    again = notes.read_text().split()[len(before) :]
    assert not kept & {int(n) for n in again}, "what was kept does not run again"


def test_detached_bag_is_followed_and_cancelled(notebook: Notebook) -> None:
    ran = notebook.run("""
bag = sky.bag(
    "sleep 0.5", 200, name="detached", detach=True)
bag.is_carried_out()
""")
    assert ran.result == "True", ran.traceback
    wait_until(lambda: int(notebook.run("bag.counts().succeeded").result) > 1)
    assert notebook.run("%sky bag cancel detached").status == "ok"
    waited = notebook.run("bag.wait(120)")
    assert waited.ename == "SkyCancelled", waited.traceback
    assert notebook.run("c = bag.counts(); c.open, c.succeeded + c.cancelled").result == "(0, 200)"


def test_cell_with_sweep_gathers_lists(notebook: Notebook) -> None:
    cell = "%%sky --sweep lr=0.5,0.25 --seed 0:2 -i base -o loss --task swept\n"
    ran = notebook.run("base = 10")
    ran = notebook.run(cell + "print('job', lr)\nloss = base * lr + seed")
    assert ran.status == "ok", ran.traceback
    (shown,), last = ran.of("display_data"), ran.of("update_display_data")[-1]
    assert last["transient"] == shown["transient"], "a saved notebook has the end"
    assert "4 of 4 jobs have ended" in last["data"]["text/html"]
    assert notebook.run("loss").result == "[5.0, 6.0, 2.5, 3.5]"
    ran = notebook.run("%%sky --sweep n=0:3\nif n:\n    1 / 0")
    assert ran.ename == "SkyBagFailed" and "ZeroDivisionError" in ran.evalue
    last = ran.of("update_display_data")[-1]["data"]["text/plain"]
    assert "3 of 3 jobs have ended, 2 failed" in last
    ran = notebook.run("%%sky --sweep n=0:3 --map m=[1] --task swept\n1")
    assert "--sweep and --map cannot be given together" in ran.evalue
    ran = notebook.run("%%sky --sweep n=0:2 --bg later\nn * 2")
    assert ran.status == "ok", ran.traceback
    assert notebook.run("later.wait(120).results()").result == "{0: 0, 1: 2}"
