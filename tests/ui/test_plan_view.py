"""Plans and progress in a real browser, as the HTML that a saved notebook holds."""

from __future__ import annotations

import pytest

import jupyter_sky as sky
from jupyter_sky.execution.functions.calls.progress import GatherProgress
from jupyter_sky.interfaces.widgets.progress import to_html
from tests.ui.labs import axe

pytestmark = [pytest.mark.ui, pytest.mark.slow]
DARK = """:root { --jp-layout-color0: #111; --jp-layout-color2: #424242;
 --jp-ui-font-color1: rgba(255, 255, 255, 0.87); --jp-ui-font-color2: rgba(255, 255, 255, 0.54);
 --jp-border-color0: #616161; --jp-brand-color1: #2196f3; --jp-error-color1: #f44336; }
 body { background: #111; color: #ddd }"""


@pytest.fixture(scope="module")
def html() -> str:
    """Return a plan with all its parts, a request, and two states of a gather."""
    with sky.Dag("pipeline") as dag:
        fetch = sky.Task("fetch").set_input("s3://survey", size="200GB", region="us-east-1")
        fetch.set_output("?:/tiles", size="60GB").set_resources(cpus="8", cloud="aws,gcp")
        parts = [sky.Task(f"part{n}").set_output("?:/part", size="5GB") for n in range(3)]
        join = sky.Task("join")
        for task in (*parts, join):
            task.set_resources(cpus="8", cloud="aws,gcp")
        for hours, task in enumerate((fetch, *parts, join), start=1):
            task.set_time_estimator(hours)
        fetch >> parts >> join  # pyright: ignore[reportUnusedExpression]
    shown = [sky.plan(dag, deadline="12h", tracked=False), sky.plan(gpus="T4", tracked=False)]
    calls = GatherProgress(3, 2, 1, 4, nodes=2, seconds=8, rate=0.5)
    over = GatherProgress(10, 0, 0, 0, nodes=2, seconds=20, rate=0.5, stage="done")
    return "".join([*(one._repr_html_() for one in shown), to_html(calls), to_html(over)])


def open_all(page, html: str, style: str = "") -> None:
    page.set_content(
        "<!DOCTYPE html><html lang='en'><head><title>plan</title>"
        f"<style>{style}</style></head><body><main><h1>plan</h1>{html}</main></body></html>"
    )
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")


def test_wide_content_scrolls_by_keyboard(page, html):
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.set_viewport_size({"width": 500, "height": 900})
    open_all(page, html)
    assert page.evaluate("document.documentElement.scrollWidth") <= 500
    picture = page.get_by_role("region", name="graph of the plan")
    assert picture.evaluate("box => box.scrollWidth > box.clientWidth")
    picture.focus()
    for _ in range(4):
        picture.press("ArrowRight")
    page.wait_for_function("document.activeElement.scrollLeft > 0")
    chart = page.get_by_role("region", name="time chart").get_by_role("img")
    # a letter of 12 px is never drawn smaller than nine
    assert chart.evaluate("svg => svg.clientWidth / svg.viewBox.baseVal.width") >= 0.75
    bar = page.get_by_role("progressbar", name="calls")
    assert bar.get_attribute("aria-valuenow") == "4" and bar.bounding_box()["width"] > 200
    assert requests == []


@pytest.mark.parametrize("style", ["", DARK], ids=["plain", "dark"])
def test_no_serious_finding_of_axe(page, html, style):
    open_all(page, html, style)
    assert axe(page, "main") == []
