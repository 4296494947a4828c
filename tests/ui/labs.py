"""Real JupyterLab server with its own folders, steered by a real browser."""

import json
import re
import secrets
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest

from jupyter_sky.machines.engines.node.ports import free_port
from tests.benchmarks.installed import environment
from tests.benchmarks.notebook_client import end_processes, own_folders
from tests.conftest import WAIT

ROOT = Path(__file__).parents[2]
ARTIFACTS = ROOT / "tests/artifacts"  # git-ignored
AXE = ROOT / "labextension/node_modules/axe-core/axe.min.js"

# The first keep Chromium alive as root without a GPU; the others keep it off the network.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--disable-quic", "--disable-sync"),
]

SETTINGS = {
    # The news pop-up covers the corner of every screenshot.
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Every cell in the page, scrolled to or not.
    "notebook-extension/tracker": {"windowingMode": "none"},
}

WAIT_MS = WAIT * 1000
"""Longest wait for what a page is to show: as long as all waits of tests, in milliseconds."""
COMMANDS = "window.jupyterapp.commands"
RUN_ALL = "notebook:run-all-cells"


@dataclass
class Lab:
    url: str
    token: str
    home: Path
    python: Path  # that the server runs on
    env: dict[str, str]  # that it was started with

    def open(self, page, notebook: Path) -> "Notebook":
        """Open a copy of a notebook and wait for its kernel."""
        shutil.copy(notebook, self.home / "work")
        page.goto(f"{self.url}/lab/tree/{notebook.name}?token={self.token}&reset")
        page.wait_for_selector("#jupyterlab-splash", state="detached")
        page.wait_for_function("window.jupyterapp")
        # Until the layout is restored, widgets come and go.
        page.evaluate("window.jupyterapp.restored.then(() => true)")
        # The page's own busy marker says idle before there is a kernel, and commands are
        # registered late: ask for both. Not in an async function, whose promise passes for true.
        page.wait_for_function(
            f"""() => {{
              window.panel = window.jupyterapp.shell.currentWidget;
              const session = window.panel?.sessionContext;
              return session?.isReady && session.session?.kernel?.status === 'idle'
                && {COMMANDS}.hasCommand('{RUN_ALL}');
            }}"""
        )
        return Notebook(page)


@dataclass
class Notebook:
    page: object

    def run_all(self, seconds: float = 120) -> None:
        """Run all cells; returns when all have run, or when the kernel rests for good."""
        # After an error, even one that `raises-exception` allows, the command ends and the marks
        # of the waiting cells go, while the kernel works on through its queue.
        self.page.evaluate(f"() => {{ {COMMANDS}.execute('{RUN_ALL}'); }}")
        deadline, rest = time.monotonic() + seconds, 0
        while rest < 20 and time.monotonic() < deadline:
            idle, ran = self.page.evaluate(
                """() => [
                  window.panel.sessionContext.session.kernel.status === 'idle',
                  window.panel.content.widgets.every(
                    cell => cell.model.type !== 'code' || cell.model.executionCount)
                ]"""
            )
            if idle and ran:
                return
            rest = rest + 1 if idle else 0
            self.page.wait_for_timeout(250)

    @property
    def cells(self) -> list[dict]:
        """The cells with their outputs, as a save would write them."""
        return self.page.evaluate("window.panel.content.model.toJSON()")["cells"]

    def screenshot(self, name: str, theme: str) -> Path:
        """Return the whole notebook in one picture, however long; `theme` is Light or Dark."""
        page, path = self.page, ARTIFACTS / f"{name}-{theme.lower()}.png"
        path.parent.mkdir(exist_ok=True)
        change_theme(page, theme)
        cells = page.locator(".jp-Notebook .jp-Cell").all()
        for cell in cells:  # one that is being drawn anew has no place for a moment
            cell.wait_for(state="visible", timeout=WAIT_MS)
        boxes = [cell.bounding_box() for cell in cells]
        height = boxes[-1]["y"] + boxes[-1]["height"] - boxes[0]["y"]
        around = 200  # menus above, status bar below
        page.set_viewport_size({"width": 1200, "height": max(900, int(height) + around)})
        page.wait_for_timeout(500)  # the page lays itself out anew and says nothing when done
        page.screenshot(path=path)
        return path


def run_cell(page: Any, cell: int) -> Any:
    """Begin to run a cell of the notebook in a page; return the locator of its outputs."""
    page.evaluate(f"window.panel.content.activeCellIndex = {cell}; 0")
    page.evaluate(f"() => {{ {COMMANDS}.execute('notebook:run-cell'); }}")
    return page.locator(".jp-Notebook-cell").nth(cell).locator(".jp-OutputArea").first


def write_notebook(path: Path, *cells: str) -> Path:
    """Return a notebook of code cells that opens without a question for its kernel."""
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    document = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata={"kernelspec": spec}
    )
    nbformat.write(document, path)
    return path


@contextmanager
def opened(lab: "Lab", browser, path: Path, *cells: str) -> Iterator["Notebook"]:
    """Yield a notebook of code cells in its own page; errors of the page fail at the end."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.set_default_timeout(WAIT_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield lab.open(page, write_notebook(path, *cells))
    page.close()
    assert not errors


def change_theme(page, theme: str) -> None:
    """Choose a theme, Light or Dark, and wait until it is there."""
    name = f"JupyterLab {theme}"
    page.evaluate(f"theme => {COMMANDS}.execute('apputils:change-theme', {{theme}})", name)
    page.wait_for_selector(f"body[data-jp-theme-name='{name}']", state="attached")


def axe(page, selector: str) -> list[str]:
    """Return serious and critical findings of axe-core below an element."""
    if not AXE.exists():
        pytest.skip("no axe-core: run npm ci in labextension")
    if not page.evaluate("'axe' in window"):
        page.add_script_tag(path=AXE)
    found = page.evaluate("selector => axe.run(selector).then(all => all.violations)", selector)
    return [
        f"{one['impact']}: {one['help']}: {node['html']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@contextmanager
def serve(home: Path, python: Path, app: str, *options: str) -> Iterator[Lab]:
    """Yield a server in a world of its own; `app` is jupyterlab or notebook."""
    folders = own_folders(home)
    for name in ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"):
        folders[name] = str(home / name.lower())
    (home / "work").mkdir()
    for plugin, values in SETTINGS.items():
        path = Path(folders["JUPYTERLAB_SETTINGS_DIR"], f"@jupyterlab/{plugin}.jupyterlab-settings")
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(json.dumps(values))

    port = free_port("127.0.0.1")
    token, log = secrets.token_hex(16), home / "server.log"
    command = [
        *(str(python), "-m", app, "--no-browser", "--allow-root"),
        *("--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"),
        *(f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={home / 'work'}"),
        "--LabApp.expose_app_in_browser=True",  # window.jupyterapp, by which the tests steer
        "--JupyterNotebookApp.expose_app_in_browser=True",
        *options,
    ]
    env = environment(python, folders)
    with log.open("w") as out:
        # Not here: what stands in the working folder would be imported before what is installed.
        server = subprocess.Popen(command, env=env, cwd=home, stdout=out, stderr=out)
    lab = Lab(f"http://127.0.0.1:{port}", token, home, python, env)
    try:
        _wait_until_up(lab, server, log)
        yield lab
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            # a worker thread of AnyIO outlives its event loop where a kernel was being started
            server.kill()
            server.wait(20)
        end_processes(home)


def _wait_until_up(lab: Lab, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(f"{lab.url}/api/status?token={lab.token}", timeout=5)
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(
        f"{server.args[2]} did not start:\n{re.sub(lab.token, '…', log.read_text())[-3000:]}"
    )
