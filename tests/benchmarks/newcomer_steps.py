"""The first hour of a stranger, step by step; here its first cells.

A step is a function of the scene; its docstring is its name. It fails by an exception: an
assertion, or a wait that ends in vain. Steps that follow go on as far as they can.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

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
    scene.first.run("%%sky --help", r"--cpus")


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
