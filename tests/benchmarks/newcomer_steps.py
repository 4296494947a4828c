"""The first hour of a stranger, step by step: cells, the panel, the form, two notebooks.

A step is a function of the scene; its docstring is its name. It fails by an exception: an
assertion, or a wait that ends in vain. Steps that follow go on as far as they can.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from tests.benchmarks.newcomer_scene import Scene

Step = Callable[[Scene], None]
STEPS: list[Step] = []


def step(function: Step) -> Step:
    """Add a step to the hour."""
    STEPS.append(function)
    return function


def name_of(one: Step) -> str:
    """Return the name of a step."""
    return (one.__doc__ or one.__name__).strip().rstrip(".")


# -- the first cells -----------------------------------------------------------------------------


@step
def load(scene: Scene) -> None:
    """Load the extension in the first notebook."""
    scene.first.run("%load_ext jupyter_sky")
    scene.first.wait_idle()
    assert "Error" not in scene.first.text(scene.first.cells().first)


@step
def see_status_bar(scene: Scene) -> None:
    """The status bar says that nothing is up."""
    scene.page.locator(".jsky-StatusItem-button", has_text="0 up").wait_for()


@step
def first_card(scene: Scene) -> None:
    """A card stands below the first %%sky cell."""
    began = time.monotonic()
    cell = scene.first.run("%%sky\nprint('hello', 6 * 7)")
    cell.locator(".jsky-Card, .jp-OutputArea-output").first.wait_for()
    scene.memory["first_card_s"] = time.monotonic() - began
    scene.first.wait(cell, "hello 42")
    scene.memory["first_output_s"] = time.monotonic() - began
    scene.memory["hello"] = cell


@step
def card_says_done(scene: Scene) -> None:
    """The card says done, with boot and run apart."""
    scene.first.wait(scene.memory["hello"], r"done")


@step
def one_cluster_up(scene: Scene) -> None:
    """The status bar says that one cluster is up."""
    scene.page.locator(".jsky-StatusItem-button", has_text="1 up").wait_for()


@step
def variables_stay(scene: Scene) -> None:
    """Variables of one cell are there in the next."""
    scene.first.run("%%sky\nx = 20", "done")
    scene.first.run("%%sky\nprint('twice', 2 * x)", "twice 40")


@step
def inputs_and_outputs(scene: Scene) -> None:
    """Values travel by -i and -o."""
    scene.first.run("numbers = [1, 2, 3]")
    scene.first.run("%%sky -i numbers -o total\ntotal = sum(numbers)", "done")
    scene.first.run("print('total', total)", "total 6")


@step
def forgotten_input(scene: Scene) -> None:
    """A name that is only here is explained: add -i."""
    scene.first.run("here_only = 1")
    scene.first.run("%%sky\nprint(here_only)", r"-i here_only")


@step
def mistyped_option(scene: Scene) -> None:
    """A mistyped option suggests the right one."""
    cell = scene.first.run("%%sky --cpsu 2\n1", r"did you mean --cpus")
    scene.memory["usage_error"] = cell


@step
def no_card_for_usage_error(scene: Scene) -> None:
    """A usage error has no card."""
    text = scene.first.text(scene.memory["usage_error"])
    assert "☁" not in text, text


@step
def error_in_cell(scene: Scene) -> None:
    """An error in a cell is shown as at home."""
    scene.first.run("%%sky\n1 / 0", r"ZeroDivisionError.*division by zero")


@step
def gpu_without_account(scene: Scene) -> None:
    """A GPU cell without an account says how to get one."""
    text = scene.first.wait(
        scene.first.run("%%sky --gpus A100:1\n1"), r"(account|%sky check|jupyter sky setup)"
    )
    assert "no --gpus" not in text, text


@step
def europe(scene: Scene) -> None:
    """--region europe is understood."""
    text = scene.first.wait(
        scene.first.run("%%sky --region europe --gpus T4\n1"), r"(account|check)"
    )
    assert "this-machine" not in text, text


@step
def time_in_words(scene: Scene) -> None:
    """A time limit of "2 hours" is understood."""
    scene.first.run('%%sky --timeout "2 hours"\nprint("limited")', "limited")


@step
def help_option(scene: Scene) -> None:
    """%%sky --help shows the options."""
    scene.first.run("%%sky --help\n1", r"--cpus")


@step
def help_mark(scene: Scene) -> None:
    """%%sky? shows the options."""
    scene.first.run("%sky help", r"usage: %sky VERB.*--gpus")


@step
def dry_run(scene: Scene) -> None:
    """A dry run says where a cell would run, and starts nothing."""
    scene.first.run("%%sky --dry-run --cpus 1\n1", r"(would run|Would run)")


@step
def check(scene: Scene) -> None:
    """%sky check lists the clouds."""
    scene.first.run("%sky check", r"aws.*gcp|local.*aws")


@step
def status(scene: Scene) -> None:
    """%sky status lists the cluster."""
    scene.first.run("%sky status", r"first")


@step
def offers_table(scene: Scene) -> None:
    """%sky offers shows a table of prices."""
    scene.first.run("%sky offers A100:8", r"USD/h")


@step
def plan_of_request(scene: Scene) -> None:
    """%sky plan of a request shows place and price."""
    scene.first.run("%sky plan --gpus V100:1", r"\$")


@step
def plan_of_graph(scene: Scene) -> None:
    """A graph of two tasks is drawn."""
    scene.first.run("import jupyter_sky as sky\ndag = sky.Dag('vision')")
    scene.first.run(
        "with dag: train = sky.Task('train').set_resources(gpus='V100').set_time_estimator(2)"
    )
    scene.first.run(
        "with dag: infer = sky.Task('infer').set_resources(gpus='T4').set_time_estimator(1)"
    )
    scene.first.run("with dag: train >> infer")
    cell = scene.first.run("%sky plan dag", r"infer")
    cell.locator("svg").first.wait_for()


@step
def cost_view(scene: Scene) -> None:
    """sky.cost() shows what was spent."""
    scene.first.run("sky.cost()").locator(".jsky-Cost").first.wait_for()


@step
def log_view(scene: Scene) -> None:
    """sky.logs() shows what a cell printed."""
    scene.first.run("%%sky --name talk\nprint('a', 'line', 'to', 'find')", "a line to find")
    scene.first.run("sky.logs('talk')", "a line to find")


@step
def completes_gpus_first(scene: Scene) -> None:
    """Tab after --gp completes --gpus first."""
    scene.first.write("%%sky --gp")
    scene.press("Tab")
    option = scene.page.locator(".jp-Completer-item .jp-Completer-match").first
    option.or_(scene.first.last().locator(".cm-content", has_text="--gpus")).first.wait_for()
    if option.count():
        assert option.inner_text().startswith("--gpus"), option.inner_text()
        scene.press("Enter")
    assert re.search(r"--gpus\b", scene.first.last().locator(".cm-content").inner_text())
    scene.press("Control+A", "Delete")


@step
def completes_verbs(scene: Scene) -> None:
    """Tab after %sky lists verbs."""
    scene.first.write("%sky sta")
    scene.press("Tab")
    scene.first.last().locator(".cm-content", has_text="%sky status").or_(
        scene.page.locator(".jp-Completer-item", has_text="status")
    ).first.wait_for()
    scene.press("Escape", "Enter", "Control+A", "Delete")


# -- the panel -----------------------------------------------------------------------------------


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
    names = []
    for _ in range(4):
        names.append(scene.page.evaluate("document.activeElement.textContent"))
        scene.press("ArrowRight")
    assert names == ["Clusters", "Runs", "Offers", "Cost"], names


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
    scene.page.locator(".jsky-Offers tbody tr", has_text="A100").first.wait_for()


@step
def change_offers_again(scene: Scene) -> None:
    """A second and a third change of Offers are answered, too."""
    field = _field(scene, "^GPU or instance type")
    for name in ("T4", "V100"):
        field.click()
        scene.press("Control+A")
        scene.page.keyboard.type(name, delay=60)
        assert field.input_value() == name, f"the field holds {field.input_value()!r}"
        scene.page.locator(".jsky-Offers tbody tr", has_text=name).first.wait_for()


@step
def region_of_offers(scene: Scene) -> None:
    """A region typed into Offers narrows them."""
    field = _field(scene, "^Region")
    field.click()
    scene.page.keyboard.type("us-east-1", delay=60)
    assert field.input_value() == "us-east-1", f"the field holds {field.input_value()!r}"
    scene.page.wait_for_function(
        """() => { const rows = [...document.querySelectorAll('.jsky-Offers tbody tr')];
          return rows.length && rows.every(row => row.textContent.includes('us-east-1')); }"""
    )


@step
def spot_offers(scene: Scene) -> None:
    """The space bar chooses spot machines."""
    box = _field(scene, "^Spot")
    box.focus()
    scene.press("Space")
    assert box.is_checked(), "the box is not checked"
    scene.page.locator(".jsky-Offers tbody tr", has_text="spot").first.wait_for()
    scene.press("Space")


@step
def count_of_offers(scene: Scene) -> None:
    """The number above the offers is that of the rows."""
    scene.page.wait_for_timeout(1500)
    content = scene.tab("Offers")
    said = content.get_by_role("status").filter(has_text="offer").first.inner_text()
    count = int(re.search(r"\d+", said.replace(",", ""))[0])  # type: ignore[index]
    rows = content.locator(".jsky-Offers tbody tr").count()
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
    scene.page.keyboard.type("1", delay=60)
    scene.page.locator(".jsky-NeedsPanel", has_text=re.compile("would run", re.I)).wait_for()


@step
def apply_form(scene: Scene) -> None:
    """Enter writes the line of the form into the cell."""
    scene.press("Enter")
    scene.page.locator(".jsky-NeedsPanel").wait_for(state="detached")
    scene.first.last().locator(".cm-content", has_text="%%sky --cpus 1").wait_for()


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
