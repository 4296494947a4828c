"""Files of hosts reached by SSH as a store: a real sshd, whose files move to and from stores."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUnreachable, SkyUsageError
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.machines.storage.stores.errors import (
    SkyObjectMissing,
    SkySourceChanged,
    SkyTargetExists,
)
from jupyter_sky.machines.storage.stores.part_worker import read_part
from jupyter_sky.machines.storage.stores.ssh_channel import close_channels, split_url
from jupyter_sky.machines.storage.stores.ssh_store import SshStore
from jupyter_sky.machines.storage.stores.store import Store
from jupyter_sky.machines.storage.stores.stores import open_store
from tests.conftest import wait_until
from tests.emulators.hosts import USABLE, SshHost
from tests.emulators.object_store import ObjectStore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]
BIG = bytes(range(256)) * 256 * 520
"""Three parts."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    """A machine of the pool with the name ``box``."""
    made = SshHost(73)
    data = tmp_path_factory.mktemp("data")
    (data / "hosts.toml").write_text(made.toml("box"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKY_DATA_DIR", str(data))
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
        Sky.clear_instance()
        yield made
    close_channels()
    Sky.clear_instance()
    made.close()


@pytest.fixture
def there(host: SshHost) -> Path:
    """An empty folder of the machine."""
    made = host.home / f"files-{len([*host.home.iterdir()])}"
    made.mkdir()
    return made


@pytest.fixture
def server() -> Iterator[ObjectStore]:
    with ObjectStore("r2", min_part=1024) as server:
        server.create("bucket")
        yield server
        assert not server.crashes, server.crashes[0]


def left(folder: Path) -> list[str]:
    """Files of uploads that are not complete."""
    return [str(path) for path in folder.rglob(".sky-part-*")]


def test_store_follows_the_protocol(host: SshHost, there: Path) -> None:
    (there / "sub").mkdir()
    (there / "sub/b").write_text("two")
    (there / "a").write_text("one")
    uri = f"ssh://box{there}/"
    store = open_store(uri)
    assert isinstance(store, Store) and isinstance(store, SshStore)
    key = str(there).lstrip("/")
    listed = list(store.list(f"{key}/"))
    assert [each.key for each in listed] == [f"{key}/a", f"{key}/sub/b"]
    assert listed[0] == store.stat(f"{key}/a")
    status = (there / "a").stat()
    assert listed[0].version == f"3-{status.st_mtime_ns}-{status.st_ino}"
    request = store.read(listed[0])
    assert split_url(request.url) == ("box", str(there / "a"))
    assert bytes(read_part(request, None)) == b"one"  # type: ignore[arg-type]
    (there / "a").write_text("other")
    with pytest.raises(SkySourceChanged):
        read_part(request, None)  # type: ignore[arg-type]
    with pytest.raises(SkyObjectMissing):
        store.stat(f"{key}/none")
    assert sky.Storage(uri).du().objects == 2


def test_pages_of_a_listing(host: SshHost, there: Path) -> None:
    for number in range(2001):
        (there / f"{number:04}").touch()
    store, key = open_store(f"ssh://box{there}/"), str(there).lstrip("/")
    keys = [each.key.rpartition("/")[2] for each in store.list(f"{key}/")]
    assert keys == [f"{number:04}" for number in range(2001)]


def test_round_trip_and_second_copy_moves_nothing(
    host: SshHost, there: Path, tmp_path: Path
) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/big").write_bytes(BIG)
    (tmp_path / "set/small").write_text("x")
    target = f"ssh://box{there}/set/"
    sky.copy(f"{tmp_path}/set/", target).wait()
    assert (there / "set/big").read_bytes() == BIG and left(there) == []
    assert sky.copy(f"{tmp_path}/set/", target).plan.same == 2
    sky.copy(target, f"{tmp_path}/back/").wait()
    assert (tmp_path / "back/big").read_bytes() == BIG
    (tmp_path / "set/small").write_text("y")
    with pytest.raises(SkyTargetExists, match=r"has other contents in .*small"):
        sky.copy(f"{tmp_path}/set/", target)


def test_bytes_between_host_and_bucket_pass_by_neither_side(
    host: SshHost, there: Path, server: ObjectStore
) -> None:
    (there / "set").mkdir()
    (there / "set/big").write_bytes(BIG)
    bucket = f"s3://bucket/y/?endpoint={server.url}"
    server.fail("PUT /bucket/y/big", "SlowDown", times=1, seconds=0.5)
    copy = sky.copy(f"ssh://box{there}/set/", bucket)
    wait_until(lambda: workers(host), "a worker on the host")
    assert not [t for t in threading.enumerate() if t.name == "sky-part-worker"]
    copy.wait()
    assert server.content("bucket", "y/big") == BIG
    sky.copy(bucket, f"ssh://box{there}/back/").wait()
    assert hashlib.md5((there / "back/big").read_bytes()).digest() == hashlib.md5(BIG).digest()
    assert left(there) == []
    wait_until(lambda: not workers(host), "the worker ends with its transfer")


def workers(host: SshHost) -> list[psutil.Process]:
    """Workers on the machine, but for their SSH sessions."""
    found = []
    for process in host.own():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[-1].endswith("worker_process"):
                found.append(process)
    return found


def test_kill_of_the_worker_costs_its_parts_alone(
    host: SshHost, there: Path, server: ObjectStore
) -> None:
    (there / "big").write_bytes(BIG)
    server.fail("partNumber=2", "SlowDown", times=1, seconds=1.0)
    copy = sky.copy(f"ssh://box{there}/big", f"s3://bucket/big?endpoint={server.url}")
    wait_until(lambda: server.count("partNumber=1") and server.count("partNumber=2"))
    for process in workers(host):
        process.kill()
    copy.wait()
    assert server.content("bucket", "big") == BIG
    assert server.open_uploads("bucket") == 0


def test_kill_of_the_connection_in_the_middle(host: SshHost, there: Path, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(BIG)
    copy = sky.copy(tmp_path / "big", f"ssh://box{there}/big")
    wait_until(lambda: left(there), "the upload begins")
    assert host.cut()
    copy.wait()
    assert (there / "big").read_bytes() == BIG and left(there) == []


def test_copy_that_is_given_up_leaves_nothing(
    host: SshHost, there: Path, server: ObjectStore
) -> None:
    server.put("bucket", "big", BIG)
    server.fail("GET /bucket/big", "SlowDown", times=100, seconds=0.2)
    copy = sky.copy(f"s3://bucket/big?endpoint={server.url}", f"ssh://box{there}/big")
    wait_until(lambda: left(there), "the upload begins")
    copy.cancel(abort=True)
    with pytest.raises(Exception, match="cancelled"):
        copy.wait()
    assert list(there.iterdir()) == []


def test_two_hosts_and_bad_addresses(host: SshHost, there: Path) -> None:
    (there / "a").write_text("one")
    with pytest.raises(SkyUsageError, match="is not the address of a host"):
        sky.Storage("ssh://a@b@c/x").ls()
    with pytest.raises(SkyUnreachable, match=r"no machine of the name|does not answer"):
        sky.Storage("ssh://nobody@none-such.invalid/x").list()
    with pytest.raises(SkyObjectMissing, match="0 objects below"):
        sky.Storage(f"ssh://box{there}/none/").list()
