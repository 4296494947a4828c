"""The card of a live cell: in its bundle while it runs, and in no notebook afterwards."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter

from jupyter_sky.execution.display import RunStatus
from jupyter_sky.interfaces.widgets.status_line import CARD_MIME, mimebundle, output_metadata
from tests.conftest import Notebook

STATUS = RunStatus("running", 41, "train", "aws g5", 1.0, 0.1, 0.4, run_id="17-ab")


def test_status_line_is_shown_without_the_extension() -> None:
    cell = nbformat.v4.new_code_cell("%%sky\n1")
    shown = {"data": mimebundle(STATUS), "metadata": output_metadata(STATUS)}
    cell.outputs = [nbformat.v4.new_output("display_data", **shown)]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbformat.validate(notebook)
    html, _ = HTMLExporter().from_notebook_node(notebook)
    assert "<b>running</b> 0:41" in html and "vnd.jupyter-sky" not in html


@pytest.mark.slow
def test_card_is_shown_until_the_cell_ends(notebook: Notebook) -> None:
    ran = notebook.run("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(2.5)")
    assert ran.status == "ok", ran
    shown = [*ran.of("display_data"), *ran.of("update_display_data")]
    lines: list[dict[str, Any]] = [one for one in shown if "jupyter_sky" in one["metadata"]]
    assert lines == shown
    names = {one["metadata"]["jupyter_sky"]["run_id"] for one in lines}
    assert len(names) == 1 and len({one["transient"]["display_id"] for one in lines}) == 1
    *live, last = lines
    cards = [one["data"][CARD_MIME] for one in live]
    assert {card["run_id"] for card in cards} == names
    running = [card for card in cards if card["stage"] == "running"]
    assert len(running) >= 2, [card["stage"] for card in cards]
    assert running[-1]["seconds"] > running[0]["seconds"]
    assert running[-1]["cluster"] and running[-1]["cell_usd"] == 0.0
    assert all("text/html" in one["data"] and "text/plain" in one["data"] for one in live)
    assert set(last["data"]) == {"text/html", "text/plain"}
    assert last["data"]["text/plain"].startswith("☁ done")


@pytest.mark.slow
def test_failed_cell_leaves_no_card(notebook: Notebook) -> None:
    ran = notebook.run("%%sky\n1 / 0")
    shown = [*ran.of("display_data"), *ran.of("update_display_data")]
    assert set(shown[-1]["data"]) == {"text/html", "text/plain"}
    assert shown[-1]["data"]["text/plain"].startswith("☁ failed")
