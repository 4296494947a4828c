"""The uv that machines of another kind get: pinned, checked, downloaded once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from jupyter_sky.clouds.keeper import Node
from jupyter_sky.errors import SkyBootstrapError
from jupyter_sky.provisioner import uv
from jupyter_sky.ssh import Address

pytestmark = pytest.mark.slow
ALPINE = Node(
    0, "t", "alpine", Address("", ""), system="Linux", machine="x86_64", libc="musl", base="/b"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a folder for temporary files in which nothing is."""
    cache = os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv"))
    monkeypatch.setenv("UV_CACHE_DIR", cache)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "home"


def test_uv_for_another_kind_of_machine_is_kept(home: Path, tmp_path: Path) -> None:
    pytest.importorskip("uv")
    path = uv.uv_for(ALPINE)
    assert path.read_bytes()[:4] == b"\x7fELF" and os.access(path, os.X_OK)
    made = path.stat().st_mtime_ns
    assert uv.uv_for(ALPINE) == path and path.stat().st_mtime_ns == made
    assert [*(tmp_path / "tmp").iterdir()] == [], "nothing is left in the folder of temporary files"
    assert [*path.parent.iterdir()] == [path]


def test_uv_with_another_digest_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("uv")
    monkeypatch.setattr(uv, "SHA256", ("0" * 64,))
    with pytest.raises(SkyBootstrapError, match=r"(?i)hash") as caught:
        uv.uv_for(ALPINE)
    assert "alpine" in str(caught.value)
    assert [*(home / ".cache" / "jupyter_sky" / "uv").iterdir()] == []
