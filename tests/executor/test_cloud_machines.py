"""Cells on machines of a cloud, from a real kernel: boto3, an instance, SSH, an engine; its end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.store.store import Store
from jupyter_sky.clouds.local import machine_size
from tests.conftest import Notebook, wait_until
from tests.emulators.fleet import isolation_works
from tests.emulators.hosts import USABLE, SshHost
from tests.emulators.loopback import Loopback, bucket_beside, loopback

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]

SKY = "%%sky --cloud aws --cpus 2\n"
LAUNCH_SECONDS = 60.0


@pytest.fixture(scope="module")
def cloud() -> Iterator[Loopback]:
    """One cloud for all tests, whose minutes take a second."""
    with loopback("aws", minute=1.0) as opened:
        yield opened


@pytest.fixture
def start(fresh: Any, cloud: Loopback) -> Iterator[Callable[..., Notebook]]:
    """Make a kernel that can rent machines; in the end none of them is left."""

    def make(name: str = "analysis.ipynb", **env: str) -> Notebook:
        return fresh(name, **cloud.env, **env)

    make.data = fresh.data  # type: ignore[attr-defined]
    yield make
    for machine in cloud.machines():
        cloud.api.power_off(machine["id"])
    cloud.api.scripts.clear()


def gone(cloud: Loopback) -> None:
    wait_until(lambda: not cloud.machines(), "machines are left")


def reaped(start: Any, cloud: Loopback, *words: str) -> str:
    """Return the output of ``jupyter sky reap``."""
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_sky.cli", "reap", *words],
        env={**os.environ, **cloud.env, "SKY_DATA_DIR": str(start.data)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def intervals(start: Any) -> list[Any]:
    store = Store.open(start.data)
    try:
        return store.intervals()
    finally:
        store.close()


def test_disk_that_is_full_as_a_cluster_starts_is_said_and_nothing_is_left(
    start: Callable[..., Notebook], cloud: Loopback
) -> None:
    book = start()
    sent = book.send(f"{SKY}1")
    data: Path = start.data  # type: ignore[attr-defined]
    wait_until(lambda: list(data.glob("machines/*/machines.json")))
    (note,) = data.glob("machines/*/machines.json")
    (note.parent / "link.partial").symlink_to("/dev/full")
    ran = book.collect(sent, LAUNCH_SECONDS)
    assert ran.ename == "SkyStoreError" and "No space left" in ran.evalue, ran.evalue
    gone(cloud)


def test_two_nodes_bring_their_outputs_home_and_are_seen_to_go(
    start: Callable[..., Notebook], cloud: Loopback
) -> None:
    book = start()
    ran = book.run(SKY.replace("\n", " --nodes 2\n") + "import socket\nprint(socket.gethostname())")
    assert ran.status == "ok", ran
    assert len(set(ran.stdout.split())) >= 2, "one line of each, and they are two machines"
    machines = cloud.machines()
    assert len(machines) == 2 and len({machine["zone"] for machine in machines}) == 1
    assert "aws " in ran.status_line and "$0.0" in ran.status_line
    status = book.run("%sky status").result
    assert "2 x aws " in status
    (row,) = Store.open(start.data).clusters()  # type: ignore[attr-defined]
    assert row.state == "up" and {one["id"] for one in row.machines} == {
        machine["id"] for machine in machines
    }
    stages = book.run(f"%sky logs {row.name} --provision").stdout
    for stage in (
        "machines",
        "machine starting",
        "first contact",
        "Python and packages",
        "controller",
    ):
        assert f"  {stage}\n" in stages
    command = book.run("%sky ssh").stdout
    assert command.startswith("ssh -t ") and "known_hosts" in command
    assert "nothing to reap" in reaped(start, cloud), "a cluster that is up is no orphan"
    assert len(cloud.machines()) == 2
    down = book.run("%sky down --all").stdout
    assert (
        down == f"ended: {row.name} (2 x {row.cloud} {machines[0]['zone']} {row.instance_type})\n"
    )
    assert cloud.machines() == []
    (interval,) = intervals(start)
    assert interval.ended is not None and interval.price == pytest.approx(row.price)


def test_data_come_to_a_rented_machine_and_files_go_from_it(
    start: Callable[..., Notebook], cloud: Loopback
) -> None:
    book = start()
    with bucket_beside(cloud) as bucket:
        bucket.put("bucket", "set/a", b"one")
        address = f"s3://bucket/set/?endpoint={bucket.url}"
        ran = book.run(
            SKY.replace(
                "\n", f" --data {address}:./d --out w:s3://bucket/w?endpoint={bucket.url}\n"
            )
            + "print(open('d/a').read(), open('w', 'w').write('two'))"
        )
        assert ran.stdout == "one 3\n", ran.traceback
        assert bucket.content("bucket", "w") == b"two"
        ran = book.run(SKY.replace("\n", f" --mount {address}:./m\n") + "print(open('m/a').read())")
        if isolation_works():  # such machines have no right to mount
            assert "could not be mounted: fusermount3" in ran.evalue, ran.traceback
            assert f"--data {address}:./m brings the data" in ran.traceback
        else:
            assert ran.stdout == "one\n", ran.traceback
    book.run("%sky down")


def test_own_machines_that_are_taken_burst_to_the_cloud(
    start: Callable[..., Notebook], cloud: Loopback
) -> None:
    """More memory than this machine has: the box of one's own has it, and one slot."""
    memory = machine_size()[1] + 8
    ask = f"%%sky --memory {memory:g}+"
    host = SshHost(61)
    try:
        one, two = start("one.ipynb"), start("two.ipynb")
        hosts = Path(start.data) / "hosts.toml"  # type: ignore[attr-defined]
        hosts.parent.mkdir(parents=True, exist_ok=True)
        hosts.write_text(host.toml("box", memory=4096))
        first = one.run(f"{ask}\n6 * 7", LAUNCH_SECONDS)
        assert first.result == "42" and "ssh pool box" in first.status_line, first
        assert cloud.machines() == []
        refused = two.run(f"{ask} --cloud ssh\n1", LAUNCH_SECONDS)
        assert refused.ename == "SkyNoCapacity" and "taken" in refused.evalue
        assert cloud.machines() == [], "who restricts it to machines of one's own pays nothing"
        second = two.run(f"{ask}\n6 * 7", LAUNCH_SECONDS)
        assert second.result == "42" and len(cloud.machines()) == 1, second
        said = "no machine of your own could take it: a machine is rented, $"
        assert said in second.status_line and "aws " in second.status_line, second.status_line
        for book in (one, two):
            book.run("%sky down --all --yes")
        assert cloud.machines() == []
    finally:
        host.close()


def test_a_spot_machine_is_taken_back_and_the_next_cell_has_another(
    start: Callable[..., Notebook], cloud: Loopback
) -> None:
    book = start()
    spot = SKY.replace("\n", " --spot\n")
    sent = book.send(spot + "import time\nprint('begun', flush=True)\ntime.sleep(60)")
    book.wait_output("begun", LAUNCH_SECONDS)
    (machine,) = cloud.machines()
    cloud.api.preempt(machine["id"], 0.5)
    ran = book.collect(sent)
    assert ran.ename == "SkyPreempted" and "took the spot machine back" in ran.evalue, ran
    again = book.run(spot + "6 * 7", LAUNCH_SECONDS)
    assert again.result == "42", again
    assert "its variables are gone" in again.status_line
    seen = book.run("%sky tracker").result
    assert "preempted" in seen or "1 of" in seen or "spot" in seen
    first, second = intervals(start)
    assert first.ended is not None and second.ended is None
    book.run("%sky down --all")
    assert cloud.machines() == []


TRAINING = """import time
import jupyter_sky as sky
with sky.checkpointed("sum") as state:
    for number in sky.resumable(range(25), state):
        state["total"] = state.get("total", 0) + number
        print(f"item {number}", flush=True)
        time.sleep(0.2)
state["total"]"""


def test_a_cell_goes_on_where_no_machine_was_taken_back(
    start: Callable[..., Notebook], cloud: Loopback
) -> None:
    book = start()
    sent = book.send(f"{SKY[:-1]} --spot --recover --checkpoint 1s\n{TRAINING}")
    seen = book.wait_output("item 9", LAUNCH_SECONDS)
    (machine,) = cloud.machines()
    cloud.api.preempt(machine["id"], 0.5)
    seen += book.wait_output("goes on from the save of", LAUNCH_SECONDS)
    (other,) = cloud.machines()
    ran = book.collect(sent)
    assert ran.status == "ok", ran.evalue
    assert ran.result == str(sum(range(25)))
    items = [int(found) for found in re.findall(r"item (\d+)", seen + ran.stdout)]
    assert set(items) == set(range(25)) and len(items) < 40, items
    assert "it goes on elsewhere from its last save" in ran.status_line
    first, second = intervals(start)
    assert first.ended is not None and second.ended is None
    assert first.price and second.price
    assert machine["zone"] != other["zone"], "that one has just lost a machine"
    book.run("%sky down --all")
    assert cloud.machines() == []


def test_a_kernel_that_is_killed_while_it_launches_leaves_nothing(
    start: Callable[..., Notebook], cloud: Loopback
) -> None:
    book = start()
    cloud.api.slow("create", 1.0)
    book.send(SKY + "1")
    wait_until(lambda: "RunInstances" in " ".join(cloud.api.calls[-1:]))
    book.kill()
    wait_until(lambda: len(cloud.machines()) == 1, "the request had been sent")
    said = reaped(start, cloud, "--here")
    assert cloud.machines() == []
    assert "gone" in said and "its notebook was killed while it launched it" in said
    assert all(interval.ended is not None for interval in intervals(start))
    assert "it has" not in reaped(start, cloud), "no machine is found again"


def test_the_reaper_runs_by_itself_when_a_notebook_is_opened(
    start: Callable[..., Notebook], cloud: Loopback
) -> None:
    book = start()
    assert book.run(SKY + "1", LAUNCH_SECONDS).status == "ok"
    book.kill()
    store = Store.open(start.data)  # type: ignore[attr-defined]
    (row,) = store.clusters()
    store.end_cluster(row.id, "down", time.time())  # as after a crash in the middle
    store.close()
    start("another.ipynb")
    gone(cloud)


def test_an_idle_cluster_takes_its_machine_with_it(
    start: Callable[..., Notebook], cloud: Loopback
) -> None:
    book = start()
    assert book.run(SKY.replace("\n", " --idle 8s\n") + "1", LAUNCH_SECONDS).status == "ok"
    book.kill()  # nobody is there who could end it
    gone(cloud)
    again = start()
    assert "no cluster is up" in again.run("%sky status").result
    (interval,) = intervals(start)
    assert interval.ended is not None


def test_a_machine_whose_head_is_killed_ends_by_itself(
    start: Callable[..., Notebook], cloud: Loopback
) -> None:
    """Supervisor, controller and engine are killed at once: nobody renews the lease."""
    book = start(SKY_HEARTBEAT_TIMEOUT="8s")
    assert book.run(SKY + "1", LAUNCH_SECONDS).status == "ok"
    book.kill()
    supervisors = [each for host in cloud.fleet.hosts() for each in host.part("supervisor")]
    assert supervisors, "its own, and not those of other tests"
    for supervisor in supervisors:
        supervisor.kill()
    gone(cloud)


def test_the_lease_ends_a_machine_that_is_in_use(
    start: Callable[..., Notebook], cloud: Loopback
) -> None:
    """At the end of the lease (20 minutes of a second each) nothing keeps it."""
    book = start(SKY_LEASE="20m")
    sent = book.send(SKY + "import time\nprint('begun', flush=True)\ntime.sleep(120)")
    book.wait_output("begun", LAUNCH_SECONDS)
    ran = book.collect(sent)
    assert ran.ename == "SkyClusterLost" and "powered itself off" in ran.evalue, ran
    assert cloud.machines() == []


def test_refusals_are_told_with_the_place_that_was_found(
    start: Callable[..., Notebook], cloud: Loopback
) -> None:
    book = start()
    cloud.api.refuse("InsufficientInstanceCapacity", times=2)
    ran = book.run(SKY + "6 * 7", LAUNCH_SECONDS)
    assert ran.result == "42"
    assert "after 2 refusals" in ran.status_line
    book.run("%sky down --all")
    assert "do not have su" in book.run("%sky tracker --blocked").result


def test_an_interrupt_while_it_boots_gives_the_machine_back(
    start: Callable[..., Notebook], cloud: Loopback
) -> None:
    book = start()
    sent = book.send(SKY + "1")
    wait_until(lambda: len(cloud.machines()) == 1)
    book.interrupt()
    ran = book.collect(sent)
    assert ran.ename == "KeyboardInterrupt" and cloud.machines() == []
    assert json.dumps(intervals(start), default=str).count("None") <= 1
    assert book.run("%sky status").status == "ok"


def test_an_interrupt_while_nobody_answers_gives_the_machine_back(
    start: Callable[..., Notebook], cloud: Loopback
) -> None:
    """Its firewall lets others in, not us: the first contact would be waited for for minutes."""
    if not cloud.fleet.isolated:
        pytest.skip("machines beside us have no firewall")
    book = start(SKY_SSH_FROM="192.0.2.0/24")
    sent = book.send(SKY + "1")
    wait_until(lambda: len(cloud.machines()) == 1)
    time.sleep(2.0)
    book.interrupt()
    ran = book.collect(sent)
    assert ran.ename == "KeyboardInterrupt" and cloud.machines() == []
    assert "first contact" in ran.status_line or "interrupted" in ran.status_line


def test_secrets_stay_where_they_are(start: Callable[..., Notebook], cloud: Loopback) -> None:
    """Keys are for this user alone; credentials are in no file of ours."""
    book = start()
    assert book.run(SKY + "1", LAUNCH_SECONDS).status == "ok"
    data = Path(start.data)  # type: ignore[attr-defined]
    for path in data.rglob("*"):
        if path.is_file() and "cache" not in path.parts:
            text = path.read_bytes()
            assert cloud.env["AWS_SECRET_ACCESS_KEY"].encode() not in text, path
            if b"PRIVATE KEY" in text or path.suffix == ".json":
                assert path.stat().st_mode & 0o077 == 0, path
    assert list(data.glob("machines/*/id")), "the key that lets us in"
    assert not list(data.glob("machines/*/host")), "theirs was handed over"
    book.run("%sky down --all")
