"""Runs of graphs in JupyterLab: live graph in a cell and in a tab, log of a task, reloaded page."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ui.labs import ARTIFACTS, Lab, Notebook, axe, change_theme, opened, run_cell

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.timeout(600)]

GRAPH = """
import jupyter_sky as sky, time, pathlib
gate = pathlib.Path.home() / "gate"
gate.unlink(missing_ok=True)

def train(numbers):
    print("training on", numbers, flush=True)
    while not gate.exists():
        time.sleep(0.1)
    return sum(numbers)

with sky.Dag("nightly") as dag:
    prepare = sky.Task("prepare", run=lambda: print("prepared") or [3, 4])
    fit = sky.Task("fit", run=train)
    check = sky.Task("check", run=lambda numbers: 1 / 0)
    report = sky.Task("report", run=lambda value, checked: value)
    prepare >> [fit, check] >> report
"""


@pytest.fixture(scope="module")
def book(lab: Lab, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """A notebook whose second cell begins a run of which one task waits for the fourth cell."""
    path = tmp_path_factory.mktemp("pipelines") / "graph.ipynb"
    cells = (GRAPH, "run = sky.run(dag, name='first', fresh=True)\nrun", "gate.touch()")
    with opened(lab, browser, path, "%load_ext jupyter_sky", *cells) as notebook:
        yield notebook


def _task(view: Any, name: str) -> Any:
    return view.locator(f'.jsky-RunGraph-picture [data-task="{name}"][tabindex="0"]')


def test_a_run_is_followed_in_its_cell_and_in_the_panel(book: Notebook, lab: Lab) -> None:
    page: Any = book.page
    for cell in range(3):
        run_cell(book.page, cell)
    view = page.locator(".jp-Notebook-cell").nth(2).locator(".jsky-RunGraph")
    _task(view, "fit").filter(has_text="running").wait_for()
    _task(view, "check").filter(has_text="failed").wait_for()
    _task(view, "report").filter(has_text=re.compile("waiting|skipped")).wait_for()
    assert "Run first: " in view.inner_text()
    # a click, and a key press, show what a task has printed
    _task(view, "fit").click()
    view.locator(".jsky-Live-log", has_text="training on [3, 4]").wait_for()
    view.page.keyboard.press("Escape")
    assert not view.locator(".jsky-Live-detail").is_visible()
    _task(view, "check").focus()
    page.keyboard.press("Enter")
    view.locator(".jsky-Live-detail", has_text="ZeroDivisionError").wait_for()
    for theme in ("Light", "Dark"):
        change_theme(page, theme)
        assert axe(page, ".jsky-RunGraph") == []
        page.screenshot(path=ARTIFACTS / f"pipeline-cell-{theme.lower()}.png")
    change_theme(page, "Light")
    # the same from the server, in the panel and in a tab
    page.evaluate("() => { window.jupyterapp.commands.execute('jupyter-sky:open'); }")
    page.get_by_role("tab", name="Pipelines").click()
    row = page.locator('[data-jsky-pipeline="first"]')
    row.wait_for()
    assert "1 failed" in row.inner_text() and "process" not in row.inner_text()
    row.locator("button").click()
    tab = page.locator(".jsky-RunTab")
    _task(tab, "fit").filter(has_text="running").wait_for()
    page.screenshot(path=ARTIFACTS / "pipeline-tab.png")
    tab.get_by_role("button", name="Pause").click()
    tab.get_by_role("button", name="Resume").click()
    tab.get_by_role("button", name="Pause").wait_for()
    page.evaluate("() => { window.jupyterapp.shell.activateById(window.panel.id); }")
    run_cell(book.page, 3)
    _task(view, "fit").filter(has_text="succeeded").wait_for()
    view.get_by_role("button", name="Cancel").wait_for(state="hidden")
    page.locator("[data-jsky-pipeline]", has_text="2 succeeded").wait_for()
    view.screenshot(path=ARTIFACTS / "pipeline-ended.png")


def test_a_reopened_notebook_shows_it_without_a_kernel(book: Notebook) -> None:
    page: Any = book.page
    page.evaluate("window.panel.context.save().then(() => true)")
    page.evaluate("window.panel.sessionContext.shutdown().then(() => true)")
    page.reload()
    view = page.locator(".jp-Notebook .jsky-RunGraph")
    _task(view, "fit").filter(has_text="succeeded").wait_for()
    _task(view, "fit").click()
    view.locator(".jsky-Live-log", has_text="training on").wait_for()


def test_cells_show_their_tasks_of_a_run_from_the_command_line(
    lab: Lab, browser: Any, tmp_path: Path
) -> None:
    cells = "%%sky --task one -o x\nx = 1", "%%sky --task two -i x -o y\ny = x / 0"
    with opened(lab, browser, tmp_path / "cards.ipynb", "size = 3", *cells) as notebook:
        page: Any = notebook.page
        words = [lab.python, "-m", "jupyter_sky.cli", "pipeline", "run", "cards.ipynb"]
        ran = subprocess.run(
            [*words, "--name", "cards"], cwd=lab.home / "work", env=lab.env, capture_output=True
        )
        assert ran.returncode == 1, ran.stderr
        shown = page.locator(".jp-Notebook-cell .jsky-CellState")
        shown.filter(has_text="✓ succeeded").wait_for()
        shown.filter(has_text="ZeroDivisionError").wait_for()
        for theme in ("Light", "Dark"):
            change_theme(page, theme)
            assert axe(page, ".jsky-CellState") == []
            page.screenshot(path=ARTIFACTS / f"pipeline-cells-{theme.lower()}.png")
        change_theme(page, "Light")
        shown.first.click()
        page.locator(".jsky-RunTab", has_text="Run cards").wait_for()
