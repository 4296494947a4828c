"""Costs in JupyterLab: they tick, they are saved, and a budget that is passed stops what costs."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.ui.labs import ARTIFACTS, axe, change_theme, run_cell, write_notebook

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.timeout(600)]

CELLS = (
    "%load_ext jupyter_sky",
    "%%sky -c dear --cpus 1\n'up'",
    # the cluster has a price by now: it is connected to anew
    "import jupyter_sky as sky\nfrom jupyter_sky.execution.sessions import session\n"
    "session.current().clusters.disconnect('dear')\nsky.cost('cluster')",
    "%%sky -c dear\nimport time\nfor _ in range(3000):\n    time.sleep(0.1)",
    "%%sky -c dear\n'after'",
)
PANEL = ".jsky-Panel .jsky-Cost"
STATUS = ".jsky-StatusItem-button"


def give_a_price(home: Path, usd: float) -> None:
    """Let the cluster cost something from now on, as a machine of one's own with a price."""
    (file,) = home.glob("**/sky.db")
    with sqlite3.connect(file, timeout=10) as db:
        # only this one: other tests may have left clusters in the same store
        mine = "(SELECT id FROM clusters WHERE name = 'dear')"
        db.execute(
            "UPDATE clusters SET price = ?, price_source = 'yours' WHERE id IN " + mine, [usd]
        )
        db.execute(
            "UPDATE intervals SET price = ?, started = last_beat "
            f"WHERE ended IS NULL AND cluster_id IN {mine}",
            [usd],
        )


def amount(text: str) -> float:
    """Return the first USD of a text."""
    return float(text.partition("$")[2].split()[0].replace(",", ""))


def test_costs_tick_and_a_passed_budget_stops_clusters(lab, page, tmp_path):
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    notebook = lab.open(page, write_notebook(tmp_path / "cost.ipynb", *CELLS))
    run_cell(notebook.page, 0)
    run_cell(notebook.page, 1).get_by_text("done").first.wait_for()
    give_a_price(lab.home, 1800.0)
    shown = run_cell(notebook.page, 2)
    shown.locator(".jsky-Cost tbody tr", has_text="dear").wait_for()

    page.locator(STATUS).click()
    page.get_by_role("tab", name="Cost", exact=True).click()
    today = page.locator(f"{PANEL} .jsky-Cost-fact", has_text="Spent today").locator("b")
    page.locator(PANEL).get_by_text("$1,800.00/h est.").or_(
        page.locator(PANEL).get_by_text("$1,800.00/h", exact=True)
    ).first.wait_for()
    before = amount(today.inner_text())
    page.wait_for_timeout(2500)
    assert amount(today.inner_text()) > before + 0.5, "it does not tick"
    assert "est." in today.inner_text()

    stopped = run_cell(notebook.page, 3)
    stopped.get_by_text("running").first.wait_for()
    # the kernel is busy: all that follows is the server's
    page.get_by_label("By", exact=True).first.select_option("day")
    page.locator(f"{PANEL} th[scope=row]", has_text="20").first.wait_for()
    with page.expect_download() as download:
        page.locator(PANEL).get_by_role("button", name="Save as CSV").click()
    file = Path(download.value.path()).read_text()
    assert file.startswith("day,started,") and ",yes,yours," in file
    for theme in ("Light", "Dark"):
        change_theme(page, theme)
        assert axe(page, PANEL) == []
        assert axe(page, ".jp-Notebook .jsky-Cost") == []
        page.screenshot(path=ARTIFACTS / f"cost-{theme.lower()}.png")
    change_theme(page, "Light")

    most = amount(today.inner_text()) + 8
    page.locator(PANEL).get_by_role("button", name="Set a budget…").click()
    field = page.locator(PANEL).get_by_label("Daily limit in USD, all notebooks")
    field.fill(f"{most:.2f}")
    field.press("Enter")
    page.locator(PANEL).get_by_role("meter").wait_for()
    page.locator(".Toastify__toast", has_text="of today's budget is spent").first.wait_for()
    stopped.get_by_text("SkyBudget").first.wait_for()
    said = stopped.inner_text()
    assert "was stopped" in said and "%config Sky.budget_usd_day" in said
    page.locator(PANEL).get_by_text("■ Today's budget is spent").wait_for()
    page.locator(f"{STATUS}.jsky-mod-over").wait_for()
    page.screenshot(path=ARTIFACTS / "cost-over.png")

    page.locator(PANEL).get_by_role("button", name="Change…").click()
    page.locator(PANEL).get_by_role("button", name="No daily budget").click()
    page.locator(PANEL).get_by_text("No daily budget.").wait_for()
    page.locator(".Toastify__toast").first.wait_for(state="detached")
    run_cell(notebook.page, 4).get_by_text("'after'").wait_for()
    page.set_viewport_size({"width": 480, "height": 800})
    beyond = page.locator(PANEL).evaluate("one => one.scrollWidth - one.clientWidth")
    page.screenshot(path=ARTIFACTS / "cost-narrow.png")
    assert beyond <= 0
    assert not errors
    static = json.dumps(notebook.cells[2]["outputs"])
    assert "As of 20" in static and "text/html" in static and "text/plain" in static
    (db,) = lab.home.glob("**/sky.db")
    with sqlite3.connect(db, timeout=10) as store:
        store.execute("UPDATE clusters SET price = 0 WHERE state = 'up'")
        store.execute("UPDATE intervals SET price = 0 WHERE ended IS NULL")
