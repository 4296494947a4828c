"""Files that ``--sync`` sends, and changes of a working folder."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.machines.engines.node.files import Workspace, build_manifest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A notebook's folder."""
    for name in (
        "src/a.py",
        "src/sub/b.py",
        "src/.git/config",
        "src/__pycache__/a.pyc",
        "src/node_modules/m.js",
        "src/.hidden",
        "src/.venv/bin/python",
        "data.csv",
    ):
        path = tmp_path / "here" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "here"


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """An engine's working folder, importable."""
    folder = tmp_path / "there"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    before = set(sys.modules)
    yield Workspace()
    for name in set(sys.modules) - before:
        del sys.modules[name]


def sync(root: Path, there: Workspace, *paths: str) -> tuple[list[str], list[str]]:
    """Bring files; return those that were sent and the modules that were forgotten."""
    wanted = build_manifest(root, paths).files
    missing = there.missing(wanted)
    for name in missing:
        there.write(name, 0, wanted[name][2], [(root / name).read_bytes()])
    return missing, there.apply_sync(wanted, missing, paths)


def test_the_manifest_leaves_out_what_is_made(root: Path) -> None:
    assert list(build_manifest(root, ["src"]).files) == ["src/.hidden", "src/a.py", "src/sub/b.py"]
    assert list(build_manifest(root, ["data.csv", "src/sub/"]).files) == [
        "data.csv",
        "src/sub/b.py",
    ]
    assert list(build_manifest(root, ["."]).files) == [
        "data.csv",
        "src/.hidden",
        "src/a.py",
        "src/sub/b.py",
    ]
    size, changed, mode = build_manifest(root, ["data.csv"]).files["data.csv"]
    status = (root / "data.csv").stat()
    assert (size, changed, mode) == (8, status.st_mtime_ns, status.st_mode & 0o777)


def test_paths_outside_or_absent_are_refused(root: Path) -> None:
    for path in ("..", "../there", "/etc/hosts", "src/../../x"):
        with pytest.raises(SkyUsageError, match=r"outside|no such"):
            build_manifest(root, [path])
    (root / "link").symlink_to("/etc")
    with pytest.raises(SkyUsageError, match="outside"):
        build_manifest(root, ["link"])
    with pytest.raises(SkyUsageError, match="no such file or folder"):
        build_manifest(root, ["absent"])


SECRETS = (
    *(".env", ".env.local", "prod.env", "id_ed25519", "server.pem", ".netrc", "tls.key"),
    *(".ssh/config", ".aws/credentials"),
)


def test_keys_and_passwords_are_left_out_and_named(root: Path) -> None:
    for name in (*SECRETS, ".env.example", "id_ed25519.pub", "id_table.csv"):
        path = root / "src" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("TOKEN=1")
    found = build_manifest(root, ["src"])
    assert set(found.files) == {
        *("src/.hidden", "src/a.py", "src/sub/b.py"),
        *("src/.env.example", "src/id_ed25519.pub", "src/id_table.csv"),
    }
    left_out = {f"src/{name.partition('/')[0]}" for name in SECRETS}
    assert set(found.secrets) == left_out and not found.links
    (note,) = found.notes
    assert "src/.aws" in note and "and 6 more" in note and "--sync src/.aws" in note
    for name in SECRETS:  # but whoever names one means it
        assert list(build_manifest(root, [f"src/{name}"]).files) == [f"src/{name}"]
        assert build_manifest(root, [f"src/{name}"]).notes == []
    assert list(build_manifest(root, ["src/.aws"]).files) == ["src/.aws/credentials"]
    both = build_manifest(root, ["src", "src/.env"])
    assert "src/.env" in both.files and "src/.env" not in both.secrets


def test_links_out_of_the_folder_are_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "creds").write_text("s3cr3t")
    (tmp_path / "more").mkdir()
    (root / "src" / ".env").write_text("TOKEN=1")
    for name, target in (
        ("creds", tmp_path / "creds"),
        ("more", tmp_path / "more"),
        ("innocent.txt", root / "src" / ".env"),
        ("data.csv", root / "data.csv"),
        ("gone", root / "absent"),
    ):
        (root / "src" / name).symlink_to(target)
    found = build_manifest(root, ["src"])
    assert found.links == ["src/creds", "src/innocent.txt", "src/more"]
    assert set(found.files) == {"src/.hidden", "src/a.py", "src/sub/b.py", "src/data.csv"}
    assert "src/creds, src/innocent.txt, src/more: symbolic links" in found.notes[1]


def test_only_changed_files_are_sent(root: Path, there: Workspace) -> None:
    assert sorted(sync(root, there, "src")[0]) == ["src/.hidden", "src/a.py", "src/sub/b.py"]
    assert sync(root, there, "src")[0] == []
    (root / "src/a.py").write_text("changed")
    assert sync(root, there, "src")[0] == ["src/a.py"]
    assert (there.root / "src/a.py").read_text() == "changed"


def test_pieces_and_modes(there: Workspace) -> None:
    there.write("deep/run.sh", 0, 0o755, [b"#!/bin", b"/sh\n"])
    there.write("deep/run.sh", 10, 0o755, [b"ls\n"])
    path = there.root / "deep/run.sh"
    assert path.read_bytes() == b"#!/bin/sh\nls\n" and path.stat().st_mode & 0o777 == 0o755
    there.write("deep/run.sh", 0, 0o644, [b""])
    assert path.read_bytes() == b""


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out"])
def test_nothing_is_written_outside(there: Workspace, name: str) -> None:
    with pytest.raises(ValueError, match="outside"):
        there.write(name, 0, 0o644, [b""])


def test_changed_modules_are_forgotten_with_their_package(root: Path, there: Workspace) -> None:
    (root / "pack").mkdir()
    (root / "pack/__init__.py").write_text("from .inner import VALUE\n")
    (root / "pack/inner.py").write_text("VALUE = 1\n")
    (root / "single.py").write_text("VALUE = 1\n")
    sync(root, there, "pack", "single.py")
    assert importlib.import_module("pack").VALUE == importlib.import_module("single").VALUE == 1
    (root / "pack/inner.py").write_text("VALUE = 2\n")  # same size, same second
    assert sorted(sync(root, there, "pack", "single.py")[1]) == ["pack", "pack.inner"]
    assert importlib.import_module("pack").VALUE == 2
    assert sync(root, there, "pack", "single.py") == ([], [])


def test_deletions_are_synced(root: Path, there: Workspace) -> None:
    sync(root, there, "src", "data.csv")
    (there.root / "src/made.txt").write_text("by a cell")
    (there.root / "src/sub/b.py").write_text("changed by a cell")
    for name in ("src/a.py", "src/sub/b.py", "data.csv"):
        (root / name).unlink()
    sync(root, there, "src")
    left = sorted(p.relative_to(there.root).as_posix() for p in there.root.rglob("*.*"))
    assert left == ["data.csv", "src/.hidden", "src/made.txt", "src/sub/b.py"]


def test_paths_come_before_the_engines_own(there: Workspace, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    before = list(sys.path)
    try:
        there.add_paths([str(packages)])
        there.add_paths([str(packages)])
        assert sys.path == [str(packages), *before]
    finally:
        sys.path[:] = before
