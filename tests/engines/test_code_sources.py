"""Source lines of functions that are sent by value."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest

from jupyter_sky.machines.engines.wire.code_sources import (
    carry_sources,
    find_sources,
    register_sources,
    with_sources,
)
from jupyter_sky.machines.engines.wire.values import Parcel

CELL = """secret = "hunter2"
def outer(x):
    def inner(y):
        return x + y
    return inner

class Kind:
    def method(self):
        return 1
other = [n for n in "hunter2"]
"""


@pytest.fixture
def cell() -> Iterator[dict[str, Any]]:
    """Yield the names of a cell whose lines are known."""
    name = "<cell of the test>"
    linecache.cache[name] = (len(CELL), None, CELL.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(CELL, name, "exec"), namespace)
    yield namespace
    linecache.cache.pop(name, None)


def arrived(value: Any) -> Any:
    """Return a value as another process would have it."""
    parcel = Parcel.of(value)
    described = with_sources(parcel.inline(), parcel)
    linecache.cache.pop("<cell of the test>")
    register_sources(described.get("sources", ()))
    return Parcel.from_inline(described).load()


def test_a_function_has_its_lines_and_no_others(cell: dict[str, Any]) -> None:
    outer = arrived(cell["outer"])
    assert isinstance(outer, FunctionType)
    assert inspect.getsource(outer) == "".join(CELL.splitlines(keepends=True)[1:5])
    assert inspect.getsource(outer(1)).strip().startswith("def inner(y):")
    assert "hunter2" not in "".join(linecache.getlines("<cell of the test>"))


def test_functions_inside_a_value(cell: dict[str, Any]) -> None:
    value = arrived({"deep": [cell["Kind"](), cell["outer"](3)]})["deep"]
    assert "return 1" in inspect.getsource(value[0].method)
    assert "return x + y" in inspect.getsource(value[1])


def test_lines_that_come_later_are_added(cell: dict[str, Any]) -> None:
    first, second = (find_sources(Parcel.of(cell[n]).codes) for n in ("Kind", "outer"))
    linecache.cache.pop("<cell of the test>")
    register_sources(first)
    register_sources(second)
    assert inspect.getsource(cell["outer"]).startswith("def outer")
    assert "return 1" in inspect.getsource(cell["Kind"].method)


def test_lines_of_a_file_are_not_replaced() -> None:
    before = list(linecache.getlines(__file__))
    register_sources([{"filename": __file__, "blocks": [[1, "spoof\n"]]}])
    assert linecache.getlines(__file__) == before


def test_values_without_functions_have_no_sources() -> None:
    for value in (1, [1, 2], len, inspect.getsource, exec):
        parcel = Parcel.of(value)
        assert with_sources({}, parcel) == {} and find_sources(parcel.codes) == []


def test_code_without_lines_has_no_sources() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(): pass", namespace)
    assert find_sources(Parcel.of(namespace["f"]).codes) == []


def test_a_parcel_that_carries_sources_registers_them(cell: dict[str, Any]) -> None:
    parcel = carry_sources(Parcel.of((cell["outer"], {"option": 1})))
    linecache.cache.pop("<cell of the test>")
    outer, options = parcel.load()
    assert inspect.getsource(outer).startswith("def outer(x):") and options == {"option": 1}
    assert "hunter2" not in str(linecache.cache["<cell of the test>"])


def test_a_parcel_without_functions_carries_nothing() -> None:
    parcel = Parcel.of([1, len])
    assert carry_sources(parcel) is parcel
