"""Errors that engines show: each at its place, exactly once, in IPython's own words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ANSI, Notebook, Ran, wait_until

pytestmark = pytest.mark.slow

SHOWN = ("stream", "error", "display_data", "execute_result")


@pytest.fixture(scope="module", autouse=True)
def warm(notebook: Notebook) -> Iterator[None]:
    """Start the cluster of the tests here."""
    assert notebook.run("%%sky\npass", timeout=120).status == "ok"
    yield


def kinds(ran: Ran) -> list[str]:
    """Kinds of the outputs of a cell, without the status line and what only replaces others."""
    found: list[str] = []
    for message in ran.messages:
        kind, content = message["header"]["msg_type"], message["content"]
        own = "jupyter_sky" in str(content.get("metadata", ""))
        repeats = kind == "stream" and found[-1:] == [content["name"]]
        if kind in SHOWN and not own and not repeats:
            found.append(content["name"] if kind == "stream" else kind)
    return found


def shown(ran: Ran) -> list[tuple[str, str]]:
    """Names and texts of the errors below a cell; the names of its files are made up."""
    found = [(content["ename"], content["evalue"]) for content in ran.of("error")]
    return [(name, re.sub(r"\d+\.py", "cell", text)) for name, text in found]


def tracebacks(ran: Ran) -> list[str]:
    """Tracebacks below a cell, as plain text."""
    texts = [ANSI.sub("", "\n".join(content["traceback"])) for content in ran.of("error")]
    texts = [text.replace("# %%sky", "%%sky") for text in texts]
    return [re.sub(r"\d+\.py|In\[\d+\]", "cell", text) for text in texts]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("get_ipython().run_cell('1/0')\nprint('on')", ["error", "stdout"]),
        ("%%capture out\nprint('before'); 1/0", ["error"]),
        ("open('bad.py', 'w').write('x = 1\\n1/0\\n')\n%run bad.py", ["error"]),
        ("try: 1/0\nexcept Exception: get_ipython().showtraceback()\n7", ["error", "result"]),
        ("%tb", ["error"]),
        ("import sys; sys.excepthook(ValueError, ValueError('hooked'), None)", ["error"]),
    ],
)
def test_shown_errors_that_do_not_end_the_cell(
    notebook: Notebook, body: str, expected: list[str]
) -> None:
    ran = notebook.run(f"%%sky\n{body}")
    assert ran.status == "ok", ran.traceback
    found = ["result" if kind == "execute_result" else kind for kind in kinds(ran)]
    assert found == expected
    name = "ValueError" if "hooked" in body else "ZeroDivisionError"
    assert [ename for ename, _ in shown(ran)] == [name]


def test_failing_hooks_are_shown(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sky\ndef failing(*_): raise KeyError('hook')\n"
        "get_ipython().events.register('post_execute', failing)"
    )
    assert set(shown(ran)) == {("KeyError", "'hook'")} and ran.status == "ok"
    ran = notebook.run("%%sky\nget_ipython().events.unregister('post_execute', failing)")
    assert ran.status == "ok" and not shown(ran)


def test_errors_of_callbacks_and_output_widgets(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sky\nimport ipywidgets as w\nfrom IPython.display import display\n"
        "out = w.Output(); display(out)\nwith out: 1/0\nprint('after')"
    )
    assert ran.status == "ok", ran.traceback
    order = [
        kind
        for message in ran.messages
        for kind in [message["header"]["msg_type"]]
        if kind in ("error", "stream") or "msg_id" in str(message["content"].get("data", ""))
    ]
    captured = order[order.index("error") - 1 :]
    assert captured[:3] == ["comm_msg", "error", "comm_msg"]


@pytest.mark.parametrize(
    "body",
    [
        "1/0",
        "def inner():\n    raise ValueError('deep')\nprint('first')\ninner()",
        "%nosuchmagic",
        "raise SystemExit('stop here')",
        "from IPython.core.error import UsageError; raise UsageError('usage')",
        "x = = 1",
        "exec('a = = 1')",
        "class Bad:\n    def __repr__(self): raise ValueError('bad repr')\nBad()",
        "class Half:\n    def _repr_html_(self): raise ValueError('bad html')\n"
        "    def __repr__(self): return 'Half()'\nHalf()",
        "class Counted(Exception):\n    n = 0\n    def __str__(self):\n"
        "        Counted.n += 1\n        return f'asked {Counted.n} times'\nraise Counted",
        "class Mute(Exception):\n"
        "    def __str__(self): raise RuntimeError('no text')\nraise Mute()",
        "{}['k']",
        "try:\n    1/0\nexcept Exception as error:\n    raise KeyError('outer') from error",
        "raise KeyboardInterrupt",
        "assert 1 == 2, 'unequal'",
        "raise Exception('two\\nlines')",
    ],
)
def test_errors_are_those_of_a_plain_cell(notebook: Notebook, body: str) -> None:
    """The same outputs in the same order, and the same error, as without the first line."""
    plain, ran = notebook.run(f"# %%sky\n{body}"), notebook.run(f"%%sky\n{body}")
    assert ran.status == plain.status == "error"
    assert kinds(ran) == kinds(plain)
    assert shown(ran) == shown(plain)
    assert ran.ename == (plain.ename if plain.ename != "NoneType" else "ValueError")
    assert tracebacks(ran) == tracebacks(plain)
    assert (ran.stdout, ran.stderr) == (plain.stdout, plain.stderr)


def test_figures_of_a_failing_cell_come_below_the_error(notebook: Notebook) -> None:
    code = (
        "get_ipython().events.register('post_execute', late := lambda: print('late'))\n"
        "raise ValueError('first')"
    )
    ran = notebook.run(f"%%sky\n{code}")
    assert kinds(ran) == ["error", "stdout"]
    notebook.run("%%sky\nget_ipython().events.unregister('post_execute', late)")


def test_a_pending_clear_is_carried_out_by_the_error(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sky\nfrom IPython.display import clear_output\nprint('x', flush=True)\n"
        "clear_output(wait=True); raise ValueError('after clear')"
    )
    types = [message["header"]["msg_type"] for message in ran.messages]
    assert types.index("stream") < types.index("clear_output") < types.index("error")


def test_an_error_that_the_notebook_handles_is_not_shown(notebook: Notebook) -> None:
    body = "import sys\nprint('ran')\n{}['k']"
    ran = notebook.run(
        f"try:\n    get_ipython().run_cell_magic('sky', '', {body!r})\n"
        "except KeyError as error:\n    print('caught', error, error.args)"
    )
    assert ran.status == "ok" and not shown(ran)
    assert "caught 'k' ('k',)" in ran.stdout
    ran = notebook.run(f"import jupyter_sky as sky\nsky.run({body!r})")
    assert (ran.status, shown(ran)) == ("error", [("KeyError", "'k'")])


def test_errors_of_background_cells_are_shown_once_below_them(notebook: Notebook) -> None:
    ran = notebook.run("%%sky --bg --name failing\nprint('there')\n{}['k']")
    assert ran.status == "ok"
    seen: list[dict[str, Any]] = []

    def ended() -> bool:
        answer = notebook.run("failing.done()")
        seen.extend(notebook.other_messages)
        return answer.result == "True"

    wait_until(ended)
    seen += [m for m in ran.messages if m["header"]["msg_type"] == "error"]
    errors = [m["content"]["ename"] for m in seen if m["header"]["msg_type"] == "error"]
    assert errors == ["KeyError"]
    again = notebook.run("failing.result()")
    assert shown(again) == [("KeyError", "'k'")]


def test_a_cell_that_is_stopped_shows_one_error(notebook: Notebook) -> None:
    ran = notebook.run("%%sky --timeout 1s\nimport time; time.sleep(30)")
    assert [name for name, _ in shown(ran)] == ["SkyTimeout"]
    msg_id = notebook.send("%%sky\nprint('begun')\nimport time; time.sleep(30)")
    notebook.wait_output("begun")
    notebook.interrupt()
    ran = notebook.collect(msg_id)
    assert [name for name, _ in shown(ran)] == ["KeyboardInterrupt"] == [ran.ename]
    assert "time.sleep(30)" in ran.traceback


def test_the_last_traceback_can_be_shown_again(notebook: Notebook) -> None:
    assert notebook.run("%%sky\n{}['again']").status == "error"
    ran = notebook.run("%tb")
    assert shown(ran) == [("KeyError", "'again'")]


def test_advice_stands_below_the_error_that_is_shown(notebook: Notebook, folder: Path) -> None:
    ran = notebook.run("%%sky\nimport surely_not_installed")
    (error,) = ran.of("error")
    assert "add --pip surely_not_installed" in "\n".join(error["traceback"])
    assert "add --pip surely_not_installed" in ran.traceback


def test_tracebacks_of_threads_have_no_frames_of_ours(notebook: Notebook) -> None:
    code = (
        "import threading, concurrent.futures as cf\n"
        "thread = threading.Thread(target=lambda: 1/0); thread.start(); thread.join()\n"
        "with cf.ThreadPoolExecutor() as pool: pool.submit(lambda: {}['pooled']).result()"
    )
    ran = notebook.run(f"%%sky\n{code}")
    assert "ZeroDivisionError" in ran.stderr and "Exception in thread" in ran.stderr
    assert "jupyter_sky" not in ran.stderr
    assert ran.ename == "KeyError" and "jupyter_sky" not in ran.traceback


def test_one_error_of_several_engines(fresh: Any) -> None:
    book = fresh()
    ran = book.run("%%sky --nodes 2\nprint('on both')\n1/0", timeout=120)
    assert shown(ran) == [("ZeroDivisionError", "division by zero")]
    ran = book.run("%%sky\ntry: 1/0\nexcept Exception: get_ipython().showtraceback()\nprint(1)")
    assert len(shown(ran)) == 2 and ran.status == "ok"


def test_a_usage_error_is_shown_once_where_it_is_raised(notebook: Notebook) -> None:
    ran = notebook.run("import jupyter_sky as sky\nsky.run('%nosuchmagic')")
    assert [name for name, _ in shown(ran)] == ["UsageError"] and not ran.stderr
    ran = notebook.run(
        "from IPython.core.error import UsageError\n"
        "try: sky.run('%nosuchmagic')\nexcept UsageError: print('caught')"
    )
    assert (ran.status, ran.stdout, ran.stderr) == ("ok", "caught\n", "")
