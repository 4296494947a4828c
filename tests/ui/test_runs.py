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

    @classmethod
    def join(cls, book: Runs, page: Any) -> Runs:
        """Open the same document in another page."""
        found = cls.__new__(cls)
        found.lab, found.page, found.path = book.lab, page, book.path
        found.notebook = type(book.notebook)(page)
        found.reload()
        return found

    @property
    def dirty(self) -> bool:
        """Whether the page wants to save."""
        return self.page.evaluate("window.panel.context.model.dirty")

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
    text = "".join(output["data"]["text/plain"])
    return set(output["data"]) == {"text/html", "text/plain"} and text.startswith(f"☁ {word}")


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


def test_the_card_ticks_and_stops_its_cell_while_the_kernel_is_busy(opened: Any) -> None:
    book = opened(counting(400))
    book.load()
    book.run(1)
    book.wait(1, "line 3")
    card = book.cell(1).locator(".jsky-Card")
    card.wait_for()
    first = card.inner_text()
    book.page.wait_for_timeout(2500)
    assert seconds(card.inner_text()) - seconds(first) in (2, 3, 4)
    stop = card.get_by_role("button", name="Stop this cell")
    stop.focus()
    book.page.keyboard.press("Enter")
    book.wait(1, "stopping|interrupting")
    book.wait(1, "cancelled")
    book.wait(1, "stopped from the Sky panel")
    status = book.outputs(1)[0]
    assert is_static(status, "cancelled")
    assert book.cell(1).locator(".jsky-Card").count() == 0
    book.page.wait_for_function(
        "window.panel.sessionContext.session.kernel.status === 'idle'", timeout=20_000
    )


def test_a_kernel_that_is_killed_takes_nothing_with_it(opened: Any) -> None:
    book = opened(counting(45), "%%sky\nprint('new')")
    book.load()
    book.run(1)
    book.wait(1, "line 5")
    before = book.outputs(1)[0]["metadata"]["jupyter_sky"]["run_id"]
    os.kill(kernel_of(book), signal.SIGKILL)
    book.wait(1, "line 20")
    book.page.wait_for_function(
        "window.panel.sessionContext.session?.kernel?.status === 'idle'", timeout=30_000
    )
    book.load()
    book.run(2)
    book.wait(2, "new")
    book.wait(2, "shown at its own place")
    book.wait(1, "done")
    assert book.text(1).splitlines() == [f"line {n}" for n in range(45)] + ["over"]
    assert book.text(2) == "new\n"
    status = book.outputs(1)[0]
    assert is_static(status, "done") and status["metadata"]["jupyter_sky"]["run_id"] == before


def kernel_of(book: Runs) -> int:
    """The process of a notebook's kernel."""
    import psutil

    for process in psutil.process_iter():
        try:
            if process.environ().get("JPY_SESSION_NAME", "").endswith(book.path.name) and any(
                "ipykernel_launcher" in word for word in process.cmdline()
            ):
                return process.pid
        except psutil.Error:
            continue
    raise AssertionError("no kernel")


def test_a_second_browser_sees_it_all_and_saves_nothing(opened: Any, browser: Any) -> None:
    book = opened(counting(60))
    book.save()
    other = browser.new_context().new_page()
    other.set_default_timeout(60_000)
    try:
        guest = Runs.join(book, other)
        book.load()
        book.run(1)
        guest.wait(1, "line 5")
        assert not guest.dirty
        book.wait(1, "done")
        guest.wait(1, "done")
        expected = [f"line {n}" for n in range(60)] + ["over"]
        assert guest.text(1).splitlines() == book.text(1).splitlines() == expected
        assert len(book.outputs(1)) == len(guest.outputs(1)) == 2
        assert book.dirty and not guest.dirty
    finally:
        other.context.close()


def test_the_log_is_searched_and_its_nodes_stand_side_by_side(opened: Any) -> None:
    code = """%%sky --nodes 2
import sys, time
print('node', RANK, flush=True)
for number in range(3000):
    print('loss', number)
print('a warning', file=sys.stderr, flush=True)
time.sleep(6)
print('over')""".replace("RANK", "__import__('os').environ.get('SKY_RANK', '?')")
    book = opened(code)
    book.load()
    book.run(1)
    book.wait(1, "loss")
    book.cell(1).get_by_role("button", name="Open the log of this cell").click()
    log = book.page.locator(".jsky-LogTab")
    log.locator(".jsky-Log-line", has_text="a warning").first.wait_for()
    assert log.locator(".jsky-mod-stderr .jsky-Log-mark").first.inner_text() == "err"
    search = log.get_by_role("searchbox")
    search.fill("loss 1234")
    book.page.wait_for_function(
        "document.querySelector('.jsky-Log-count').textContent === '1 of 2'"
    )
    search.press("Enter")
    book.page.wait_for_function(
        "document.querySelector('.jsky-Log-count').textContent === '2 of 2'"
    )
    assert log.locator("mark.jsky-mod-current").inner_text() == "loss 1234"
    log.get_by_role("button", name="Side by side").click()
    titles = log.locator(".jsky-Log-title")
    titles.nth(1).wait_for()
    assert titles.all_inner_texts() == ["node 0", "node 1"]
    log.get_by_role("button", name="Follow").click()
    for column in (0, 1):
        log.locator(".jsky-Log-column").nth(column).locator("text=over").wait_for()
    log.locator(".jsky-Log-state", has_text="done").wait_for()
    assert "6,006 lines" in log.locator(".jsky-Log-state").inner_text()
