"""``%sky storage``: the verbs over a folder of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyCancelled, SkyUsageError
from jupyter_sky.interfaces.api import confirmation
from jupyter_sky.interfaces.magics.verbs import call_verb


@pytest.fixture
def folder(tmp_path: Path, own_data: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = tmp_path / "set"
    (made / "sub").mkdir(parents=True)
    (made / "a.txt").write_text("one")
    (made / "sub/b.txt").write_text("three")
    return made


def test_ls_and_du(folder: Path) -> None:
    assert "a.txt" in str(call_verb(["storage", "ls", f"{folder}/"]))
    assert str(call_verb(["storage", "du", str(folder)])).startswith("8 B in 2 objects of file:")
    (folder / "c").write_text("more")
    assert call_verb(["storage", "du", str(folder)]).objects == 2
    assert call_verb(["storage", "du", str(folder), "--refresh"]).objects == 3


def test_rm_of_an_object_does_not_ask(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call_verb(["storage", "rm", f"{folder}/a.txt"])
    assert "deleted: 1 object of" in capsys.readouterr().out
    assert not (folder / "a.txt").exists()


def test_rm_of_a_folder_asks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(question: str) -> str | None:
        asked.append(question)
        return [None, "n", "y"][len(asked) - 1]

    monkeypatch.setattr(confirmation, "ask", answer)
    with pytest.raises(
        SkyUsageError, match=r"2 objects \(8 B\) below .*: a.txt, sub/b.txt would be deleted"
    ):
        call_verb(["storage", "rm", f"{folder}/"])
    with pytest.raises(SkyCancelled):
        call_verb(["storage", "rm", f"{folder}/"])
    assert (folder / "a.txt").exists()
    call_verb(["storage", "rm", f"{folder}/"])
    assert not (folder / "a.txt").exists() and not (folder / "sub/b.txt").exists()


def test_rm_yes_does_not_ask(folder: Path) -> None:
    call_verb(["storage", "rm", f"{folder}/sub/", "--yes"])
    assert (folder / "a.txt").exists() and not (folder / "sub/b.txt").exists()


def test_storage_alone_shows_what_was_measured(folder: Path) -> None:
    assert "none: %sky storage du" in str(call_verb(["storage"]))
    call_verb(["storage", "du", f"{folder}/"])
    assert [row[1:3] for row in call_verb(["storage"])] == [(2, "8 B")]


def test_cp_leaves_its_result_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call_verb(["storage", "cp", f"{folder}/", f"{folder.parent}/copied/"])
    printed = capsys.readouterr().out
    assert "0 MB/s" not in printed and printed.count("\n") == 1
    *_, line_before, line = f"\r\r{printed}".split("\r")
    assert line.startswith("copied: 8 B in 2 objects") and not line_before.strip(), printed


def test_unknown_command_suggests_the_nearest() -> None:
    with pytest.raises(SkyUsageError, match="no such command"):
        call_verb(["storage", "lss"])
