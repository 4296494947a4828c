"""Runs of a kernel that is gone: found by name, their values brought, their ends told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.base.store.store import Store
from tests.conftest import Notebook, wait_until

pytestmark = pytest.mark.slow

ASK_CONTROLLER = """
from jupyter_sky.execution.sessions import session
from jupyter_sky.machines.engines.wire.controller_requests import Hello
(cluster,) = session.current().clusters.connected.values()
cluster.connection.ask_controller(Hello())
"""


@pytest.fixture(scope="module", autouse=True)
def reopened(notebook: Notebook, data_dir: Path) -> Iterator[None]:
    """A kernel that was killed and started anew while three background cells ran."""
    assert notebook.run("%%sky\nimport time").status == "ok"
    longrun = "time.sleep(2)\nacc = 0.5\nopen('said.txt', 'w').write('brought')"
    notebook.run(f"%%sky --bg longrun -o acc,file:said.txt\n{longrun}\nNone")
    notebook.run("%%sky --bg broken\nprint('before the end')\n1 / 0")
    notebook.run("%%sky --bg endless -o never\ntime.sleep(600)")
    store = Store.open(data_dir)
    wait_until(lambda: {"longrun", "broken", "endless"} <= {run.name for run in store.runs()})
    # a row is written before its cell is sent: without this, the kernel may die in between
    assert notebook.run(ASK_CONTROLLER).status == "ok"
    notebook.crash()
    notebook.start()
    yield


def test_a_cell_behind_a_run_that_goes_on_says_so_and_can_be_stopped(
    notebook: Notebook, data_dir: Path
) -> None:
    sent = notebook.send("%%sky\n'after the others'")
    shown = notebook.wait_display("behind endless")
    assert re.match("☁ queued .* · behind endless, which goes on from an earlier kernel", shown)
    store = Store.open(data_dir)

    def recorded() -> list[str]:
        rows = store.runs(unsent=True)
        return [row.run_id for row in rows if (row.status, row.stage) == ("waiting", "queued")]

    wait_until(recorded)
    store.request_stop(recorded()[0], "in the browser")
    assert notebook.collect(sent).ename == "SkyCancelled"
    assert notebook.run("import jupyter_sky as sky\nsky.run('endless').done()").result == "False"


def test_one_that_goes_on_can_be_waited_for_and_cancelled(notebook: Notebook) -> None:
    found = notebook.run("import jupyter_sky as sky\nsky.run('endless')")
    assert re.match("<endless: (queued|running) ", found.result), found
    assert notebook.run("sky.run('endless').result(0.1)").ename == "SkyTimeout"
    state = "sky.run('endless').status"
    wait_until(lambda: notebook.run(state).result == "'running'")
    assert notebook.run("%sky cancel endless").status == "ok"
    assert notebook.run("sky.run('endless').result(20)").ename == "SkyCancelled"


def test_the_handle_is_found_by_name_and_its_values_come(notebook: Notebook) -> None:
    assert notebook.run("longrun").ename == "NameError"
    ran = notebook.run("run = sky.run('longrun')\nrun.result(30)\nacc, run.status, run.done()")
    assert ran.result == "(0.5, 'done', True)", ran.traceback
    assert Path(notebook.directory, "said.txt").read_text() == "brought"
    shown = notebook.run("run").result
    assert "%sky get acc,said.txt" in shown
    time = r"(\d\.\d s|0:[1-5]\d|[1-9]\d*:\d\d)"  # as its card writes it: 4.2 s, not 0:04
    assert re.match(rf"<longrun: done (boot {time}, run )?{time} on ", shown), shown


def test_an_error_is_raised_where_the_result_is_asked_for(notebook: Notebook) -> None:
    ran = notebook.run("sky.run('broken').result(30)")
    assert ran.ename == "SkyError" and "%sky logs broken" in ran.evalue
    assert "before the end" in notebook.run("print(sky.run('broken').logs())").stdout


def test_the_next_card_says_where_the_result_is(notebook: Notebook) -> None:
    ran = notebook.run("%%sky\n1")
    assert "result on the cluster: %sky get acc,said.txt" in ran.status_line
    assert notebook.run("acc = None\n%sky get acc\nacc").result == "0.5"


def test_code_that_is_no_name_of_a_run_is_code(notebook: Notebook) -> None:
    assert notebook.run("value = sky.run('acc')\nprint(value)").stdout == "0.5\n"
