"""Bags of jobs in JupyterLab: live progress in a cell, the tab Jobs, logs, a reloaded page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.ui.labs import ARTIFACTS, Lab, Notebook, axe, change_theme, opened, run_cell

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.timeout(600)]

WORK = """
import jupyter_sky as sky, time, pathlib
gate = pathlib.Path.home() / "gate-of-bag"
gate.unlink(missing_ok=True)

def work(n):
    print("working on", n)
    if n == 1:
        raise ValueError("job 1 is broken")
    while n == 3 and not gate.exists():
        time.sleep(0.1)
    return {"twice": 2 * n}
"""


@pytest.fixture(scope="module")
def book(lab: Lab, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """A notebook whose second cell begins a bag of which one job waits for the third cell."""
    path = tmp_path_factory.mktemp("bags") / "bag.ipynb"
    cells = (WORK, "bag = sky.bag(work, range(4), name='ions')\nbag", "gate.touch()")
    with opened(lab, browser, path, "%load_ext jupyter_sky", *cells) as notebook:
        yield notebook


def test_a_bag_is_followed_in_its_cell_and_in_the_panel(book: Notebook) -> None:
    page: Any = book.page
    for cell in range(3):
        run_cell(book.page, cell)
    view = page.locator(".jp-Notebook-cell").nth(2).locator(".jsky-Bag")
    view.locator(".jsky-Live-headline", has_text="3 of 4 jobs have ended").wait_for()
    view.locator(".jsky-Bag-failures", has_text="1 × ValueError: job 1 is broken").wait_for()
    view.locator('[data-job="1"]').click()
    view.locator(".jsky-Live-log", has_text="working on 1").wait_for()
    for theme in ("Light", "Dark"):
        change_theme(page, theme)
        assert axe(page, ".jsky-Bag") == []
        page.screenshot(path=ARTIFACTS / f"bag-cell-{theme.lower()}.png")
    change_theme(page, "Light")
    # the same from the server, in the panel and in a tab
    page.evaluate("() => { window.jupyterapp.commands.execute('jupyter-sky:open'); }")
    page.get_by_role("tab", name="Jobs", exact=True).click()
    row = page.locator('[data-jsky-pipeline="ions"]')
    row.wait_for()
    assert "1 failed" in row.inner_text() and "process" not in row.inner_text()
    row.locator("button").click()
    tab = page.locator(".jsky-RunTab .jsky-Bag")
    tab.locator(".jsky-Live-headline", has_text="3 of 4 jobs have ended").wait_for()
    page.screenshot(path=ARTIFACTS / "bag-tab.png")
    page.evaluate("() => { window.jupyterapp.shell.activateById(window.panel.id); }")
    run_cell(book.page, 3)
    view.locator(".jsky-Live-headline", has_text="4 of 4 jobs have ended").wait_for()
    view.get_by_role("button", name="Cancel").wait_for(state="hidden")
    page.locator("[data-jsky-pipeline]", has_text="3 succeeded").wait_for()


def test_a_reopened_notebook_shows_it_without_a_kernel(book: Notebook) -> None:
    page: Any = book.page
    page.evaluate("window.panel.context.save().then(() => true)")
    page.evaluate("window.panel.sessionContext.shutdown().then(() => true)")
    page.reload()
    view = page.locator(".jp-Notebook .jsky-Bag")
    view.locator(".jsky-Live-headline", has_text="4 of 4 jobs have ended").wait_for()
    view.locator('[data-job="3"]').click()
    view.locator(".jsky-Live-log", has_text="working on 3").wait_for()
