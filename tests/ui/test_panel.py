"""The panel beside a notebook whose kernel is busy: all of it is answered by the server."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from jupyter_sky.base.store.store import Store
from tests.ui.labs import (
    ARTIFACTS,
    COMMANDS,
    WAIT_MS,
    Notebook,
    axe,
    change_theme,
    opened,
    run_cell,
    serve,
    write_notebook,
)

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.timeout(600)]

CLUSTER = "[data-jsky-cluster=ui]"
CELLS = (
    "%load_ext jupyter_sky",
    "%%sky -c ui --cpus 1 --idle 5m\nopen('said.txt', 'w').write('hello')\nprint('up')",
    "%%sky -c ui\nimport time\ntime.sleep(600)",
    "import time\ntime.sleep(600)",
    "%%sky -c ui\nsum(range(10**13))",
)


@pytest.fixture(scope="module")
def notebook(lab, browser, tmp_path_factory):
    """Yield a notebook with a cluster that is up, and a page that all tests here go on with."""
    path = tmp_path_factory.mktemp("notebooks") / "panel.ipynb"
    with opened(lab, browser, path, *CELLS) as notebook:
        yield notebook


def run(notebook: Notebook, cell: int, until: str) -> None:
    """Run one cell, and wait for a word in its outputs."""
    output = run_cell(notebook.page, cell)
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
    assert "this machine" in cluster.inner_text() and "free" in cluster.inner_text()

    cluster.get_by_role("button", expanded=False).click()
    chart = cluster.get_by_role("img", name="CPU of node 0")
    chart.wait_for()
    assert "now" in chart.get_attribute("aria-label")
    ssh = cluster.get_by_role("button", name="Copy SSH line: ui")
    assert ssh.get_attribute("aria-disabled") == "true"
    assert "nothing to log in to" in ssh.get_attribute("title")

    assert busy(notebook)
    cluster.get_by_role("button", name="Files: ui").click()
    link = cluster.get_by_role("link", name="Download said.txt")
    with page.expect_download() as download:
        link.click()
    assert Path(download.value.path()).read_text() == "hello"
    assert axe(page, ".jsky-Files") == []
    page.screenshot(path=ARTIFACTS / "panel-files.png")

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
    page.get_by_role("dialog").get_by_text("nothing had to be launched").wait_for()
    page.keyboard.press("Escape")

    page.get_by_role("tab", name="Runs", exact=True).click()
    ended = page.locator(".jsky-Run", has_text="time.sleep(600)")
    ended.get_by_text("cancelled").wait_for()
    page.evaluate("window.panel.content.activeCellIndex = 0; 0")
    ended.get_by_role("button", name="time.sleep(600)").click()
    page.wait_for_function("window.panel.content.activeCellIndex === 2")
    wrote = page.locator(".jsky-Run", has_text="said.txt")
    wrote.get_by_role("button", name=re.compile("^Files")).click()
    wrote.get_by_role("link", name="Download said.txt").wait_for()
    ended.get_by_role("button", name=re.compile("^Files")).click()
    ended.get_by_text("It has written no files.").wait_for()


def test_panel_is_accessible_in_any_theme_and_width(notebook, lab):
    page = notebook.page
    for name in ("Light", "Dark"):
        change_theme(page, name)
        for tab in ("Clusters", "Runs", "Offers", "Help"):
            page.get_by_role("tab", name=tab, exact=True).click()
            if tab == "Help":
                page.locator(".jsky-Help-entry", has_text="Money").wait_for()
            if tab == "Offers":
                page.get_by_label("GPU or instance type").fill("A100:8")
                page.locator(".jsky-Offer").first.wait_for()
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


def type_into(page, field, text: str) -> None:
    """Click into a field and press the keys of a text."""
    field.click()
    page.keyboard.type(text)
    assert field.input_value() == text


def test_offers_follow_what_is_typed(notebook):
    page = notebook.page
    page.get_by_role("tab", name="Offers", exact=True).click()
    what, region = page.get_by_label("GPU or instance type"), page.get_by_label("Region")
    count, rows = page.locator(".jsky-Panel-body [role=status]"), page.locator(".jsky-Offer")
    what.click()
    page.keyboard.press("Control+A")
    page.keyboard.press("Backspace")  # of the test before
    count.get_by_text("Popular GPUs").wait_for()
    assert rows.first.inner_text().startswith("T4:1")
    type_into(page, what, "V100:8")
    rows.filter(has_text="V100:8").first.wait_for()
    type_into(page, region, "eu")
    count.get_by_text("offers").wait_for()
    page.wait_for_function(
        "() => document.querySelector('.jsky-Panel-body [role=status]').innerText"
        " === document.querySelectorAll('.jsky-Offer').length + ' offers'"
    )
    assert not rows.get_by_text("spot").count()
    page.get_by_label("Spot").focus()
    page.keyboard.press("Space")
    rows.get_by_text("spot").first.wait_for()
    assert rows.get_by_text("spot").count() == rows.count()
    page.keyboard.press("Space")
    region.click()
    page.keyboard.press("Backspace")
    page.keyboard.type("u-west-1")
    assert region.input_value() == "eu-west-1"
    rows.filter(has_text="eu-west-1").first.wait_for()
    page.get_by_role("tab", name="Clusters", exact=True).click()
    page.get_by_role("tab", name="Offers", exact=True).click()
    assert (what.input_value(), region.input_value()) == ("V100:8", "eu-west-1")


def widen_panel(page, width: int) -> None:
    """Drag the edge of the left side bar until it is that wide [px]."""
    edge = page.locator("#jp-main-split-panel > .lm-SplitPanel-handle:visible").first.bounding_box()
    left = page.locator("#jp-left-stack").bounding_box()["x"]
    page.mouse.move(edge["x"] + edge["width"] / 2, 500)
    page.mouse.down()
    page.mouse.move(left + width, 500, steps=4)
    page.mouse.up()
    page.wait_for_function(
        "width => Math.abs(document.querySelector('#jp-left-stack').offsetWidth - width) < 6",
        arg=width,
    )


def test_rows_are_two_lines_at_any_width_of_the_panel(notebook):
    page = notebook.page
    before = page.locator("#jp-left-stack").bounding_box()["width"]
    for width in (250, 400):
        widen_panel(page, width)
        for tab, row in (("Runs", ".jsky-Run"), ("Offers", ".jsky-Offer")):
            page.get_by_role("tab", name=tab, exact=True).click()
            page.locator(row).first.wait_for()
            rows = page.locator(row).all()
            assert max(one.bounding_box()["height"] for one in rows) < 52
            body = page.locator(".jsky-Panel-body")
            assert body.evaluate("body => body.scrollWidth <= body.clientWidth")
            cut = ".jsky-Row-line:not([title]):not([title] *)"
            assert not page.locator(cut).count()  # what is cut short is in a tooltip
    page.get_by_role("tab", name="Runs", exact=True).click()
    page.locator(".jsky-Run").first.wait_for()
    for booted in page.locator(".jsky-Run", has_text="boot").all():  # none where boots are quick
        assert "run" in booted.get_attribute("title")
    widen_panel(page, round(before))


def test_every_other_control_takes_keys(notebook):
    page = notebook.page
    page.get_by_role("tab", name="Clusters", exact=True).click()
    head = page.locator(f"{CLUSTER} .jsky-Cluster-head")
    head.focus()
    if head.get_attribute("aria-expanded") == "false":
        page.keyboard.press("Enter")
    page.get_by_role("button", name="Extend…: ui").press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.locator("input").first.wait_for()
    page.keyboard.press("Control+A")
    page.keyboard.type("25m")
    page.keyboard.press("Enter")
    page.locator(".jsky-Panel-message", has_text="ui is kept for 25m").wait_for()

    page.get_by_role("button", name="New cluster…").press("Enter")
    form = page.locator(".jsky-NeedsPanel")
    form.locator(".jsky-Needs-offers").wait_for()
    # cells without -c do not run on the cluster "ui": this one needs no name beside it
    assert form.locator(".jsky-Needs-line").input_value() == "%sky up"
    form.get_by_text(re.compile("^Would start on this machine")).wait_for()
    assert not form.get_by_label("Time limit", exact=True).count()  # that is for cells
    page.keyboard.press("Tab")
    page.keyboard.type("1")
    page.wait_for_function(
        "() => document.querySelector('.jsky-Needs-line').value.endsWith('--cpus 1')"
    )
    form.get_by_role("button", name="Insert cell").press("Enter")
    form.wait_for(state="detached")
    assert source_of_active_cell(page) == "%sky up --cpus 1"
    page.keyboard.press("Escape")
    page.keyboard.press("d")
    page.keyboard.press("d")

    page.get_by_role("tab", name="Cost", exact=True).click()
    grouping = page.locator(".jsky-Panel").get_by_label("By", exact=True)
    grouping.focus()
    page.keyboard.type("clu")
    page.locator(".jsky-Panel .jsky-Cost th[scope=row]", has_text="ui").first.wait_for()
    page.locator(".jsky-Panel").get_by_label("Since", exact=True).focus()
    page.keyboard.type("7")
    assert page.locator(".jsky-Panel").get_by_label("Since", exact=True).input_value() == "7d"
    page.get_by_role("button", name="Set a budget…").press("Enter")
    page.keyboard.type("12.5")
    page.keyboard.press("Enter")
    page.locator(".jsky-Panel").get_by_text("$12.50").first.wait_for()
    page.get_by_role("button", name="Change…").press("Enter")
    page.get_by_role("button", name="No daily budget").press("Enter")
    page.locator(".jsky-Panel").get_by_text("No daily budget.").wait_for()


def source_of_active_cell(page) -> str:
    return page.evaluate("window.panel.content.activeCell.model.sharedModel.getSource()")


def test_focus_goes_to_the_panel_and_back(notebook):
    page = notebook.page
    inside = "() => document.activeElement.closest('.jsky-Panel') !== null"
    page.locator(".jp-Notebook-cell .cm-content").first.click()
    page.keyboard.press("Alt+Shift+K")
    page.wait_for_function(inside)
    page.keyboard.press("Alt+Shift+K")
    page.wait_for_function(
        "() => document.activeElement.closest('.jp-Notebook-cell')"
        " && window.panel.content.mode === 'edit'"
    )
    page.get_by_role("tab", name="Runs", exact=True).click()
    page.locator(".jsky-Run", has_text="time.sleep(600)").locator(".jsky-Row-figure").first.click()
    page.wait_for_function("window.panel.content.activeCellIndex === 2")
    page.keyboard.press("Control+Shift+C")
    page.locator(".lm-CommandPalette-input").wait_for()
    page.keyboard.type("sky")
    first = page.locator(".lm-CommandPalette-itemLabel").first
    first.get_by_text("Open Sky Panel").wait_for()
    page.keyboard.press("Escape")
    page.locator(".lm-MenuBar-item", has_text="Run").click()
    page.locator(".lm-Menu-item", has_text="Sky").last.hover()
    page.locator(".lm-Menu-item", has_text="New Cluster…").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")


def test_engine_that_does_not_listen_is_restarted_only_after_a_question(notebook):
    page = notebook.page
    run(notebook, 4, "running")
    page.get_by_role("tab", name="Runs", exact=True).click()
    row = page.locator(".jsky-Run", has_text="sum(range(10**13))")
    row.get_by_role("button", name=re.compile("^Stop")).click()
    restart = row.get_by_role("button", name=re.compile("^Restart engine"))
    restart.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Restart the engine of cell").wait_for()
    dialog.get_by_text("its variables").wait_for()
    page.screenshot(path=ARTIFACTS / "panel-restart-engine.png")
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert restart.is_visible() and busy(notebook)
    restart.click()
    dialog.get_by_role("button", name="Restart engine").click()
    row.get_by_text("cancelled").wait_for()
    notebook.page.locator(".jp-Notebook-cell").nth(4).get_by_text("variables are gone").wait_for()


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


def test_help_is_searched_and_opens_the_guide(notebook):
    page = notebook.page
    page.get_by_role("tab", name="Help", exact=True).click()
    panel = page.locator(".jsky-Panel")
    type_into(page, panel.get_by_label("Search guide, verbs and functions"), "budget day")
    found = panel.get_by_role("list", name="Guide").get_by_role("button")
    found.filter(has_text="Money").click()
    panel.get_by_text("A budget holds for all notebooks together").wait_for()
    assert axe(page, ".jsky-Panel") == []
    page.screenshot(path=ARTIFACTS / "panel-help.png")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Back"
    page.keyboard.press("Enter")
    panel.get_by_label("Search guide, verbs and functions").fill("sky.sweep")
    panel.get_by_role("list", name="In Python").get_by_role("button").first.click()
    panel.locator(".jsky-Help-text").get_by_text("combinations of parameters").wait_for()
    panel.get_by_role("button", name="Back").click()
    panel.get_by_label("Search guide, verbs and functions").fill("")
    panel.get_by_role("button", name=re.compile("^When things fail")).click()
    panel.get_by_role("button", name="Open the notebook: When things fail").click()
    page.locator(".lm-TabBar-tab", has_text="08-when-things-fail.ipynb").wait_for()
    page.get_by_role("heading", name="When things fail").wait_for()


def test_notebook_7_has_the_panel_and_says_what_is_wrong(installed, browser, tmp_path):
    """A store of a newer version, then none: what to do is said, and an example works."""
    pytest.importorskip("notebook")
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.set_default_timeout(WAIT_MS)
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
