"""Variables of the notebook that a cell reads, and expressions of ``-i``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyTransferError, SkyUsageError
from jupyter_sky.base.requests.cell_options.values import CellInput, CellOptions
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.execution.cells.cell_names import free_names
from jupyter_sky.execution.cells.inputs import collect_inputs
from jupyter_sky.machines.engines.wire.values import Parcel

NAMES = dict.fromkeys(
    [
        "x",
        "y",
        "data",
        "f",
        "i",
        "max",
        "np",
        "_hidden",
        "_",
        "_3",
        "In",
        "Out",
        "open",
        "_i",
        "_i3",
        "_oh",
        "__name__",
    ],
    0,
)


@pytest.mark.parametrize(
    ("code", "read"),
    [
        ("y = x + 1", ["x"]),
        ("x = 1; x + 1", []),
        ("print(x); x = 1", ["x"]),
        ("x += 1", ["x"]),
        ("data[0] += 1", ["data"]),
        ("data['a'] = x", ["data", "x"]),
        ("x: int = y", ["y"]),
        ("(x := 2) + x", []),
        ("del x", []),
        ("x = 1\ndel x\nx", ["x"]),
        # scopes
        ("[x for x in data]", ["data"]),
        ("[x for x in data]\nx", ["data", "x"]),
        ("{i: x for i in range(3)}\ni", ["i", "x"]),
        ("[(y := i) for i in data]\ny", ["data"]),
        ("def g():\n    data = 1\n    return data + x\nprint(data)", ["data", "x"]),
        ("def g(x): return x", []),
        ("def g(a=x): return a", ["x"]),
        ("def g():\n    def h(): return x\n    return h", ["x"]),
        ("lambda x: x + y", ["y"]),
        ("sorted(data, key=lambda i: f(i))", ["data", "f"]),
        ("def g(): return f(1)\ndef f(a): return a\ng()", []),
        ("class A:\n    x = 1\n    y = x\n    def m(self): return data", ["data"]),
        ("class A(f): pass", ["f"]),
        ("@f\ndef g(): pass", ["f"]),
        ("def g():\n    global x\n    x = 1\n    return y", ["y"]),
        # the way through
        ("for i in data: print(i)\nprint(i)", ["data"]),
        ("with f() as x: print(x)", ["f"]),
        ("if y: x = 1\nx", ["x", "y"]),
        ("if y: x = 1\nelse: x = 2\nx", ["y"]),
        ("try:\n    x = 1\nexcept f as y:\n    y\ny", ["f", "y"]),
        ("match data:\n    case [x, *y]: x + y", ["data"]),
        ("import x, y.z as data\nfrom np import f\nx, data, f", []),
        ("await f(x)", ["f", "x"]),
        # what shadows a builtin; what is the shell's own
        ("max + 1", ["max"]),
        ("min(1, 2)", []),
        ("In, open, get_ipython, _i, _i3, _oh, __name__, _exit_code", []),
        ("_hidden, _, _3", ["_", "_3", "_hidden"]),
        ("Out[3], Out[x], _oh[4], Out", ["_3", "x"]),
        # not only Python
        ("%time x + 1\n!ls\ny = !ls\ny, data", ["data", "x"]),
        ("x?\ndata", ["data", "x"]),
        ("%%time\ny = x + 1\ny", ["x"]),
        ("%%time\n%timeit -n1 -r 1 f(x)", ["f", "x"]),
        ("y = %time f(x)\ny", ["f", "x"]),
        ("%%timeit -n 2 y = x\ndata = y\n'a  b'", ["x"]),
        ("%timeit y = x\ny", ["x", "y"]),
        ("%time y = x\ny", ["x"]),
        ("%%capture y\nprint(x)", ["x"]),
        ("%%capture y --no-stderr\nx\n", ["x"]),
        ("%prun -l 5 -s cumulative f(x)", ["f", "x"]),
        ("%lprun -f f f(x)", ["f", "x"]),
        ("!echo {x + 1} $data $HOME {}", ["data", "x"]),
        ("y = !echo {x}\ny", ["x"]),
        ("%run -i $f {x}", ["f", "x"]),
        ("%%bash -s {x} --out y\necho $data\n", ["x"]),
        ("data.mean??", ["data"]),
        ("%time x = = 1", []),
        ("%%bash\necho x", []),
        ("x = = 1", []),
        ("", []),
    ],
)
def test_names_read(code: str, read: list[str]) -> None:
    assert free_names(code, NAMES) == read


def test_inputs_are_evaluated_and_pickled_at_once() -> None:
    options = CellOptions(
        inputs=(CellInput("x", "x"), CellInput("x * 2", "z"), CellInput("big", "big"))
    )
    sending = collect_inputs(options, "", {"x": [1], "big": b"0" * 200_000}, Sky())
    assert sorted(sending.inline) == ["x", "z"]
    assert sending.large["big"].load() == b"0" * 200_000


@pytest.mark.parametrize(
    ("expression", "error", "words"),
    [
        ("absent", SkyUsageError, "did you mean absinth?"),
        ("absinth.no", SkyUsageError, "AttributeError"),
        ("absinth[", SkyUsageError, "SyntaxError"),
        ("iter([1])", SkyTransferError, None),
        ("(n for n in 'ab')", SkyTransferError, "generator"),
    ],
)
def test_inputs_that_cannot_be_had(expression: str, error: type, words: str | None) -> None:
    options = CellOptions(inputs=(CellInput(expression, "z"),))
    if words is None:
        assert collect_inputs(options, "", {}, Sky()).inline["z"]
        return
    with pytest.raises(error, match=words.replace("?", r"\?")):
        collect_inputs(options, "", {"absinth": 1}, Sky())


def test_a_secret_is_taken_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "hush")
    sending = collect_inputs(CellOptions(env=("SOME_TOKEN",)), "", {}, Sky())
    assert sending.env == {"SOME_TOKEN": "hush"}
    monkeypatch.delenv("SOME_TOKEN")
    with pytest.raises(SkyUsageError, match="SOME_TOKEN: it is not set"):
        collect_inputs(CellOptions(env=("SOME_TOKEN",)), "", {}, Sky())


def test_auto_says_what_it_sends() -> None:
    sending = collect_inputs(CellOptions(auto=True), "x + y", {"x": 1, "y": 2, "z": 3}, Sky())
    assert sorted(sending.inline) == ["x", "y"]
    assert sending.notes == ("found by --auto: x, y",)


def test_what_functions_of_the_notebook_read_is_sent_by_auto() -> None:
    namespace: dict[str, object] = {"__name__": "__main__", "_step": 2, "unread": 1, "named": 3}
    exec(
        "import numpy.linalg as la\n"
        "def outer(): return inner() + named\n"
        "def inner(): return [outer, _step, la]",
        namespace,
    )
    options = CellOptions(inputs=(CellInput("named", "named"),), auto=True)
    sending = collect_inputs(options, "outer()", namespace, Sky())
    assert sending.notes == ("found by --auto: outer, inner, _step, la",)
    assert set(sending.inline) == {"named", "outer", "inner", "_step", "la"}
    assert sending.modules == ("numpy.linalg",) and "named" not in sending.auto
    own = collect_inputs(CellOptions(inputs=(CellInput("inner", "inner"),)), "", namespace, Sky())
    assert set(own.inline) == {"inner"}  # with a copy of what it reads
    assert own.inline["inner"]["sizes"][0] > sending.inline["inner"]["sizes"][0]


def test_files_of_a_local_module_are_sent_with_what_refers_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sent_along.py").write_text("class Point:\n    x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sent_along", raising=False)
    names = {"p": importlib.import_module("sent_along").Point(), "n": 1}
    sending = collect_inputs(CellOptions(auto=True), "p, n", names, Sky())
    assert b"class Point" in Parcel.from_inline(sending.inline["p"]).to_bytes()
    assert sending.auto["p"].modules and not sending.auto["n"].modules
    assert sending.auto["p"].digest == Parcel.of(names["p"]).digest()
    assert any(note.endswith("modules sent_along") for note in sending.notes)
