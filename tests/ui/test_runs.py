"""Runs in their notebook: the card, pages that are reloaded, kernels that are killed, logs."""

from __future__ import annotations

import json
import os
import re
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.timeout(240)]

COUNT = """%%sky {options}
import time
for number in range({count}):
    print('line', number, flush=True)
    time.sleep({pause})
print('over')"""
CELL = ".jp-CodeCell"


def counting(count: int, pause: float = 0.25, options: str = "") -> str:
    return COUNT.format(count=count, pause=pause, options=options)


@pytest.fixture
def opened(lab: Any, page: Any, tmp_path: Path) -> Any:
    """Open a notebook of these cells, with the magics loaded."""

    def make(*sources: str) -> Any:
        path = tmp_path / f"runs-{uuid.uuid4().hex[:6]}.ipynb"
        cells = [
            {"cell_type": "code", "execution_count": None, "id": uuid.uuid4().hex[:8]}
            | {"metadata": {}, "outputs": [], "source": source}
            for source in ("%load_ext jupyter_sky", *sources)
        ]
        about = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
        whole = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
        path.write_text(json.dumps(whole))
        return Runs(lab, page, path)

    return make


class Runs:
    """A notebook in a page, and what its cells show."""

    def __init__(self, lab: Any, page: Any, path: Path) -> None:
        self.lab, self.page, self.path = lab, page, path
        self.notebook = lab.open(page, path)

    def run(self, at: int) -> None:
        """Begin to run a cell."""
        self.page.evaluate(
            """at => {
              window.panel.content.activeCellIndex = at;
              window.jupyterapp.commands.execute('notebook:run-cell');
            }""",
            at,
        )

    def load(self) -> None:
        self.run(0)
        self.page.wait_for_function("window.panel.content.widgets[0].model.executionCount")

    def cell(self, at: int) -> Any:
        return self.page.locator(CELL).nth(at)

    def wait(self, at: int, text: str, seconds: float = 40) -> None:
        """Wait until a cell shows a text."""
        outputs = self.cell(at).locator(".jp-OutputArea-output", has_text=re.compile(text))
        outputs.first.wait_for(state="attached", timeout=seconds * 1000)

    def outputs(self, at: int) -> list[dict[str, Any]]:
        return self.notebook.cells[at]["outputs"]

    def text(self, at: int) -> str:
        """All text of a cell's streams, as a save would write it."""
        streams = [out for out in self.outputs(at) if out["output_type"] == "stream"]
        return "".join("".join(out["text"]) for out in streams)

    def save(self) -> None:
        self.page.evaluate("window.panel.context.save().then(() => true)")

    def reload(self) -> None:
        """Load the page anew, with the document as it is on disk; a kernel may be busy meanwhile."""
        page = self.page
        page.goto("about:blank")  # without a question about what is not saved
        page.goto(f"{self.lab.url}/lab/tree/{self.path.name}?token={self.lab.token}&reset")
        page.wait_for_function(
            """() => {
              window.panel = window.jupyterapp?.shell.currentWidget;
              return Boolean(window.panel?.context?.isReady && window.panel.content.widgets.length > 1);
            }"""
        )

    def saved(self, at: int) -> list[dict[str, Any]]:
        file = self.lab.home / "work" / self.path.name
        return json.loads(file.read_text())["cells"][at]["outputs"]


def is_static(output: dict[str, Any], word: str) -> bool:
    return set(output["data"]) == {"text/html", "text/plain"} and output["data"][
        "text/plain"
    ][0].startswith(f"☁ {word}")


def seconds(text: str) -> int:
    minutes, rest = re.search(r"(\d+):(\d\d)", text).groups()
    return int(minutes) * 60 + int(rest)


def test_a_page_that_is_reloaded_loses_nothing(opened: Any) -> None:
    book = opened(counting(40))
    book.load()
    book.run(1)
    book.wait(1, "line 5")
    book.reload()
    book.wait(1, "running")
    book.wait(1, "line 12")
    book.wait(1, "over")
    book.wait(1, "done")
    expected = [f"line {n}" for n in range(40)] + ["over"]
    assert book.text(1).splitlines() == expected
    status, *rest = book.outputs(1)
    assert len(rest) == 1
    book.save()
    assert "".join(book.saved(1)[1]["text"]).splitlines() == expected
    book.reload()
    assert book.text(1).splitlines() == expected
    assert is_static(book.outputs(1)[0], "done")
