"""Cells that change an input and do not give it back: refused where nobody reads a warning."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_sky import cli
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.interfaces.api.pipeline_files import is_strict, plan_file

from .notebook_files import write_notebook

CELLS = (
    "train = [3, 1, 2]",
    "%%sky --name clean -i train -o n\ntrain.sort()\nn = len(train)",
    "%%sky --name fit -i train,n -o model\nmodel = train[0] / n",
)
FOUND = "clean changes train in place, and fit reads it unchanged"


@pytest.fixture(autouse=True)
def _no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """No notebook: other tests of this process may have left a shell."""
    monkeypatch.setattr("IPython.get_ipython", lambda: None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(eval(write_notebook(tmp_path, *CELLS)))


def test_outside_a_notebook_it_is_refused(path: Path) -> None:
    with pytest.raises(SkyUsageError, match=FOUND) as caught:
        plan_file(path, {})
    assert caught.value.hint == "add -o train to clean (cell 2); or run it so, with --no-strict"
    with pytest.warns(UserWarning, match=f"{FOUND}; add -o train"):
        assert len(plan_file(path, {}, strict=False).tasks) == 2


def test_in_a_notebook_it_is_warned_of_unless_it_is_to_be_strict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert is_strict(None)
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace())
    assert not is_strict(None) and is_strict(True)


def test_command_line_names_the_way_out(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("plan", "run"):
        assert cli.main(["pipeline", command, str(path)]) == 2
        assert FOUND in capsys.readouterr().err
    assert cli.main(["pipeline", "plan", str(path), "--no-strict"]) == 0
    said = capsys.readouterr().out
    assert said.count(FOUND) == 1 and "fit" in said
    assert cli.main(["pipeline", "plan", str(path), "--strict", "--no-strict"]) == 2
    assert "contradict" in capsys.readouterr().err
