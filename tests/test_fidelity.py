"""Benchmark of fidelity: what it compares, and that each difference by design is one."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import nbformat
import pytest
from PIL import Image

BENCHMARKS = Path(__file__).parent / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import the benchmark's modules as its program does."""
    monkeypatch.syspath_prepend(BENCHMARKS)


def cell_view(*outputs: object, **facts: object) -> object:
    """Return what a front end has received of a cell."""
    from fidelity_outputs import CellView

    known = {"messages": (), "status": "ok", "execution_count": 3, "payloads": ()}
    return CellView(outputs=outputs, has_status_line=True, **{**known, **facts})


def stream(text: str, name: str = "stdout") -> object:
    """Return text of a stream."""
    from fidelity_outputs import Output

    return Output(f"stream:{name}", {"text": text})


def png(shade: int) -> str:
    """Return a grey image."""
    file = io.BytesIO()
    Image.new("L", (20, 20), shade).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.parametrize(
    ("facts", "difference"),
    [
        ({"status": "error"}, "status"),
        ({"execution_count": 4}, "execution_count"),
        ({"payloads": (("page", "help"),)}, "payloads"),
        ({"messages": (("comm_msg",),)}, "messages"),
    ],
)
def test_other_reply_is_a_difference(facts: dict, difference: str) -> None:
    from fidelity_comparison import compare

    assert compare(cell_view(), cell_view(**facts)) == {difference}


def test_streams_in_another_order_have_a_name_of_their_own() -> None:
    from fidelity_comparison import compare

    mixed = cell_view(stream("a"), stream("b", "stderr"), stream("c"))
    assert compare(cell_view(stream("ac"), stream("b", "stderr")), mixed) == {"stream order"}
    assert compare(cell_view(stream("ab"), stream("b", "stderr")), mixed) == {"outputs"}


def test_numbers_count_unless_they_differ_by_chance() -> None:
    from fidelity_comparison import compare

    plain, other = cell_view(stream("took 12 ms")), cell_view(stream("took 1.5 s"))
    assert compare(plain, other) == {"stream:stdout"}
    assert compare(plain, other, again=plain) == {"stream:stdout"}
    assert compare(plain, other, again=cell_view(stream("took 14 ms"))) == frozenset()
    lost = cell_view(stream("took"))
    assert compare(plain, lost, again=cell_view(stream("took 14 ms"))) == {"stream:stdout"}


def test_images_are_compared_by_their_pixels() -> None:
    from fidelity_comparison import same_image

    assert same_image(png(100), png(101))
    assert not same_image(png(100), png(150))
    assert not same_image(png(100), "no image")


def test_missing_output_is_silent_and_an_error_is_not() -> None:
    from fidelity_comparison import is_silent
    from fidelity_outputs import Output

    shown = cell_view(stream("a"))
    error = Output("error", {"ename": "ValueError", "evalue": "", "traceback": ""})
    assert is_silent(shown, cell_view(), frozenset({"outputs"}))
    assert is_silent(cell_view(error), cell_view(), frozenset({"outputs"}))
    assert not is_silent(shown, cell_view(error), frozenset({"outputs"}))
    assert not is_silent(shown, cell_view(status="error"), frozenset({"status"}))
    assert not is_silent(cell_view(error), cell_view(error), frozenset({"error:traceback"}))


def test_mixed_variant_sends_every_second_cell_with_its_outputs() -> None:
    from fidelity_variants import Source, make_variant

    texts = ["x = [1]", "y = 2; x[0] = 3; z = 4", "import os", "import sys", "x, y"]
    variant = make_variant([Source(text, ()) for text in texts], "mixed", sync=False)
    assert len(variant.remote) == 1
    (remote,) = variant.remote
    assert variant.notebook.cells[remote].source.startswith("%%sky -c fidelity --auto -o x,y\n")


def test_notebooks_of_packages_are_not_run(tmp_path: Path) -> None:
    from fidelity import find_notebooks

    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    for name in ("one.ipynb", "package/two.ipynb"):
        (tmp_path / name).touch()
    assert find_notebooks(tmp_path) == [tmp_path / "one.ipynb"]


def test_every_notebook_of_others_names_its_source() -> None:
    import json

    folder = BENCHMARKS / "fidelity_data" / "notebooks"
    sources = {entry["file"]: entry for entry in json.loads((folder / "sources.json").read_text())}
    notebooks = {str(path.relative_to(folder)) for path in folder.rglob("*.ipynb")}
    assert notebooks <= set(sources)
    for name, entry in sources.items():
        assert entry["license"] == "BSD-3-Clause" and len(entry["commit"]) == 40
        assert (folder / "licenses" / f"{Path(name).parts[0]}.txt").exists()


def test_name_that_a_cell_could_not_make_has_its_cause() -> None:
    from fidelity_comparison import Row, Rule, explain, name_causes
    from fidelity_outputs import Output

    def row(index: int, source: str, evalue: str) -> Row:
        error = Output("error", {"ename": "E", "evalue": evalue, "traceback": ""})
        return Row("one.ipynb", index, source, frozenset({"status"}), outputs=(error,))

    rules = [Rule("locks stay", output="SkyTransferError")]
    rows = [
        row(1, "lock = Lock()", "SkyTransferError"),
        row(2, "other = lock.name", "name 'lock' is not defined"),
        row(3, "other", "name 'other' is not defined"),
        row(4, "print(typo)", "name 'typo' is not defined"),
        row(5, "lock", "something else"),
    ]
    causes = [explain(each, rules) for each in name_causes(rows, rules)]
    assert [cause is not None for cause in causes] == [True, True, True, False, False]
    assert "cell 2 has failed" in str(causes[2])


def test_setup_cells_run_on_both_sides_where_cells_are_mixed() -> None:
    from fidelity_variants import Source, make_variant

    sources = [Source(text, ()) for text in ("x = 1", "%config A.b = 1", "x")]
    mixed = make_variant(sources, "mixed", sync=False)
    plain = make_variant(sources, "plain", sync=False, other="mixed")
    assert mixed.compared == plain.compared == (2, 3, 5)
    assert mixed.notebook.cells[4].source.startswith("%%sky -c fidelity --auto\n%config")
    assert plain.notebook.cells[4].source == "pass"
    assert make_variant(sources, "plain", sync=False).compared == (2, 3, 4)


@pytest.mark.slow
def test_every_difference_by_design_is_one() -> None:
    from fidelity import DATA, QUICK, RULES, compare_notebook
    from fidelity_comparison import explain, read_rules
    from fidelity_variants import Mode

    rules = read_rules(RULES)
    modes: tuple[Mode, ...] = ("remote", "mixed")
    rows = [row for mode in modes for row in compare_notebook(DATA / QUICK, QUICK, mode)]
    assert [row for row in rows if row.differences and not explain(row, rules)] == []
    needless = [
        rule.reason
        for rule in rules
        if not any(row.differences and rule.explains(row) for row in rows)
    ]
    assert needless == []


@pytest.mark.slow
def test_cell_that_differs_is_found(tmp_path: Path) -> None:
    from fidelity import compare_notebook

    texts = ["import os", "os.getpid()", "1 + 1"]
    cells = [nbformat.v4.new_code_cell(text) for text in [*texts, "get_ipython().kernel"]]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "one.ipynb")
    rows = compare_notebook(tmp_path / "one.ipynb", "one.ipynb", "remote")
    differing = [row.index for row in rows if row.differences]
    assert differing == [rows[-1].index]  # the number of a process differs by chance
    assert rows[-1].is_silent
