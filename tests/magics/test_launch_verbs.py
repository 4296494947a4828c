"""Words after ``jupyter sky launch`` and ``exec``: what they run, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.interfaces.api.launches import read_command, read_command_line
from jupyter_sky.workflows.pipelines.files.script_files import script_files


def read(*words: str):
    return read_command(read_command_line(words, "launch"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import helper, json\nfrom parts.model import fit\n")
    (tmp_path / "helper.py").write_text("import deeper\n")
    (tmp_path / "deeper.py").write_text("")
    (tmp_path / "unused.py").write_text("")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "model.py").write_text("def fit(): ...\n")
    return tmp_path


def test_file_among_options() -> None:
    line = read_command_line(["--cpus", "2", "train.py", "-c", "one", "--", "--lr", "3"], "launch")
    assert (line.file, line.words) == ("train.py", ("--lr", "3"))
    assert line.options.cluster == "one" and line.options.resources.labels() == {"cpus": "2"}
    assert read_command_line(["big", "a.sh"], "launch", {"big": "--cpus 8"}).file == "a.sh"


def test_a_script_goes_along_with_the_modules_that_it_imports() -> None:
    command = read("train.py", "--", "--lr", "3")
    assert set(command.options.sync) == {"train.py", "helper.py", "deeper.py", "parts"}
    assert command.title == "train.py --lr 3" and "'python train.py --lr 3'" in command.code
    assert "train.py" in read("--", "python", "-u", "train.py").options.sync
    assert read("--", "echo $HOME; ls").code.count("'echo $HOME; ls'") == 2


def test_invalid_script_is_found_before_a_machine_is_up(folder: Path) -> None:
    (folder / "broken.py").write_text("x = 1\nfor\n")
    with pytest.raises(SkyUsageError, match=r"(?s)broken.py, line 2: .*any machine"):
        read("broken.py")
    assert script_files("run.sh") == ("run.sh",)


def test_task_file(folder: Path) -> None:
    text = "resources: {cpus: 2+, use_spot: true}\nnum_nodes: 2\nenvs: {N: 1}\nrun: echo $N\n"
    (folder / "a.yaml").write_text(text)
    line = read_command_line(["a.yaml", "--cpus", "4", "--on-demand"], "launch")
    command = read_command(line, {"N": 5})
    labels = command.options.resources.labels()
    assert labels["cpus"] == "4" and str(labels["nodes"]) == "2" and "spot" not in labels
    assert "'N': '5'" in command.code


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "nothing to run"),
        (["trian.py"], "no file trian.py.*did you mean train.py"),
        (["nvidia-smi"], "no file nvidia-smi.*-- nvidia-smi"),
        (["a.ipynb"], "is a notebook.*jupyter sky run a.ipynb"),
        (["train.py", "3"], "one file.*train.py -- 3"),
        (["/etc/x.py"], "no file"),
        (["--cpsu", "2", "train.py"], "--cpus"),
        (["--bg", "x", "train.py"], "--bg is for cells.*--detach"),
        (["--sweep", "lr=1", "train.py"], "--sweep is for cells"),
        (["-o", "score", "train.py"], "no variables.*file:"),
        (["bad.yaml"], "line 1: a task has no field 'resources_'.*resources"),
        (["two.yaml"], "2 tasks.*pipeline run two.yaml"),
        (["bad.yaml", "--", "3"], "no arguments.*-p NAME"),
        (["none.yaml"], "no file none.yaml"),
    ],
)
def test_invalid_words(folder: Path, words: list[str], text: str) -> None:
    (folder / "bad.yaml").write_text("resources_: {cpus: 2}\nrun: ls\n")
    (folder / "two.yaml").write_text("name: a\nrun: ls\n---\nname: b\nrun: ls\n")
    (folder / "a.ipynb").write_text("{}")
    with pytest.raises(SkyUsageError) as raised:
        read(*words)
    assert re.search(text, str(raised.value), re.DOTALL), raised.value
