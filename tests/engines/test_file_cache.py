"""Files kept by their content: pieces of messages, what arrives, folders made of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyBootstrapError
from jupyter_sky.machines.engines.node import file_cache
from jupyter_sky.machines.engines.node.file_cache import FileReceiver, FileTree
from jupyter_sky.machines.engines.node.files import Workspace
from jupyter_sky.machines.engines.node.namespace import SentPackages


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing is kept yet."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home" / ".cache" / "jupyter_sky"


@pytest.fixture
def tree(tmp_path: Path) -> FileTree:
    files = {"a.bin": bytes(range(256)) * 10, "b.txt": b"b", "empty": b"", "same": b"b"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return FileTree.of({name: tmp_path / name for name in files})


def send(tree: FileTree, receiver: FileReceiver, limit: int) -> None:
    for parts in tree.parts(file_cache.missing_digests(tree.entries), limit):
        assert sum(len(piece) for _, _, piece in parts) <= limit
        for name, start, piece in parts:
            receiver.add_piece(name, start, piece)


@pytest.mark.parametrize("limit", [1, 7, 256, 2561, 10**6])
def test_contents_arrive_in_pieces(home: Path, tree: FileTree, limit: int) -> None:
    receiver = FileReceiver()
    send(tree, receiver, limit)
    receiver.finish(tree.by_digest())
    assert file_cache.missing_digests(tree.entries) == []
    assert len([*(home / "files").iterdir()]) == 3, "equal contents are kept once"
    made = Path(file_cache.build_folder(tree.entries))
    for name, file in tree.files.items():
        assert (made / name).read_bytes() == file.read_bytes()


def test_abandoned_contents_are_dropped(home: Path, tree: FileTree) -> None:
    receiver = FileReceiver()
    wanted = [*tree.by_digest()]
    receiver.add_piece(wanted[0], 0, b"the first piece of it")
    receiver.finish(wanted[1:])
    assert [*(home / "files").iterdir()] == []
    receiver.add_piece(wanted[0], 0, b"something else")
    with pytest.raises(SkyBootstrapError, match="changed while it was sent"):
        receiver.finish(wanted)
    assert [*(home / "files").iterdir()] == []


@pytest.fixture
def import_path() -> Iterator[None]:
    """Forget the modules that a test imports."""
    before, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_a_changed_package_is_imported_anew(tmp_path: Path, import_path: None) -> None:
    packages, file = SentPackages(Workspace()), tmp_path / "acme_changed.py"
    for value in (1, 2):
        file.write_text(f"VALUE = {value}\n")
        tree = FileTree.of({"acme_changed.py": file})
        send(tree, packages.receiver, 10**6)
        packages.activate({"acme-changed": tree.entries})
        import acme_changed  # pyright: ignore[reportMissingImports]

        assert value == acme_changed.VALUE and packages.digests == {"acme-changed": tree.digest}
    assert len([path for path in sys.path if "/trees/" in path]) == 1
