"""Environments of packages on a machine: which indexes are asked, and with what."""

from __future__ import annotations

import base64
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyError
from jupyter_sky.machines.engines.node import environment
from tests.package_sync.installed_packages import Index

pytest.importorskip("uv")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing is installed yet, with an index that fails at once."""
    cache = os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv"))
    monkeypatch.setenv("UV_CACHE_DIR", cache)
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def canary() -> Iterator[Index]:
    """A public index that has nothing."""
    index = Index()
    yield index
    index.close()


def test_credentials_reach_the_index_and_nothing_else(home: Path, canary: Index) -> None:
    address = canary.address.replace("//", "//ada:s3cr3t@")
    settings = {"UV_DEFAULT_INDEX": address, "PIP_INDEX_URL": address}
    with pytest.raises(SkyError, match="acme-tool cannot be installed") as caught:
        environment.install_packages(["acme-tool"], settings=settings)
    assert "s3cr3t" not in str(caught.value)
    assert canary.asked and set(canary.asked) == {"acme-tool"}
    login = "Basic " + base64.b64encode(b"ada:s3cr3t").decode()
    assert login in canary.logins
    for path in (home / ".cache").rglob("*"):
        assert not path.is_file() or b"s3cr3t" not in path.read_bytes()


def test_a_private_index_that_fails_is_not_replaced_by_a_public_one(canary: Index) -> None:
    private = Index(status=500)
    try:
        settings = {"UV_INDEX": private.address, "PIP_EXTRA_INDEX_URL": private.address}
        settings |= {"UV_DEFAULT_INDEX": canary.address, "PIP_INDEX_URL": canary.address}
        with pytest.raises(SkyError, match="acme-tool cannot be installed"):
            environment.install_packages(["acme-tool"], settings=settings)
        assert "acme-tool" in private.asked and canary.asked == []
    finally:
        private.close()


def test_no_index_is_asked_for_what_is_left_out(tmp_path: Path, canary: Index) -> None:
    path = tmp_path / "open_tool-1.0-py3-none-any.whl"
    info = "open_tool-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("open_tool.py", "VALUE = 1\n")
        needs = "Metadata-Version: 2.1\nName: open-tool\nVersion: 1.0\nRequires-Dist: acme-fork\n"
        archive.writestr(f"{info}/METADATA", needs)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    settings = {"UV_DEFAULT_INDEX": canary.address, "PIP_INDEX_URL": canary.address}
    with pytest.raises(SkyError, match="cannot be installed"):
        environment.install_packages([str(path)], settings=settings)
    assert canary.asked == ["acme-fork"]
    folder = environment.install_packages([str(path)], without=["acme-fork"], settings=settings)
    assert (Path(folder) / "open_tool.py").exists() and canary.asked == ["acme-fork"]
