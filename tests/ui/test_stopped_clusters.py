"""A stopped cluster in the panel, and what it has measured beside the place of a cell."""

from __future__ import annotations

import pytest

from tests.emulators.hosts import USABLE
from tests.emulators.loopback import loopback
from tests.executor.test_stopped_clusters import end_watches
from tests.ui.labs import ARTIFACTS, axe, change_theme, opened, run_cell, serve

pytestmark = [
    pytest.mark.ui,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]
CLUSTER = "[data-jsky-cluster=far]"
CELLS = (
    "%load_ext jupyter_sky\nimport jupyter_sky as sky",
    "%%sky --cloud aws --cpus 2 -c far --name fit\nimport time\ntime.sleep(5)\nprint('done there')",
    "print(sky.stop('far', yes=True))",
    "%%sky --cloud aws --cpus 2 --name fit\nprint('again')",
)


@pytest.fixture(scope="module")
def notebook(browser, installed, tmp_path_factory):
    """A notebook whose cluster on an emulated cloud has been stopped."""
    home = tmp_path_factory.mktemp("lab")
    with loopback("aws") as cloud, pytest.MonkeyPatch.context() as patch:
        for name, value in cloud.env.items():
            patch.setenv(name, value)
        path = tmp_path_factory.mktemp("notebooks") / "stopped.ipynb"
        with (
            serve(home, installed, "jupyterlab") as lab,
            opened(lab, browser, path, *CELLS) as notebook,
        ):
            run_cell(notebook.page, 0)
            run_cell(notebook.page, 1).get_by_text("done there").wait_for(timeout=180_000)
            stop(notebook.page)
            yield notebook
            end_watches(lab.env["SKY_DATA_DIR"])


def stop(page) -> None:
    run_cell(page, 2).get_by_text("stopped: far").wait_for(timeout=120_000)


def test_cell_shows_what_was_measured_beside_its_place(notebook):
    page = notebook.page
    page.evaluate("window.panel.content.activeCellIndex = 3; window.panel.content.activate(); 0")
    page.keyboard.press("Alt+Shift+S")
    measured = page.locator(".jsky-NeedsPanel .jsky-Needs-measured")
    measured.get_by_text("fit on aws").wait_for()
    text = measured.inner_text()
    assert "1 run, none failed" in text and "paid $" in text, text
    assert "starts at aws" in text and "1 start, none failed · ready after" in text, text
    assert text.count("latest less than a day ago") == 2, text
    for theme in ("Light", "Dark"):
        change_theme(page, theme)
        assert axe(page, ".jsky-NeedsPanel") == []
        page.screenshot(path=ARTIFACTS / f"measured-{theme.lower()}.png")
    page.keyboard.press("Escape")


def test_stopped_cluster_is_started_and_deleted_by_keyboard(notebook):
    page = notebook.page
    page.locator(".jsky-StatusItem-button").get_by_text("1 stopped").click()
    cluster = page.locator(CLUSTER)
    cluster.get_by_text("disk of 50 GiB").wait_for()
    head = cluster.get_by_role("button", expanded=False)
    assert "stopped for" in head.inner_text() and "a month" in head.inner_text()
    head.focus()
    page.keyboard.press("Enter")
    for theme in ("Light", "Dark"):
        change_theme(page, theme)
        assert axe(page, ".jsky-Panel") == []
        page.screenshot(path=ARTIFACTS / f"stopped-{theme.lower()}.png")
    cluster.get_by_role("button", expanded=True).focus()  # the change of the theme has it
    page.keyboard.press("Tab")
    start = cluster.get_by_role("button", name="Start: far")
    assert start.evaluate("one => one === document.activeElement")
    page.keyboard.press("Enter")
    page.locator(".jsky-Panel-message", has_text="far is being started").wait_for()
    cluster.get_by_text("● up").wait_for(timeout=180_000)
    stop(page)
    cluster.get_by_text("stopped for").wait_for()

    delete = cluster.get_by_role("button", name="Delete…: far")
    delete.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Delete the stopped cluster far?").wait_for()
    page.screenshot(path=ARTIFACTS / "stopped-delete.png")
    page.keyboard.press("Enter")  # the safe button has the focus
    dialog.wait_for(state="detached")
    cluster.get_by_text("stopped for").wait_for()
    delete.click()
    page.get_by_role("dialog").get_by_role("button", name="Delete it").click()
    page.locator(".jsky-Panel-message", has_text="far was deleted").wait_for(timeout=60_000)
    cluster.get_by_text("○ ended").wait_for()
