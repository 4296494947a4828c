"""Recording of README.md, taken of a real JupyterLab: ``python -m tests.ui.recording``.

A cell is typed and runs on a machine that is rented from an emulated AWS on this computer; the
panel shows its cluster. Prices are those of the catalog. The recording is an animated PNG in the
light and in the dark theme, of the time that the cell took, in ``.github/images``.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops

from tests.benchmarks.installed import install
from tests.emulators.loopback import loopback
from tests.ui.labs import COMMANDS, Lab, change_theme, run_cell, serve
from tests.ui.pictures import DIGITS, IMAGES, LOAD, SCORE, Book, open_browser

WIDTH, HEIGHT = 1100, 560
SECONDS = 20.0
FRAME_SECONDS = 0.2
COLORS = 48
MOST_BYTES = 2_000_000
KEY_MILLISECONDS = 25


class Recorder:
    """Frames of a page, each with the time for which it is seen."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self._frames: list[Image.Image] = []
        self._seconds: list[float] = []
        self._last = time.monotonic()

    def take(self) -> None:
        """Take a frame; one that is like the last prolongs that."""
        picture = Image.open(io.BytesIO(self._page.screenshot())).convert("RGB")
        now = time.monotonic()
        if self._seconds:
            self._seconds[-1] += now - self._last
        self._last = now
        if self._frames and ImageChops.difference(self._frames[-1], picture).getbbox() is None:
            return
        self._frames.append(picture)
        self._seconds.append(0.0)

    def watch(self, seconds: float) -> None:
        """Take frames for some seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.take()
            self._page.wait_for_timeout(1000 * FRAME_SECONDS)

    def save(self, path: Path, last_seconds: float = 3.0) -> None:
        """Save what was taken as an animated PNG, which shows its last frame longer."""
        self._seconds[-1] += last_seconds
        palette = self._frames[-1].quantize(COLORS, dither=Image.Dither.NONE)
        small = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in self._frames]
        small[0].save(
            path,
            save_all=True,
            append_images=small[1:],
            duration=[max(20, round(1000 * seconds)) for seconds in self._seconds],
            loop=0,
            optimize=True,
        )
        size, lasts = path.stat().st_size, sum(self._seconds)
        print(f"{path.name}: {size / 1024:.0f} KiB, {len(small)} frames, {lasts:.0f} s")
        assert size < MOST_BYTES, f"{path} has {size} bytes, more than {MOST_BYTES}"


def record(lab: Lab, page: Any, theme: str) -> None:
    """Type a cell and run it, with the panel beside."""
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    book = Book(lab, page, "digits", (f"{LOAD.splitlines()[0]}\n{DIGITS}", ""))
    change_theme(page, theme)
    book.run(0)
    page.evaluate(f"{COMMANDS}.execute('jupyter-sky:open').then(() => true)")
    page.get_by_role("tab", name="Clusters", exact=True).click()
    page.evaluate("window.panel.content.activeCellIndex = 1; 0")
    page.evaluate(f"{COMMANDS}.execute('notebook:enter-edit-mode').then(() => true)")
    page.wait_for_timeout(1500)
    recorder = Recorder(page)
    recorder.take()
    for line in SCORE.splitlines():
        for part in (line[:12], line[12:24], line[24:40], line[40:]):
            page.keyboard.insert_text(part)
            page.wait_for_timeout(KEY_MILLISECONDS * len(part) / 4)
            recorder.take()
        page.keyboard.insert_text("\n") if line != SCORE.splitlines()[-1] else None
    output = run_cell(page, 1)
    end = time.monotonic() + SECONDS
    while not output.get_by_text("accuracy").count() and time.monotonic() < 3 * SECONDS + end:
        recorder.watch(2 * FRAME_SECONDS)
    recorder.watch(3.0)
    recorder.save(IMAGES / f"recording-{theme.lower()}.png")


def main() -> None:
    """Record in both themes."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        loopback("aws") as cloud,
        open_browser() as browser,
    ):
        os.environ.update(cloud.env)
        python = install(Path(folder, "installed"))
        for theme in ("Light", "Dark"):
            home = Path(folder, theme)
            home.mkdir()
            with serve(home, python, "jupyterlab") as lab:
                page = browser.new_page(device_scale_factor=1)
                page.set_default_timeout(60_000)
                record(lab, page, theme)
                page.close()


if __name__ == "__main__":
    main()
