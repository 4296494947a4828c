"""Data of stores as arguments of calls: paths on the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.execution.functions.pools.pool import Pool
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.machines.storage.stores import stores
from jupyter_sky.machines.storage.stores.errors import SkyObjectMissing
from jupyter_sky.machines.storage.stores.signing import BearerToken
from tests.conftest import wait_until
from tests.emulators.object_store import ObjectStore
from tests.emulators.object_store.token_exchange import TokenExchange
from tests.storage.test_delegation import WHOLE, LastingCredentials

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A home of this file's own, where the cache of the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
        yield


@sky.function
def read(data: Path, name: str = "") -> tuple[str, str]:
    path = data / name if name else data
    return type(data).__name__, path.read_text()


def test_data_arrive_as_a_path_and_are_downloaded_once(compute: Pool) -> None:
    with ObjectStore("r2", min_part=1024) as server:
        server.create("bucket")
        server.put("bucket", "set/a", b"one")
        server.put("bucket", "set/b", b"two")
        data = sky.Storage(f"s3://bucket/set/?endpoint={server.url}")
        assert read(data, "a") >> compute == ("PosixPath", "one")
        assert read(data=data / "b") @ compute == [("PosixPath", "two")] * 2
        assert server.count("GET /bucket/set/a") == 1
        server.put("bucket", "set/a", b"new")
        assert read(data, "a") >> compute == ("PosixPath", "new")


@sky.function
def contents(folder: str) -> tuple[dict[str, str], int]:
    files = [each for each in Path(folder).rglob("*") if each.is_file()]
    modes = [each.stat().st_mode & 0o222 for each in files]
    return {each.name: each.read_text() for each in files}, sum(modes)


def test_volumes_are_on_every_node_before_its_first_call(data: Path, tmp_path: Path) -> None:
    (tmp_path / "c").write_text("three")
    with ObjectStore("r2", min_part=1024) as server:
        server.create("bucket")
        server.put("bucket", "vol/a", b"one")
        server.put("bucket", "other", b"two")
        bucket = sky.Volume(f"s3://bucket?endpoint={server.url}", "./volumes/bucket", "vol/")
        image = sky.Image(volumes=[sky.Volume(str(tmp_path), "volumes/folder")])
        with sky.Compute(nodes=1, volumes=[bucket], image=image) as pool:
            assert contents("volumes/bucket") @ pool == [({"a": "one"}, 0)]
            assert contents("volumes/folder") >> pool == ({"c": "three"}, 0)
            server.put("bucket", "vol/a", b"new")
            pool.resize(2)
            wait_until(lambda: len(pool.ranks) == 2, "no second node")
            assert contents("volumes/bucket") @ pool == [({"a": "one"}, 0)] * 2
        assert server.count("GET /bucket/vol/a") == 1


def test_data_that_are_not_there_fail_here(compute: Pool, tmp_path: Path) -> None:
    with pytest.raises(SkyObjectMissing, match="there is no file or folder"):
        read(sky.Storage(f"{tmp_path}/none/"), "a") >> compute


def test_copy_between_two_clouds_through_a_cluster(
    compute: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * 256 * 520  # three parts
    with ObjectStore("r2", min_part=1024) as amazon, ObjectStore("google") as google:
        exchange = TokenExchange(google.account)
        google.account.tokens[WHOLE] = google.account.now() + 3600
        monkeypatch.setattr(stores, "google_credentials", LastingCredentials)
        monkeypatch.setattr(stores, "google_token", lambda: BearerToken(WHOLE))
        monkeypatch.setattr("google.auth.transport.requests.Request", lambda: exchange)
        amazon.create("bucket")
        amazon.put("bucket", "set/a", content)
        google.create("other")
        source = f"s3://bucket/set/?endpoint={amazon.url}"
        target = f"gs://other/set/?endpoint={google.url}"
        (name,) = sessions.current().clusters.connected
        with pytest.raises(SkyUsageError, match="would pass through this machine"):
            sky.copy(source, target)
        assert sky.copy(source, target, via=name).wait().route == f"cluster {name}"
        assert google.content("other", "set/a") == content
        writes = {token for method, token in google.account.used if method == "PUT"}
        assert writes and WHOLE not in writes, "machines get narrowed tokens alone"
        assert exchange.issued == 1
