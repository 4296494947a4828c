"""Graphs of functions and commands, run on clusters of this machine from a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Notebook, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _loaded(notebook: Notebook) -> Iterator[None]:
    # the session is open before a test goes to another folder
    assert notebook.run("import jupyter_sky as sky, time, os\nsky.status()").status == "ok"
    yield
    notebook.run("%sky down --all --yes")


DIAMOND = """
with sky.Dag("diamond") as dag:
    numbers = sky.Task("numbers", run=lambda: [3, 4])
    total = sky.Task("total", run=lambda found: sum(found))
    largest = sky.Task("largest", run=lambda found: max(found))
    both = sky.Task("both", run=lambda one, other: (one, other))
    numbers >> [total, largest] >> both
"""


def test_values_go_from_task_to_task_and_clusters_end(notebook: Notebook) -> None:
    assert notebook.run(DIAMOND).status == "ok"
    ran = notebook.run("run = sky.run(dag, name='one').wait(120)\nrun.result('both')")
    assert ran.result == "(7, 4)", ran.traceback
    assert notebook.run("set(run.status().values())").result == "{'succeeded'}"
    names = notebook.run("[c.token for c in run.state.clusters.values()]").result
    assert names == "['one/numbers/1', 'one/largest/1']"
    assert notebook.run("sky.status().rows").result == "()", "nothing is left running"
    plan = notebook.run("[(t.task, t.offer.cloud) for t in run.plan.tasks][:1], run.plan.usd")
    assert plan.result == "([('numbers', 'local')], 0.0)", plan.traceback
    assert "there is a run called one" in notebook.run("sky.run(dag, name='one')").evalue


def test_commands_read_and_write_files(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/words.txt").write_text("a\nb\nc\n")
    ran = notebook.run(f"""
with sky.Dag("files") as dag:
    count = sky.Task("count", run="wc -l < $INPUT[0]/words.txt > $OUTPUT[0]/lines.txt")
    count.set_input("file:{tmp_path}/in/", size="1MB")
    count.set_output("file:{tmp_path}/out/", size="1MB")
sky.run(dag, name="files").wait(120)
""")
    assert ran.status == "ok", ran.traceback
    assert (tmp_path / "out/lines.txt").read_text().strip() == "3"


LISTING_1 = """
os.chdir({folder!r})
from jupyter_sky import GB, Dag, Resources, Task
def train_time_estimator_fn(resource):
    return 5.0 if resource.accelerator == "nvidia-v100" else 1.0
with Dag("listing") as dag:
    train = (Task("train", run="train.py", arg="--data=$INPUT[0] --model=$OUTPUT[0]")
        .set_input("file:{folder}/data/", size=0.1 * GB)
        .set_output("?:/my-model", size=0.1 * GB)
        .set_resources({{
            Resources(accelerator="nvidia-v100"),
            Resources(cpu="1+", num_nodes=1)}})
        .set_time_estimator(train_time_estimator_fn))
    infer = (Task("infer", run="infer.py", arg="--model=$INPUT[0]")
        .set_input(train.output(0))
        .set_resources({{Resources(accelerator="nvidia-t4"), Resources(cpu="1+")}}))
train >> infer
run = sky.run(dag, name="listing").wait(120)
"""
TRAIN = """
import sys
data, model = (word.partition("=")[2] for word in sys.argv[1:])
open(f"{model}/weights", "w").write(open(f"{data}/x").read() * 2)
"""


def test_listing_1_of_the_paper_runs(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x").write_text("ab")
    (tmp_path / "train.py").write_text(TRAIN)
    infer = "import sys\nprint(open(sys.argv[1].partition('=')[2] + '/weights').read())"
    (tmp_path / "infer.py").write_text(infer)
    ran = notebook.run(LISTING_1.format(folder=str(tmp_path)), 150)
    assert ran.status == "ok", ran.traceback
    assert notebook.run("print(run.logs('infer'))").stdout.strip() == "abab"
    address = notebook.run("print(run.graph.tasks['train'].body['outputs'][0])").stdout.strip()
    kept = Path(address.removeprefix("file:"))
    assert (kept / "weights").read_text() == "abab", "the output of ?:/ stays"


def test_a_task_whose_file_is_gone_fails_at_once(notebook: Notebook, tmp_path: Path) -> None:
    ran = notebook.run(f"""
os.chdir({str(tmp_path)!r})
open("prepare.py", "w").close()
with sky.Dag() as dag:
    first = sky.Task("first", run="until [ -e {tmp_path}/go ]; do sleep 0.2; done")
    first >> sky.Task("prepare", run="prepare.py")
run = sky.run(dag)
os.remove("prepare.py")
open("go", "w").close()
run.wait(60)
""")
    assert f"--sync prepare.py: there is no such file or folder in {tmp_path}" in ran.evalue
    attempts = notebook.run(
        "run.state.tasks['prepare'].attempts, run.state.tasks['prepare'].losses"
    )
    assert attempts.result == "(1, 0)", "no other machine has the file either"


def test_a_command_runs_on_each_of_several_nodes(notebook: Notebook) -> None:
    ran = notebook.run(
        """
with sky.Dag() as dag:
    sky.Task("many", run="echo $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES", num_nodes=2)
run = sky.run(dag).wait(120)
print(run.logs("many"))
""",
        150,
    )
    assert {"0 of 2", "1 of 2"} == {line[-6:] for line in ran.stdout.split("\n") if line}, ran


def test_a_task_that_fails_is_named_and_what_needs_it_is_skipped(notebook: Notebook) -> None:
    ran = notebook.run("""
def fail():
    print("before the end")
    return 1 / 0

with sky.Dag() as dag:
    sky.Task("fail", run=fail) >> sky.Task("after", run=print)
    alone = sky.Task("alone", run=lambda: 5)
run = sky.run(dag, name="failing")
run.wait(120)
""")
    assert ran.ename == "SkyError"
    assert "task fail has failed: ZeroDivisionError: division by zero" in ran.evalue
    assert notebook.run("run.status(), run.result('alone')").result == (
        "({'fail': 'failed', 'after': 'skipped', 'alone': 'succeeded'}, 5)"
    )
    assert "before the end" in notebook.run("print(run.logs('fail'))").stdout
    assert "has no value: it is skipped" in notebook.run("run.result('after')").evalue


def test_tries_and_time_of_a_task_are_limited(notebook: Notebook, tmp_path: Path) -> None:
    ran = notebook.run(
        f"""
with sky.Dag() as dag:
    run = "echo try >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) = 2"
    again = sky.Task("again", run=run)
    again.set_limits(retries=1)
    slow = sky.Task("slow", run="sleep 600").set_limits(timeout="2s")
run = sky.run(dag)
run.wait(150)
""",
        170,
    )
    assert "task slow has failed" in ran.evalue and "--timeout 0:02 has passed" in ran.evalue
    assert notebook.run("run.status()").result == "{'again': 'succeeded', 'slow': 'failed'}"
    attempts = notebook.run("[(t.attempts, t.errors, t.losses) for t in run.state.tasks.values()]")
    assert attempts.result == "[(2, 1, 0), (1, 1, 0)]"


def test_the_first_failure_stops_all_if_asked_to(notebook: Notebook) -> None:
    ran = notebook.run(
        """
with sky.Dag() as dag:
    sky.Task("long", run="sleep 600"), sky.Task("bad", run="exit 1")
run = sky.run(dag, fail_fast=True)
run.wait(100)
""",
        120,
    )
    assert "task bad has failed" in ran.evalue, ran.traceback
    assert notebook.run("run.status()['long']").result == "'cancelled'"


def test_a_paused_run_begins_nothing_until_it_is_resumed(
    notebook: Notebook, tmp_path: Path
) -> None:
    notebook.run(f"""
with sky.Dag() as dag:
    one = sky.Task("one", run="until [ -e {tmp_path}/go ]; do sleep 0.2; done")
    one >> sky.Task("two", run="echo 2")
run = sky.run(dag, name="paused")
""")
    wait_until(lambda: notebook.run("run.status()['one']").result == "'running'")
    assert notebook.run("%sky pipeline pause paused").status == "ok"
    wait_until(lambda: notebook.run("run.state.paused").result == "True")
    (tmp_path / "go").touch()
    wait_until(lambda: notebook.run("run.status()['one']").result == "'succeeded'")
    assert notebook.run("run.status()['two'], run.done()").result == "('waiting', False)"
    resumed = notebook.run("%sky pipeline resume paused", 100)
    assert "two: succeeded" in resumed.stdout, resumed.traceback
    assert notebook.run("run.done()").result == "True", "one controller has done it all"


def test_cancelling_stops_what_runs(notebook: Notebook) -> None:
    notebook.run("""
with sky.Dag() as dag:
    sky.Task("long", run=lambda: time.sleep(600)) >> sky.Task("next", run=print)
run = sky.run(dag, name="cancelled")
""")
    wait_until(lambda: "running" in notebook.run("run.status()['long']").result)
    assert notebook.run("run.cancel(); run.wait(60)").ename == "SkyCancelled"
    assert notebook.run("run.status()").result == "{'long': 'cancelled', 'next': 'cancelled'}"
    assert notebook.run("sky.status().rows").result == "()"


def test_a_run_goes_on_after_its_kernel_was_killed(notebook: Notebook, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notebook.run(f"""
def work(name, seconds):
    with open({str(notes)!r}, "a") as file:
        file.write(name + " ")
    time.sleep(seconds)
    return name

with sky.Dag() as dag:
    first = sky.Task("first", run=lambda: work("first", 0))
    second = sky.Task("second", run=lambda one: work("second", 5))
    third = sky.Task("third", run=lambda two: work("third", 0) + two)
    first >> second >> third
sky.run(dag, name="killed")
""")
    wait_until(lambda: notes.exists() and "second" in notes.read_text())
    notebook.crash()
    notebook.start()
    notebook.run("%load_ext jupyter_sky\nimport jupyter_sky as sky, time, os")
    ran = notebook.run("run = sky.resume('killed').wait(120)\nrun.result('third')")
    assert ran.result == "'thirdsecond'", ran.traceback
    assert notes.read_text().split() == ["first", "second", "third"], "each ran once"
    assert notebook.run("sky.status().rows").result == "()"
    assert "no run called kiled" in notebook.run("sky.resume('kiled')").evalue


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("sky.Task('a')", "task a has nothing to run"),
        ("sky.Task('a b', run=print)", "cannot be run under this name"),
        ("sky.Task('a', run='ls $INPUT[0]')", "there is no INPUT"),
        ("sky.Task('a', run=print).set_resources(gpus='H100:8')", "no account"),
        ("import threading; lock = threading.Lock(); sky.Task('a', run=lambda: lock)", "be sent"),
    ],
)
def test_graphs_that_cannot_be_run(notebook: Notebook, code: str, message: str) -> None:
    ran = notebook.run(f"with sky.Dag() as dag:\n    {code}\nsky.run(dag)")
    assert ran.ename in ("SkyUsageError", "SkyNoOffer") and message in ran.evalue, ran.evalue


def test_a_detached_run_is_waited_for_and_a_killed_one_is_said(notebook: Notebook) -> None:
    assert notebook.run(DIAMOND).status == "ok"
    ran = notebook.run("sky.run(dag, name='apart', detach=True).wait(120).result('both')")
    assert ran.result == "(7, 4)", ran.traceback
    ran = notebook.run("""
import os, signal
with sky.Dag("slow") as dag:
    sky.Task("sleep", run=lambda: time.sleep(600))
run = sky.run(dag, name="alone", detach=True)
while run.status()["sleep"] != "running":
    time.sleep(0.1)
os.kill(run._journal.owner("alone")["pid"], signal.SIGKILL)
run.wait(60)
""")
    assert "the process of run alone has ended before it" in ran.evalue, ran.traceback
    ran = notebook.run("run = sky.resume('alone')\nrun.cancel()\nrun.wait(60)")
    assert ran.ename == "SkyCancelled", ran.traceback
    assert notebook.run("sky.status().rows").result == "()", "nothing is left running"
