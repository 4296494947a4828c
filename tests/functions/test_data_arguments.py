"""Data of stores as arguments of calls: paths on the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.functions.pool import Pool
from jupyter_sky.storage.errors import SkyObjectMissing
from tests.emulators.object_store import ObjectStore

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


def test_data_that_are_not_there_fail_here(compute: Pool, tmp_path: Path) -> None:
    with pytest.raises(SkyObjectMissing, match="0 objects below"):
        read(sky.Storage(f"{tmp_path}/none/"), "a") >> compute
