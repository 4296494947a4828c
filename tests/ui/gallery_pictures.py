"""Pictures of the example notebooks: ``python -m tests.ui.gallery_pictures [NOTEBOOK...]``.

Each notebook of `notebooks/gallery` is run in a real JupyterLab as far as the cells of its picture,
on this computer, without an account.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat

from tests.benchmarks.installed import install
from tests.emulators.hosts import SshHost
from tests.ui.labs import Lab, serve
from tests.ui.pictures import ROOT, SCALE, Book, open_browser, save_small

GALLERY = ROOT / "notebooks/gallery"
WIDTH, MOST_HEIGHT = 900, 700
SECONDS = 240.0
"""Longest time of a cell: the first one with Spark installs it."""
SHOWN = {
    "01-first-cell": (1, 1),
    "02-training-with-checkpoints": (2, 2),
    "03-sweep": (2, 2),
    "04-pipeline": (2, 2),
    "05-data": (2, 3),
    "06-dask-and-spark": (2, 3),
    "07-functions": (1, 1),
    "08-costs-and-budgets": (1, 2),
    "09-where-to-run": (1, 1),
    "10-what-spot-costs": (1, 1),
    "11-which-configuration": (1, 1),
    "12-your-own-machines": (1, 1),
}
"""First and last code cell of each picture, from 0."""


def draw(lab: Lab, page: Any, name: str) -> None:
    """Run a notebook as far as the cells of its picture, and save the picture."""
    cells = nbformat.read(GALLERY / f"{name}.ipynb", as_version=4).cells
    code = tuple(cell.source for cell in cells if cell.cell_type == "code")
    first, last = SHOWN[name]
    page.set_viewport_size({"width": WIDTH, "height": 1500})
    book = Book(lab, page, name, code[: last + 1])
    for number in range(last + 1):
        book.run(number, seconds=SECONDS)
    page.wait_for_timeout(1500)  # charts and cards are drawn and say nothing
    failed = page.locator(".jp-RenderedText[data-mime-type$=error]")
    assert not failed.count(), failed.first.inner_text()
    clip = book.box(first, last)
    path = GALLERY / "pictures" / f"{name}.png"
    page.screenshot(path=path, clip=clip | {"height": min(clip["height"], MOST_HEIGHT)})
    save_small(path)


def main(names: list[str]) -> None:
    """Take the pictures of the notebooks named, or of all."""
    (GALLERY / "pictures").mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        open_browser() as browser,
    ):
        python, home = install(Path(folder, "installed")), Path(folder, "home")
        home.mkdir()
        host = SshHost(84)
        with serve(home, python, "jupyterlab") as lab:
            data = home / "sky_data_dir"
            data.mkdir(exist_ok=True)
            (data / "hosts.toml").write_text(host.toml("lab"))
            for name in names or SHOWN:
                page = browser.new_page(device_scale_factor=SCALE)
                page.set_default_timeout(120_000)
                draw(lab, page, name)
                page.close()
        host.close()


if __name__ == "__main__":
    main(sys.argv[1:])
