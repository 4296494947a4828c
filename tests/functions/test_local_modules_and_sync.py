"""Local modules of calls and files that cells sync: each sees what was sent last."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jupyter_sky.execution.serialization.local_modules import (
    LocalModules,
    as_sent,
    dumps_with_modules,
)
from jupyter_sky.machines.engines.node import file_cache
from jupyter_sky.machines.engines.node import sent_modules as sent_modules_file
from jupyter_sky.machines.engines.node.sent_modules import (
    SentModules,
    load_for_cell,
    load_with_modules,
)
from jupyter_sky.machines.engines.wire.values import Parcel


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Module beside the notebook, and a machine with an empty cache."""
    monkeypatch.setattr(file_cache, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "synced_helper", raising=False)
    file = tmp_path / "synced_helper.py"
    file.write_text("VALUE = 'here'\n")
    __import__("synced_helper")
    return file


def sent(value: object) -> list[tuple[str, str, bytes]]:
    archives = LocalModules().needed_by(Parcel.of(value).segments[0])
    return [(name, tree, bytes(data)) for name, tree, data in as_sent(archives)]


def imported() -> str:
    __import__("synced_helper")
    return sys.modules["synced_helper"].VALUE


def test_activated_module_is_imported_first(helper: Path) -> None:
    modules = SentModules()
    first = sent("synced_helper")
    helper.write_text("VALUE = 'edited'\n")
    second = sent("synced_helper")
    modules.activate(first)
    assert imported() == "here"
    modules.activate(second)
    assert imported() == "edited"
    before = sys.modules["synced_helper"]
    modules.activate(second)
    imported()
    assert sys.modules["synced_helper"] is before, "what has not changed keeps its state"
    modules.activate(first)
    assert imported() == "here"


def test_synced_file_is_imported_in_place_of_a_sent_one(helper: Path) -> None:
    modules = SentModules()
    modules.activate(sent("synced_helper"))
    helper.write_text("VALUE = 'synced'\n")
    modules.withdraw(["data/synced_helper.py", "other.py"])
    assert imported() == "here"
    modules.withdraw(["synced_helper.py"])
    assert imported() == "synced"


def test_value_with_modules_is_unpickled(helper: Path) -> None:
    archives = LocalModules().needed_by(Parcel.of("synced_helper").segments[0])
    data = dumps_with_modules(bytes(Parcel.of([1, 2]).segments[0]), archives)
    assert load_with_modules([], data) == [1, 2]


@pytest.mark.parametrize(("there", "expected"), [("VALUE = 'here'\n", "same"), ("", "sent")])
def test_input_uses_the_same_module_of_the_working_folder(
    helper: Path, monkeypatch: pytest.MonkeyPatch, there: str, expected: str
) -> None:
    modules, working = SentModules(), helper.parent / "work"
    monkeypatch.setattr(sent_modules_file, "sent_modules", modules)
    files = sent("synced_helper")
    working.mkdir()
    monkeypatch.chdir(working)
    (working / helper.name).write_text(there)
    monkeypatch.syspath_prepend(str(working))
    del sys.modules["synced_helper"]
    assert load_for_cell(files, Parcel.of(3).segments[0]) == 3
    imported()
    is_synced = Path(str(sys.modules["synced_helper"].__file__)).parent == working
    assert is_synced == (expected == "same")
