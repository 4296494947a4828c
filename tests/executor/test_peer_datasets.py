"""``--data`` on clusters of several machines: the store is read once, a real sshd for each."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Notebook
from tests.emulators.hosts import USABLE, SshHost
from tests.emulators.object_store import ObjectStore
from tests.executor.test_cell_data_costs import PLACE, booked, counted_usd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret-of-the-test"}
NODES = 3


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[SshHost]]:
    """Three machines with a cache each."""
    made = [SshHost(number) for number in (31, 32, 33)]
    yield made
    for host in made:
        host.close()


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    """An empty bucket of an S3-compatible store."""
    with ObjectStore("r2", min_part=1024) as server:
        server.create("bucket")
        yield server
        assert not server.crashes, server.crashes[0]


@pytest.fixture(scope="module")
def notebook(
    data_dir: Path, folder: Path, sky_env: dict[str, str], hosts: list[SshHost]
) -> Iterator[Notebook]:
    """A kernel with a cluster of three machines."""
    tables = [host.toml(f"box{number}", slots=1) for number, host in enumerate(hosts)]
    (data_dir / "hosts.toml").write_text("\n".join(tables))
    made = Notebook(folder, {**sky_env, "SKY_DATA_DIR": str(data_dir), **KEYS}, "analysis.ipynb")
    started = made.run(f"%%sky --cloud ssh --nodes {NODES} --cluster three\n1")
    assert started.status == "ok", started
    yield made
    made.run("%sky down --all")
    made.stop()


def put(bucket: ObjectStore, name: str, seed: int) -> bytes:
    """Put a dataset of small objects and one of several parts; return the content of the last."""
    content = random.Random(seed).randbytes(40_000_000)
    bucket.put("bucket", f"{name}/big", content)
    for number in range(20):
        bucket.put("bucket", f"{name}/small/{number}", b"%d" % number * 1000)
    return content


def cell(bucket: ObjectStore, name: str) -> str:
    return (
        f"%%sky --cluster three --nodes {NODES} --data s3://bucket/{name}?endpoint={bucket.url}\n"
        "import hashlib, pathlib\n"
        f"data = pathlib.Path('data/{name}')\n"
        "print(hashlib.md5((data / 'big').read_bytes()).hexdigest(), "
        "sum(p.read_text() == p.name * 1000 for p in (data / 'small').iterdir()))"
    )


def test_store_is_read_once_for_three_machines(
    notebook: Notebook, bucket: ObjectStore, hosts: list[SshHost]
) -> None:
    content = put(bucket, "once", 1)
    bucket.forget_counts()
    ran = notebook.run(cell(bucket, "once"))
    assert ran.stdout.count(f"{hashlib.md5(content).hexdigest()} 20") == NODES, ran
    size = len(content) + sum(len(bucket.content("bucket", f"once/small/{n}")) for n in range(20))
    assert size <= bucket.byte_counts()[1] < 1.1 * size
    objects = [[*(host.home / ".cache/jupyter_sky/data/objects").glob("??/*")] for host in hosts]
    assert [len(each) for each in objects] == [21] * NODES
    assert f"shared by {NODES} machines" in ran.status_line
    again = notebook.run(cell(bucket, "once"))
    assert "there already, 0 bytes moved" in again.status_line


def test_machine_that_cannot_read_from_the_first_reads_the_store(
    notebook: Notebook, bucket: ObjectStore
) -> None:
    content = put(bucket, "refused", 2)
    ran = notebook.run(
        "%%sky --cluster three\n"
        "from jupyter_sky.machines.storage.stores.peers import PeerServer\n"
        "kept = PeerServer._answer\n"
        "PeerServer._answer = lambda server, frames: (b'the disk has failed', b'')"
    )
    assert ran.status == "ok", ran
    bucket.forget_counts()
    ran = notebook.run(cell(bucket, "refused"))
    assert ran.stdout.count(f"{hashlib.md5(content).hexdigest()} 20") == NODES, ran
    assert 3 * len(content) <= bucket.byte_counts()[1] < 3.3 * len(content)
    assert "could not read the data from node 0" in ran.status_line, ran.status_line
    restored = notebook.run("%%sky --cluster three\nPeerServer._answer = kept")
    assert restored.status == "ok", restored


def test_new_connection_tries_the_first_machine_again(notebook: Notebook) -> None:
    notebook.run("%sky down three")
    started = notebook.run(f"%%sky --cloud ssh --nodes {NODES} --cluster three\n1")
    assert started.status == "ok", started


def test_files_of_this_machine_are_sent_once(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/big").write_bytes(content := random.Random(3).randbytes(20_000_000))
    ran = notebook.run(
        f"%%sky --cluster three --nodes {NODES} --data {tmp_path}/set\n"
        "import hashlib; print(hashlib.md5(open('data/set/big', 'rb').read()).hexdigest())"
    )
    assert ran.stdout.count(hashlib.md5(content).hexdigest()) == NODES, ran
    assert f"shared by {NODES} machines" in ran.status_line, ran.status_line


SYNCED = 20_000_000
SHOW = (
    "import hashlib, os, pathlib; big = pathlib.Path('lib/big')\n"
    "print(hashlib.md5(big.read_bytes()).hexdigest(), oct(big.stat().st_mode & 0o777),\n"
    "      os.path.lexists('.sky-sync'), pathlib.Path('lib/small').read_text())"
)


def synced(notebook: Notebook, seed: int) -> str:
    """Make files beside the notebook; return what a machine prints that has them."""
    folder = Path(notebook.directory) / "lib"
    folder.mkdir(exist_ok=True)
    (folder / "small").write_text(f"small-{seed}")
    (folder / "big").write_bytes(content := random.Random(seed).randbytes(SYNCED))
    (folder / "big").chmod(0o750)
    return f"{hashlib.md5(content).hexdigest()} 0o750 False small-{seed}"


def test_synced_files_are_sent_once(notebook: Notebook) -> None:
    expected = synced(notebook, 4)
    cell = f"%%sky --cluster three --nodes {NODES} --sync lib\n{SHOW}"
    ran = notebook.run(cell)
    assert ran.stdout.count(expected) == NODES, ran
    assert f"shared by {NODES} machines" in ran.status_line, ran.status_line
    again = notebook.run(cell)
    assert again.stdout.count(expected) == NODES and "--sync:" not in again.status_line
    changed = notebook.run(
        f"%%sky --cluster three --nodes {NODES}\nopen('lib/big', 'ab').write(b'x')"
    )
    assert changed.status == "ok", changed
    assert notebook.run(cell).stdout.count(expected) == NODES, "a changed file is brought anew"


def test_staging_is_estimated_and_booked(
    notebook: Notebook, bucket: ObjectStore, data_dir: Path
) -> None:
    expected = synced(notebook, 5)
    scratch = f"s3://bucket/tmp?endpoint={bucket.url}&place={PLACE}"
    notebook.run(f"%config Sky.scratch = {{'ssh': '{scratch}'}}")
    cell = f"%%sky --cluster three --nodes {NODES} --sync lib"
    bucket.forget_counts()
    shown = notebook.run(f"{cell} --dry-run\n1").result
    assert f"--sync: 20.0 MB in 2 objects, local → {PLACE} → ssh/" in shown, shown
    assert bucket.byte_counts() == [0, 0]
    before = booked(data_dir)
    ran = notebook.run(f"{cell}\n{SHOW}")
    assert ran.stdout.count(expected) == NODES, ran
    assert SYNCED <= bucket.byte_counts()[0] < 1.01 * SYNCED, "uploaded once"
    assert SYNCED <= bucket.byte_counts()[1] < 1.01 * SYNCED, "read once"
    (row,) = booked(data_dir)[len(before) :]
    assert row.what.startswith("staging of 20.0 MB") and PLACE in row.what
    assert row.usd == pytest.approx(counted_usd(bucket), rel=1e-3)
    (estimated,) = re.findall(r"--sync: .*?\$([0-9.]+) egress.*?\$([0-9.]+) requests", shown)
    assert sum(map(float, estimated)) == pytest.approx(row.usd, rel=0.05)
    notebook.run("%config Sky.scratch = {}")
