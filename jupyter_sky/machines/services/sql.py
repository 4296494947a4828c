"""Cells whose body is SQL: their statement, its table, its errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.services.spark_session import spark

SHOWN_ROWS = 1000


class SkySqlError(SkyError):
    """A statement that Spark refuses or cannot carry out; says the condition and the line."""


def cell_code(statement: str, outputs: Iterable[str], inputs: Iterable[str]) -> str:
    """Return the Python code that a cell of SQL is for its engine.

    Parameters
    ----------
    outputs
        Names that take the whole table, as a pandas DataFrame.
    inputs
        Names of values that the statement may use as ``:NAME``.

    Examples
    --------
    >>> print(cell_code("SELECT :n", (), ["n"]).partition("]).")[2])
    run_cell('SELECT :n', [], {"n": n})
    """
    values = ", ".join(f'"{name}": {name}' for name in inputs)
    call = f"run_cell({statement!r}, {list(outputs)!r}, {{{values}}})"
    return f'__import__("{__name__}", fromlist=["run_cell"]).{call}'


def run_cell(statement: str, outputs: list[str], values: Mapping[str, Any]) -> None:
    """Run a statement, show its table, and bind it to the names of ``-o``.

    Raises
    ------
    SkySqlError
        Spark refuses the statement, or fails at it.
    """
    from IPython import get_ipython  # type: ignore[attr-defined]
    from IPython.display import display

    session = spark()
    from pyspark.errors import PySparkException

    used = {name: value for name, value in values.items() if _uses(statement, name)}
    try:
        frame = session.sql(statement, used or None)
        if not frame.columns:  # a statement that makes something
            return
        table = frame.toPandas() if outputs else frame.limit(SHOWN_ROWS + 1).toPandas()
    except PySparkException as error:
        condition = error.getCondition() or type(error).__name__
        text = describe_error(condition, str(error), statement)
        raise SkySqlError(text) from None
    get_ipython().user_ns.update(dict.fromkeys(outputs, table))
    display(shown_table(table, is_whole=bool(outputs)), raw=True)


def _uses(statement: str, name: str) -> bool:
    return re.search(rf":{re.escape(name)}\b", statement) is not None


def shown_table(table: Any, is_whole: bool) -> dict[str, str]:
    """Return a table as HTML and as text: its first rows, and how many there are.

    Parameters
    ----------
    table
        DataFrame of pandas.
    is_whole
        Whether it has all rows of the result; else one more than are shown means that there are
        others.
    """
    rows = len(table)
    shown = table.head(SHOWN_ROWS)
    note = ""
    if rows > SHOWN_ROWS and is_whole:
        note = _("{shown} of {rows} rows").format(shown=SHOWN_ROWS, rows=rows)
    elif rows > SHOWN_ROWS:
        note = _("the first {shown} rows; -o NAME has all").format(shown=SHOWN_ROWS)
    html = shown.to_html(index=False, max_rows=None, border=0, notebook=True)
    text = shown.to_string(index=False, max_rows=None) if rows else " ".join(table.columns)
    return {
        "text/html": f"{html}<p>{note}</p>" if note else html,
        "text/plain": f"{text}\n{note}" if note else text,
    }


def describe_error(condition: str, message: str, statement: str) -> str:
    r"""Return the condition of an error of Spark, its first sentence and the line that it is about.

    Parameters
    ----------
    condition
        Such as ``PARSE_SYNTAX_ERROR``.
    message
        Message with the condition in brackets, advice, plans and places.

    Examples
    --------
    >>> message = "[UNRESOLVED_COLUMN] A column `a` cannot be resolved.\nSQLSTATE; line 2 pos 7;"
    >>> print(describe_error("UNRESOLVED_COLUMN", message, "SELECT\n       a"))
    UNRESOLVED_COLUMN: A column `a` cannot be resolved.
    line 2:        a
                   ^
    """
    first = message.strip().removeprefix(f"[{condition}]").strip().splitlines() or [""]
    sentence = re.sub(r"\s*SQLSTATE: \w+.*$", "", first[0])
    text = f"{condition}: {sentence}"
    place = re.search(r"line (\d+),? pos (\d+)", message)
    lines = statement.splitlines()
    if place is None or not 0 < int(place[1]) <= len(lines):
        return text
    line, column = int(place[1]), int(place[2])
    label = _("line {line}: ").format(line=line)
    return f"{text}\n{label}{lines[line - 1]}\n{' ' * (len(label) + column)}^"
