"""Advice below remote errors: only such as would help."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.execution.cells.failures import mending_line
from jupyter_sky.machines.engines.node.files import build_manifest
from jupyter_sky.machines.engines.wire.error_serialization import describe_error

PANDAS = metadata.version("pandas")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the notebook's folder the working folder, with some files."""
    folder = tmp_path / "notebook"
    (folder / "pack").mkdir(parents=True)
    for name in ("mine.py", "data.csv", "two words.csv", "../outside.csv"):
        (folder / name).touch()
    (folder / "link.csv").symlink_to("../outside.csv")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({"name": "x"}, "x is a local variable: add -i x\n    %%sky --cpus 2 -i x"),
        ({"name": "absent"}, ""),
        ({"module": "torch"}, "torch is not installed on the engine: add --pip torch"),
        ({"module": "mine.sub"}, "--sync mine.py"),
        ({"module": "pack"}, "--sync pack"),
        ({"module": "pandas.absent"}, ""),
        ({"module": "no_such_package.absent"}, ""),
        ({"module": "pandas.io.json"}, f"add --pip\n    %%sky --cpus 2 --pip pandas=={PANDAS}"),
        ({"module": "sklearn"}, "--pip scikit-learn"),
        ({"module": "cv2"}, "add --pip opencv-python"),
        ({"module": "tkinter"}, "tkinter belongs to Python"),
        ({"filename": "data.csv"}, "--sync data.csv"),
        ({"filename": "two words.csv"}, "--sync 'two words.csv'"),
        ({"filename": "absent.csv"}, ""),
        ({"filename": "/data.csv"}, ""),
        ({"filename": "../outside.csv"}, "lies outside the notebook's folder"),
        ({"filename": "link.csv"}, "lies outside the notebook's folder"),
        ({"filename": "../notebook/data.csv"}, "--sync ../notebook/data.csv"),
        ({}, ""),
        ({"classes": [["IPython.core.error", "StdinNotImplementedError"]]}, "input()"),
    ],
)
def test_advice(described: dict[str, Any], words: str) -> None:
    found = mending_line(described, {"x": 1}, "--cpus 2")
    assert found == "" if not words else words in found


@pytest.mark.parametrize("filename", ["data.csv", "two words.csv", "../notebook/data.csv"])
def test_files_are_sent_by_the_line_that_is_advised(filename: str, folder: Path) -> None:
    advised = mending_line({"filename": filename}, {}, "").splitlines()[-1].strip()
    options = parse_cell_line(advised.removeprefix("%%sky "))
    assert build_manifest(folder, options.sync).files


@pytest.mark.parametrize("filename", ["../outside.csv", "link.csv"])
def test_files_that_would_be_refused_are_not_advised(filename: str) -> None:
    assert "--sync" not in mending_line({"filename": filename}, {}, "")


@pytest.mark.parametrize(
    ("described", "line"),
    [
        ({"name": "x"}, "-i x"),
        ({"name": "x"}, "-i y,x"),
        ({"module": "torch"}, "--pip torch"),
        ({"filename": "data.csv"}, "--sync data.csv"),
    ],
)
def test_no_option_is_advised_that_is_there(described: dict[str, Any], line: str) -> None:
    assert mending_line(described, {"x": 1}, line) == ""


def test_a_missing_submodule_is_not_a_missing_package() -> None:
    with pytest.raises(ModuleNotFoundError) as raised:
        exec("import pandas.absent")
    assert mending_line(describe_error(raised.value), {}, "") == ""
