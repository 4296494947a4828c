"""Cells of SQL: what engines run, tables, errors."""

from __future__ import annotations

import pandas as pd
import pytest

from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.machines.services.sql import SHOWN_ROWS, cell_code, describe_error, shown_table


def test_statement_is_code_whatever_it_contains() -> None:
    statement = "SELECT '''a\\n\"', :n -- ünï\n"
    code = cell_code(statement, ["t"], ["n"])
    compile(code, "cell", "exec")
    assert repr(statement) in code


def test_sql_needs_no_other_option() -> None:
    options = parse_cell_line("--sql -o daily")
    assert (options.engine, options.sql) == ("spark", True)
    assert parse_cell_line("--engine spark").sql is False


@pytest.mark.parametrize(("rows", "note"), [(SHOWN_ROWS, ""), (SHOWN_ROWS + 1, "-o NAME has all")])
def test_long_table_is_cut(rows: int, note: str) -> None:
    shown = shown_table(pd.DataFrame({"n": range(rows)}), is_whole=False)
    lines = shown["text/plain"].splitlines()
    assert lines[SHOWN_ROWS] == str(SHOWN_ROWS - 1)
    assert lines[SHOWN_ROWS + 1 :] == ([f"the first 1000 rows; {note}"] if note else [])
    assert shown["text/html"].count("<tr") == SHOWN_ROWS + 1


def test_table_of_an_output_says_how_many_rows_it_has() -> None:
    shown = shown_table(pd.DataFrame({"n": range(2500)}), is_whole=True)
    assert shown["text/plain"].endswith("1000 of 2500 rows")


def test_empty_table_shows_its_columns() -> None:
    assert shown_table(pd.DataFrame({"a": [], "b": []}), True)["text/plain"] == "a b"


def test_text_of_a_cell_is_shown_as_text() -> None:
    html = shown_table(pd.DataFrame({"a": ["<script>x</script>"]}), True)["text/html"]
    assert "<script>" not in html


def test_error_without_a_place() -> None:
    message = "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide`. SQLSTATE: 22012\n== SQL ==\n1/0"
    text = describe_error("DIVIDE_BY_ZERO", message, "SELECT 1/0")
    assert text == "DIVIDE_BY_ZERO: Division by zero. Use `try_divide`."
