"""Messages of engines beside outputs: payloads, widgets, captured cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import Notebook, Ran

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def warm(notebook: Notebook) -> Iterator[None]:
    """Start the cluster of the tests here."""
    assert notebook.run("%%sky\nimport ipywidgets as w", timeout=120).status == "ok"
    yield


def payload(notebook: Notebook, code: str) -> tuple[Ran, list[dict[str, Any]]]:
    """Run a cell; return the payload of its reply, too."""
    msg_id = notebook.send(code)
    replies: list[dict[str, Any]] = []
    receive = notebook.client.get_shell_msg

    def remembering(*args: Any, **kwargs: Any) -> dict[str, Any]:
        reply = receive(*args, **kwargs)
        if reply["parent_header"].get("msg_id") == msg_id:
            replies.append(reply["content"])
        return reply

    notebook.client.get_shell_msg = remembering  # type: ignore[method-assign]
    try:
        ran = notebook.collect(msg_id)
    finally:
        notebook.client.get_shell_msg = receive  # type: ignore[method-assign]
    return ran, replies[0]["payload"]


# -- payloads ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "len?",
        "import textwrap\ntextwrap.dedent??",
        "%psource textwrap.dedent",
        "get_ipython().set_next_input('x = 1')",
        "get_ipython().set_next_input('x = 2', replace=True)",
        "len?\n1/0",
        "open('loaded.py', 'w').write('y = 1\\n');\n%load loaded.py",
    ],
)
def test_payloads_are_those_of_a_plain_cell(notebook: Notebook, body: str) -> None:
    _, plain = payload(notebook, f"# %%sky\n{body}")
    ran, found = payload(notebook, f"%%sky\n{body}")
    assert plain and [part["source"] for part in found] == [part["source"] for part in plain]
    if "psource" not in body:
        assert [part.get("text") for part in found] == [part.get("text") for part in plain]
    for part in found:
        assert part.get("text") or part["data"]["text/plain"]
    assert "☁" in ran.status_line


def test_profiles_are_shown(notebook: Notebook) -> None:
    ran, found = payload(notebook, "%%sky\n%prun sum(range(10))")
    assert ran.status == "ok" and "function calls" in found[0]["data"]["text/plain"]


def test_untrusted_payloads_show_a_page_or_set_the_next_input(notebook: Notebook) -> None:
    code = (
        "write = get_ipython().payload_manager.write_payload\n"
        "write({'source': 'page', 'start': 0, 'data': {'text/html': '<b>', 'text/plain': 'p'}})\n"
        "write({'source': 'set_next_input', 'text': 'evil()', 'replace': True})\n"
        "write({'source': 'edit_magic', 'filename': '/etc/passwd', 'line_number': 1})\n"
        "write({'source': 'ask_exit', 'keepkernel': False})\n"
        "write({'source': 'set_next_input', 'text': 5}, single=False)\n"
        "write(['no payload'], single=False) if False else None"
    )
    _, found = payload(notebook, f"%%sky --untrusted\n{code}")
    assert found == [
        {"source": "page", "start": 0, "data": {"text/plain": "p"}},
        {"source": "set_next_input", "text": "evil()", "replace": False},
    ]
    assert notebook.run("'alive'").result == "'alive'"


def test_an_engine_does_not_end_the_kernel(notebook: Notebook) -> None:
    ran, found = payload(
        notebook, "%%sky\nget_ipython().payload_manager.write_payload({'source': 'ask_exit'})"
    )
    assert ran.status == "ok" and not found
    assert notebook.run("'alive'").result == "'alive'"


def test_pages_of_background_cells_are_outputs(notebook: Notebook) -> None:
    ran = notebook.run("%%sky --bg --name paged\nlen?")
    again = notebook.run("paged.result()")
    seen = [*ran.messages, *notebook.other_messages, *again.messages]
    texts = [m["content"]["data"]["text/plain"] for m in seen if "data" in m["content"]]
    assert any("Return the number of items" in text for text in texts), texts


# -- widgets -------------------------------------------------------------------------------------


def test_no_message_of_a_widget_comes_after_the_cell(notebook: Notebook) -> None:
    late, values = [], []
    for _ in range(30):
        ran = notebook.run(
            "%%sky\nbar = w.IntProgress(max=50); display(bar)\nfor k in range(51): bar.value = k"
        )
        sent = [content["data"].get("state", {}) for content in ran.of("comm_msg")]
        values.append([state["value"] for state in sent if "value" in state][-1:])
        late += notebook.other_messages
    assert values == [[50]] * 30
    assert not [m for m in late if m["header"]["msg_type"].startswith("comm_")]


def test_no_message_of_a_thread_that_has_ended_comes_after_the_cell(notebook: Notebook) -> None:
    code = (
        "import threading\nbars = [w.IntProgress(max=200) for _ in range(4)]\n"
        "def fill(bar):\n    for k in range(201): bar.value = k\n"
        "threads = [threading.Thread(target=fill, args=[bar]) for bar in bars]\n"
        "for t in threads: t.start()\nfor t in threads: t.join()"
    )
    for _ in range(5):
        ran = notebook.run(f"%%sky\n{code}")
        last: dict[str, Any] = {}
        for content in ran.of("comm_msg"):
            last[content["comm_id"]] = content["data"]["state"].get("value")
        assert list(last.values()) == [200] * 4


def test_a_widget_is_closed_once(notebook: Notebook) -> None:
    ran = notebook.run("%%sky\ndoomed = w.IntSlider(); display(doomed); doomed.close()")
    assert ran.status == "ok", ran.traceback
    more = notebook.run("import gc; gc.collect()")
    closed = Counter(c["comm_id"] for r in (ran, more) for c in r.of("comm_close"))
    assert list(closed.values()) == [1]


# -- processes -----------------------------------------------------------------------------------


def test_outputs_of_forked_processes_come_before_the_end(notebook: Notebook) -> None:
    code = (
        "import multiprocessing as mp\ncontext = mp.get_context('fork')\n"
        "def say(number): print('forked', number)\n"
        "processes = [context.Process(target=say, args=[n]) for n in range(3)]\n"
        "for p in processes: p.start()\nfor p in processes: p.join()\n"
        "for n in range(5): print('own', n, flush=True)\n"
    )
    for _ in range(8):
        ran = notebook.run(f"%%sky\n{code}")
        assert sorted(ran.stdout.split()[1::2]) == sorted("01201234"), ran.stdout
    pool = "pool = context.Pool(2); pool.map(say, range(8), chunksize=1)"
    for _ in range(8):
        ran = notebook.run(f"%%sky\n{pool}")
        assert sorted(ran.stdout.split()[1::2]) == sorted("01234567"), ran.stdout
    notebook.run("%%sky\npool.terminate()")


def test_text_for_file_descriptors_comes_before_the_end(notebook: Notebook) -> None:
    code = (
        "import os, sys\nos.write(1, b'raw\\n')\nprint('buffered', file=sys.__stdout__, flush=True)"
    )
    for _ in range(20):
        ran = notebook.run(f"%%sky\n{code};")
        assert ran.stdout.splitlines() == ["raw", "buffered"], ran


def test_characters_for_file_descriptors_stay_whole(notebook: Notebook) -> None:
    program = "print('a' + 'é' * 5000)"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {program!r}])"
    assert notebook.run(f"%%sky\n{code};").stdout == "a" + "é" * 5000 + "\n"


# -- captured cells ------------------------------------------------------------------------------


def test_a_captured_cell_holds_what_it_has_printed(notebook: Notebook) -> None:
    code = (
        "import sys\nprint('kept'); print('red', file=sys.stderr)\n"
        "display({'text/plain': 'shown'}, raw=True)\n7"
    )
    ran = notebook.run(f"%%capture got\n%%sky\n{code}")
    assert ran.status == "ok" and not ran.stdout and ran.status_line.startswith("☁ done")
    assert notebook.run("got.stdout, got.stderr").result == "('kept\\n', 'red\\n')"
    assert notebook.run("[o.data['text/plain'] for o in got.outputs]").result == "['shown', '7']"


def test_parts_that_are_not_captured_are_shown(notebook: Notebook) -> None:
    code = "import sys\nprint('out'); print('red', file=sys.stderr)\n7"
    ran = notebook.run(f"%%capture --no-display got\n%%sky\n{code}")
    assert (ran.stdout, ran.stderr, ran.result) == ("", "", "7")
    assert notebook.run("got.stdout, got.stderr, len(got.outputs)").result == (
        "('out\\n', 'red\\n', 0)"
    )
    ran = notebook.run(f"%%capture --no-stderr got\n%%sky\n{code}")
    assert (ran.stdout, ran.stderr, ran.result) == ("", "red\n", "")


def test_errors_of_captured_cells_are_shown(notebook: Notebook) -> None:
    for first in ("%%capture got\n%%sky", "%%sky\n%%capture got"):
        ran = notebook.run(f"{first}\nprint('before')\n1/0")
        assert [content["ename"] for content in ran.of("error")] == ["ZeroDivisionError"]
        assert ran.status == "ok"
