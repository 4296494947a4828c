"""Functions of the notebook on engines, and of engines in the notebook: with their source."""

from __future__ import annotations

import pytest

from tests.conftest import Notebook

pytestmark = pytest.mark.slow

DEFINE = "token = 'hunter2'\ndef ratio(a, b):\n    # the denominator may be zero\n    return a / b"


def prompt(ran: object) -> int:
    messages = ran.messages  # type: ignore[attr-defined]
    counts = [m["content"].get("execution_count") for m in messages]
    return next(count for count in counts if count)


@pytest.mark.parametrize("body", ["ratio(1, 0)", "ratio(1, len(padding) - 200_000)"])
def test_a_function_of_the_notebook_in_a_traceback(notebook: Notebook, body: str) -> None:
    notebook.run("padding = b'0' * 200_000")
    number = prompt(notebook.run(DEFINE))
    ran = notebook.run(f"%%sky --auto\n{body}")
    assert ran.ename == "ZeroDivisionError"
    assert f"Cell In[{number}], line 4, in ratio(a, b)" in ran.traceback
    assert "# the denominator may be zero" in ran.traceback
    assert "hunter2" not in ran.traceback


def test_its_source_can_be_read(notebook: Notebook) -> None:
    notebook.run(DEFINE)
    ran = notebook.run("%%sky --auto\nimport inspect\nprint(inspect.getsource(ratio))")
    assert ran.stdout.strip() == DEFINE.partition("\n")[2]
    ran = notebook.run("%%sky\nimport linecache\nstr(linecache.cache).count('hunter' + '2')")
    assert ran.result == "0"


def test_a_function_of_an_engine_in_the_notebook(notebook: Notebook) -> None:
    number = prompt(notebook.run(f"%%sky -o ratio\n{DEFINE}"))
    ran = notebook.run("import inspect\nprint(inspect.getsource(ratio))")
    assert ran.stdout.strip() == DEFINE.partition("\n")[2]
    ran = notebook.run("ratio(1, 0)")
    assert f"Cell In[{number}], line 5, in ratio(a, b)" in ran.traceback
    assert "# the denominator may be zero" in ran.traceback
