"""Remote exceptions, raised here as what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.execution.cells.failures import RemoteFailure, rebuild_exception
from jupyter_sky.machines.engines.node.kernel import describe_error
from jupyter_sky.machines.engines.wire.values import Parcel


def travelled(error: BaseException, namespace: dict[str, Any] | None = None) -> BaseException:
    """Return what the notebook raises for an error of an engine."""
    described = json.loads(json.dumps(describe_error(error)))
    reply = {
        "ename": type(error).__name__,
        "evalue": str(error),
        "traceback": ["the traceback"],
        "sky": {"error": described},
    }
    found = rebuild_exception(reply, 1, namespace or {}, "a hint")
    assert isinstance(found, RemoteFailure) and type(found).__name__ == type(error).__name__
    assert (found.rank, found._render_traceback_()) == (1, ["the traceback", "a hint"])
    return found


def caught(code: str) -> BaseException:
    try:
        exec(code, {"__name__": "__main__"})
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    "code",
    [
        "1 / 0",
        "{}['k']",
        "{}[1, 2]",
        "int('x')",
        "raise ValueError",
        "raise ValueError(1, 'two', None)",
        "open('/no/such')",
        "b'\\xff'.decode()",
        "import json; json.loads('{')",
        "import subprocess; subprocess.run(['false'], check=True)",
        "next(iter([]))",
        "import sys; sys.exit(3)",
        "import sys; sys.exit('why')",
        "nothing_here",
        "import not_a_module_at_all",
        "None.nothing",
        "exec('a = = 1')",
        "raise ExceptionGroup('both', [ValueError(1), OSError(2, 'two')])",
        "raise KeyboardInterrupt",
        "import asyncio; raise asyncio.CancelledError",
        "raise PermissionError(13, 'denied', 'file')",
        "try:\n    1/0\nexcept Exception as e:\n    raise LookupError('outer') from e",
    ],
)
def test_classes_that_exist_here(code: str) -> None:
    error = caught(code)
    found = travelled(error)
    assert isinstance(found, type(error))
    assert str(found) == str(error)
    assert len(found.args) == len(error.args)
    for name in ("errno", "filename", "code", "name", "lineno", "returncode", "doc", "start"):
        assert getattr(found, name, None) == getattr(error, name, None), name


class Shared(Exception):
    """Wants what no one will give it again, and shows what it was given."""

    def __init__(self, *, code: int) -> None:
        super().__init__()
        self.code = code

    def __str__(self) -> str:
        return f"code {self.code}"


def test_a_class_with_an_init_of_its_own() -> None:
    found = travelled(Shared(code=7))
    assert isinstance(found, Shared)
    assert (str(found), found.code) == ("code 7", 7)


def test_a_class_of_the_notebook() -> None:
    there, here = {"__name__": "__main__"}, {"__name__": "__main__"}
    for names in (there, here):
        exec("class Own(ValueError): pass", names)
    found = travelled(there["Own"]("text"), here)
    assert isinstance(found, here["Own"]) and found.args == ("text",)
    assert isinstance(travelled(there["Own"]("text")), ValueError)


def test_a_class_that_only_the_engine_has() -> None:
    described = {"classes": [["nowhere.at_all", "Odd"], ["builtins", "OSError"]]}
    reply = {"ename": "Odd", "evalue": "text", "traceback": [], "sky": {"error": described}}
    found = rebuild_exception(reply, 0, {})
    assert isinstance(found, OSError) and type(found).__name__ == "Odd" and str(found) == "text"
    assert found._render_traceback_() == ["Odd: text"]  # type: ignore[attr-defined]


def test_a_class_that_cannot_be_derived_from() -> None:
    class Final(Exception):
        def __init_subclass__(cls) -> None:
            raise TypeError("no")

    described = {"classes": [["__main__", "Final"]]}
    reply = {"ename": "Final", "evalue": "e", "sky": {"error": described}}
    found = rebuild_exception(reply, 0, {"Final": Final})
    assert type(found).__name__ == "Final" and str(found) == "e"


def test_a_reply_without_a_description() -> None:
    assert str(rebuild_exception({"ename": "Odd", "evalue": "text"}, 0, {})) == "text"


class Touch:
    """A pickle that makes a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_error_is_never_unpickled(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    pickled = Parcel.of({"args": (Touch(canary),)}).inline()
    data = {"classes": [["builtins", "ValueError"]], "args": [pickled], "dict": {"a": pickled}}
    for described in (pickled | data, pickled | {"classes": data["classes"]}):
        reply = {"ename": "ValueError", "evalue": "text", "sky": {"error": described}}
        found = rebuild_exception(reply, 0, {})
        assert isinstance(found, ValueError) and str(found) == "text"
    assert not canary.exists()


def test_error_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "harmful.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('canary').touch()\n"
        "class Boom(ValueError): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    described = {"classes": [["harmful", "Boom"], ["builtins", "ValueError"]]}
    reply = {"ename": "Boom", "evalue": "text", "sky": {"error": described}}
    assert isinstance(rebuild_exception(reply, 0, {}), ValueError)
    assert not (tmp_path / "canary").exists()
    import harmful  # pyright: ignore[reportMissingImports]

    assert isinstance(rebuild_exception(reply, 0, {}), harmful.Boom)


@pytest.mark.parametrize(
    "described",
    [
        {"classes": "nonsense"},
        {"classes": [["builtins"], [1, 2, 3], None, ["os", "system"], ["builtins", "print"]]},
        {"classes": [["builtins", "OSError"]], "args": {"a": 1}, "dict": [], "more": "x"},
        {"classes": [["builtins", "OSError"]], "args": [1, None, {"inline": "%"}]},
        {"classes": [], "dict": {"__class__": {"text": "x"}, "_render_traceback_": {"text": "x"}}},
        {"args": [{"error": {"args": [{"error": {"classes": 7}}]}}]},
        ["not", "a", "mapping"],
    ],
)
def test_malformed_description(described: Any) -> None:
    reply = {"ename": "O\0dd <b>", "evalue": "text", "traceback": [1], "sky": {"error": described}}
    found = rebuild_exception(reply, 0, {})
    assert type(found).__name__ == "RemoteError" and str(found) == "text"
    assert found._render_traceback_() == ["1"]  # type: ignore[attr-defined]


def test_error_arguments_that_are_no_data_become_text() -> None:
    error: Any = ValueError(Path("/a"), [1], object)
    error.plain, error.path = 7, Path("/b")
    found: Any = travelled(error)
    assert found.args == ("/a", [1], "<class 'object'>") and str(found) == str(error)
    assert found.plain == 7 and getattr(found, "path", None) in (None, "/b")


def test_group_keeps_its_exceptions() -> None:
    deep = ExceptionGroup("all", [KeyError("k"), ExceptionGroup("in", [OSError(2, "two")])])
    found = travelled(deep)
    assert isinstance(found, ExceptionGroup) and isinstance(found.exceptions[0], KeyError)
    inner = found.exceptions[1]
    assert isinstance(inner, ExceptionGroup) and isinstance(inner.exceptions[0], FileNotFoundError)
    assert (inner.exceptions[0].errno, str(inner.exceptions[0])) == (2, "[Errno 2] two")
