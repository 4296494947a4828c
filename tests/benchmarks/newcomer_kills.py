"""Kernels killed while their page is open: the figure `kernel_kills_lost` of the newcomer.

A real browser shows one JupyterLab with several notebooks, each with a cluster of its own. Their
cells print a line every 0.2 s; the kernel of one is killed at a seeded moment, and the page is left
alone until the kernel is back and the engine has finished. What the engine has printed, by the
journals on disk, has to stand in the cell then, in its order and once, and the status line has to
show the right end and time.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

LINES = 12
LINE_SECONDS = 0.2
LATEST_KILL_SECONDS = 3.5
"""Latest kill after a cell was started: some kernels die just after its end."""
SETTLE_SECONDS = 45.0
STEP_SECONDS = 90.0
REST_SECONDS = 2.0
"""Time for which nothing may change any more before a cell is judged."""
LATE_SECONDS = 3.0
"""How far a live card may have counted past the end before it knows of it."""
BOOKS = 4
RESTARTS = "--AsyncIOLoopKernelRestarter.stable_start_time=1"  # else a fifth death is final
CARD = "application/vnd.jupyter-sky.run+json"

_FIND = """path => {
  const shell = window.jupyterapp.shell;
  return [...shell.widgets('main')].find(widget => widget.context?.path === path);
}"""
_STATE = f"""path => {{
  const panel = ({_FIND})(path);
  const cell = panel.content.widgets[1];
  const card = cell.node.querySelector('.jsky-Card');
  return {{
    kernel: panel.sessionContext.session?.kernel?.status ?? 'none',
    counts: panel.content.widgets.map(one => one.model.executionCount),
    outputs: cell.model.outputs.toJSON(),
    card: card?.innerText ?? '',
  }};
}}"""
_RUN = f"""([path, at, source]) => {{
  const panel = ({_FIND})(path);
  const cell = panel.content.widgets[at];
  cell.model.sharedModel.setSource(source);
  cell.model.executionCount = null;
  void cell.constructor.execute(cell, panel.sessionContext).catch(() => undefined);
  return true;
}}"""
_DISMISS = """() => {
  for (const button of document.querySelectorAll('.jp-Dialog .jp-mod-accept')) button.click();
}"""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass
class Shown:
    """Cell with outputs of a run, as the page has it now."""

    outputs: list[dict[str, Any]]
    card: str
    kernel: str
    counts: list[int | None]

    @property
    def lines(self) -> list[str]:
        """Lines of the streams."""
        streams = [one for one in self.outputs if one["output_type"] == "stream"]
        return "".join("".join(one["text"]) for one in streams).splitlines()

    @property
    def status(self) -> dict[str, Any] | None:
        """Status line among the outputs: the card, or its static form."""
        marked = [one for one in self.outputs if "jupyter_sky" in one.get("metadata", {})]
        return marked[-1] if marked else None

    @property
    def is_live(self) -> bool:
        """Whether the status line is the card of a run that goes on."""
        return self.status is not None and CARD in self.status["data"]

    @property
    def stage(self) -> str:
        """First word of a static status line."""
        text = "".join(self.status["data"]["text/plain"]) if self.status else ""
        return text.removeprefix("☁ ").partition(" ")[0]


@dataclass
class Kill:
    """One kill: its moment, and what came of it."""

    number: int
    after: float
    started: float = 0.0
    killed: float = 0.0
    process: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def token(self) -> str:
        return f"k{self.number}"

    def source(self, cluster: str) -> str:
        return (
            f"%%sky -c {cluster}\nimport time\nfor number in range({LINES}):\n"
            f"    print('{self.token}', number, flush=True)\n    time.sleep({LINE_SECONDS})\n"
            f"print('{self.token}', 'over')"
        )


class Book:
    """Notebook of the page, of which one kernel after the other is killed."""

    def __init__(self, page: Any, home: Path, path: str, cluster: str) -> None:
        self.page, self.home, self.path, self.cluster = page, home, path, cluster
        self.kill: Kill | None = None
        self._work = self._steps()
        self._latest_card = 0.0

    def turn(self) -> None:
        """Take the next step if its time has come."""
        next(self._work)

    def state(self) -> Shown:
        return Shown(**self.page.evaluate(_STATE, self.path))

    def kernel(self) -> psutil.Process | None:
        """Return the process of the notebook's kernel."""
        for process in psutil.process_iter():
            try:
                if not any("ipykernel_launcher" in word for word in process.cmdline()):
                    continue
                env = process.environ()
            except psutil.Error:
                continue
            mine = env.get("JPY_SESSION_NAME", "").endswith(self.path)
            if mine and env.get("IPYTHONDIR", "").startswith(str(self.home)):
                return process
        return None

    # -- steps -------------------------------------------------------------------------------

    def _steps(self) -> Iterator[None]:
        yield from self._load()
        yield from self._run_first_cell()
        while True:
            kill = self.kill
            if kill is None:
                yield
                continue
            yield from self._load()
            if kill.number % 2:  # its kernel is connected already
                yield from self._run_first_cell()
            yield from self._kill(kill)
            yield from self._settle(kill)
            self.kill = None

    def _run_first_cell(self) -> Iterator[None]:
        self.run(1, f"%%sky -c {self.cluster}\n1")
        ended = "done", "idle"
        yield from self._wait("cluster", lambda now: (now.stage, now.kernel) == ended)

    def _load(self) -> Iterator[None]:
        yield from self._wait("an idle kernel", lambda now: now.kernel == "idle")
        self.run(0, "%load_ext jupyter_sky")
        yield from self._wait("magics", lambda now: now.kernel == "idle" and bool(now.counts[0]))

    def _wait(self, what: str, is_reached: Callable[[Shown], bool]) -> Iterator[None]:
        deadline = time.monotonic() + STEP_SECONDS
        while not is_reached(self.state()):
            assert time.monotonic() < deadline, f"{self.path}: no {what}: {self.state()}"
            yield

    def run(self, cell: int, source: str) -> None:
        """Run a source in a cell."""
        self.page.evaluate(_RUN, [self.path, cell, source])

    def _kill(self, kill: Kill) -> Iterator[None]:
        self._latest_card = 0.0
        kernel = self.kernel()
        assert kernel is not None, "no kernel to kill"
        self.run(1, kill.source(self.cluster))
        kill.started = time.time()
        while time.time() - kill.started < kill.after:
            yield
        kernel.send_signal(signal.SIGKILL)
        kill.killed, kill.process = time.time(), kernel.pid

    def _settle(self, kill: Kill) -> Iterator[None]:
        """Wait until kernel, engine and cell rest, then judge the cell."""
        deadline, rest = time.time() + SETTLE_SECONDS, 0.0
        while time.time() < deadline:
            yield
            shown = self.state()
            self._latest_card = max(self._latest_card, card_seconds(shown.card))
            printed = self.printed(kill)
            is_over = not printed or printed[-1].endswith("over")
            if shown.is_live or shown.kernel != "idle" or not is_over:
                rest = 0.0
            elif not rest and not self._has_new_kernel(kill):
                continue  # the page says idle until the server has missed the old one
            elif not rest:
                rest = time.time()
            elif time.time() - rest > (REST_SECONDS if printed else 3 * REST_SECONDS):
                break
        self._judge(kill, self.state(), self.printed(kill))

    def _has_new_kernel(self, kill: Kill) -> bool:
        kernel = self.kernel()
        return kernel is not None and kernel.pid != kill.process

    def printed(self, kill: Kill) -> list[str]:
        """Return the lines that the engine has printed, by the journals on disk."""
        return "".join(text for text, _ in self._entries(kill)).splitlines()

    def _entries(self, kill: Kill) -> list[tuple[str, float]]:
        """Return texts and times of the journal; a line may stand in several entries."""
        found = []
        for file in (self.home / "sky_data_dir").glob("*/*/journal/*.jsonl"):
            text = file.read_text()
            if kill.token + " " not in text:
                continue
            for line in text.splitlines():
                entry = json.loads(line)
                found.append((entry["content"].get("text", ""), entry["time"]))
        return found

    def _judge(self, kill: Kill, shown: Shown, printed: list[str]) -> None:
        if shown.lines != printed:
            missing = [line for line in printed if line not in shown.lines]
            kill.problems.append(f"{len(missing)} lines missing; the cell has {shown.lines}")
        if shown.is_live:
            kill.problems.append("the card is still live")
        elif printed and shown.stage != "done":
            kill.problems.append(f"the engine has finished, the status line says {shown.stage!r}")
        elif not printed and shown.stage == "done":
            kill.problems.append("nothing has run, the status line says done")
        if printed and shown.status is not None:
            end = self._entries(kill)[-1][1] - kill.started
            if self._latest_card > end + LATE_SECONDS:
                kill.problems.append(f"ended after {end:.1f} s, card: {self._latest_card:.0f} s")


def card_seconds(text: str) -> float:
    """Return the time that a card shows, before and after its cell was sent; 0 without one.

    Examples
    --------
    >>> card_seconds("● running boot 4.2 s, run 1:05 · $0.00 this cell")
    69.2
    """
    times = re.findall(r"(?:(\d+):)?([\d.]+)", text.partition(" · ")[0])
    return sum(60.0 * int(minutes or 0) + float(seconds) for minutes, seconds in times)


@contextmanager
def opened_books(count: int) -> Iterator[tuple[Any, list[Book]]]:
    """Yield a page with some notebooks side by side, in a JupyterLab of their own."""
    from playwright.sync_api import sync_playwright

    from tests.benchmarks.installed import install
    from tests.ui.labs import FLAGS, serve, write_notebook

    names = "chromium", "chromium-browser", "google-chrome"
    chromium = next(filter(None, map(shutil.which, names)))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        (home / "installed").mkdir()
        (home / "lab").mkdir()
        python = install(home / "installed")
        with (
            serve(home / "lab", python, "jupyterlab", RESTARTS) as lab,
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            page = browser.new_page(viewport={"width": 1600, "height": 1000})
            page.set_default_timeout(60_000)
            paths = [f"book{number}.ipynb" for number in range(count)]
            for path in paths:
                write_notebook(home / path, "1", "2")
            lab.open(page, home / paths[0])
            for path in paths[1:]:
                shutil.copy(home / path, lab.home / "work")
                options = {"path": path, "options": {"mode": "split-right"}}
                page.evaluate(
                    "options => window.jupyterapp.commands.execute('docmanager:open', options)"
                    ".then(panel => panel.context.ready).then(() => true)",
                    options,
                )
            books = [Book(page, lab.home, path, path.removesuffix(".ipynb")) for path in paths]
            yield page, books
            browser.close()


def kernel_kills_lost(kills: int, seed: int = 1, report: Path | None = None) -> int:
    """Kill kernels at seeded moments of their cells; return how many cells were wrong afterwards.

    It has a browser of its own: call it outside of other synchronous Playwright sessions.

    Parameters
    ----------
    report
        File for the findings of each kill, as JSON lines.
    """
    rng = random.Random(seed)
    waiting = [Kill(number, rng.uniform(0.0, LATEST_KILL_SECONDS)) for number in range(kills)]
    done: list[Kill] = []
    with opened_books(min(BOOKS, kills)) as (page, books):
        current: dict[str, Kill | None] = dict.fromkeys(book.path for book in books)
        while len(done) < kills:
            for book in books:
                book.turn()
                if book.kill is not None:
                    continue
                if (ended := current[book.path]) is not None:
                    done.append(ended)
                    _tell(ended, len(done), report)
                book.kill = current[book.path] = waiting.pop(0) if waiting else None
            page.evaluate(_DISMISS)
            page.wait_for_timeout(50)
    wrong = [kill for kill in done if kill.problems]
    say(f"{len(wrong)} of {kills} cells were wrong after the death of their kernel")
    return len(wrong)


def _tell(kill: Kill, count: int, report: Path | None) -> None:
    took = time.time() - kill.killed
    say(f"{count}: {kill.token} killed after {kill.after:.2f} s, settled {took:.0f} s later")
    for problem in kill.problems:
        say(f"   {problem}")
    if report is not None:
        with report.open("a") as file:
            file.write(json.dumps(vars(kill)) + "\n")


def main(quick: bool = False, seed: int = 1) -> dict[str, float]:
    """Return `kernel_kills_lost` after 100 kills."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    return {"kernel_kills_lost": kernel_kills_lost(4 if quick else 100, seed)}
