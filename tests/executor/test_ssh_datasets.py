"""``--data`` and ``--out`` on machines reached by SSH: a real sshd each, caches of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.benchmarks.storage_secrets import (
    SECRET,
    SESSION,
    in_files,
    in_processes,
    marked_environment,
    search_during,
)
from tests.conftest import Notebook, wait_until
from tests.emulators.hosts import USABLE, SshHost
from tests.emulators.object_store import ObjectStore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]
BIG = bytes(range(256)) * 256 * 520
SHOW = "print(open('data/set/a').read(), len(open('data/set/sub/b').read()))"


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[SshHost]]:
    """Two machines, of which each test goes on with what the one before has left."""
    made = [SshHost(71), SshHost(72)]
    yield made
    for host in made:
        host.close()


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    """A bucket of an S3-compatible store, whose account has a session."""
    with ObjectStore("r2", min_part=1024) as server:
        marked_environment(server.account)
        server.create("bucket")
        server.put("bucket", "set/a", b"one")
        server.put("bucket", "set/sub/b", b"two" * 10_000)
        server.put("bucket", "big", BIG)
        yield server
        assert not server.crashes, server.crashes[0]


@pytest.fixture(scope="module")
def notebook(
    data_dir: Path,
    folder: Path,
    sky_env: dict[str, str],
    hosts: list[SshHost],
    bucket: ObjectStore,
) -> Iterator[Notebook]:
    """A kernel with two machines in its pool and marked credentials."""
    tables = [host.toml(f"box{n}", slots=2) for n, host in enumerate(hosts)]
    (data_dir / "hosts.toml").write_text("\n".join(tables))
    env = {**sky_env, "SKY_DATA_DIR": str(data_dir), **marked_environment(bucket.account)}
    made = Notebook(folder, env, "analysis.ipynb")
    yield made
    made.run("%sky down --all")
    made.stop()


def cached(host: SshHost) -> int:
    """Number of objects in the cache of a machine."""
    return len([*(host.home / ".cache/jupyter_sky/data/objects").glob("??/*")])


def test_data_of_a_bucket_come_to_the_machine_once(
    notebook: Notebook, bucket: ObjectStore, hosts: list[SshHost]
) -> None:
    bucket.forget_counts()
    cell = (
        f"%%sky --cloud ssh --data s3://bucket/set?endpoint={bucket.url}\n{SHOW}\n"
        "import os; print(os.path.realpath('data/set').startswith(os.environ['HOME']))\n"
        "print(oct(os.stat('data/set/a').st_mode & 0o222))"
    )
    first = notebook.run(cell)
    assert first.stdout.split() == ["one", "30000", "True", "0o0"], first
    assert bucket.count("GET /bucket/set") == 2
    assert sorted(map(cached, hosts)) == [0, 2]
    second = notebook.run(cell)
    assert second.stdout == first.stdout
    assert bucket.count("GET /bucket/set") == 2, "the second use asks for no byte"
    assert "there already, 0 bytes moved" in second.status_line


def test_second_machine_gets_them_from_that_which_has_them(
    notebook: Notebook, bucket: ObjectStore, hosts: list[SshHost]
) -> None:
    bucket.forget_counts()
    option = f"--data s3://bucket/set?endpoint={bucket.url}"
    ran = notebook.run(f"%%sky --cloud ssh --nodes 2 --cluster two {option}\n{SHOW}")
    assert ran.stdout.count("one 30000") == 2, ran
    assert bucket.count("GET /bucket/set") == 0, "the machine of the first cell has them already"
    assert list(map(cached, hosts)) == [2, 2]
    notebook.run("%sky down two")


def test_files_of_this_machine_go_to_several_nodes_by_scratch_once(
    notebook: Notebook, bucket: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/big").write_bytes(BIG[::-1])
    (tmp_path / "set/a").write_text("here")
    notebook.run(f"%config Sky.scratch = {{'ssh': 's3://bucket/tmp?endpoint={bucket.url}'}}")
    bucket.forget_counts()
    ran = notebook.run(
        f"%%sky --cloud ssh --nodes 2 --cluster two --data {tmp_path}/set\n"
        "import hashlib; print(hashlib.md5(open('data/set/big', 'rb').read()).hexdigest())"
    )
    assert ran.stdout.count(hashlib.md5(BIG[::-1]).hexdigest()) == 2, ran
    assert len(BIG) <= bucket.byte_counts()[0] < 1.01 * len(BIG), "it is sent once"
    assert len(BIG) <= bucket.byte_counts()[1] < 1.01 * len(BIG), "one node has read it"
    notebook.run("%sky down two\n%config Sky.scratch = {}")


def test_new_files_go_from_the_machine_to_the_bucket(
    notebook: Notebook, bucket: ObjectStore
) -> None:
    option = f"--out ./model:s3://bucket/runs/7/?endpoint={bucket.url}"
    ran = notebook.run(
        f"%%sky --cloud ssh --sync beside.txt {option}\n"
        "import os; os.makedirs('model', exist_ok=True)\n"
        "open('model/w', 'wb').write(bytes(40_000_000)); open('model/n', 'w').write('n')"
    )
    assert ran.status == "error" and "beside.txt" in ran.evalue, "nothing runs without its files"
    (Path(notebook.directory) / "beside.txt").write_text("synced")
    ran = notebook.run(
        f"%%sky --cloud ssh --sync beside.txt {option}\n"
        "import os; os.makedirs('model', exist_ok=True); print(open('beside.txt').read())\n"
        "open('model/w', 'wb').write(bytes(40_000_000)); open('model/n', 'w').write('n')"
    )
    assert ran.stdout == "synced\n", ran
    assert bucket.content("bucket", "runs/7/w") == bytes(40_000_000)
    assert "model: 2 files (40.0 MB) uploaded" in ran.status_line
    assert bucket.open_uploads("bucket") == 0


def test_data_of_an_ssh_address_go_through_the_notebook(
    notebook: Notebook, hosts: list[SshHost]
) -> None:
    source = hosts[1].home / "shared"
    source.mkdir()
    (source / "x").write_text("of another host")
    ran = notebook.run(
        f"%%sky --cloud ssh --data ssh://box1{source} --out y:ssh://box1{source}/y\n"
        "print(open('data/shared/x').read()); open('y', 'w').write('back')"
    )
    assert ran.stdout == "of another host\n", ran
    assert (source / "y").read_text() == "back", ran


# -- kills -----------------------------------------------------------------------------------------


def own_host(hosts: list[SshHost]) -> SshHost:
    """Return the machine on which the cluster of this file runs."""
    return next(host for host in hosts if host.part("controller"))


def partial_files(host: SshHost) -> list[Path]:
    return [*(host.home / ".cache/jupyter_sky/data").glob("*/partial-*")]


def test_cut_connection_while_data_come(
    notebook: Notebook, bucket: ObjectStore, hosts: list[SshHost]
) -> None:
    bucket.forget_counts()
    bucket.fail("GET /bucket/big", "SlowDown", times=3, seconds=0.5)
    sent = notebook.send(
        f"%%sky --cloud ssh --data s3://bucket/big?endpoint={bucket.url}:./big\n"
        "import hashlib; print(hashlib.md5(open('big', 'rb').read()).hexdigest())"
    )
    wait_until(lambda: bucket.count("GET /bucket/big"))
    assert own_host(hosts).cut()
    ran = notebook.collect(sent)
    assert ran.stdout.strip() == hashlib.md5(BIG).hexdigest(), ran
    assert partial_files(own_host(hosts)) == []


def test_killed_kernel_leaves_nothing_half(
    notebook: Notebook, bucket: ObjectStore, hosts: list[SshHost]
) -> None:
    bucket.put("bucket", "later", BIG)
    bucket.fail("GET /bucket/later", "SlowDown", times=6, seconds=0.3)
    cell = (
        f"%%sky --cloud ssh --data s3://bucket/later?endpoint={bucket.url}:./later\n"
        "import os; print(os.path.getsize('later'))"
    )
    notebook.send(cell)
    wait_until(lambda: bucket.count("GET /bucket/later"))
    notebook.kill()
    notebook.start()
    ran = notebook.run(cell)
    assert ran.stdout == f"{len(BIG)}\n", ran
    wait_until(lambda: partial_files(own_host(hosts)) == [], "what was begun is gone")


# -- secrets ---------------------------------------------------------------------------------------


def test_no_secret_is_on_a_machine_or_a_disk(
    notebook: Notebook, bucket: ObjectStore, hosts: list[SshHost], data_dir: Path, folder: Path
) -> None:
    folders = [*(host.folder for host in hosts), data_dir, folder]
    assert search_during(notebook, bucket, hosts, folders) == 0


def test_search_finds_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"GET /x?X-Amz-Signature=ab and {SECRET}")
    assert len(in_files([tmp_path])) == 2
    with psutil.Popen(["sleep", "9"], env={"TOKEN": SESSION}) as process:
        wait_until(lambda: in_processes([process]))
        process.kill()
