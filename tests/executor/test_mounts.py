"""``--mount`` on machines reached by SSH: read on demand, and gone with the cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.machines.storage.datasets.mounts import missing_for_mounts
from tests.conftest import Notebook, wait_until
from tests.emulators.hosts import USABLE, SshHost
from tests.emulators.object_store import ObjectStore
from tests.emulators.object_store.azure_signatures import ACCOUNT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
    pytest.mark.skipif(bool(missing_for_mounts()), reason=f"needs {missing_for_mounts()}"),
]
BIG = bytes(range(256)) * 4096 * 100
PLACE = 90_000_123


@pytest.fixture(scope="module")
def host() -> Iterator[SshHost]:
    """A machine."""
    made = SshHost(76)
    yield made
    made.close()


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    """A bucket of an S3-compatible store."""
    with ObjectStore("r2", min_part=1024) as server:
        server.create("bucket")
        server.put("bucket", "set/a", b"one")
        server.put("bucket", "set/sub/big", BIG)
        for number in range(200):
            server.put("bucket", f"set/many/{number:03}", b"%03d" % number)
        server.put("bucket", "beside", b"not below the prefix")
        yield server
        assert not server.crashes, server.crashes[0]


@pytest.fixture(scope="module")
def container() -> Iterator[ObjectStore]:
    """A container of Azure."""
    with ObjectStore("azure") as server:
        server.create("bucket")
        server.put("bucket", "set/a", b"of azure")
        server.put("bucket", "set/sub/big", BIG[: 2**24])
        yield server
        assert not server.crashes, server.crashes[0]


@pytest.fixture(scope="module")
def notebook(
    data_dir: Path,
    folder: Path,
    sky_env: dict[str, str],
    host: SshHost,
    container: ObjectStore,
) -> Iterator[Notebook]:
    """A kernel with one machine in its pool."""
    (data_dir / "hosts.toml").write_text(host.toml("box", slots=2))
    keys = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret-of-the-test"}
    keys |= {"AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_STORAGE_KEY": container.account.azure_key}
    made = Notebook(folder, {**sky_env, "SKY_DATA_DIR": str(data_dir), **keys}, "analysis.ipynb")
    yield made
    made.run("%sky down --all")
    made.stop()


def mounts(host: SshHost) -> list[str]:
    """Return the lines of the file systems of FUSE that are mounted below a machine's home."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if str(host.home) in line and " fuse" in line]


def option(bucket: ObjectStore) -> str:
    return f"--cloud ssh --mount s3://bucket/set/?endpoint={bucket.url}:./set"


def test_mount_reads_what_the_cell_asks_for(
    notebook: Notebook, bucket: ObjectStore, host: SshHost
) -> None:
    bucket.forget_counts()
    ran = notebook.run(
        f"%%sky {option(bucket)}\n"
        "import os\n"
        "print(sorted(os.listdir('set')), os.path.getsize('set/sub/big'), open('set/a').read())\n"
        f"with open('set/sub/big', 'rb') as f: f.seek({PLACE}); print(f.read(300).hex())\n"
        "try: open('set/new', 'w')\n"
        "except OSError as error: print(error.strerror)"
    )
    assert ran.status == "ok", ran.traceback
    lines = ran.stdout.splitlines()
    assert lines[0] == f"['a', 'many', 'sub'] {len(BIG)} one"
    assert lines[1] == BIG[PLACE : PLACE + 300].hex()
    assert lines[2] == "Read-only file system"
    assert bucket.count("GET /bucket/set/sub/big") == 1, "one block of the big object"
    assert bucket.count("GET /bucket/set/many") == 0
    assert "mounted, and read as the cell asks for it" in ran.status_line
    assert len(mounts(host)) == 1
    assert not [*(host.home / ".cache/jupyter_sky/data/objects").glob("??/*")], "nothing is cached"


def test_requests_are_signed_while_the_cell_runs(
    notebook: Notebook, bucket: ObjectStore, host: SshHost
) -> None:
    ran = notebook.run(
        f"%%sky {option(bucket)}\n"
        "import hashlib, pathlib, time; begun = time.monotonic()\n"
        "print(hashlib.md5(open('set/sub/big', 'rb').read()).hexdigest())\n"
        "print(all(p.read_text() == p.name for p in pathlib.Path('set/many').iterdir()))\n"
        "print(time.monotonic() - begun < 30)"
    )
    assert ran.stdout.split() == [hashlib.md5(BIG).hexdigest(), "True", "True"], ran
    assert len(mounts(host)) == 1, "the mount of the cell before is used again"


def test_refusal_of_the_store_is_an_error_of_the_read_and_told(
    notebook: Notebook, bucket: ObjectStore
) -> None:
    bucket.put("bucket", "set/secret", b"no")
    bucket.fail("GET /bucket/set/secret", "AccessDenied", times=100)
    ran = notebook.run(f"%%sky {option(bucket)}\nopen('set/secret').read()")
    assert ran.ename == "OSError" and "Input/output error" in ran.evalue, ran
    assert "--mount set: secret:" in ran.status_line, ran.status_line


def test_what_cannot_be_mounted_is_said(
    notebook: Notebook, bucket: ObjectStore, folder: Path
) -> None:
    for options, sentence in (
        (f"--mount {folder}:./here", "only stores are streamed to other machines"),
        (f"--mount s3://bucket/none/?endpoint={bucket.url}", "0 objects below"),
        (f"--mount s3://bucket/set/?endpoint={bucket.url}:/set", "absolute path on a machine"),
        (f"--mount s3://bucket/set/?endpoint={bucket.url}:./file", "there is a file at"),
    ):
        notebook.run("%%sky --cloud ssh\nopen('file', 'w').close()")
        ran = notebook.run(f"%%sky --cloud ssh {options}\nprint('ran')")
        assert ran.status == "error" and "ran\n" not in ran.stdout, ran
        assert sentence in ran.traceback, ran.traceback


# -- kills -----------------------------------------------------------------------------------------

READ = "print(open('set/a').read())"


def read_again(notebook: Notebook, bucket: ObjectStore) -> str:
    """Return what a cell reads; one that is sent before a loss is known fails by it."""
    for __ in range(3):
        ran = notebook.run(f"%%sky {option(bucket)}\n{READ}")
        if ran.status == "ok":
            return ran.stdout
        assert ran.ename in ("SkyEngineLost", "SkyClusterLost"), ran
    raise AssertionError(ran)


def kill(host: SshHost, part: str) -> None:
    for process in host.part(part):
        process.kill()


@pytest.mark.parametrize("part", ["engine", "mount_process"])
def test_killed_process_leaves_no_mount_and_the_next_cell_mounts_again(
    notebook: Notebook, bucket: ObjectStore, host: SshHost, part: str
) -> None:
    before = notebook.run(f"%%sky {option(bucket)}\n{READ}")
    assert before.stdout == "one\n", before
    (mount,) = mounts(host)
    kill(host, part)
    wait_until(lambda: mount not in mounts(host))
    assert read_again(notebook, bucket) == "one\n"
    assert len(mounts(host)) == 1
    assert len(host.part("mount_process")) == 1


def test_mount_outlives_a_killed_kernel_and_serves_the_next(
    notebook: Notebook, bucket: ObjectStore, host: SshHost
) -> None:
    (mount,) = mounts(host)
    notebook.kill()
    notebook.start()
    bucket.forget_counts()
    ran = notebook.run(
        f"%%sky {option(bucket)}\nprint(len(open('set/sub/big', 'rb').read({PLACE})))"
    )
    assert ran.stdout == f"{PLACE}\n", ran
    assert mounts(host) == [mount]


def test_container_of_azure_is_mounted(notebook: Notebook, container: ObjectStore) -> None:
    container.forget_counts()
    address = f"az://{ACCOUNT}/bucket/set/?endpoint={container.url}"
    ran = notebook.run(
        f"%%sky --cloud ssh --mount {address}:./blobs\n"
        "import hashlib; print(open('blobs/a').read())\n"
        "print(hashlib.md5(open('blobs/sub/big', 'rb').read()).hexdigest())"
    )
    assert ran.stdout.splitlines() == ["of azure", hashlib.md5(BIG[: 2**24]).hexdigest()], ran
    assert container.byte_counts()[1] < 1.01 * 2**24, "each byte is read once"


@pytest.mark.parametrize("parts", [["controller"], ["supervisor"], ["supervisor", "controller"]])
def test_end_of_a_cluster_leaves_no_mount(
    notebook: Notebook, bucket: ObjectStore, host: SshHost, parts: list[str]
) -> None:
    assert read_again(notebook, bucket) == "one\n"
    assert mounts(host)
    for part in parts:
        kill(host, part)
    wait_until(lambda: not mounts(host) and not host.part("mount_process"))


def test_next_cluster_unmounts_what_is_left_where_all_was_killed(
    notebook: Notebook, bucket: ObjectStore, host: SshHost
) -> None:
    assert read_again(notebook, bucket) == "one\n"
    (before,) = mounts(host)
    for process in host.own():
        process.suspend()
    for process in host.own():
        process.kill()
    assert mounts(host) == [before], "nobody was left to unmount it"
    wait_until(lambda: not host.own())
    assert read_again(notebook, bucket) == "one\n"
    assert len(mounts(host)) == 1 and before not in mounts(host)


def test_cluster_that_is_ended_leaves_no_mount(
    notebook: Notebook, bucket: ObjectStore, host: SshHost
) -> None:
    assert read_again(notebook, bucket) == "one\n"
    notebook.run("%sky down")
    assert not mounts(host) and not host.part("mount_process")
