"""Widgets that a notebook and its engines share: one model in the page, equal everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import Notebook, Ran, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def warm(notebook: Notebook) -> Iterator[None]:
    """Start the cluster, with the names of ipywidgets here and there."""
    for line in ("", "%%sky\n"):
        ran = notebook.run(f"{line}import ipywidgets as w", timeout=120)
        assert ran.status == "ok", ran.traceback
    yield


def ok(notebook: Notebook, code: str) -> Ran:
    ran = notebook.run(code)
    assert ran.status == "ok", ran.traceback
    return ran


def updates(ran: Ran) -> list[dict[str, Any]]:
    """Return the states that the page has received, without confirmations."""
    found = [content.get("data", {}) for content in ran.of("comm_msg")]
    return [data["state"] for data in found if data.get("method") == "update"]


def confirmations(ran: Ran) -> int:
    found = [content.get("data", {}).get("method") for content in ran.of("comm_msg")]
    return found.count("echo_update")


def change_in_page(notebook: Notebook, model: str, value: int) -> Ran:
    """Change the value of a widget as a page does; return the messages that follow."""
    data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
    client = notebook.client
    message = client.session.msg("comm_msg", {"comm_id": model, "data": data})
    client.shell_channel.send(message)
    ran, heard = Ran(), [False]

    def is_idle() -> bool:
        try:
            message = client.get_iopub_msg(timeout=0.2)
        except Exception:
            return heard[0]
        ran.messages.append(message)
        heard[0] |= message["content"].get("execution_state") == "idle"
        return False

    wait_until(is_idle)
    return ran


def test_an_engines_widget_is_one_of_the_notebook_too(notebook: Notebook) -> None:
    ok(notebook, "%%sky -o bar\nbar = w.IntSlider(value=3); bar.observe(lambda c: None)\nbar")
    ran = ok(notebook, "bar.value = 5; bar.value")
    assert ran.result == "5" and updates(ran) == [{"value": 5}] and not confirmations(ran)
    assert ok(notebook, "%%sky\nbar.value").result == "5"
    ran = ok(notebook, "%%sky\nbar.value = 7")
    assert updates(ran) == [{"value": 7}]
    assert ok(notebook, "bar.value").result == "7"


def test_a_widget_of_the_notebook_is_one_of_the_engine_too(notebook: Notebook) -> None:
    ok(
        notebook,
        "mine = w.IntSlider(); seen = []; mine.observe(lambda c: seen.append(c.new), 'value')",
    )
    ran = ok(notebook, "%%sky --auto\nmine.value = 8\nmine.layout.width = '50%'")
    assert updates(ran) == [{"value": 8}, {"width": "50%"}]
    assert ok(notebook, "mine.value, mine.layout.width, seen").result == "(8, '50%', [8])"
    ok(notebook, "mine.value = 9")
    ran = ok(notebook, "%%sky --auto\nmine.value")
    assert ran.result == "9" and "changed on the cluster" not in ran.status_line


def test_each_side_calls_its_own_functions(notebook: Notebook) -> None:
    ok(
        notebook,
        "%%sky -o both\nthere = []\nboth = w.IntSlider()\n"
        "both.observe(lambda c: there.append(c.new), 'value'); both",
    )
    ok(notebook, "here = []; both.observe(lambda c: here.append(c.new), 'value')")
    model = ok(notebook, "both.model_id").result.strip("'")
    ran = change_in_page(notebook, model, 4)
    wait_until(lambda: ok(notebook, "%%sky\nthere").result == "[4]")
    assert ok(notebook, "here, both.value").result == "([4], 4)"
    assert not updates(ran) and confirmations(ran) <= 1


def test_a_box_brings_its_children_and_a_new_one_takes_theirs(notebook: Notebook) -> None:
    ok(notebook, "%%sky -o box,first\nfirst = w.Button(description='one'); box = w.VBox([first])")
    assert ok(notebook, "box.children[0] is first").result == "True"
    ran = ok(notebook, "box.children = [*box.children, w.Label('two')]")
    assert [list(state) for state in updates(ran)] == [["children"]]
    assert ok(notebook, "%%sky --auto\nlen(box.children), box.children[0] is first").result == (
        "(2, True)"
    )


def test_a_template_arranges_itself_on_either_side(notebook: Notebook) -> None:
    ok(notebook, "left, right = w.Button(), w.Button()")
    ran = ok(notebook, "%%sky --auto -o app\napp = w.TwoByTwoLayout(top_left=left)\napp")
    assert {"grid_area": "top-left"} in updates(ran)
    ran = ok(notebook, "app.top_right = right")
    assert [key for state in updates(ran) for key in state] == [
        "grid_area",
        "grid_template_areas",
        "children",
    ]


def test_output_of_a_cell_goes_into_an_output_widget_of_the_other(notebook: Notebook) -> None:
    ok(notebook, "%%sky -o far\nfar = w.Output(); far")
    ran = ok(notebook, "with far: print('caught')")
    own = ran.messages[0]["parent_header"]["msg_id"]
    assert [state.get("msg_id") for state in updates(ran)] == [own, ""]
    ok(notebook, "near = w.Output()")
    ran = ok(notebook, "%%sky --auto\nwith near: print('caught')")
    own = ran.messages[0]["parent_header"]["msg_id"]
    assert [state.get("msg_id") for state in updates(ran)] == [own, ""]


def test_a_widget_that_an_engine_closes_is_closed_here(notebook: Notebook) -> None:
    ok(notebook, "%%sky -o gone\ngone = w.IntSlider()")
    assert len(ok(notebook, "%%sky\ngone.close()").of("comm_close")) == 1
    assert ok(notebook, "gone.comm is None").result == "True"


def test_an_array_in_a_widget_arrives_as_bytes(notebook: Notebook) -> None:
    ok(notebook, "image = w.Image(value=b'old', format='png')")
    ok(notebook, "%%sky --auto\nimage.value = b'new'")
    assert ok(notebook, "bytes(image.value)").result == "b'new'"
