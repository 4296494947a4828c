"""Runs in their notebook: the card, pages that are reloaded, kernels that are killed, logs."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import wait_until
from tests.ui.labs import (
    ARTIFACTS,
    COMMANDS,
    WAIT_MS,
    Lab,
    Notebook,
    axe,
    change_theme,
    run_cell,
    write_notebook,
)

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.timeout(600)]

IDLE = "window.panel.sessionContext.session?.kernel?.status === 'idle'"
TWO_NODES = """%%sky --nodes 2
import sys, time
for number in range(400):
    print('loss', number)
print('a warning', file=sys.stderr, flush=True)
time.sleep(4)
print('over')"""


def counting(count: int) -> str:
    """Return a cell that prints for `count` quarters of a second."""
    return (
        f"%%sky\nimport time\nfor number in range({count}):\n"
        "    print('line', number, flush=True)\n    time.sleep(0.25)\nprint('over')"
    )


def counted(count: int) -> list[str]:
    return [f"line {number}" for number in range(count)] + ["over"]


class Runs:
    """A notebook in a page, and what its cells show."""

    def __init__(self, lab: Lab, page: Any, path: Path) -> None:
        self.lab, self.page, self.path = lab, page, path
        self.notebook = Notebook(page)

    def run(self, cell: int) -> None:
        """Begin to run a cell."""
        run_cell(self.page, cell)

    def load(self) -> None:
        """Load the magics."""
        self.run(0)
        self.page.wait_for_function("window.panel.content.widgets[0].model.executionCount")

    def cell(self, cell: int) -> Any:
        return self.page.locator(".jp-Notebook-cell").nth(cell)

    def wait(self, cell: int, text: str) -> None:
        """Wait until a cell shows a text, a regular expression."""
        shown = self.cell(cell).locator(".jp-OutputArea-output", has_text=re.compile(text))
        shown.first.wait_for(state="attached")

    def outputs(self, cell: int) -> list[dict[str, Any]]:
        return self.notebook.cells[cell]["outputs"]

    def lines(self, cell: int) -> list[str]:
        """All lines of a cell's streams, as a save would write them."""
        streams = [out for out in self.outputs(cell) if out["output_type"] == "stream"]
        return "".join("".join(out["text"]) for out in streams).splitlines()

    @property
    def dirty(self) -> bool:
        """Whether the page wants to save."""
        return self.page.evaluate("window.panel.context.model.dirty")

    def save(self) -> None:
        self.page.evaluate("window.panel.context.save().then(() => true)")

    def saved(self, cell: int) -> list[dict[str, Any]]:
        """Return the outputs of a cell in the file."""
        text = (self.lab.home / "work" / self.path.name).read_text()
        return json.loads(text)["cells"][cell]["outputs"]

    def reload(self) -> None:
        """Load the page anew, with the document as it is on disk; the kernel may be busy."""
        page = self.page
        page.goto("about:blank")  # without a question about what is not saved
        page.goto(f"{self.lab.url}/lab/tree/{self.path.name}?token={self.lab.token}&reset")
        page.wait_for_function(
            """() => {
              window.panel = window.jupyterapp?.shell.currentWidget;
              return Boolean(
                window.panel?.context?.isReady && window.panel.content.widgets.length > 1);
            }"""
        )

    def kernel(self) -> int:
        """Return the process of the notebook's kernel."""
        for process in psutil.process_iter():
            try:
                name = process.environ().get("JPY_SESSION_NAME", "")
                words = process.cmdline()
            except psutil.Error:
                continue
            if name.endswith(self.path.name) and any("ipykernel_launcher" in w for w in words):
                return process.pid
        raise AssertionError("it has no kernel")


@pytest.fixture
def opened(lab: Lab, page: Any, tmp_path: Path) -> Callable[..., Runs]:
    """Open a notebook of these cells, below one that loads the magics."""

    def make(*cells: str) -> Runs:
        path = tmp_path / f"runs-{uuid.uuid4().hex[:6]}.ipynb"
        lab.open(page, write_notebook(path, "%load_ext jupyter_sky", *cells))
        return Runs(lab, page, path)

    return make


def is_static(output: dict[str, Any], word: str) -> bool:
    """Whether an output is the status line of a run that ended so, with nothing live in it."""
    text = "".join(output["data"]["text/plain"])
    return set(output["data"]) == {"text/html", "text/plain"} and text.startswith(f"☁ {word}")


def seconds(text: str) -> int:
    """Return the time since the cell was sent that a status line shows."""
    minutes, rest = re.findall(r"(?:running|done|run) (?:(\d+):)?(\d+)", text)[-1]
    return int(minutes or 0) * 60 + int(rest)


def test_the_card_ticks_and_stops_its_cell_while_the_kernel_is_busy(opened: Any) -> None:
    book = opened(counting(400))
    book.load()
    book.run(1)
    book.wait(1, "line 3")
    card = book.cell(1).locator(".jsky-Card")
    begun, first = time.monotonic(), seconds(card.inner_text())
    wait_until(lambda: seconds(card.inner_text()) >= first + 2, "it ticks")
    assert seconds(card.inner_text()) - first <= time.monotonic() - begun + 1
    for theme in ("Light", "Dark"):
        change_theme(book.page, theme)
        assert axe(book.page, ".jsky-Card") == []
        book.page.screenshot(path=ARTIFACTS / f"card-{theme.lower()}.png")
    height = card.bounding_box()["height"]

    card.get_by_role("button", name="Stop this cell").focus()
    book.page.keyboard.press("Enter")
    book.wait(1, "stopping|interrupting")
    book.wait(1, "cancelled")
    assert is_static(book.outputs(1)[0], "cancelled")
    assert card.count() == 0
    line = book.cell(1).locator("[role=status]").first
    assert "stopped" in line.inner_text()
    assert line.bounding_box()["height"] <= height + 24, "one note more, and nothing jumps"
    book.page.wait_for_function(IDLE)

    # what the user clears stays so, also when the kernel that has shown it is gone
    book.page.wait_for_timeout(1000)
    book.page.evaluate(f"{COMMANDS}.execute('notebook:clear-all-cell-outputs').then(() => true)")
    restart = "window.panel.sessionContext.session.kernel.restart().then(() => true)"
    book.page.evaluate(restart)
    book.load()
    assert book.outputs(1) == []

    # a restart gives the cell up, and says so in its place
    book.run(1)
    book.wait(1, "line 3")
    book.page.evaluate(restart)
    book.wait(1, "interrupted .*with its kernel, which was restarted")
    assert is_static(book.outputs(1)[0], "interrupted")
    assert book.lines(1)[:3] == counted(400)[:3]
    assert [one for one in book.outputs(1) if one.get("ename") == "KeyboardInterrupt"]


def test_outputs_survive_a_reloaded_page(opened: Any, tmp_path: Path) -> None:
    seen = tmp_path / "seen"  # the cell goes on until then, however long the page takes
    wait = f"import os\nwhile not os.path.exists({str(seen)!r}):\n    time.sleep(0.1)"
    book = opened(counting(40).replace("print('over')", f"{wait}\nprint('over')"))
    book.load()
    book.run(1)
    book.wait(1, "line 3")
    book.reload()
    book.wait(1, "running")
    assert book.cell(1).locator(".jp-InputPrompt").inner_text() == "[*]:"
    book.wait(1, "line 24")
    assert book.cell(1).locator(".jsky-Card").count() == 1
    seen.touch()
    book.wait(1, "done")
    assert book.lines(1) == counted(40)
    assert book.cell(1).locator(".jp-InputPrompt").inner_text() == "[2]:"
    assert len(book.outputs(1)) == 2 and is_static(book.outputs(1)[0], "done")
    book.save()
    assert "".join(book.saved(1)[1]["text"]).splitlines() == counted(40)
    book.reload()
    assert book.lines(1) == counted(40) and is_static(book.outputs(1)[0], "done")


def test_outputs_survive_a_killed_kernel(opened: Any, tmp_path: Path) -> None:
    over = tmp_path / "over"
    book = opened(f"{counting(24)}\nopen({str(over)!r}, 'w').close()", "%%sky\nprint('new')")
    book.load()
    begun = time.time()
    book.run(1)
    book.wait(1, "line 3")
    marks = book.outputs(1)[0]["metadata"]
    os.kill(book.kernel(), signal.SIGKILL)
    book.wait(1, "line 18")
    book.wait(1, "done")
    assert book.lines(1) == counted(24)
    shown = seconds(book.outputs(1)[0]["data"]["text/plain"])
    assert shown <= over.stat().st_mtime - begun + 3, "no card counts past the end of its run"
    book.page.wait_for_function(IDLE)
    book.load()
    book.run(2)
    book.wait(2, "shown at its own place")
    assert book.lines(1) == counted(24) and book.lines(2) == ["new"]
    status = book.outputs(1)[0]
    assert is_static(status, "done") and status["metadata"] == marks


def test_second_browser_shows_outputs_without_saving(opened: Any, browser: Any) -> None:
    book = opened(counting(24))
    book.save()
    other = browser.new_context().new_page()
    other.set_default_timeout(WAIT_MS)
    try:
        guest = Runs(book.lab, other, book.path)
        guest.reload()
        book.load()
        book.run(1)
        guest.wait(1, "line 5")
        book.wait(1, "done")
        guest.wait(1, "done")
        assert guest.lines(1) == book.lines(1) == counted(24)
        assert len(book.outputs(1)) == len(guest.outputs(1)) == 2
        assert book.dirty and not guest.dirty
    finally:
        other.context.close()


def test_the_log_is_searched_and_its_nodes_stand_side_by_side(opened: Any) -> None:
    book = opened(TWO_NODES)
    page = book.page
    book.load()
    book.run(1)
    book.wait(1, "loss")
    book.cell(1).get_by_role("button", name="Open the log of this cell").click()
    log = page.locator(".jsky-LogTab")
    log.locator(".jsky-mod-stderr .jsky-Log-mark", has_text="err").first.wait_for()

    page.keyboard.press("/")
    page.keyboard.type("loss 123")
    log.get_by_text("1 of 2", exact=True).wait_for()
    page.keyboard.press("Enter")
    log.get_by_text("2 of 2", exact=True).wait_for()
    assert log.locator("mark.jsky-mod-current").inner_text() == "loss 123"
    assert log.locator("mark.jsky-mod-current").is_visible()

    log.get_by_role("button", name="Side by side").click()
    log.get_by_role("button", name="Follow").click()
    titles = log.locator(".jsky-Log-title")
    titles.nth(1).wait_for()
    assert titles.all_inner_texts() == ["node 0", "node 1"]
    for column in log.locator(".jsky-Log-column").all():
        column.get_by_text("over", exact=True).wait_for()
    log.locator(".jsky-Log-state", has_text="done").wait_for()
    assert "804 lines · 2 nodes" in log.locator(".jsky-Log-state").inner_text()
    for theme in ("Light", "Dark"):
        change_theme(page, theme)
        assert axe(page, ".jsky-LogTab") == []
        page.screenshot(path=ARTIFACTS / f"log-{theme.lower()}.png")
    assert all(pane.get_by_text("over").is_visible() for pane in log.get_by_role("log").all())
    page.set_viewport_size({"width": 480, "height": 800})
    tops = [column.bounding_box()["y"] for column in log.locator(".jsky-Log-column").all()]
    assert tops[0] < tops[1], "they stack"
    page.screenshot(path=ARTIFACTS / "log-narrow.png")
