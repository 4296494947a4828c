"""Start-up time that the panel adds to JupyterLab, measured with the wheel in a real browser.

`bundle_kb` is all JavaScript of the extension, in kB as it is served and unpacked. `startup_ms` is
how much later JupyterLab has restored its layout with the extension than without: the median of
pairs of page loads, on one server and in one browser that knows the files already.
"""

from __future__ import annotations

import json
import operator
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.installed import PANEL, install

ROUNDS = 12
READY = """
    const started = setInterval(() => {
      if (!window.jupyterapp) return;
      clearInterval(started);
      window.jupyterapp.restored.then(() => { window.restoredAt = performance.now(); });
    }, 1);
"""


def start(quick: bool) -> dict[str, float]:
    """Measure both with one installation."""
    with tempfile.TemporaryDirectory(prefix="sky-bench-") as folder:
        python = install(Path(folder))
        scripts = (python.parents[1] / PANEL / "static").glob("*.js")
        kilobytes = sum(script.stat().st_size for script in scripts) / 1e3
        home = Path(folder, "lab")
        home.mkdir()
        added = _added(home, python, 1 if quick else ROUNDS)
    return {"bundle_kb": kilobytes, "startup_ms": added}


def _added(home: Path, python: Path, rounds: int) -> float:
    from tests.ui.labs import serve

    times: dict[bool, list[float]] = {True: [], False: []}
    cpu: dict[bool, list[float]] = {True: [], False: []}
    with serve(home, python, "jupyterlab") as lab, _browser() as browser:
        config = Path(lab.env["JUPYTER_CONFIG_DIR"], "labconfig/page_config.json")
        config.parent.mkdir()
        context = browser.new_context(viewport={"width": 1200, "height": 800})
        context.add_init_script(READY)
        for number in range(-1, rounds):  # the first is not counted: it fetches the files
            for with_it in (True, False) if number % 2 else (False, True):
                config.write_text(json.dumps({"disabledExtensions": {"jupyter-sky": not with_it}}))
                page = context.new_page()
                metrics = context.new_cdp_session(page)
                metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
                page.goto(f"{lab.url}/lab?token={lab.token}&reset", wait_until="commit")
                page.wait_for_function("window.restoredAt", timeout=120_000)
                there = page.evaluate("window.jupyterapp.hasPlugin('jupyter-sky:plugin')")
                if there != with_it:
                    raise RuntimeError(f"the extension is {'not ' * with_it}there")
                if number >= 0:
                    times[with_it].append(page.evaluate("window.restoredAt"))
                    found = metrics.send("Performance.getMetrics")["metrics"]
                    used = {metric["name"]: metric["value"] for metric in found}
                    cpu[with_it].append(used["TaskDuration"] * 1e3)
                page.close()
    # Of pairs, as what else the machine does comes and goes.
    added = statistics.median(map(operator.sub, times[True], times[False]))
    used = statistics.median(map(operator.sub, cpu[True], cpu[False]))
    least = min(times[True]) - min(times[False])
    print(f"start: {statistics.median(times[False]):.0f} ms without the extension,")
    print(f"  {added:+.0f} ms with it; {least:+.0f} ms by the fastest of each,")
    print(f"  {used:+.0f} ms of CPU time of the page")
    return added


@contextmanager
def _browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    from tests.ui.labs import FLAGS

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        raise RuntimeError("no chromium on PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()
