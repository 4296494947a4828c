"""Searches whose trials rent machines: launched, measured, booked, given back, and interrupted."""

from __future__ import annotations

import math
from ast import literal_eval
from typing import Any

import pytest

from tests.conftest import Notebook, wait_until
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import Loopback

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]

PREPARE = """
import time
import jupyter_sky as sky
from jupyter_sky.execution.sessions.session import current
from jupyter_sky.decisions.search import Space, on_sale
from jupyter_sky.workflows.trials.live_search import read_history

labels = {"cpus": "2+", "memory": "2+", "cloud": "aws", "types": 6}
few = Space(on_sale(**labels).points[:2])

def booked():
    rows = current().store.clusters(live_only=False)
    return sum(current().ledger.cluster_usd(row.name) for row in rows)

def tries(found):
    return [(t.point["family"], t.value is not None, t.error) for t in found.tries]
"""
SLEEP = "import time; time.sleep(0.5 if sky_configuration['family'] == 't3' else 40)"


@pytest.fixture
def book(fresh: Any, emptied: Loopback) -> Notebook:
    made = fresh("search.ipynb", **emptied.env)
    assert made.run(PREPARE).status == "ok"
    return made


def launches(cloud: Loopback) -> int:
    return sum(call.startswith("RunInstances") for call in cloud.api.calls)


def test_cells_are_tried_side_by_side_and_the_slow_ones_stopped(
    book: Notebook, cloud: Loopback
) -> None:
    ran = book.run(
        f"found = sky.search({SLEEP!r}, labels, 4, 'time', usd=1.0, deadline='150s')\n"
        "tries(found), found.best.point['family'], found.best.seconds",
        170,
    )
    assert ran.status == "ok", ran.traceback
    tried, best, seconds = literal_eval(ran.result)
    assert best == "t3" and 0.5 <= seconds < 20
    stopped = [error for family, __, error in tried if family != "t3"]
    assert len(tried) == 4 and stopped and all("cannot be the best" in each for each in stopped)
    assert not cloud.machines(), "each trial gives its machine back"
    usd, said = literal_eval(book.run("booked(), found.usd").result)
    assert usd == pytest.approx(said) and usd > 0, "the ledger has what the search says"
    code = f"[*read_history(current().store, {SLEEP!r}, found.space)[0]]"
    known = literal_eval(book.run(code).result)
    assert known and all("family=t3 " in point for point in known), "what was stopped tells nothing"


def test_a_line_with_search_is_written_anew_with_the_best(book: Notebook, cloud: Loopback) -> None:
    book.run("shown = []\nget_ipython().set_next_input = lambda text: shown.append(text)")
    line = "%%sky --search time --trials 2 --cpus 2+ --memory 2+ --cloud aws --name found -i x"
    assert book.run("x = 3").status == "ok"
    ran = book.run(f"{line}\nprint(x)\nassert x == 3", 170)
    assert ran.status == "ok", ran.traceback
    shown_live = [each["data"] for each in ran.of("update_display_data")]
    assert any("1 in 10" in str(each) for each in shown_live)
    assert any("running: aws" in each["text/plain"] for each in shown_live)
    (cell,) = literal_eval(book.run("shown").result)
    name = literal_eval(book.run("found.best.point.offer.instance_type").result)
    best = f"%%sky --cloud aws --name found -i x --instance-type {name}"
    assert cell == f"{best}\nprint(x)\nassert x == 3"
    button = shown_live[-1]["application/vnd.jupyter-sky.view+json"]
    assert button == {"version": 1, "view": "search", "state": {"line": best}}
    failed = book.run("%%sky --search cost --trials 1 --cpus 2 --cloud aws\n1 / 0", 170)
    assert failed.status == "error" and "ZeroDivisionError" in failed.evalue
    assert "family=" in failed.evalue, "why, for each configuration"
    for wrong in ("--trials 3", "--search cost --bg", "--search cost -c big"):
        assert book.run(f"%%sky {wrong}\n1").ename == "SkyUsageError"
    verb = book.run("work = lambda: 1\n%sky search work --cpus 2 --cloud aws --trials 1", 170)
    assert verb.status == "ok" and "1 of 1 tries" in verb.result, verb.traceback
    assert not cloud.machines()


def test_functions_calls_and_graphs_are_tried(book: Notebook, cloud: Loopback) -> None:
    ran = book.run(
        "@sky.function\n"
        "def add(a, b):\n    return a + b\n"
        "with sky.Dag('two') as dag:\n"
        "    first = sky.Task('first', run=lambda: [1, 2])\n"
        "    second = sky.Task('second', run=lambda found: sum(found) / len(found))\n"
        "    first >> second\n"
        "task = sky.Task('alone', run='test -d /')\n"
        "factor = 3\n"
        "works = [add(1, factor), lambda: 4 * factor, dag, task]\n"
        "[tries(sky.search(work, few, 2)) for work in works]",
        170,
    )
    assert ran.status == "ok", ran.traceback
    for tried in literal_eval(ran.result):
        assert len(tried) == 2 and any(has_value for __, has_value, __ in tried), tried
        assert all(has_value or "cannot be the best" in error for __, has_value, error in tried)
    assert not cloud.machines()


def test_repeats_keep_the_machine_and_history_is_the_prior(book: Notebook, cloud: Loopback) -> None:
    before = launches(cloud)
    ran = book.run(
        "from jupyter_sky.decisions.search import method\n"
        "slow = method('gp', few, 1, minimize='time').ask()  # chosen by who knows nothing\n"
        "few.points[1 - slow]['family']"
    )
    code = f"import time; time.sleep(0.2 if sky_configuration['family'] == {ran.result} else 2)"
    ran = book.run(
        f"found = sky.search({code!r}, few, 2, 'time', repeats=2, parallel=1)\n"
        "[len(t.runs) for t in found.tries], [t.error for t in found.tries]",
        170,
    )
    assert literal_eval(ran.result) == ([2, 2], ["", ""]), ran.traceback
    assert launches(cloud) - before == 2, "one launch for both runs of a configuration"
    again = book.run(f"sky.search({code!r}, few, 1, 'time').tries[0].index == 1 - slow", 170)
    assert again.result == "True", (again.result, again.traceback)
    history = book.run(f"[sorted(one) for one in read_history(current().store, {code!r}, few)]")
    names = literal_eval(book.run("[sorted(str(p) for p in few.points)]").result)
    assert literal_eval(history.result) == names, history.traceback


def test_refusals_crashes_and_full_machines_are_told_apart(book: Notebook, cloud: Loopback) -> None:
    types = literal_eval(book.run("[p.offer.instance_type for p in on_sale(**labels)]").result)
    refused = next(each for each in types if each.startswith("t4g"))
    cloud.api.refuse("InsufficientInstanceCapacity", instance_type=refused, times=math.inf)
    code = (
        "family, memory = sky_configuration['family'], sky_configuration['memory']\n"
        "if family == 't3a': raise ValueError('no AVX')\n"
        "if memory < 4: raise MemoryError('array')\n"
        "import time; time.sleep(2)"
    )
    ran = book.run(
        f"found = sky.search({code!r}, labels, 9, parallel=3, refusal_seconds=0.1)\n"
        "tries(found), [r.point.offer.instance_type for r in found.refused]",
        170,
    )
    assert ran.status == "ok", ran.traceback
    tried, refusals = literal_eval(ran.result)
    assert refusals and set(refusals) == {refused}
    errors = {family: error for family, __, error in tried if error}
    assert "no AVX" in errors["t3a"]
    assert not any("capacity" in error for error in errors.values())
    assert not cloud.machines()


def test_a_deadline_stops_what_runs(book: Notebook, cloud: Loopback) -> None:
    code = "import time; time.sleep(600)"
    ran = book.run(
        f"found = sky.search({code!r}, few, 2, deadline='20s')\ntries(found), found.stopped", 120
    )
    assert ran.status == "ok", ran.traceback
    tried, stopped = literal_eval(ran.result)
    assert "deadline" in stopped and all(value is False for __, value, __ in tried)
    assert all("deadline" in error for __, __, error in tried)
    assert not cloud.machines()


def test_spot_trials_count_their_expected_recomputation(book: Notebook, cloud: Loopback) -> None:
    ran = book.run(
        "one = {**labels, 'types': 1, 'spot': True}\n"
        "found = sky.search('import time; time.sleep(2)', one, 1)\n"
        "run, row = found.best.runs[0], current().store.runs(limit=1)[0]\n"
        "up = current().store.clusters(live_only=False)[0]\n"
        "row.ended - row.started, run.seconds, run.redone, run.usd, up.price, up.spot",
        170,
    )
    assert ran.status == "ok", ran.traceback
    took, seconds, redone, usd, price, is_spot = literal_eval(ran.result)
    assert is_spot and seconds == pytest.approx(took) and redone > 1
    assert usd == pytest.approx(took * redone * price / 3600)
    assert not cloud.machines()


def test_an_interrupt_leaves_nothing_behind(book: Notebook, cloud: Loopback) -> None:
    sent = book.send("sky.search('import time; time.sleep(600)', few, 2)")
    wait_until(lambda: len(cloud.machines()) == 2, "two trials are up")
    book.interrupt()
    ran = book.collect(sent, 120)
    assert ran.status == "error" and ran.ename == "KeyboardInterrupt", ran
    assert not cloud.machines(), "both have ended when the cell ends"
    left = book.run("[row.name for row in current().store.clusters()], booked() > 0").result
    assert literal_eval(left)[0] == []
