"""The `local` cloud: offers, the protocol, and that its limits and its secrets hold."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyUnreachable
from jupyter_sky.base.remote import processes
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds import LaunchRequest, get
from jupyter_sky.clouds.local import _environment, machine_size
from tests.conftest import Notebook, part, processes_of, wait_until

cloud = get("local")
CPUS, MEMORY = machine_size()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the cloud keep its clusters in a directory of this test."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    yield tmp_path / "local"
    Sky.clear_instance()


def order(token: str = "train-1", **labels: str) -> LaunchRequest:
    resources = Resources.parse(**labels)
    (offer,) = cloud.offers(resources)
    return LaunchRequest(token, "train", offer, resources, 60.0, "me", "a.ipynb")


@pytest.mark.parametrize(
    ("labels", "size"),
    [
        ({}, (CPUS, MEMORY)),
        ({"cpus": "1", "memory": "1"}, (1, 1)),
        ({"cpus": "1+"}, (1, MEMORY)),
        ({"cpus": "100000"}, (CPUS, MEMORY)),
        ({"memory": "100000"}, (CPUS, MEMORY)),
        ({"cpus": "100000", "nodes": "2"}, (CPUS / 2, MEMORY)),
    ],
)
def test_offers_are_as_big_as_asked_where_the_machine_is(labels: dict, size: tuple) -> None:
    (offer,) = cloud.offers(Resources.parse(**labels))
    assert (offer.vcpus, offer.memory) == size
    assert offer.price == 0.0 and offer.cloud == "local"


def test_it_is_always_usable() -> None:
    found = cloud.check()
    assert found.usable and f"{CPUS} vCPUs" in found.found


def test_the_same_order_twice_makes_one_machine(root: Path) -> None:
    first, second = cloud.launch(order(nodes="2")), cloud.launch(order(nodes="2"))
    assert [m.id for m in first] == [m.id for m in second] == ["train-1/0", "train-1/1"]
    assert [path.name for path in root.iterdir()] == ["train-1"]
    assert cloud.list_mine() == [], "nothing runs yet"


def test_describe_terminate_and_mine(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = cloud.launch(order())
    ids = [machine.id for machine in machines]
    # stands for the head
    (root / "sleeper.py").write_text("import time; open('up', 'w').close(); time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", str(root))
    cloud.host(machines).start("sleeper", {})
    try:
        wait_until((root / "train-1" / "up").exists)
        (machine,) = cloud.describe(ids)
        assert (machine.state, machine.cluster, machine.rank) == ("running", "train", 0)
        assert [m.id for m in cloud.list_mine()] == ids
    finally:
        cloud.terminate(ids)
    (machine,) = cloud.describe(ids)
    assert machine.state == "ended" and machine.reason == "stopped"
    assert machine.ended == pytest.approx(time.time(), abs=5)
    assert cloud.list_mine() == [] and processes_of(root) == []
    cloud.terminate(ids)  # ending one that has ended is no error
    assert [m.state for m in cloud.describe(["never-was/0"])] == ["ended"]


def test_reused_pid_is_not_the_supervisor(root: Path) -> None:
    ids = [machine.id for machine in cloud.launch(order())]
    other = processes.identity() | {"born": 1.0}
    (root / "train-1" / "supervisor.json").write_text(json.dumps(other))
    assert [m.state for m in cloud.describe(ids)] == ["ended"]
    cloud.terminate(ids)  # and lives on


@pytest.mark.parametrize(
    "record",
    [
        {"boot": "of another machine"},
        {"boot": "of another machine", "host": "laptop.old-network.example"},
        {"boot": ""},
        {"pid": "1"},
        {"born": None},
        {"pid": -1},
    ],
)
def test_pid_of_another_boot_is_never_signalled(root: Path, record: dict) -> None:
    """A container with a kept home, a renamed machine, a shared home folder: same PIDs, others'."""
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        ids = [machine.id for machine in cloud.launch(order())]
        path = root / "train-1" / "supervisor.json"
        path.write_text(json.dumps(processes.identity(victim.pid) | record))
        old = time.time() - 600
        os.utime(path, (old, old))
        assert [m.state for m in cloud.describe(ids)] == ["ended"]
        cloud.terminate(ids)
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_cluster_on_another_machine_runs_while_it_shows_signs_of_life(root: Path) -> None:
    ids = [machine.id for machine in cloud.launch(order())]
    path = root / "train-1" / "supervisor.json"
    elsewhere = processes.identity() | {"boot": "of another machine", "host": "node-7"}
    path.write_text(json.dumps(elsewhere))
    assert [m.state for m in cloud.describe(ids)] == ["running"]
    with pytest.raises(SkyUnreachable, match="train-1 on node-7"):
        cloud.terminate(ids)


def test_old_journals_are_deleted_and_live_ones_kept(root: Path) -> None:
    cloud.launch(order("old"))
    cloud.launch(order("powercut"))
    old = time.time() - 30 * 86400
    (root / "old" / "ended.json").write_text(json.dumps({"time": old}))
    record = json.loads((root / "powercut" / "machine.json").read_text())
    (root / "powercut" / "machine.json").write_text(json.dumps(record | {"started": old}))
    cloud.launch(order("new"))
    cloud.launch(order("newer"))
    assert sorted(path.name for path in root.iterdir()) == ["new", "newer"]


def test_engines_do_not_inherit_what_is_not_theirs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    env = _environment(tmp_path)
    assert "hunter2" not in env.values() and "MPLBACKEND" not in env
    assert env["LC_ALL"] == "C.UTF-8" and env["OMP_NUM_THREADS"] == "1" and env["PATH"]


# -- with real engines ------------------------------------------------------------------------


@pytest.mark.slow
def test_the_cpus_asked_for_are_all_there_are(fresh) -> None:
    if CPUS < 2:
        pytest.skip("a slice of one CPU is the whole")
    book: Notebook = fresh(DATABASE_PASSWORD="hunter2")
    ran = book.run("%%sky --cpus 1\nimport os\nlen(os.sched_getaffinity(0))")
    assert ran.result == "1"
    child = "!python -c 'import os; print(len(os.sched_getaffinity(0)))'"
    assert book.run(f"%%sky --cpus 1\n{child}").stdout.strip() == "1"
    shown = book.run("%%sky --cpus 1\nprint(sorted(os.environ), list(os.environ.values()))").stdout
    assert "PATH" in shown and "hunter2" not in shown
    # what is on disk is for this user alone
    (book_of,) = (fresh.data / "local").iterdir()
    found = [path for path in book_of.rglob("*") if "work" not in path.parts]
    assert {"client.json", "engine.json", "machine.json", "config.json", "supervisor.json"} <= {
        path.name for path in found
    }
    for path in [fresh.data, fresh.data / "local", book_of, book_of / "security"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    for path in found:
        if path.is_socket():  # nobody else can come to it
            assert path.parent == book_of / "security"
        elif path.parent in (book_of, book_of / "security", book_of / "journal"):
            wanted = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    book.run("%sky down all")
    assert stat.S_IMODE((book_of / "ended.json").stat().st_mode) == 0o600
    assert not list(book_of.glob("security/*.json")), "keys end with the cluster"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not bound memory")
def test_the_memory_asked_for_is_all_there_is(fresh) -> None:
    book: Notebook = fresh()
    ran = book.run("%%sky --memory 1\nkept = 41\nblock = bytearray(3 * 2**30)")
    assert ran.ename == "MemoryError"
    engine = part(fresh.data, "engine")[0].pid
    assert book.run("%%sky --memory 1\nkept").result == "41"
    ran = book.run("%%sky --memory 1\nimport numpy\nnumpy.ones(3 * 2**27)")
    assert "MemoryError" in ran.ename and book.run("%%sky --memory 1\nkept").result == "41"
    hog = "import sys, time; block = b'x' * 600_000_000; time.sleep(60)"
    ran = book.run(
        "%%sky --memory 1\nimport subprocess, sys, time\n"
        f'for _ in range(2): subprocess.Popen([sys.executable, "-c", "{hog}"])\n'
        "time.sleep(60)",
    )
    assert ran.ename == "SkyEngineLost" and "asked for with --memory" in ran.evalue
    wait_until(lambda: len(processes_of(fresh.data)) == 3, "the hogs are left")
    assert part(fresh.data, "engine")[0].pid != engine
    assert book.run("%%sky --memory 1\n1 + 1").result == "2"
