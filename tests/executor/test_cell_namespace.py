"""Names and history that a cell finds on an engine: those of its notebook."""

from __future__ import annotations

import os
from typing import Any

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
    docs = "import __main__; __doc__, __main__.__doc__"
    assert notebook.run(f"%%sky\n{docs}").result == notebook.run(docs).result
    debugger = "import pdb; pdb.Pdb.__name__, pdb.set_trace.__module__"
    assert notebook.run(f"%%sky\n{debugger}").result == notebook.run(debugger).result


def test_packages_that_inputs_import_see_a_notebook(notebook: Notebook) -> None:
    probe = (
        "class Probe:\n    def __reduce__(self):\n"
        "        return eval, (\"hasattr(__import__('builtins'), 'get_ipython')\",)\n"
        "probe = Probe()"
    )
    assert notebook.run(probe).status == "ok"
    assert notebook.run("%%sky -i probe\nprobe").result == "True"


def test_text_printed_before_a_nested_cell_comes_first(notebook: Notebook) -> None:
    ran = notebook.run("print('first')\nget_ipython().run_cell_magic('sky', '', '1 + 1')")
    kinds = [m["header"]["msg_type"] for m in ran.messages]
    assert kinds.index("stream") < kinds.index("execute_result")


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


def test_cells_have_the_numbers_of_the_notebook(fresh: Any) -> None:
    notebook = fresh()

    def ok(code: str) -> str:
        ran = notebook.run(code)
        assert ran.status == "ok", ran.traceback
        return ran.result or ran.stdout

    assert ok("%%sky\n'two'") == "'two'"
    ok("three = 3\nlocal = 'here'")
    ok("%%sky -c other\n'four'")
    ok("5")
    assert ok("%%sky\nlen(In)") == "7"
    shown = ok("%%sky\nprint(In[1:8], _i, _ii, _i3, sep='\\n')").splitlines()
    assert shown == [
        "["
        "\"get_ipython().run_line_magic('load_ext', 'jupyter_sky')\", "
        "\"# %%sky\\n'two'\", "
        "\"three = 3\\nlocal = 'here'\", "
        "\"# %%sky -c other\\n'four'\", "
        "'5', "
        "'# %%sky\\nlen(In)', "
        "\"# %%sky\\nprint(In[1:8], _i, _ii, _i3, sep='\\\\n')\"]",
        "# %%sky",
        "len(In)",
        "5",
        "three = 3",
        "local = 'here'",
    ]
    assert ok("%%sky\n%history -n 3-5").splitlines() == [
        "   3:",
        "three = 3",
        "local = 'here'",
        "   4:",
        "# %%sky -c other",
        "'four'",
        "   5: 5",
    ]
    assert "local = 'here'" in ok("%%sky\n%rerun 3") and ok("%%sky\nthree, local") == "(3, 'here')"
    ok("%%sky\n%macro both 3 5")
    assert ok("%%sky\nboth.value") == "\"three = 3\\nlocal = 'here'\\n5\\n\""
    notebook.restart()
    assert ok("%%sky\nlen(In), In[1][:12]") == "(3, 'get_ipython(')"


def test_cells_of_the_notebook_stay_here_unless_they_are_read(fresh: Any) -> None:
    notebook = fresh()
    notebook.run("password = 'hunter2'")
    ran = notebook.run("%%sky\nmanager = getattr(get_ipython(), 'history_' + 'manager')")
    assert ran.status == "ok"
    assert notebook.run("%%sky\nlen(manager.input_hist_raw)").result == "5"
    assert "hunter2" not in notebook.run("%%sky\nstr(manager.input_hist_raw)").result
    ran = notebook.run("%%sky --untrusted -c other\nIn")
    assert ran.status == "ok" and "hunter2" not in ran.result + ran.stdout
    assert "hunter2" in notebook.run("%%sky\nIn[2]").result
