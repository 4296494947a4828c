"""Functions that are sent together to one cluster of this machine."""

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


def test_short_tasks_of_one_cluster_go_in_few_messages(notebook: Notebook) -> None:
    ran = notebook.run("""
def work(number):
    print("task", number)
    if number == 7:
        raise ValueError("seven")
    return [number]

with sky.Dag("many") as dag:
    tasks = [sky.Task(f"t{n}", run=lambda n=n: work(n)) for n in range(40)]
    ends = [sky.Task(f"end{n}", run=lambda one, other: one + other) for n in range(20)]
    for n, end in enumerate(ends):
        tasks[2 * n] >> end
        tasks[2 * n + 1] >> end
dag.same_cluster(*dag)
run = sky.run(dag, name="many")
try:
    run.wait(120)
except sky.SkyError as error:
    print(error)
""")
    assert ran.status == "ok", ran.traceback
    assert "task t7 has failed: ValueError: seven" in ran.stdout
    assert notebook.run("sorted(set(run.status().values()))").result == (
        "['failed', 'skipped', 'succeeded']"
    )
    assert notebook.run("run.status()['end3'], len(run.state.clusters)").result == "('skipped', 1)"
    assert notebook.run("[run.result(f'end{n}') for n in (0, 19)]").result == "[[0, 1], [38, 39]]"
    assert notebook.run("run.logs('t5')").result == r"'task 5\n'"
    shown = notebook.run("print(run.logs('t7'))").stdout
    assert shown.startswith("task 7\n") and "ValueError: seven" in shown
    cells = (
        "from jupyter_sky.execution.sessions import session as _own; "
        "len(_own.current().store.runs(limit=1000))"
    )
    assert int(notebook.run(f"import jupyter_sky.execution.sessions.session; {cells}").result) < 20


def test_values_change_in_one_task_alone(notebook: Notebook) -> None:
    ran = notebook.run("""
with sky.Dag("shared") as dag:
    source = sky.Task("source", run=lambda: [1])
    others = [sky.Task(f"t{n}", run=lambda one: one.append(2) or one) for n in range(10)]
    source >> others
dag.same_cluster(*dag)
run = sky.run(dag, name="shared").wait(120)
{str(run.result(f"t{n}")) for n in range(10)}
""")
    assert ran.result == "{'[1, 2]'}", ran.traceback


def test_tasks_of_a_message_run_once_though_the_kernel_is_killed(
    notebook: Notebook, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notebook.run(f"""
def work(number):
    with open({str(notes)!r}, "a") as file:
        file.write(f"{{number}} ")
    time.sleep(3 if number == 25 else 0)
    return number

with sky.Dag("killed") as dag:
    for n in range(40):
        sky.Task(f"t{{n}}", run=lambda n=n: work(n))
dag.same_cluster(*dag)
run = sky.run(dag, name="killed-batch")
""")
    wait_until(lambda: notes.exists() and "25 " in notes.read_text())
    notebook.crash()
    notebook.start()
    notebook.run("%load_ext jupyter_sky\nimport jupyter_sky as sky, time, os")
    ran = notebook.run("""
run = sky.resume("killed-batch").wait(120)
[run.result(f"t{n}") for n in range(40)] == list(range(40))
""")
    assert ran.result == "True", ran.traceback
    assert sorted(map(int, notes.read_text().split())) == list(range(40)), "each ran once"
    assert notebook.run("max(t.losses for t in run.state.tasks.values())").result == "0"


@pytest.mark.parametrize(
    ("place", "when"),
    [
        ("notebook.cell_runs.CellRuns.begin", "before"),
        ("notebook.cell_runs.CellRuns.begin", "after"),
        ("model.kept_results.RunResults.together", "before"),
        ("model.kept_results.RunResults.together", "after"),
    ],
)
def test_a_controller_that_ends_beside_a_message_sends_it_once(
    notebook: Notebook, tmp_path: Path, place: str, when: str
) -> None:
    notes = tmp_path / "notes.txt"
    name = f"ends-{place.rpartition('.')[2]}-{when}"
    module, owner, method = place.rsplit(".", 2)
    ended = notebook.run(f"""
from jupyter_sky.workflows.pipelines.{module} import {owner}
whole = {owner}.{method}
calls = []

class Ended(BaseException):
    pass

def ending(*values, **more):
    calls.append(1)
    if len(calls) < 4:
        return whole(*values, **more)
    if {when!r} == "after":
        whole(*values, **more)
    raise Ended("ended here")

def work(number):
    with open({str(notes)!r}, "a") as file:
        file.write(f"{{number}} ")
    return number

with sky.Dag({name!r}) as dag:
    first = [sky.Task(f"t{{n}}", run=lambda n=n: work(n)) for n in range(10)]
    second = [sky.Task(f"t{{n}}", run=lambda one, n=n: work(n)) for n in range(10, 20)]
    third = [sky.Task(f"t{{n}}", run=lambda one, n=n: work(n)) for n in range(20, 30)]
    for one, two, three in zip(first, second, third):
        one >> two >> three
dag.same_cluster(*dag)
{owner}.{method} = ending
run = sky.run(dag, name={name!r})
try:
    run.wait(100)
except Ended as error:
    print(error)
finally:
    {owner}.{method} = whole
""")
    assert ended.stdout == "ended here\n", ended.traceback
    ran = notebook.run(f"""
run = sky.resume({name!r}).wait(120)
[run.result(f"t{{n}}") for n in range(30)] == list(range(30))
""")
    assert ran.result == "True", ran.traceback
    assert sorted(map(int, notes.read_text().split())) == list(range(30)), "each ran once"
