"""Names and history that a cell finds on an engine: those of its notebook."""

from __future__ import annotations

import os

import pytest

from tests.conftest import Notebook

pytestmark = pytest.mark.slow

DUNDERS = """
names = sorted(name for name in globals() if name.strip("_") and name.endswith("__"))
print({name: type(globals()[name]).__name__ for name in names if name != "__session__"})
"""


def test_the_module_of_cells_is_that_of_a_kernel(notebook: Notebook) -> None:
    here = notebook.run(DUNDERS).stdout
    there = notebook.run("%%sky\n" + DUNDERS).stdout
    assert there == here and "__spec__" in here and "__loader__" in here
    assert notebook.run("%%sky\n__doc__").result == notebook.run("__doc__").result


def test_a_secret_is_in_no_message_that_a_cell_can_see(notebook: Notebook) -> None:
    secret = "hunter2-in-no-message"
    notebook.run(f"import os; os.environ['TOKEN_OF_TEST'] = {secret!r}")
    failing = "def hook(*result): raise RuntimeError('hook')"
    register = "get_ipython().events.register"
    unregister = "get_ipython().events.unregister"
    events = ("pre_run_cell", "post_run_cell")
    notebook.run("%%sky\n" + failing + "".join(f"\n{register}({e!r}, hook)" for e in events))
    ran = notebook.run(
        "%%sky --env TOKEN_OF_TEST\nimport os\n"
        "import json\nmessage = get_ipython().kernel.get_parent('shell')\n"
        "print(len(os.environ['TOKEN_OF_TEST']), json.dumps(message, default=str))"
    )
    after = notebook.run("%%sky\n" + "\n".join(f"{unregister}({e!r}, hook)" for e in events))
    assert f"{len(secret)} {{" in ran.stdout
    shown = str([m["content"] for m in [*ran.messages, *after.messages]])
    assert "Error in callback" in shown and secret not in shown
    assert "cell_meta={}" in shown
    assert os.environ.get("TOKEN_OF_TEST") is None
