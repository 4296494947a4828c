"""A stranger at a fresh JupyterLab: two notebooks, keys and the mouse, nothing else."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.installed import install
from tests.ui.labs import Lab, serve, write_notebook
from tests.ui.pictures import open_browser

SHOWN_SECONDS = 60.0
"""Seconds within which what a step waits for has to be there, on a machine that others use."""


@dataclass
class Book:
    """A notebook in its tab.

    Attributes
    ----------
    page
        Page of the browser.
    name : str
        Its file.
    """

    page: Any
    name: str

    @property
    def panel(self) -> Any:
        """Its widget, which is in sight."""
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")

    def cells(self) -> Any:
        return self.panel.locator(".jp-Notebook .jp-CodeCell")

    def go(self) -> None:
        """Choose its tab, and its last cell, ready for typing."""
        self.page.locator(".lm-TabBar-tab .lm-TabBar-tabLabel", has_text=self.name).first.click()
        self.last().locator(".cm-content").click()

    def last(self) -> Any:
        return self.cells().last

    def write(self, text: str) -> Any:
        """Type a cell at the end of the notebook; return the cell."""
        self.go()
        cell = self.last()
        written = cell.locator(".cm-content").inner_text().strip()
        if written or cell.locator(".jp-OutputArea-output").count():
            self.page.keyboard.press("Escape")
            self.page.keyboard.press("b")
            self.page.keyboard.press("Enter")
            cell = self.last()
        lines = text.split("\n")
        for number, line in enumerate(lines):
            if number:
                self.page.keyboard.press("Enter")
                self.page.keyboard.press("Shift+Home")  # over the indentation that was given
                self.page.keyboard.press("Shift+Home")
            self.page.keyboard.type(line, delay=2)
        return self.cells().nth(self.cells().count() - 1)

    def run(self, text: str, until: str = "", seconds: float = 0.0) -> Any:
        """Type a cell, run it with Shift+Enter, wait for a pattern in its outputs."""
        cell = self.write(text)
        index = self.cells().count() - 1
        self.page.keyboard.press("Shift+Enter")
        cell = self.cells().nth(index)
        if until:
            self.wait(cell, until, seconds)
        return cell

    def wait(self, cell: Any, until: str, seconds: float = 0.0) -> str:
        """Wait for a pattern in the outputs of a cell; return their text."""
        deadline = time.monotonic() + (seconds or SHOWN_SECONDS)
        pattern, text = re.compile(until, re.DOTALL), ""
        while time.monotonic() < deadline:
            text = self.text(cell)
            if pattern.search(text):
                return text
            self.page.wait_for_timeout(150)
        raise AssertionError(f"no {until!r} in: {text[-600:]!r}")

    def text(self, cell: Any) -> str:
        """Return what stands below a cell."""
        return "\n".join(cell.locator(".jp-OutputArea-output").all_inner_texts())

    def wait_idle(self, seconds: float = SHOWN_SECONDS) -> None:
        """Wait until no cell runs any more."""
        busy = self.panel.locator(".jp-InputPrompt", has_text="[*]")
        deadline = time.monotonic() + seconds
        while busy.count():
            assert time.monotonic() < deadline, "a cell still runs"
            self.page.wait_for_timeout(200)


@dataclass
class Scene:
    """JupyterLab, a page of it, and two notebooks.

    Attributes
    ----------
    lab : Lab
    page
        Page of the browser.
    first, second : Book
        Notebooks; each has loaded the magics.
    errors : list of str
        Errors of the page.
    memory : dict
        Whatever a step leaves to a later one.
    """

    lab: Lab
    page: Any
    first: Book
    second: Book
    errors: list[str] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            self.page.keyboard.press(key)

    def tab(self, name: str) -> Any:
        """Open a tab of the panel; return its content."""
        self.show_panel()
        self.page.locator(".jsky-Panel").get_by_role("tab", name=name, exact=True).click()
        return self.page.locator("#jsky-tabpanel")

    def show_panel(self) -> None:
        """Open the panel by its key where it is not open."""
        if not self.page.locator(".jsky-Panel:visible").count():
            self.press("Alt+Shift+K")
        self.page.locator(".jsky-Panel-tabs").wait_for()

    def kernel(self, book: Book) -> int:
        """Return the process of a notebook's kernel."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                name = process.environ().get("JPY_SESSION_NAME", "")
                if name.endswith(book.name) and "ipykernel_launcher" in " ".join(process.cmdline()):
                    return process.pid
        raise AssertionError(f"{book.name} has no kernel")


@contextlib.contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """Start everything anew: no cluster, no account, no settings."""
    python = install(folder / "installed")
    home = folder / "lab"
    home.mkdir()
    with open_browser() as browser, serve(home, python, "jupyterlab") as lab:
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(30_000)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        write_notebook(home / "work/second.ipynb", "")
        (folder / "notebooks").mkdir()
        lab.open(page, write_notebook(folder / "notebooks/first.ipynb", ""))
        yield Scene(lab, page, Book(page, "first.ipynb"), Book(page, "second.ipynb"), errors)
        page.close()
