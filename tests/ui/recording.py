"""Recording at the top of README.md: ``python -m tests.ui.recording``.

A real JupyterLab on this computer, without an account: a cell is typed, its cluster starts, it
prints as it runs, and the panel ends the cluster. The recording is an animated WebP, in the light
and in the dark theme, in ``.github/images``. Where this computer is busy, waiting is shown faster
than it was.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops

from tests.benchmarks.installed import install
from tests.ui.labs import COMMANDS, Lab, change_theme, run_cell, serve
from tests.ui.pictures import DIGITS, IMAGES, LOAD, SCALE, Book, open_browser

WIDTH, HEIGHT = 1000, 600
SHOT = {
    "format": "png",
    "optimizeForSpeed": True,
    "clip": {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": SCALE},
}
"""How Chromium takes a frame: three times as fast as `page.screenshot`."""
FRAME_SECONDS, TYPING_SECONDS, POINTER_SECONDS = 0.1, 0.08, 0.05
"""Time between two frames: of a pause, while a cell is typed, and while the pointer moves."""
TYPED_AT_ONCE = 4
"""Characters between two frames while a cell is typed."""
POINTER_STEPS, POINTER_AT = 8, (600.0, 480.0)
"""Frames of a move of the pointer, and where it begins."""
LAST_SECONDS = 2.5
"""Time for which the last frame is shown, before the recording begins anew."""
MOST_BYTES = 2_000_000
MOST_WAITING_SECONDS = 300
SHORTEST, SECONDS, LONGEST = 15, 20, 25
"""Seconds that a recording may last, and those to which waiting is shortened."""

CELL = """%%sky --cpus 1 -i X,y -o model
from sklearn.neural_network import MLPClassifier

model = MLPClassifier(random_state=0)
for epoch in range(1, 41):
    model.partial_fit(X, y, classes=range(10))
    if epoch % 5 == 0:
        print(f"epoch {epoch}: accuracy {model.score(X, y):.3f}")"""
DONE = "epoch 40"

POINTER = """() => {
  const pointer = document.createElement('div');
  pointer.innerHTML = `<svg width="20" height="24" viewBox="0 0 20 24">
    <path d="M2 2 L2 18 L6.5 14 L9.5 21 L12.5 19.7 L9.5 13 L15.5 13 Z"
      fill="black" stroke="white" stroke-width="1.5"/></svg>`;
  pointer.style.cssText = 'position:fixed;left:-30px;top:0;z-index:99999;pointer-events:none';
  document.body.append(pointer);
  document.addEventListener('mousemove', ({ clientX, clientY }) => {
    pointer.style.left = `${clientX - 2}px`;
    pointer.style.top = `${clientY - 2}px`;
  }, true);
}"""
"""A mouse pointer: screenshots have none."""


class Recorder:
    """Frames of a page, each with the time for which it is shown."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self._devtools = page.context.new_cdp_session(page)
        self._frames: list[Image.Image] = []
        self._seconds: list[float] = []
        self._waited: list[float] = []
        self._last = 0.0
        self._pointer = POINTER_AT

    def take(self, after: float | None = None) -> None:
        """Take a frame; one that is like the last prolongs that.

        Parameters
        ----------
        after
            Seconds for which the last frame is shown; as long as was waited since unless given.
        """
        shot = self._devtools.send("Page.captureScreenshot", SHOT)["data"]
        picture = Image.open(io.BytesIO(base64.b64decode(shot))).convert("RGB")
        now = time.monotonic()
        if self._frames and after is None:
            self._waited[-1] += now - self._last
        elif self._frames:
            self._seconds[-1] += after
        self._last = now
        if not self._frames or ImageChops.difference(self._frames[-1], picture).getbbox():
            self._frames.append(picture)
            self._seconds.append(0.0)
            self._waited.append(0.0)

    def watch(self, seconds: float) -> None:
        """Take frames for some seconds of the recording."""
        for _ in range(round(seconds / FRAME_SECONDS)):
            self.page.wait_for_timeout(1000 * FRAME_SECONDS)
            self.take(FRAME_SECONDS)

    def watch_until(self, shown: Any) -> None:
        """Take frames until a locator finds an element."""
        end = time.monotonic() + MOST_WAITING_SECONDS
        while not shown.count():
            assert time.monotonic() < end, f"not shown: {shown}"
            self.page.wait_for_timeout(1000 * FRAME_SECONDS)
            self.take()

    def type(self, text: str) -> None:
        """Type a text, with frames in between; the editor indents its lines."""
        for number, line in enumerate(text.splitlines()):
            if number:
                self.page.keyboard.press("Enter")
            typed = line.lstrip()
            for at in range(0, len(typed), TYPED_AT_ONCE):
                self.page.keyboard.insert_text(typed[at : at + TYPED_AT_ONCE])
                self.take(TYPING_SECONDS)

    def click(self, target: Any) -> None:
        """Move the pointer to an element, and click it."""
        box = target.bounding_box()
        goal = box["x"] + min(box["width"] / 2, 60), box["y"] + box["height"] / 2
        for step in range(1, POINTER_STEPS + 1):
            part = step / POINTER_STEPS
            x, y = (a + (b - a) * part for a, b in zip(self._pointer, goal, strict=True))
            self.page.mouse.move(x, y)
            self.take(POINTER_SECONDS)
        self._pointer = goal
        self.watch(0.3)
        self.page.mouse.click(*goal)

    def save(self, path: Path) -> None:
        """Save the frames as an animated WebP that begins anew at its end."""
        self.take()
        self._seconds[-1] += LAST_SECONDS
        waited, fixed = sum(self._waited), sum(self._seconds)
        faster = min(1.0, (SECONDS - fixed) / waited)
        pairs = zip(self._seconds, self._waited, strict=True)
        durations = [shown + faster * waiting for shown, waiting in pairs]
        assert fixed < SECONDS and sum(durations) > SHORTEST, f"{fixed:.1f} s + {waited:.1f} s"
        self._frames[0].save(
            path,
            save_all=True,
            append_images=self._frames[1:],
            duration=[max(20, round(1000 * duration)) for duration in durations],
            loop=0,
            lossless=True,
            method=2,
            minimize_size=True,
        )
        size, lasts = path.stat().st_size, f"{sum(durations):.1f} s, of {waited + fixed:.1f} s"
        print(
            f"{path.name}: {size / 1024:.0f} KiB, {len(self._frames)} frames, {lasts}", flush=True
        )
        assert size < MOST_BYTES, f"{path} has {size} bytes, more than {MOST_BYTES}"


def record(lab: Lab, page: Any, theme: str) -> None:
    """Record a cell from its first character to the end of its cluster."""
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    book = Book(lab, page, "digits", (f"{LOAD.splitlines()[0]}\n{DIGITS}", ""))
    change_theme(page, theme)
    book.run(0)
    page.evaluate(f"{COMMANDS}.execute('jupyter-sky:open').then(() => true)")
    page.get_by_role("tab", name="Clusters", exact=True).click()
    page.evaluate(POINTER)
    page.locator(".jp-Notebook-cell").nth(1).locator(".cm-content").click()
    page.mouse.move(*POINTER_AT)
    page.wait_for_selector(".jp-Notebook.jp-mod-editMode .cm-focused")
    page.wait_for_timeout(1000)

    recorder = Recorder(page)
    recorder.watch(0.8)
    recorder.type(CELL)
    typed = page.evaluate("window.panel.content.widgets[1].model.sharedModel.source")
    assert typed == CELL, typed
    recorder.watch(0.5)
    output = run_cell(page, 1)
    recorder.watch_until(output.get_by_text(DONE))
    recorder.watch(1.5)
    cluster = page.locator(".jsky-Cluster")
    recorder.click(cluster.get_by_role("button", expanded=False).first)
    recorder.watch(1.2)
    recorder.click(cluster.get_by_role("button", name="End cluster"))
    page.get_by_role("dialog").wait_for()
    recorder.watch(1.0)
    recorder.click(page.get_by_role("dialog").locator(".jp-mod-accept"))
    recorder.watch_until(page.locator(".jsky-StatusItem-button", has_text="0 up"))
    recorder.save(IMAGES / f"recording-{theme.lower()}.webp")


def main(themes: list[str]) -> None:
    """Record in the themes named, or in both."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        open_browser() as browser,
    ):
        python = install(Path(folder, "installed"))
        for theme in themes or ("Light", "Dark"):
            home = Path(folder, theme)
            home.mkdir()
            with serve(home, python, "jupyterlab") as lab:
                page = browser.new_page(device_scale_factor=SCALE)
                page.set_default_timeout(120_000)
                record(lab, page, theme)
                page.close()


if __name__ == "__main__":
    main(sys.argv[1:])
