"""The panel beside a notebook whose kernel is busy: all of it is answered by the server."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from jupyter_sky.store.store import Store
from tests.ui.labs import (
    ARTIFACTS,
    COMMANDS,
    Notebook,
    axe,
    change_theme,
    opened,
    serve,
    write_notebook,
)

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.timeout(300)]

CLUSTER = "[data-jsky-cluster=ui]"
CELLS = (
    "%load_ext jupyter_sky",
    "%%sky -c ui --cpus 1 --idle 5m\nprint('up')",
    "%%sky -c ui\nimport time\ntime.sleep(600)",
    "import time\ntime.sleep(600)",
)


@pytest.fixture(scope="module")
def notebook(lab, browser, tmp_path_factory):
    """Yield a notebook with a cluster that is up, and a page that all tests here go on with."""
    path = tmp_path_factory.mktemp("notebooks") / "panel.ipynb"
    with opened(lab, browser, path, *CELLS) as notebook:
        yield notebook


def run(notebook: Notebook, cell: int, until: str) -> None:
    """Run one cell, and wait for a word in its outputs."""
    notebook.page.evaluate(f"window.panel.content.activeCellIndex = {cell}; 0")
    notebook.page.evaluate(f"() => {{ {COMMANDS}.execute('notebook:run-cell'); }}")
    output = notebook.page.locator(".jp-Notebook-cell").nth(cell).locator(".jp-OutputArea")
    if until:
        output.get_by_text(until).first.wait_for()


def busy(notebook: Notebook) -> bool:
    return notebook.page.evaluate("window.panel.sessionContext.session.kernel.status") == "busy"


def test_panel_shows_and_stops_runs_while_the_kernel_is_busy(notebook):
    page = notebook.page
    item = page.locator(".jsky-StatusItem-button")
    assert "0 up" in item.inner_text()
    run(notebook, 0, "")
    run(notebook, 1, "done")
    run(notebook, 2, "running")
    item.get_by_text("1 up · $0.00/h").wait_for()
    item.click()
    cluster = page.locator(CLUSTER)
    cluster.get_by_text("1 cell runs").wait_for()
    assert "local" in cluster.inner_text() and "free" in cluster.inner_text()

    cluster.get_by_role("button", expanded=False).click()
    chart = cluster.get_by_role("img", name="CPU of node 0")
    chart.wait_for()
    assert "now" in chart.get_attribute("aria-label")
    ssh = cluster.get_by_role("button", name="Copy SSH line: ui")
    assert ssh.get_attribute("aria-disabled") == "true"
    assert "nothing to log in to" in ssh.get_attribute("title")

    assert busy(notebook)
    cluster.get_by_role("button", name="Stop cell: ui").click()
    page.locator(".jsky-Panel-message", has_text="being stopped").wait_for()
    cluster.get_by_text("idle, ends in").wait_for()
    said = cluster.get_by_text("idle, ends in").inner_text()
    page.wait_for_function(
        "said => !document.querySelector('.jsky-Cluster').innerText.includes(said)", arg=said
    )  # it ticks
    assert not busy(notebook)

    cluster.click(button="right", position={"x": 40, "y": 20})
    page.locator(".lm-Menu-item", has_text="Launch Log").click()
    page.get_by_role("dialog").get_by_text("How ui was launched").wait_for()
    page.keyboard.press("Escape")

    page.get_by_role("tab", name="Runs", exact=True).click()
    ended = page.locator(".jsky-Run", has_text="import time")
    ended.get_by_text("cancelled").wait_for()
    page.evaluate("window.panel.content.activeCellIndex = 0; 0")
    ended.get_by_role("button", name="import time").click()
    page.wait_for_function("window.panel.content.activeCellIndex === 2")


def test_panel_is_accessible_in_any_theme_and_width(notebook, lab):
    page = notebook.page
    for name in ("Light", "Dark"):
        change_theme(page, name)
        for tab in ("Clusters", "Runs", "Offers"):
            page.get_by_role("tab", name=tab, exact=True).click()
            if tab == "Offers":
                page.get_by_label("GPU or instance type").fill("A100:8")
                page.locator(".jsky-Offers tbody tr").first.wait_for()
            assert axe(page, ".jsky-Panel") == []
            page.screenshot(path=ARTIFACTS / f"panel-{tab.lower()}-{name.lower()}.png")
        assert axe(page, "#jp-main-statusbar .jsky-StatusItem") == []
    page.get_by_role("tab", name="Clusters", exact=True).click()
    details = page.locator(".jsky-DetailList > span").first
    assert details.evaluate("one => getComputedStyle(one).display") == "inline-block"
    chart = page.locator(".jsky-Sparkline svg").first
    assert chart.bounding_box()["height"] < 30  # in a line with its figure
    page.set_viewport_size({"width": 480, "height": 800})
    panel = page.locator(".jsky-Panel")
    panel.wait_for()
    page.screenshot(path=ARTIFACTS / "panel-narrow.png")
    beyond = panel.evaluate(
        "panel => [panel, ...panel.querySelectorAll('.jsky-Panel-body')].map("
        "one => one.scrollWidth - one.clientWidth)"
    )
    assert max(beyond) <= 0  # nothing has to be scrolled sideways
    page.set_viewport_size({"width": 1200, "height": 900})
    change_theme(page, "Light")


def test_with_the_keyboard_alone_a_cluster_is_ended_while_the_kernel_is_busy(notebook):
    page = notebook.page
    page.locator(".jp-Notebook-cell").first.click()
    run(notebook, 3, "")
    page.keyboard.press("Escape")
    page.keyboard.press("Alt+Shift+K")
    page.wait_for_function("document.activeElement.getAttribute('role') === 'tab'")
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.textContent") == "Clusters"
    head = page.locator(f"{CLUSTER} .jsky-Cluster-head")
    press_tab_until(page, "End cluster…: ui", open_on="ui")
    assert head.get_attribute("aria-expanded") == "true"
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("End the cluster ui?").wait_for()
    page.screenshot(path=ARTIFACTS / "panel-end.png")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "End it"
    page.keyboard.press("Enter")
    page.locator(f"{CLUSTER} .jsky-Panel-mark", has_text="ended").wait_for()
    page.locator(".jsky-StatusItem-button", has_text="0 up").wait_for()
    assert busy(notebook)


def press_tab_until(page, label: str, open_on: str) -> None:
    """Press Tab until the button of that name has the focus; unfold the cluster on the way."""
    for _ in range(30):
        page.keyboard.press("Tab")
        name, expanded = page.evaluate(
            """() => {
              const at = document.activeElement;
              return [at.getAttribute('aria-label') ?? at.textContent,
                at.getAttribute('aria-expanded')];
            }"""
        )
        if name == label:
            return
        if expanded == "false" and open_on in name:
            page.keyboard.press("Enter")
    pytest.fail(f"Tab does not lead to {label}")


def test_notebook_7_has_the_panel_and_says_what_is_wrong(installed, browser, tmp_path):
    """A store of a newer version, then none: what to do is said, and an example works."""
    pytest.importorskip("notebook")
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.set_default_timeout(30_000)
    with serve(tmp_path, installed, "notebook") as server:
        store = make_newer_store(Path(server.env["SKY_DATA_DIR"]))
        write_notebook(tmp_path / "work/plain.ipynb", "1")
        page.goto(f"{server.url}/notebooks/plain.ipynb?token={server.token}")
        page.wait_for_function("window.jupyterapp?.commands.hasCommand('jupyter-sky:open')")
        page.evaluate("window.jupyterapp.restored.then(() => true)")
        page.evaluate(f"{COMMANDS}.execute('jupyter-sky:open')")
        problem = page.locator(".jsky-Panel-problem")
        problem.get_by_text("newer").first.wait_for()
        page.screenshot(path=ARTIFACTS / "notebook7-newer-store.png")

        store.unlink()
        problem.get_by_role("button", name="Try again").click()
        page.get_by_role("button", name="Insert cell").click()
        page.screenshot(path=ARTIFACTS / "notebook7-empty.png")
        cells = page.evaluate(
            "window.jupyterapp.shell.currentWidget.content.model.toJSON().cells.map(c => c.source)"
        )
        assert any("%%sky --cpus 2" in "".join(source) for source in cells)
    page.close()


def make_newer_store(folder: Path) -> Path:
    """Return a store as a version to come might leave it."""
    Store.open(folder).close()
    path = folder / "sky.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 999")
    db.close()
    return path
