"""The first hour in the panel and in the form of a cell: every control, by keys."""

from __future__ import annotations

import re
from typing import Any

from tests.benchmarks.newcomer_scene import Scene
from tests.benchmarks.newcomer_steps import step


@step
def open_panel(scene: Scene) -> None:
    """Alt+Shift+K opens the panel, with the focus on its tabs."""
    scene.first.go()
    scene.press("Alt+Shift+K")
    scene.page.wait_for_function("document.activeElement.getAttribute('role') === 'tab'")


@step
def panel_gives_focus_back(scene: Scene) -> None:
    """Alt+Shift+K a second time gives the focus back to the notebook."""
    scene.press("Alt+Shift+K")
    scene.page.wait_for_function(
        "document.activeElement.closest('.jp-NotebookPanel') !== null", timeout=5000
    )


@step
def tabs_by_arrows(scene: Scene) -> None:
    """Arrow keys go through the tabs of the panel."""
    scene.show_panel()
    scene.page.locator(".jsky-Panel [role=tab]").first.click()
    names, tabs = [], ["Clusters", "Runs", "Pipelines", "Jobs", "Offers", "Cost"]
    for _ in tabs:
        names.append(scene.page.evaluate("document.activeElement.textContent"))
        scene.press("ArrowRight")
    assert names == tabs, names


@step
def cluster_details(scene: Scene) -> None:
    """A cluster unfolds and shows its nodes."""
    content = scene.tab("Clusters")
    head = content.locator(".jsky-Cluster-head").first
    head.focus()
    if head.get_attribute("aria-expanded") != "true":
        scene.press("Enter")
    content.get_by_role("img", name=re.compile("CPU of node 0")).wait_for()


@step
def runs_listed(scene: Scene) -> None:
    """The runs of the notebook are listed, named by their code."""
    content = scene.tab("Runs")
    content.locator(".jsky-Run", has_text="talk").first.wait_for()


@step
def run_leads_to_cell(scene: Scene) -> None:
    """A click on a run goes to its cell."""
    content = scene.tab("Runs")
    content.locator(".jsky-Run", has_text="talk").first.locator(".jsky-Run-cell").click()
    scene.page.wait_for_function(
        """() => {
          const shown = '.jp-NotebookPanel:not(.lm-mod-hidden)';
          const cell = document.querySelector(`${shown} .jp-mod-active`);
          return cell && cell.textContent.includes('--name talk'); }"""
    )


def _field(scene: Scene, label: str) -> Any:
    return scene.tab("Offers").get_by_label(re.compile(label)).locator("visible=true").first


@step
def type_into_offers(scene: Scene) -> None:
    """What is typed into Offers, letter by letter, stays and is answered."""
    field = _field(scene, "^GPU or instance type")
    field.click()
    scene.page.keyboard.type("A100:8", delay=60)
    assert field.input_value() == "A100:8", f"the field holds {field.input_value()!r}"
    scene.page.locator(".jsky-Offer", has_text="A100").first.wait_for()


@step
def change_offers_again(scene: Scene) -> None:
    """A second and a third change of Offers are answered, too."""
    field = _field(scene, "^GPU or instance type")
    for name in ("T4", "V100"):
        field.click()
        scene.press("Control+A")
        scene.page.keyboard.type(name, delay=60)
        assert field.input_value() == name, f"the field holds {field.input_value()!r}"
        scene.page.locator(".jsky-Offer", has_text=name).first.wait_for()


@step
def region_of_offers(scene: Scene) -> None:
    """A region typed into Offers narrows them."""
    field = _field(scene, "^Region")
    field.click()
    scene.page.keyboard.type("us-east-1", delay=60)
    assert field.input_value() == "us-east-1", f"the field holds {field.input_value()!r}"
    scene.page.wait_for_function(
        """() => { const rows = [...document.querySelectorAll('.jsky-Offer')];
          return rows.length && rows.every(row => row.textContent.includes('us-east-1')); }"""
    )


@step
def spot_offers(scene: Scene) -> None:
    """The space bar chooses spot machines."""
    box = _field(scene, "^Spot")
    box.focus()
    scene.press("Space")
    assert box.is_checked(), "the box is not checked"
    scene.page.locator(".jsky-Offer", has_text="spot").first.wait_for()
    scene.press("Space")


@step
def count_of_offers(scene: Scene) -> None:
    """The number above the offers is that of the rows."""
    scene.page.wait_for_timeout(1500)
    content = scene.tab("Offers")
    said = content.get_by_role("status").filter(has_text="offer").first.inner_text()
    count = int(re.search(r"\d+", said.replace(",", ""))[0])  # type: ignore[index]
    rows = content.locator(".jsky-Offer").count()
    assert count == rows, (said, rows)


@step
def cost_tab(scene: Scene) -> None:
    """The Cost tab groups by day."""
    content = scene.tab("Cost")
    by = content.get_by_label("By", exact=True).first
    by.focus()
    by.select_option("day")
    content.locator("table").first.wait_for()


@step
def palette(scene: Scene) -> None:
    """The command palette finds the panel."""
    scene.first.go()
    scene.press("Escape", "Control+Shift+C")
    scene.page.locator(".lm-CommandPalette-input:visible").first.wait_for()
    scene.page.keyboard.type("sky panel", delay=20)
    scene.page.locator(".lm-CommandPalette-item", has_text=re.compile("Sky", re.I)).first.wait_for()
    scene.press("Escape")


# -- the form ------------------------------------------------------------------------------------


@step
def open_form(scene: Scene) -> None:
    """Alt+Shift+S opens the form of a cell."""
    scene.first.write("fitted = 1")
    scene.press("Alt+Shift+S")
    scene.page.locator(".jsky-NeedsPanel .jsky-Needs-offers").wait_for()


@step
def type_into_form(scene: Scene) -> None:
    """Numbers typed into the form are answered by offers."""
    field = scene.page.locator(".jsky-NeedsPanel").get_by_label("vCPUs", exact=True)
    field = field.and_(scene.page.locator("input"))
    field.focus()
    scene.page.keyboard.type("1+", delay=60)
    scene.page.locator(".jsky-NeedsPanel", has_text=re.compile("would run", re.I)).wait_for()


@step
def apply_form(scene: Scene) -> None:
    """Enter writes the line of the form into the cell."""
    scene.press("Enter")
    scene.page.locator(".jsky-NeedsPanel").wait_for(state="detached")
    scene.first.last().locator(".cm-content", has_text="%%sky --cpus 1+").wait_for()


@step
def escape_form(scene: Scene) -> None:
    """Escape closes the form; the focus is in the notebook again."""
    scene.press("Alt+Shift+S")
    scene.page.locator(".jsky-NeedsPanel").wait_for()
    scene.press("Escape")
    scene.page.locator(".jsky-NeedsPanel").wait_for(state="detached")
    scene.page.wait_for_function("document.activeElement.closest('.jp-NotebookPanel') !== null")


@step
def run_form_cell(scene: Scene) -> None:
    """The cell with the form's line runs."""
    scene.first.last().locator(".cm-content").click()
    cell = scene.first.last()
    index = scene.first.cells().count() - 1
    scene.press("Shift+Enter")
    cell = scene.first.cells().nth(index)
    scene.first.wait(cell, "done")
