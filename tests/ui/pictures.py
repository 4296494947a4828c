"""Pictures of README.md, taken of a real JupyterLab: ``python -m tests.ui.pictures [NAME...]``.

Machines are rented from an emulated AWS on this computer; prices are those of the catalog. Each
picture exists in the light and in the dark theme of JupyterLab, in ``.github/images``.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.installed import install
from tests.emulators.loopback import loopback
from tests.ui.labs import COMMANDS, FLAGS, ROOT, Lab, change_theme, run_cell, serve, write_notebook

IMAGES = ROOT / ".github/images"
SCALE = 1.5  # device pixels per CSS pixel
COLORS = 128
LOAD = "%load_ext jupyter_sky\nimport jupyter_sky as sky"

DIGITS = "from sklearn.datasets import load_digits\n\nX, y = load_digits(return_X_y=True)"
SCORE = """%%sky --cloud aws --cpus 4 --memory 16+ -i X,y -o score
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

score = cross_val_score(SVC(gamma=0.001), X, y, cv=5).mean()
print(f"accuracy {score:.3f}")"""
TRAIN = """%%sky
import time
from sklearn.neural_network import MLPClassifier

network = MLPClassifier(hidden_layer_sizes=(64,), random_state=0)
for epoch in range(1, 1000):
    network.partial_fit(X, y, classes=range(10))
    if epoch % 5 == 0:
        print(f"epoch {epoch}: accuracy {network.score(X, y):.3f}", flush=True)
    time.sleep(0.25)"""

FUNCTION = """@sky.function
def train(epochs: int) -> float:
    import time
    from sklearn.datasets import load_digits
    from sklearn.linear_model import SGDClassifier

    X, y = load_digits(return_X_y=True)
    model = SGDClassifier(random_state=0)
    for _ in range(epochs):
        model.partial_fit(X[:1000], y[:1000], classes=range(10))
        time.sleep(0.1)
    return round(model.score(X[1000:], y[1000:]), 3)"""
POOL = """pool = sky.up("train", nodes=2, cpus=1)
scores = sky.gather(*(train(epochs) for epochs in range(4, 44))) >> pool"""

PLAN = """from jupyter_sky.decisions.optimizer.estimators import table

with sky.Dag("vision") as vision:
    train = sky.Task("train").set_input("s3://imagenet", size="150GB", region="us-east-1")
    train.set_output("?:/model", size="100MB")  # ?: is the cloud on which the task will run
    train.set_resources({"gpus": "V100"}, {"gpus": "tpu-v3-8"})  # either
    train.set_time_estimator(table({"V100": 28, "tpu-v3-8": 5.4}))  # hours
    infer = sky.Task("infer").set_input(train.output(0)).set_resources(gpus="T4")
    infer.set_time_estimator(15)
    train >> infer

%sky plan vision"""


class Book:
    """A notebook in a page."""

    def __init__(self, lab: Lab, page: Any, name: str, cells: tuple[str, ...]) -> None:
        self.page = page
        with tempfile.TemporaryDirectory() as folder:
            lab.open(page, write_notebook(Path(folder, f"{name}.ipynb"), *cells))
        page.evaluate(f"{COMMANDS}.execute('application:toggle-left-area').then(() => true)")

    def start(self, cell: int) -> Any:
        """Begin to run a cell; return the locator of its output."""
        return run_cell(self.page, cell)

    def run(self, cell: int, until: str = "", seconds: float = 60.0) -> None:
        """Run a cell until its output has a text, or until the kernel is idle."""
        output = self.start(cell)
        if until:
            failed = output.locator(".jp-RenderedText[data-mime-type$=error]")
            output.get_by_text(until).first.or_(failed.first).first.wait_for(timeout=180_000)
            assert not failed.count(), failed.first.inner_text()
            return
        self.page.wait_for_function(
            f"window.panel.content.widgets[{cell}].model.executionCount", timeout=1000 * seconds
        )

    def box(self, first: int, last: int) -> dict[str, float]:
        """Return the rectangle that holds some cells, in CSS pixels."""
        cells = self.page.locator(".jp-Notebook-cell")
        top, bottom = (cells.nth(number).bounding_box() for number in (first, last))
        height = bottom["y"] + bottom["height"] - top["y"]
        return {"x": top["x"], "y": top["y"], "width": top["width"], "height": height}


def save_small(path: Path) -> None:
    """Save a picture anew, with few colours."""
    from PIL import Image

    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")


def take(page: Any, name: str, clip: Callable[[], dict[str, float] | None]) -> None:
    """Save a picture in both themes."""
    for theme in ("Light", "Dark"):
        change_theme(page, theme)
        page.wait_for_timeout(1500)  # charts and editors are drawn anew and say nothing
        path = IMAGES / f"{name}-{theme.lower()}.png"
        page.screenshot(path=path, clip=clip())
        save_small(path)
    change_theme(page, "Light")


def draw_cell(lab: Lab, page: Any) -> None:
    """Draw a cell that has run on AWS, one that runs, and the panel."""
    page.set_viewport_size({"width": 1320, "height": 760})
    book = Book(lab, page, "digits", (f"{LOAD.splitlines()[0]}\n{DIGITS}", SCORE, TRAIN))
    book.run(0)
    book.run(1, "accuracy")
    page.wait_for_function("window.panel.sessionContext.session.kernel.status === 'idle'")
    page.evaluate(f"{COMMANDS}.execute('notebook:clear-cell-output').then(() => true)")
    book.run(1, "accuracy")  # again: the first run tells of the packages that it brought
    page.evaluate(f"{COMMANDS}.execute('jupyter-sky:open').then(() => true)")
    page.get_by_role("tab", name="Clusters", exact=True).click()
    page.locator(".jsky-Cluster").get_by_role("button", expanded=False).first.click()
    book.run(2, "epoch 30")
    take(page, "cell", lambda: None)
    page.evaluate(f"{COMMANDS}.execute('notebook:interrupt-kernel').then(() => true)")


def draw_function(lab: Lab, page: Any) -> None:
    """Draw a gather of calls on two nodes, while it runs."""
    page.set_viewport_size({"width": 900, "height": 900})
    book = Book(lab, page, "functions", (LOAD, FUNCTION, POOL))
    book.run(0)
    book.run(1)
    book.start(2)
    page.get_by_text(re.compile("1[0-9] of 40 calls done")).first.wait_for(timeout=180_000)
    take(page, "function", lambda: book.box(1, 2))


def draw_plan(lab: Lab, page: Any) -> None:
    """Draw the plan of a graph of two tasks."""
    page.set_viewport_size({"width": 1000, "height": 1300})
    book = Book(lab, page, "plan", (LOAD, PLAN))
    book.run(0)
    output = book.start(1)
    alternatives = output.locator("details").first
    alternatives.wait_for(timeout=120_000)

    def clip() -> dict[str, float]:
        bottom = alternatives.bounding_box()
        cell = book.box(1, 1)
        return cell | {"height": bottom["y"] + bottom["height"] - cell["y"]}

    take(page, "plan", clip)


def draw_form(lab: Lab, page: Any) -> None:
    """Draw the form of a cell, with offers that match."""
    page.set_viewport_size({"width": 1000, "height": 960})
    book = Book(lab, page, "form", (LOAD, "%%sky --gpus A100:8 --spot --timeout 4h\nfit(model)"))
    book.run(0)
    page.evaluate("window.panel.content.activeCellIndex = 1; window.panel.content.activate(); 0")
    page.keyboard.press("Alt+Shift+S")
    page.locator(".jsky-NeedsPanel .jsky-Needs-offers tbody tr").first.wait_for()
    page.wait_for_timeout(1500)

    def clip() -> dict[str, float]:
        form = page.locator(".jsky-NeedsPanel").bounding_box()
        return {"x": 0, "y": 0, "width": 1000, "height": form["y"] + form["height"] + 20}

    take(page, "form", clip)
    page.keyboard.press("Escape")


PICTURES = {
    "cell": draw_cell,
    "function": draw_function,
    "plan": draw_plan,
    "form": draw_form,
}


@contextmanager
def open_browser() -> Iterator[Any]:
    """Start Chromium; yield the browser."""
    from shutil import which

    from playwright.sync_api import sync_playwright

    chromium = which("chromium") or which("chromium-browser") or which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


def main(names: list[str]) -> None:
    """Take the pictures named, or all."""
    IMAGES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        loopback("aws") as cloud,
        open_browser() as browser,
    ):
        os.environ.update(cloud.env)
        python = install(Path(folder, "installed"))
        for name in names or PICTURES:
            home = Path(folder, name)
            home.mkdir()
            with serve(home, python, "jupyterlab") as lab:
                page = browser.new_page(device_scale_factor=SCALE)
                page.set_default_timeout(60_000)
                PICTURES[name](lab, page)
                page.close()


if __name__ == "__main__":
    main(sys.argv[1:])
