"""Results that are kept across runs: what runs again after an edit, and what never does."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.requests.dag.dag import Dag, Task
from jupyter_sky.workflows.pipelines.model.identity import TaskKey
from jupyter_sky.workflows.pipelines.model.kept_results import (
    KEEP_SECONDS,
    SMALL_BYTES,
    YOUNG_SECONDS,
    KeptResults,
    TaskResult,
)
from jupyter_sky.workflows.pipelines.model.task_body import function_identity, make_graph

from .kept_runs import KeptRuns, notebook_graph

CELLS = (
    "lr = 0.1\nepochs = 3",
    "import json\nSIZES = [1, 2]\ndef loss(x):\n    return x * SIZES[0]\n"
    "def unused(x):\n    return x",
    "%%sky --name load -o data,other\ndata, other = [1, 2, 3], 5",
    "%%sky --name train -i data -o model\nmodel = [loss(each) * lr for each in data]",
    "%%sky --name test -i model,other -o score\nscore = sum(model) > 0",
    "%%sky --name report -i score\nprint(score, epochs)",
)
ALL = ["load", "train", "test", "report"]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptRuns:
    monkeypatch.chdir(tmp_path)
    return KeptRuns(tmp_path)


def _edited(old: str, new: str) -> list[str]:
    assert sum(old in cell for cell in CELLS) == 1
    return [cell.replace(old, new) for cell in CELLS]


def test_nothing_runs_twice_and_outputs_are_there_again(runs: KeptRuns) -> None:
    assert runs.cells(*CELLS) == ALL
    assert set(runs.why.values()) == {"no result is kept"} and runs.unkept == {}
    assert runs.cells(*CELLS) == []
    assert runs.results.outputs("report") == [{"output_type": "stream", "text": "report"}]
    assert runs.results.load("train", "model") == [0.1, 0.2, 0.30000000000000004]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return x * SIZES[0]", "# the loss\n    return (x * SIZES[0])"),
        ("def unused(x):\n    return x", "def unused(x):\n    return 2"),
        ("import json\n", "import json, csv\n"),
        ("lr for each in data]", "lr\n    for each in data]  # all"),
        ("score = sum(model) > 0", "'a remark'\nscore = sum(model) > 0"),
        ("epochs = 3", "epochs = 3\nnever_read = 1"),
        ("--name train", "--name train --cpus 2+ --timeout 1h"),
    ],
)
def test_edits_after_which_nothing_runs(runs: KeptRuns, old: str, new: str) -> None:
    runs.cells(*CELLS)
    before = set(runs.preview(*CELLS).values())
    assert before == {"kept"}
    if new.startswith("'a remark'"):  # a text is code; what follows is spared by equal bytes
        assert runs.cells(*_edited(old, new)) == ["test"]
    else:
        assert runs.cells(*_edited(old, new)) == []


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("lr = 0.1", "lr = 0.2", {"train": "parameter lr"}),
        ("epochs = 3", "epochs = 4", {"report": "parameter epochs"}),
        ("SIZES = [1, 2]", "SIZES = [2, 2]", {"train": "definition SIZES"}),
        ("return x * SIZES[0]", "return x + 1", {"train": "definition loss, definition SIZES"}),
        ("other = [1, 2, 3], 5", "other = [1, 2, 3], 6", {"load": "code", "test": "input other"}),
        ("sum(model) > 0", "sum(model) > 9", {"test": "code", "report": "input score"}),
        ("print(score, epochs)", "print(epochs)", {"report": "code"}),
        ("-i model,other", "-i 'model[:1]->model,other'", {"test": "parameter -i"}),
    ],
)
def test_edits_after_which_only_what_differs_runs(
    runs: KeptRuns, old: str, new: str, why: dict[str, str]
) -> None:
    runs.cells(*CELLS)
    runs.cells(*_edited(old, new))
    if "train" in why:  # model differs
        assert runs.why.pop("test") == "input model"
    assert runs.why == why


def test_a_parameter_given_counts_as_one_written(runs: KeptRuns) -> None:
    runs.cells(*CELLS)
    assert runs.cells(*CELLS, lr=0.1) == []
    assert runs.cells(*CELLS, lr=0.5) == ["train", "test"]
    assert runs.cells(*_edited("lr = 0.1", "lr = 0.5")) == []


def test_the_preview_says_what_would_run(runs: KeptRuns) -> None:
    runs.cells(*CELLS)
    assert runs.preview(*_edited("data, other = [1, 2, 3], 5", "data, other = [1], 5")) == {
        "load": "runs: code",
        "train": "runs: after load",
        "test": "runs: after train",
        "report": "runs: after test",
    }


def test_all_runs_where_it_is_asked_for(runs: KeptRuns) -> None:
    runs.cells(*CELLS)
    assert runs.cells(*CELLS, is_fresh=True) == ALL
    assert set(runs.why.values()) == {"--fresh"}
    assert runs.cells(*CELLS) == []


# -- cells of the kernel ---------------------------------------------------------------------------

LANE = (
    "n = 3",
    "rows = [one for one in range(n)]",
    "rows.append(7)",
    "other = len('abc')",
    "%%sky --name fit -i rows -o model\nmodel = sum(rows)",
    "print(model)",
    "print(other)",
)


def test_cells_of_the_kernel_run_with_those_whose_variables_they_need(runs: KeptRuns) -> None:
    local_cells = ["cell2", "cell3", "cell4", "fit", "cell6", "cell7"]
    assert runs.cells(*LANE) == local_cells
    assert runs.cells(*LANE) == []
    edited = [cell.replace("print(model)", "print(model, 1)") for cell in LANE]
    assert runs.cells(*edited) == ["cell2", "cell3", "cell6"], "and not cell4"
    assert runs.why["cell6"] == "code" and runs.why["cell2"] == "cell6 needs its variables"
    assert runs.cells(*edited) == []


def test_a_change_in_place_counts_for_all_later_cells_of_the_kernel(runs: KeptRuns) -> None:
    runs.cells(*LANE)
    edited = [cell.replace("append(7)", "append(8)") for cell in LANE]
    ran = runs.cells(*edited)
    assert ran == ["cell2", "cell3", "cell4", "fit", "cell6", "cell7"]
    assert runs.why["cell3"] == "code" and runs.why["fit"] == "input rows"
    assert "input cell3: rows" in runs.why["cell7"]


def test_a_seed_counts_for_all_later_cells_of_the_kernel(runs: KeptRuns) -> None:
    cells = "n = 1", "import random; random.seed(1)", "x = random.random()", "print(x)"
    assert runs.cells(*cells) == ["cell2", "cell3", "cell4"] and runs.cells(*cells) == []
    cells = (cells[0], cells[1].replace("1", "2"), *cells[2:])
    assert runs.cells(*cells) == ["cell2", "cell3", "cell4"]
    assert runs.why["cell4"] == "input x, input cell2: seed"


# -- files, modules, packages ----------------------------------------------------------------------

READING = "path = 'a.csv'", "%%sky --name read -o text\nwith open(path) as f: text = f.read()"


def test_the_content_of_a_file_counts(runs: KeptRuns) -> None:
    file = Path("a.csv")
    file.write_text("1")
    assert runs.cells(*READING) == ["read"] and runs.unkept == {}
    os.utime(file, (1.0, 1.0))
    assert runs.cells(*READING) == []
    file.write_text("2")
    assert runs.cells(*READING) == ["read"] and runs.why == {"read": "file a.csv"}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("name = 'a' + '.csv'\ntext = open(name).read()", "open(name) reads what is not known"),
        ("import os\ntext = os.listdir('sub')", "os.listdir('sub') reads what is not known"),
        ("text = open('b.csv', 'r+').read() if False else 1", "open('b.csv', 'r+') reads"),
        ("import requests\ntext = requests.get if 1 else requests.get('x')", "requests.get('x')"),
        ("text = Out if False else 1", "Out is what other cells have given"),
    ],
)
def test_what_cannot_be_known_is_not_kept(runs: KeptRuns, code: str, why: str) -> None:
    Path("a.csv").write_text("1")
    Path("sub").mkdir()
    cells = "x = 1", f"%%sky --name read -o text\n{code}", "%%sky --name use -i text\nprint(text)"
    try:
        runs.cells(*cells)
    except NameError:  # Out is IPython's
        pass
    assert runs.why["read"].startswith(why)
    if len(runs.why) > 1:
        assert runs.cells(*cells) == ["read"], "what follows is spared by equal bytes"
        assert runs.unkept["read"].startswith(why)


def test_a_package_without_a_version_is_not_kept(runs: KeptRuns) -> None:
    cells = "x = 1", "%%sky --name a --pip torch -o y\ny = 1"
    assert runs.cells(*cells) == runs.cells(*cells) == ["a"]
    assert runs.why["a"] == "--pip torch does not say which version: torch==..."
    pinned = cells[0], cells[1].replace("torch", "torch==2.5")
    assert runs.cells(*pinned) == ["a"] and runs.cells(*pinned) == []


def test_a_file_that_changes_while_it_is_read_is_not_kept(runs: KeptRuns) -> None:
    Path("log.txt").write_text("")
    cells = "x = 1", "%%sky --name log\nwith open('log.txt', 'a') as file: file.write('.')"
    assert runs.cells(*cells) == ["log"]
    assert runs.unkept == {"log": "changed while it ran: file log.txt"}
    assert runs.cells(*cells) == ["log"]


def test_modules_and_packages_count_and_their_comments_do_not(
    runs: KeptRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.syspath_prepend(str(tmp_path))
    (site / "keptpackage.py").write_text("VALUE = 1\n")
    _install(site, "1.2")
    module = tmp_path / "keptmodule.py"
    module.write_text("import keptpackage\ndef work(): return 1\n")
    cells = "n = 1", "from keptmodule import work", "%%sky --name a -o y\ny = work()"
    assert runs.cells(*cells) == ["a"] and runs.cells(*cells) == []
    module.write_text("# edited\nimport keptpackage\ndef work():\n    '''Work.'''\n    return 1\n")
    assert runs.cells(*cells) == []
    module.write_text("import keptpackage\ndef work(): return 2\n")
    assert runs.cells(*cells) == ["a"] and runs.why == {"a": "module keptmodule"}
    _install(site, "1.3")
    assert runs.cells(*cells) == ["a"]
    assert runs.why == {"a": "package kept-package 1.2 -> 1.3"}


def _install(site: Path, version: str) -> None:
    for old in site.glob("*.dist-info"):
        (old / "METADATA").unlink()
        (old / "top_level.txt").unlink()
        old.rmdir()
    folder = site / f"kept_package-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Name: kept-package\nVersion: {version}\n")
    (folder / "top_level.txt").write_text("keptpackage\n")


# -- functions -------------------------------------------------------------------------------------


def test_functions_are_identified_by_what_they_read(runs: KeptRuns) -> None:
    space: dict[str, object] = {"__name__": "__main__"}
    source = "FACTOR = 2\ndef helper(x): return x * FACTOR\ndef work(x): return helper(x)\n"
    exec(source, space)

    def run() -> list[str]:
        with Dag("two") as made:
            first, second = Task("first", run=lambda: 3), Task("second", run=space["work"])
            _ = first >> second
        return runs.functions(made)

    assert run() == ["first", "second"] and run() == []
    exec(source.replace("return helper", "\n    # a remark\n    return helper"), space)
    assert run() == []
    space["FACTOR"] = 5
    assert run() == ["second"] and runs.why == {"second": "definition helper"}
    assert runs.results.load("second") == 15


def test_a_function_that_cannot_be_identified_runs_each_time(runs: KeptRuns) -> None:
    lock = threading.Lock()
    assert "cannot pickle" in function_identity(lambda: lock).problem
    assert (
        "reads what is not known" in function_identity(lambda path: Path(path).read_text()).problem
    )


# -- damage, removal -------------------------------------------------------------------------------


LARGE = ("x = 1", f"%%sky --name train -o model\nmodel = bytes({2 * SMALL_BYTES})")


def test_a_damaged_result_runs_again_and_says_so(runs: KeptRuns) -> None:
    runs.cells(*LARGE)
    digest = runs.results.find("train").digest("model")  # type: ignore[union-attr]
    (file,) = runs.folder.glob(f"kept/files/*/{digest}")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"?")
    assert runs.preview(*LARGE)["train"] == "runs: its kept result is damaged"
    assert runs.cells(*LARGE) == ["train"] and runs.why["train"] == "its kept result is damaged"
    assert file.read_bytes() == whole and runs.cells(*LARGE) == []
    file.unlink()
    assert runs.cells(*LARGE) == ["train"] and runs.why["train"] == "its kept result was removed"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE file SET data = x'00' WHERE digest = ?", "damaged"),
        ("DELETE FROM file WHERE digest = ?", "removed"),
    ],
)
def test_a_small_result_that_is_damaged_or_gone_runs_again(
    runs: KeptRuns, change: str, why: str
) -> None:
    runs.cells(*CELLS)
    digest = runs.results.find("train").digest("model")  # type: ignore[union-attr]
    runs.kept.database.write((change, (digest,)))
    assert runs.cells(*CELLS) == ["train"] and why in runs.why["train"]
    assert runs.cells(*CELLS) == []


def test_a_file_that_a_task_made_must_be_as_it_left_it(runs: KeptRuns) -> None:
    cells = "x = 1", "%%sky --name a -o file:made.txt\nopen('made.txt', 'w').write('1')"
    assert runs.cells(*cells) == ["a"] and runs.cells(*cells) == []
    Path("made.txt").write_text("2")
    assert runs.cells(*cells) == ["a"]
    assert runs.why["a"].endswith("made.txt is not as it left it")
    assert runs.cells(*cells) == []


def test_a_file_that_a_cell_of_the_kernel_writes_is_no_input(runs: KeptRuns) -> None:
    cells = "x = 1", "with open('out.txt', 'w') as file: file.write('1')"
    assert runs.cells(*cells) == ["cell2"] and runs.cells(*cells) == []
    Path("out.txt").unlink()
    assert runs.cells(*cells) == ["cell2"]
    assert runs.why["cell2"].endswith("out.txt is not as it left it")
    assert runs.cells(*cells) == []


@pytest.fixture
def kept(tmp_path: Path) -> KeptResults:
    return KeptResults(tmp_path)


def test_what_was_not_used_for_longest_is_removed_first(kept: KeptResults) -> None:
    digests = kept.write_files([bytes([number]) * 100 for number in range(3)])
    results = [TaskResult({"": digest}) for digest in digests]
    keys = [TaskKey(str(number)) for number in range(3)]
    for key, result in zip(keys, results, strict=True):
        kept.keep({"a": (key, result)}, "book")
        kept.note_use(key, result, "book", "a")
    kept.note_use(keys[0], results[0], "book", "a")
    later = time.time() + 2 * YOUNG_SECONDS
    assert kept.sweep(set, time.time(), most=0) == 0, "all are young"
    assert kept.sweep(set, later, most=300) == 0
    assert kept.sweep(lambda: {digests[1]}, later, most=200) == 0, "a run needs it"
    assert kept.sweep(set, later, most=200) == 1
    assert [bool(kept.find_damage(each)) for each in results] == [False, True, False]
    assert kept.sweep(set, time.time() + KEEP_SECONDS + 1) == 2
    assert kept.find(keys[0]) is None


def test_a_query_is_not_kept() -> None:
    graph = notebook_graph(["x = 1", "%%sky --name q --engine spark --sql -o t\nSELECT * FROM a"])
    assert graph.tasks["q"].body["identity"]["problem"] == "the tables of its query may change"


def test_a_module_that_is_installed_for_the_task_need_not_be_here(runs: KeptRuns) -> None:
    cell = "%%sky --name a -o y\ny = 1\nif not y: import nowhere"
    runs.cells("x = 1", cell)
    assert runs.why["a"] == "module nowhere is not here: its version is not known"
    pinned = cell.replace("--name a", "--name a --pip nowhere==2.5")
    assert runs.cells("x = 1", pinned) == ["a"] and runs.cells("x = 1", pinned) == []
    assert runs.cells("x = 1", pinned.replace("2.5", "2.6")) == ["a"]
    assert runs.why["a"] == "parameter --pip"


def test_commands_are_identified_by_their_text_and_files(runs: KeptRuns) -> None:
    def body(command: str) -> dict[str, Any]:
        with Dag() as dag:
            Task("a", run=command)
        return dict(make_graph(dag).tasks["a"].body["identity"])

    Path("words.txt").write_text("a")
    assert body("# count\nwc -l words.txt\n") == body("wc -l words.txt")
    assert list(body("wc -l words.txt")["paths"]) == ["words.txt"]
    assert body("cat <<E\n# a\nE")["code"] != body("cat <<E\n# b\nE")["code"]
    assert body("curl https://example.org")["problem"] == "its command asks the network"
