"""Outputs that are large, many, slow, endless or late."""

from __future__ import annotations

import time

import pytest

from tests.conftest import Notebook, Ran

pytestmark = pytest.mark.slow

ENDLESS = "class Endless:\n    def {method}(self):\n        while True: pass\n"


def interrupted(notebook: Notebook, code: str) -> Ran:
    """Return a cell that is interrupted while it is busy."""
    sent = notebook.send(f"%%sky\nprint('begun', flush=True)\n{code}")
    notebook.wait_output("begun")
    time.sleep(0.3)
    notebook.interrupt()
    return notebook.collect(sent)


def test_representation_of_a_result_is_made_once(notebook: Notebook) -> None:
    made = (
        "import threading\nclass Slow:\n    made = 0\n"
        "    def __init__(self): self.lock = threading.Lock()\n"
        "    def __repr__(self): Slow.made += 1; return f'made {Slow.made} times'\nSlow()"
    )
    assert notebook.run(f"%%sky\n{made}").result == "made 1 times"
    assert notebook.run("_").result == "made 1 times"
    assert notebook.run("%%sky\nSlow.made").result == "1"


@pytest.mark.parametrize(
    ("method", "use"),
    [
        ("__repr__", "Endless()"),
        ("_repr_html_", "Endless()"),
        ("__repr__", "from IPython.display import display\ndisplay(Endless())"),
        ("__str__", "print(Endless())"),
    ],
)
def test_endless_representation_can_be_interrupted(
    notebook: Notebook, method: str, use: str
) -> None:
    ran = interrupted(notebook, ENDLESS.format(method=method) + use)
    assert ran.ename == "KeyboardInterrupt"
    assert method in ran.traceback
    assert notebook.run("%%sky\n1 + 1").result == "2"


def test_values_with_an_endless_representation_are_left_alone(notebook: Notebook) -> None:
    code = ENDLESS.format(method="__repr__") + "quiet = Endless()\nEndless();\n'ended'"
    ran = notebook.run(f"%%sky\n{code}")
    assert ran.result == "'ended'"


def test_last_of_many_messages_of_a_widget_arrives(notebook: Notebook) -> None:
    code = (
        "from ipywidgets import IntText\nfrom IPython.display import display\n"
        "box = IntText()\ndisplay(box)\nfor number in range(6000): box.value = number + 1"
    )
    ran = notebook.run(f"%%sky\n{code}")
    values = [
        message["content"]["data"]["state"]["value"]
        for message in ran.messages
        if message["header"]["msg_type"] == "comm_msg"
    ]
    assert values[-1] == 6000 and values == sorted(values)
    assert notebook.run("%%sky\nbox.value").result == "6000"


def test_display_of_many_megabytes_is_whole(notebook: Notebook) -> None:
    size = 30_000_000
    code = f"from IPython.display import HTML, display\ndisplay(HTML('<i>' + 'x' * {size}))"
    ran = notebook.run(f"%%sky\n{code}")
    pages = [content["data"].get("text/html", "") for content in ran.of("display_data")]
    assert max(map(len, pages)) == size + len("<i>")


def test_empty_lines_are_counted_right(notebook: Notebook) -> None:
    ran = notebook.run("%%sky\nfor _ in range(200_000): print()")
    assert ran.stdout == "\n" * 200_000
    assert len(ran.messages) < 400


def test_output_of_a_process_that_outlives_its_cell_is_shown_in_it(notebook: Notebook) -> None:
    code = "import subprocess\nsubprocess.Popen('sleep 1; echo late', shell=True)\nprint('over')"
    sent = notebook.send(f"%%sky\n{code}")
    ran = notebook.collect(sent)
    assert ran.stdout == "over\n"
    late = notebook.client.get_iopub_msg(timeout=60)
    while late["header"]["msg_type"] != "stream":
        late = notebook.client.get_iopub_msg(timeout=60)
    assert late["content"]["text"] == "late\n"
    assert late["parent_header"]["msg_id"] == sent


def test_error_at_the_end_of_a_long_cell_has_its_line(notebook: Notebook) -> None:
    lines = "\n".join(f"v{number} = {number}" for number in range(10_000))
    ran = notebook.run(f"%%sky\n{lines}\n1/0")
    assert ran.ename == "ZeroDivisionError"
    assert "line 10002" in ran.traceback and "v9999 = 9999" in ran.traceback
