"""Ends of clusters: whose they are, who is told, and what one failure spares."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyNotEnded, SkyUnreachable, SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.clouds import Machine
from jupyter_sky.execution.clusters.termination import end_clusters
from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.interfaces.api import confirmation
from tests.conftest import Notebook, processes_of, wait_until
from tests.store.rows import CLUSTER, RUN

DEAD = {"pid": 2**22 + 1, "born": 1.0}


class Recorded:
    """Clouds that only write down what they are asked to end."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, str]] = []
        self.orphans: list[Machine] = []
        self.failures: dict[str, Exception] = {}
        self.meet = threading.Barrier(1)

    def get(self, name: str) -> Any:
        """Return one of them."""
        known = self

        class Cloud:
            def read_recorded_end(self, token: str) -> dict[str, Any]:
                return {}

            def list_mine(self, everywhere: bool = False) -> list[Machine]:
                return [machine for machine in known.orphans if machine.cloud == name]

            def describe(self, ids: list[str]) -> list[Machine]:
                return [Machine(each, name, "x", 0, "running", time.time() - 60) for each in ids]

            def terminate(self, ids: list[str]) -> None:
                known.meet.wait(5)
                if error := known.failures.get(name):
                    raise error
                known.ended += [(name, each) for each in ids]
                known.orphans = [machine for machine in known.orphans if machine.id not in ids]

        return Cloud()


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    made = Recorded()
    monkeypatch.setattr(clouds, "get", made.get)
    monkeypatch.setattr(clouds, "launchable", lambda: ("ssh", "gcp", "aws"))
    monkeypatch.setattr(clouds, "recorded_names", lambda: ("ssh", "gcp", "aws"))
    return made


@pytest.fixture
def session(own_data: None, recorded: Recorded) -> Iterator[Session]:
    made = Session({}, "/home/ada/a.ipynb", is_persistent=True)
    yield made
    made.close()


def put(store: Store, name: str, cloud: str = "aws", **more: Any) -> ClusterRow:
    machine = {"id": f"{cloud}/{name}", "cloud": cloud, "cluster": name, "rank": 0}
    row = replace(
        CLUSTER,
        name=name,
        cloud=cloud,
        offer=asdict(Offer(cloud, "r", "t", 1, 1, price=1.0)),
        machines=[{**machine, "state": "running", "started": time.time() - 60}],
        created=time.time() - 60,
        notebook="/home/ada/a.ipynb",
        connection={},
    )
    row = replace(row, **more)
    store.save_cluster(row)
    return row


def test_machine_that_does_not_answer_keeps_no_other_up(
    session: Session, recorded: Recorded
) -> None:
    put(session.store, "mine", "ssh")
    put(session.store, "dear", "aws")
    put(session.store, "broken", "gcp")
    recorded.failures = {"ssh": SkyUnreachable("box does not answer"), "gcp": OSError("disk full")}
    outcome = end_clusters(session.clusters, everything=True)
    assert recorded.ended == [("aws", "aws/dear")]
    assert [name for name, _ in outcome.ended] == ["dear"]
    with pytest.raises(SkyNotEnded, match="mine: box does not answer; broken: OSError: disk full"):
        outcome.raise_for_failures()
    left = {row.name: row.note for row in session.store.clusters()}
    assert left == {"mine": "", "broken": ""}, "nothing says any more that they are being ended"


def test_clusters_end_side_by_side(session: Session, recorded: Recorded) -> None:
    recorded.meet = threading.Barrier(3)
    for name in ("one", "two", "three"):
        put(session.store, name)
    assert len(end_clusters(session.clusters).ended) == 3


def test_orphans_of_one_name_end_each_in_its_cloud(session: Session, recorded: Recorded) -> None:
    for cloud in ("aws", "gcp"):
        recorded.orphans.append(Machine(f"{cloud}/1", cloud, "train", 0, "running", time.time()))
    outcome = end_clusters(session.clusters, everything=True)
    assert sorted(recorded.ended) == [("aws", "aws/1"), ("gcp", "gcp/1")]
    assert [name for name, _ in outcome.ended] == ["train", "train"]
    assert [place.split(",")[0] for _, place in outcome.ended] == ["aws", "gcp"]


def test_launch_whose_process_is_dead_is_ended_and_a_living_one_is_not(
    session: Session, recorded: Recorded
) -> None:
    from jupyter_sky.base.remote import processes

    dead = {"token": "t-1", "launcher": DEAD}
    put(session.store, "dead", state="starting", connection=dead, machines=[], renewed=0.0)
    alive = {"token": "t-2", "launcher": processes.identity(os.getppid())}
    put(session.store, "alive", state="starting", connection=alive, machines=[])
    recorded.orphans.append(
        Machine("aws/9", "aws", "dead", 0, "running", time.time() - 9, token="t-1")
    )
    outcome = end_clusters(session.clusters, everything=True)
    assert recorded.ended == [("aws", "aws/9")]
    assert [name for name, _ in outcome.ended] == ["dead"]
    ((name, why),) = outcome.spared
    assert name == "alive" and "is being launched by" in why
    assert [row.name for row in session.store.live_clusters()] == ["alive"]


def test_without_a_name_only_own_clusters_end(session: Session, recorded: Recorded) -> None:
    put(session.store, "own")
    put(session.store, "shared")
    put(session.store, "theirs", notebook="/home/ada/b.ipynb")
    run = replace(RUN, cluster="shared", notebook="/home/ada/b.ipynb", started=time.time())
    session.store.begin_run(run)
    outcome = end_clusters(session.clusters)
    assert recorded.ended == [("aws", "aws/own")]
    assert outcome.spared == (("shared", "used by cell 7 of b.ipynb"),)


def test_all_asks_when_others_are_concerned(
    session: Session, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirmation.sessions, "current", lambda: session)
    put(session.store, "own")
    put(session.store, "theirs", notebook="/home/ada/b.ipynb")
    with pytest.raises(SkyUsageError, match=r"theirs .*nobody uses it") as error:
        confirmation.end_with_confirmation(None, True, False, "%sky down --all --yes")
    assert "%sky down --all --yes" in str(error.value) and "own (" not in str(error.value)
    assert recorded.ended == []
    assert len(confirmation.end_with_confirmation(None, True, True, "").ended) == 2
    put(session.store, "again", created=time.time())
    assert [
        name for name, _ in confirmation.end_with_confirmation(None, True, False, "").ended
    ] == ["again"]


def test_ends_are_noted_with_who_wanted_them(session: Session, recorded: Recorded) -> None:
    row = put(session.store, "own")
    end_clusters(session.clusters, "own")
    ended = session.store.find_cluster(row.id)
    assert ended is not None and (ended.state, ended.note) == ("down", "ended by you in a.ipynb")


def test_first_to_see_an_end_records_who_wanted_it(session: Session, recorded: Recorded) -> None:
    """The notebook that loses a cluster may record its end before the one that ends it does."""
    row = put(session.store, "own")
    session.store.set_cluster_note(row.id, "ended by you in b.ipynb")
    gone = Machine("aws/own", "aws", "own", 0, "ended", time.time() - 60, reason="terminated")
    session.clusters.records.record_end(row, gone)
    ended = session.store.find_cluster(row.id)
    assert ended is not None and (ended.state, ended.note) == ("down", "ended by you in b.ipynb")


# -- real notebooks --------------------------------------------------------------------------


@pytest.mark.slow
def test_notebook_whose_cluster_another_one_ends_is_told(fresh: Any) -> None:
    one, two = fresh("one.ipynb"), fresh("two.ipynb")
    assert one.run("%%sky\nkept = 1").status == "ok"
    assert two.run("%%sky -c second\nkept = 2").status == "ok"
    sent = one.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    one.wait_output("begun")
    down = two.run("%sky down").stdout
    assert "ended: second" in down and "one-" not in down
    assert "of others: one-" in two.run("%sky down").stdout

    answers: list[str] = []
    refused = run_asked(two, "%sky down --all", "n", answers)
    assert refused.ename == "SkyCancelled" and "no cluster was ended" in refused.evalue
    assert "started by one.ipynb, used by cell" in answers[0], answers
    ended = run_asked(two, "%sky down --all", "y", answers)
    assert "ended: one-" in ended.stdout
    lost = one.collect(sent)
    assert lost.ename == "SkyClusterLost" and "ended by you in two.ipynb" in lost.evalue, lost
    after = one.run("%%sky\n1 + 1")
    assert after.result == "2", after
    assert after.status_line.count("(ended by you in two.ipynb)") == 1, after.status_line

    assert "which cluster?" in command(fresh, "down")[1]
    code, said = command(fresh, "down", "--all")
    assert code == 2 and "not this notebook's alone" in said and "--yes" in said
    code, said = command(fresh, "down", "--all", "--yes")
    assert code == 0 and "ended: one-" in said
    wait_until(lambda: not processes_of(fresh.data))
    after = one.run("%%sky\n1 + 1")
    assert after.result == "2", after
    assert "(ended by you with `jupyter sky down`)" in after.status_line, after.status_line
    assert "ended: one-" in one.run("%sky down").stdout, "one's own need no question"
    assert "no cluster is up" in one.run("%sky down").stdout


def run_asked(book: Notebook, code: str, answer: str, asked: list[str]) -> Any:
    """Run a cell that asks, and answer it."""
    sent = book.send(code)
    message = book.client.get_stdin_msg(timeout=20)
    asked[:] = [message["content"]["prompt"]]
    book.client.input(answer)
    return book.collect(sent)


def command(fresh: Any, *words: str) -> tuple[int, str]:
    """Run ``jupyter sky`` without a terminal; return its exit code and what it says."""
    import os
    import subprocess
    import sys

    env = os.environ | {"SKY_DATA_DIR": str(fresh.data)}
    run = subprocess.run(
        [sys.executable, "-m", "jupyter_sky.cli", *words],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=60,
    )
    return run.returncode, run.stdout + run.stderr
