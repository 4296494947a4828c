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


def test_mixed_cell_is_not_asked_for_what_later_cells_make_themselves() -> None:
    from fidelity_variants import Source, make_variant

    texts = ["1", "with Pool() as p, open('a') as f: n = 1", "with Pool() as p: p.run(f)", "n += 1"]
    variant = make_variant([Source(text, ()) for text in texts], "mixed", sync=False)
    assert variant.notebook.cells[3].source.startswith("%%sky -c fidelity --auto -o f,n\n")


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

    rules = [Rule("locks stay", ("status",), error="cannot be sent")]
    rows = [
        row(1, "lock = Lock()", "lock cannot be sent"),
        row(2, "other = lock.name", "name 'lock' is not defined"),
        row(3, "other", "name 'other' is not defined"),
        row(4, "print(typo)", "name 'typo' is not defined"),
        row(5, "lock", "something else"),
        row(6, "other.x", "other is a handle: its value, a lock, is on cluster c"),
        row(7, "new.x", "new is a handle: its value, a lock, is on cluster c"),
    ]
    shown = frozenset({"stream:stdout"})
    rows += [
        Row("one.ipynb", 8, "print(lock)", shown),
        Row("one.ipynb", 9, "print(lock)", shown, is_remote=False),
        Row("one.ipynb", 10, "print(new)", shown),
        Row("one.ipynb", 11, "print(lock)", frozenset({"execution_count"})),
    ]
    causes = [explain(each, rules) for each in name_causes(rows, rules)]
    expected = [True, True, True, False, False, True, False, True, False, False, False]
    assert [cause is not None for cause in causes] == expected
    assert "cell 2 has failed" in str(causes[2])


def test_missing_file_has_its_cause_where_the_other_side_has_written_it() -> None:
    from fidelity_comparison import Row, explain, name_causes
    from fidelity_outputs import Output

    def row(index: int, source: str, file: str, is_remote: bool = True) -> Row:
        text = f"No such file or directory: '{file}'"
        error = Output("error", {"ename": "FileNotFoundError", "evalue": text, "traceback": ""})
        found = frozenset({"outputs", "status"} if file else ())
        outputs = (error,) if file else ()
        return Row("one.ipynb", index, source, found, is_remote=is_remote, outputs=outputs)

    rows = [
        row(1, "write('a.txt')", "", is_remote=False),
        row(2, "write('b.txt')", ""),
        row(3, "read('a.txt')", "a.txt"),
        row(4, "read('b.txt')", "b.txt"),
        row(5, "read('c.txt')", "c.txt"),
    ]
    found = [explain(each, []) is not None for each in name_causes(rows, [])]
    assert found == [False, False, True, False, False]


@pytest.mark.parametrize(("pattern", "is_named"), [("*.txt", True), ("*.py", False)])
def test_missing_pattern_of_files_has_its_cause(pattern: str, is_named: bool) -> None:
    from fidelity_comparison import Row, explain, name_causes
    from fidelity_outputs import Output

    text = f"[\"ls: cannot access '{pattern}': No such file or directory\"]"
    shown = Output("execute_result", {"metadata": "{}", "text/plain": text})
    rows = [
        Row("one.ipynb", 1, "%%writefile a.txt\nb", frozenset(), is_remote=False),
        Row("one.ipynb", 2, "!ls", frozenset({"data:text/plain"}), outputs=(shown,)),
    ]
    assert (explain(name_causes(rows, [])[1], []) is not None) == is_named


def defects() -> list[tuple[str, str, object, object]]:
    """Return cells with a true defect that looks like a difference by design.

    Each has its source, its differences, and what is shown of it plainly and under `%%sky`.
    """
    from fidelity_outputs import Output

    def error(name: str, text: str, *before: object, end: str = "") -> tuple[object, ...]:
        trace = f"---\nCell In[1], line 2\n{name}: {text}{end}"
        return (*before, Output("error", {"ename": name, "evalue": text, "traceback": trace}))

    def value(text: str) -> tuple[object, ...]:
        return (Output("execute_result", {"metadata": "{}", "text/plain": text}, 1),)

    advice = "\nx is a local variable: add -i x\n    SKY LINE -i x"
    answer = "\nnobody can answer input() on a cluster: ask here, and send the answer with -i"
    lock = "x cannot be sent: x is a lock (cannot pickle '_thread.lock' object)"
    return [
        ("f()", "error:traceback", error("E", "a"), error("E", "a\nframe of ours", end=advice)),
        ("input()", "error:traceback", error("E", "a"), error("E", "a\nlost frame", end=answer)),
        ("df", "outputs status", value("1"), error("SkyTransferError", "df cannot be sent: hash")),
        (
            "x",
            "outputs status",
            (stream("a"), *value("1")),
            error("SkyTransferError", lock, stream("b")),
        ),
        ("open('a')", "outputs status", (), error("FileNotFoundError", "No such file: 'a'")),
        ("os.getcwd(), total", "data:text/plain", value("('/a', 3)"), value("('/b', 4)")),
        ("len(globals()), total", "data:text/plain", value("(True, 3)"), value("(False, 4)")),
        ("print(_exit_code)", "outputs status", (stream("0"),), error("KeyError", "_exit_code")),
        ("raise ExceptionGroup('a', [])", "outputs", (stream("b"),), ()),
        ("get_ipython().kernel", "data:text/plain", value("IPythonKernel 1"), value("SkyKernel 2")),
        ("%config", "stream:stdout", (stream("A\n    Sky\n    IPKernelApp\n"),), (stream("\n"),)),
        ("_exit_code, total", "data:text/plain", value("(0, 3)"), value("(0, 4)")),
        ("sys.last_value.args", "data:text/plain", value("('a',)"), value("('b',)")),
        ("sorted(k for k in globals())", "data:text/plain", value("['a', 1]"), value("['b', 2]")),
        ("Widget.widgets", "data:text/plain", value("{'a': 1}"), value("{}")),
        ("x.close()", "outputs status", (), error("ValueError", "x is closed")),
        ("print(1)", "outputs", (stream("1"),), (stream("UserWarning: To exit: it"),)),
    ]


def test_true_defect_is_not_excused_as_a_difference_by_design() -> None:
    from fidelity import RULES
    from fidelity_comparison import Row, explain, read_rules

    rules, excused = read_rules(RULES), []
    for source, differences, plain, other in defects():
        found = frozenset(differences.split())
        row = Row("one.ipynb", 2, source, found, outputs=other, plain_outputs=plain)
        if rule := explain(row, rules):
            excused.append((source, rule.reason))
    assert excused == []


def test_collector_and_clock_are_no_differences() -> None:
    from fidelity_outputs import _NEVER_AWAITED, _REPLACED

    warning = "a.py:5: RuntimeWarning: coroutine 'f' was never awaited\n  f()\n"
    assert _NEVER_AWAITED.sub("", f"x\n{warning}y") == "x\ny"
    text = "Ran 2 tests in 0.001s"
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    assert text == "Ran 2 tests in TIME"


def test_text_that_no_kernel_can_encode_fails_by_a_chance_callback() -> None:
    from fidelity_outputs import _UNSENT_TEXT

    cause = "UnicodeEncodeError: 'utf-8' codec can't encode\n"
    frame = '  File "a/ipykernel/iostream.py", line 739, in _flush\n    send()\n'
    heads = (
        "ERROR:tornado.general:Uncaught exception in ZMQStream callback\n",
        "Exception in callback BaseAsyncIOLoop._handle_events(31, 1)\nhandle: <Handle>\n",
        "Uncaught exception in zmqstream callback\n",
        "Exception in callback functools.partial(<bound method OutStream._flush>)\n",
    )
    for head in heads:
        text = f"a\n{head}{cause}\nDuring handling\n{frame}{cause}"
        assert _UNSENT_TEXT.sub(r"\1", f"{text}b\n") == f"a\n{cause}b\n"
    assert _UNSENT_TEXT.sub(r"\1", f"{heads[0]}{cause}") == f"{heads[0]}{cause}"


def test_warning_of_the_collector_is_no_message_of_a_cell() -> None:
    from fidelity_outputs import _message_kinds

    def message(text: str) -> dict:
        content = {"name": "stderr", "text": text}
        return {"header": {"msg_type": "stream"}, "content": content}

    warning = "a.py:5: RuntimeWarning: coroutine 'f' was never awaited\n  f()\n"
    assert _message_kinds([message(warning)], {}) == ()
    assert _message_kinds([message(f"{warning}b")], {}) == (("stream", "stderr"),)


def test_end_of_a_lost_line_is_no_difference_of_its_own() -> None:
    from fidelity_outputs import _message_kinds

    def message(name: str, text: str) -> dict:
        content = {"name": name, "text": text}
        return {"header": {"msg_type": "stream"}, "content": content}

    cause = "UnicodeEncodeError: 'utf-8' codec can't encode\n"
    frame = '  File "a/ipykernel/iostream.py", line 739, in _flush\n    send()\n'
    lost = message("stderr", f"Uncaught exception in ZMQStream callback\n{frame}{cause}")
    end = message("stdout", "\n")
    assert _message_kinds([end, lost], {}) == _message_kinds([lost], {}) == (("stream", "stderr"),)
    assert _message_kinds([end], {}) == (("stream", "stdout"),)


def test_times_of_a_cell_are_compared_without_their_numbers() -> None:
    from fidelity_outputs import _REPLACED

    def replaced(text: str) -> str:
        for pattern, replacement in _REPLACED:
            text = pattern.sub(replacement, text)
        return text

    one = "CPU times: user 2 μs, sys: 0 ns, total: 2 μs\nWall time: 3.58 μs\n"
    other = "CPU times: user 1.5 ms, sys: 3 μs, total: 1 s\nWall time: 1min 3s\n"
    assert replaced(one) == replaced(other) == "CPU times: TIMES\nWall time: TIME\n"
    assert replaced("It took 3 s") == "It took 3 s"


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
    from fidelity import BY_DESIGN, DATA, RULES, compare_notebook
    from fidelity_comparison import explain, name_causes, read_rules
    from fidelity_variants import Mode

    rules = read_rules(RULES)
    modes: tuple[Mode, ...] = ("remote", "mixed")
    runs = [compare_notebook(DATA / BY_DESIGN, BY_DESIGN, mode) for mode in modes]
    rows = [row for run in runs for row in name_causes(run, rules)]
    unexplained = [row for row in rows if row.differences and not explain(row, rules)]
    assert [(row.source, sorted(row.differences), row.outputs) for row in unexplained] == []
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
