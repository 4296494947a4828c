"""The rest of the first hour: what goes wrong or is interrupted, and a second notebook beside."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

from tests.benchmarks.newcomer_scene import SHOWN_SECONDS, Scene
from tests.benchmarks.newcomer_steps import step

COUNT = "for n in range({n}): print('line', n, flush=True); time.sleep(0.25)"
LINES = 24
STATUS = ".jsky-StatusItem-button"
SCROLLED = """selector => [...document.querySelectorAll(`${selector}, ${selector} *`)]
  .filter(one => /auto|scroll/.test(getComputedStyle(one).overflowX))
  .filter(one => one.clientWidth && one.scrollWidth > one.clientWidth + 1)
  .map(one => one.className)"""


def _begin_counting(scene: Scene, count: int, options: str = "") -> Any:
    """Start a cell that prints lines; return it once it has begun."""
    text = f"%%sky{options}\nimport time\n{COUNT.format(n=count)}\nprint('over')"
    # the loop is one line: the next is not indented
    return scene.first.run(text, r"line 2")


def _assert_complete(scene: Scene, cell: Any, count: int) -> None:
    text = scene.first.wait(cell, "over")
    lines = [int(number) for number in re.findall(r"^line (\d+)$", text, re.MULTILINE)]
    assert lines == list(range(count)), f"lines {lines}"


@step
def stop_in_panel(scene: Scene) -> None:
    """Stop in the panel ends a cell; the kernel is free at once."""
    cell = _begin_counting(scene, 400)
    content = scene.tab("Runs")
    content.locator(".jsky-Run").first.get_by_role("button", name=re.compile("^Stop")).click()
    scene.first.wait(cell, r"(cancelled|stopped|interrupted)")
    scene.first.wait_idle()


@step
def interrupt_by_keys(scene: Scene) -> None:
    """The keys I, I interrupt a cell; its variables stay."""
    cell = _begin_counting(scene, 400)
    scene.first.go()
    scene.press("Escape", "i", "i")
    scene.first.wait(cell, r"KeyboardInterrupt|interrupted")
    scene.first.wait_idle()
    scene.first.run("%%sky\nprint('still', x)", "still 20")


@step
def stop_on_card(scene: Scene) -> None:
    """Stop on the card ends a cell; its variables stay."""
    cell = _begin_counting(scene, 400)
    cell.get_by_role("button", name=re.compile("^Stop")).first.click()
    scene.first.wait(cell, r"(cancelled|stopped|interrupted)")
    scene.first.wait_idle()
    scene.first.run("%%sky\nprint('yet', x)", "yet 20")


@step
def log_in_a_tab(scene: Scene) -> None:
    """Log opens the log of a run in a tab; / searches it."""
    content = scene.tab("Runs")
    run = content.locator(".jsky-Run", has_text="range(400)").first
    run.get_by_role("button", name=re.compile("^Log")).click()
    log = scene.page.locator(".jsky-LogTab")
    log.get_by_text("line 1").first.wait_for()
    log.locator(".jsky-Log-pane").first.click()
    scene.press("/")
    scene.page.keyboard.type("line 2", delay=30)
    log.locator("mark, .jsky-mod-found, .jsky-Log-match").first.wait_for()
    scene.press("Escape")


@step
def close_log(scene: Scene) -> None:
    """The tab of the log closes, and the notebook is there."""
    scene.page.locator(".lm-DockPanel-tabBar .lm-mod-current .lm-TabBar-tabCloseIcon").last.click()
    scene.first.go()


@step
def killed_kernel(scene: Scene) -> None:
    """A cell whose kernel is killed shows all of its output, without a reload."""
    cell = _begin_counting(scene, LINES)
    os.kill(scene.kernel(scene.first), signal.SIGKILL)
    _assert_complete(scene, cell, LINES)


@step
def dialog_of_dead_kernel(scene: Scene) -> None:
    """What JupyterLab says of the dead kernel can be closed."""
    dialog = scene.page.locator(".jp-Dialog")
    scene.page.wait_for_timeout(1000)
    if dialog.count():
        scene.press("Escape")
        dialog.first.wait_for(state="detached")


@step
def after_killed_kernel(scene: Scene) -> None:
    """The new kernel finds the cluster and its variables again."""
    scene.first.run("%load_ext jupyter_sky")
    scene.first.run("%%sky\nprint('found', x)", "found 20")


@step
def reload_page(scene: Scene) -> None:
    """A page that is loaded anew in mid-run shows the whole output."""
    _begin_counting(scene, 60)
    scene.press("Control+S")
    scene.page.wait_for_timeout(1500)
    scene.page.reload()
    scene.page.locator(".jp-NotebookPanel").first.wait_for()
    cell = scene.first.cells().filter(has_text="range(60)").last
    cell.wait_for()
    scene.memory["reloaded"] = cell
    _assert_complete(scene, cell, 60)


@step
def card_after_reload(scene: Scene) -> None:
    """The card of the reloaded cell says done."""
    scene.first.wait(scene.memory["reloaded"], "done")


@step
def restart_kernel(scene: Scene) -> None:
    """The keys 0, 0 restart the kernel; the cluster stays."""
    scene.first.go()
    scene.press("Escape", "0", "0")
    scene.page.locator(".jp-Dialog").wait_for()
    scene.press("Enter")
    scene.page.locator(".jp-Dialog").wait_for(state="detached")
    scene.page.wait_for_timeout(2000)
    scene.first.run("%load_ext jupyter_sky")
    scene.first.run("%%sky\nprint('kept', x)", "kept 20")


@step
def background(scene: Scene) -> None:
    """A cell in the background leaves the kernel free, and gives its result."""
    scene.first.run("%%sky --bg slow -o acc\nimport time\ntime.sleep(1)\nacc = 0.75")
    scene.first.run("print('free')", "free")
    scene.first.run("slow.result(60)")
    scene.first.run("print('acc', acc)", r"acc 0\.75")


@step
def handle_by_name(scene: Scene) -> None:
    """The handle of a background cell is found by its name."""
    scene.first.run("del slow, acc")
    scene.first.run("import jupyter_sky as sky\nprint(sky.run('slow').status)", r"(done|ended|ok)")


@step
def value_by_get(scene: Scene) -> None:
    """%sky get brings a variable home."""
    scene.first.run("%sky get acc")
    scene.first.run("print('got', acc)", r"got 0\.75")


@step
def file_home(scene: Scene) -> None:
    """-o file: brings a file home."""
    scene.first.run(
        "%%sky -o file:brought.txt\nopen('brought.txt', 'w').write('from the cluster')", "done"
    )
    scene.first.run("print(open('brought.txt').read())", "from the cluster")


@step
def second_cluster_said(scene: Scene) -> None:
    """--nodes 3 beside a running cluster says that it starts a second one."""
    scene.first.run("%%sky --nodes 3 --dry-run\n1", r"second cluster|beside")


@step
def open_second_notebook(scene: Scene) -> None:
    """A second notebook is opened from the file browser."""
    scene.page.locator(".jp-SideBar [data-id=filebrowser]").first.click()
    item = scene.page.locator(".jp-DirListing-item", has_text="second.ipynb")
    item.wait_for()
    item.dblclick()
    scene.second.panel.locator(".jp-CodeCell").first.wait_for()
    scene.second.run("%load_ext jupyter_sky")
    scene.second.wait_idle()


@step
def second_notebook_runs(scene: Scene) -> None:
    """The second notebook has a cluster of its own."""
    scene.second.run("%%sky\ny = 5\nprint('second', y)", "second 5")
    scene.page.locator(STATUS, has_text="2 up").wait_for()


@step
def variables_apart(scene: Scene) -> None:
    """Variables of the first notebook are not in the second."""
    scene.second.run("%%sky\nprint('x' in globals())", "False")


@step
def both_run_at_once(scene: Scene) -> None:
    """Cells of both notebooks run at the same time, each with its output."""
    first = scene.first.write(f"%%sky\nimport time\n{COUNT.format(n=8)}\nprint('over')")
    index = scene.first.cells().count() - 1
    scene.press("Shift+Enter")
    scene.second.run("%%sky\nprint('meanwhile')", "meanwhile")
    scene.first.go()
    first = scene.first.cells().nth(index)
    _assert_complete(scene, first, 8)


@step
def down_ends_only_its_own(scene: Scene) -> None:
    """%sky down in the second notebook leaves the cluster of the first."""
    scene.second.run("%sky down")
    scene.second.wait_idle()
    scene.page.locator(STATUS, has_text="1 up").wait_for()
    scene.first.run("%%sky\nprint('mine', x)", "mine 20")


@step
def new_cluster_is_new(scene: Scene) -> None:
    """New cluster… starts another one, which cells find by its name."""
    scene.first.go()
    content = scene.tab("Clusters")
    content.get_by_role("button", name=re.compile("^New cluster")).click()
    form = scene.page.locator(".jsky-NeedsPanel")
    form.get_by_text(re.compile("would start on this machine", re.I)).wait_for()
    scene.press("Enter")
    form.wait_for(state="detached")
    scene.page.locator(STATUS, has_text="2 up").wait_for()
    scene.first.run("%%sky\nprint('old', x)", "old 20")
    scene.first.run("%%sky -c first-2\nprint('x' in globals())", "False")
    scene.first.run("%sky down first-2", "ended")
    scene.page.locator(STATUS, has_text="1 up").wait_for()


@step
def launch_log(scene: Scene) -> None:
    """The launch log of a cluster opens in a dialog, and Escape closes it."""
    content = scene.tab("Clusters")
    _unfold(content)
    content.get_by_role("button", name=re.compile("^Launch log")).first.click()
    scene.page.get_by_role("dialog").wait_for()
    scene.press("Escape")
    scene.page.get_by_role("dialog").wait_for(state="detached")


def _unfold(content: Any) -> None:
    head = content.locator(".jsky-Cluster-head").first
    if head.get_attribute("aria-expanded") != "true":
        head.click()


@step
def unusable_button_says_why(scene: Scene) -> None:
    """A button that cannot be used says why."""
    content = scene.tab("Clusters")
    _unfold(content)
    button = content.get_by_role("button", name=re.compile("^Copy SSH line")).first
    assert button.get_attribute("aria-disabled") == "true" and button.get_attribute("title")


@step
def insert_cell(scene: Scene) -> None:
    """Insert cell puts a cell for the cluster into the notebook."""
    scene.first.go()
    content = scene.tab("Clusters")
    _unfold(content)
    content.get_by_role("button", name=re.compile("^Insert cell")).first.click()
    scene.first.panel.locator(".cm-content", has_text="%%sky -c").first.wait_for()


@step
def extend_cluster(scene: Scene) -> None:
    """Extend takes a time that is typed."""
    content = scene.tab("Clusters")
    _unfold(content)
    content.get_by_role("button", name=re.compile("^Extend")).first.click()
    dialog = scene.page.get_by_role("dialog")
    dialog.locator("input").first.focus()
    scene.press("Control+A")
    scene.page.keyboard.type("2h", delay=30)
    scene.press("Enter")
    scene.page.locator(".jsky-Panel-message", has_text="2h").wait_for()


@step
def daily_limit(scene: Scene) -> None:
    """A daily limit typed into the Cost tab is kept."""
    content = scene.tab("Cost")
    content.get_by_role("button", name=re.compile("budget…|Change…")).first.click()
    content.locator(".jsky-Cost-budget input").first.focus()
    scene.press("Control+A")
    scene.page.keyboard.type("25", delay=60)
    scene.press("Enter")
    content.get_by_text(re.compile(r"\$25\.00")).first.wait_for()


@step
def insert_offer(scene: Scene) -> None:
    """Insert beside an offer writes its cell."""
    scene.first.go()
    content = scene.tab("Offers")
    content.locator(".jsky-Offer").first.wait_for()
    content.get_by_role("button", name=re.compile("^Insert")).first.click()
    scene.first.panel.locator(".cm-content", has_text="%%sky --").last.wait_for()


@step
def escape_keeps_cluster(scene: Scene) -> None:
    """End cluster asks first, and Escape keeps the cluster."""
    content = scene.tab("Clusters")
    _unfold(content)
    content.get_by_role("button", name=re.compile("^End cluster")).first.click()
    scene.page.get_by_role("dialog").wait_for()
    scene.press("Escape")
    scene.page.get_by_role("dialog").wait_for(state="detached")
    scene.page.locator(STATUS, has_text="1 up").wait_for()


@step
def narrow_panel(scene: Scene) -> None:
    """In a window of 480 px no tab of the panel needs sideways scrolling."""
    size = scene.page.viewport_size
    scene.tab("Clusters")
    scene.page.set_viewport_size({"width": 480, "height": 900})
    scrolled = []
    for name in ("Clusters", "Runs", "Offers", "Cost"):
        scene.tab(name)
        scene.page.wait_for_timeout(700)
        scrolled += [f"{name}: {one}" for one in scene.page.evaluate(SCROLLED, ".jsky-Panel")]
    scene.page.set_viewport_size(size)
    assert not scrolled, scrolled


@step
def end_cluster(scene: Scene) -> None:
    """End it ends the cluster."""
    content = scene.tab("Clusters")
    _unfold(content)
    content.get_by_role("button", name=re.compile("^End cluster")).first.click()
    scene.page.get_by_role("dialog").wait_for()
    scene.press("Tab", "Enter")
    scene.page.locator(STATUS, has_text="0 up").wait_for(timeout=SHOWN_SECONDS * 1000)


@step
def card_after_end(scene: Scene) -> None:
    """The next cell starts a new cluster, without the variables of the old one."""
    scene.first.run("%%sky\nprint('x' in globals())", "False")


@step
def reopen(scene: Scene) -> None:
    """Outputs are there when the notebook is opened again."""
    scene.first.go()
    scene.press("Control+S")
    scene.page.wait_for_timeout(1500)
    scene.page.reload()
    scene.page.locator(".jp-NotebookPanel").first.wait_for()
    scene.page.get_by_text("hello 42").first.wait_for(state="attached")


@step
def nothing_cried(scene: Scene) -> None:
    """The page has thrown no error."""
    assert not scene.errors, scene.errors[:5]
