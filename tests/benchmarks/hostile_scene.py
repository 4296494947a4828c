"""Scene of one hostile try: an open folder, a home, canaries, and real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.emulators.hostile import EvilController

ROOT = Path(__file__).parents[2]

STRANGER = 54321
SECONDS = 60.0
SERVER = """
import os
from types import SimpleNamespace
from traitlets.config import SingletonConfigurable
from jupyter_sky.base.errors import SkyError

class App(SingletonConfigurable):
    root_dir = os.getcwd()

from jupyter_sky.interfaces.server import clusters, runs
from jupyter_sky.interfaces.server.service import SkyService

service = SkyService(App.instance(), SimpleNamespace(emit=lambda **k: None))

def say(work, *args):
    try:
        print(work(*args))
    except SkyError as error:
        print(type(error).__name__, error)

from jupyter_sky.base.settings.settings import Sky
say(lambda: Sky.load().data_dir)
try:
    rows = service.session.store.clusters()
    known = service.session.store.runs()
except SkyError:
    rows = known = []
for row in rows:
    for work in (clusters.get_metrics, clusters.get_ssh_command, clusters.get_launch_log):
        say(work, service, row.name)
for run in known:
    say(runs.get_log, service, run.run_id, 0)
say(service.reconcile)
say(service.overview)
service.close()
"""
KERNEL = """
import sys
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3")
try:
    for cell in sys.argv[1:]:
        reply = client.execute_interactive(cell, timeout=50)["content"]
        print(reply["status"], reply.get("ename", ""), reply.get("evalue", ""))
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
"""


@dataclass
class Scene:
    """One try: a folder that is open, a home, canaries, and what was said."""

    root: Path
    evil: EvilController
    listener: socket.socket
    sleeper: subprocess.Popen[bytes]
    said: str = ""
    env: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder that is open."""
        return self.root / "repository"

    @property
    def data(self) -> Path:
        """The user's own data directory."""
        return self.root / "home" / "jupyter" / "sky"

    @property
    def canary(self) -> Path:
        """The file that only harm would make."""
        return self.root / "canary"

    @property
    def port(self) -> int:
        """The port that only harm would connect to."""
        return self.listener.getsockname()[1]

    @property
    def address(self) -> str:
        """The address of a web server that only harm would connect to."""
        return f"http://{self.listener.getsockname()[0]}:{self.port}/simple"

    @property
    def touch(self) -> str:
        """A shell command that makes the canary."""
        return f"touch {self.canary}"

    @property
    def code(self) -> str:
        """A Python expression that makes the canary."""
        return f"__import__('pathlib').Path('{self.canary}').touch()"

    def project(self, text: str, name: str = "pyproject.toml") -> Path:
        """Write a project's file into the open folder."""
        path = self.folder / name
        path.write_text(f"[tool.jupyter_sky]\n{text}\n")
        return path

    def run(self, *words: str) -> None:
        """Run Python with some words in the open folder, and keep what it says."""
        home = self.root / "home"
        kept = {name: text for name, text in os.environ.items() if not name.startswith("SKY_")}
        paths = {"HOME": str(home), "JUPYTER_DATA_DIR": str(home / "jupyter")}
        done = subprocess.run(
            [sys.executable, "-P", *words],
            cwd=self.folder,
            env={**kept, **paths, "PYTHONPATH": str(ROOT), **self.env},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        self.said += done.stdout + done.stderr

    def serve(self) -> None:
        """Let the service of a Jupyter server look after all that is known."""
        self.run("-c", SERVER)

    def call(self, *words: str) -> None:
        """Run a command of ``jupyter sky``."""
        self.run("-m", "jupyter_sky.cli", *words)

    def cells(self, *cells: str) -> None:
        """Run cells in a kernel that is started in the open folder."""
        self.run("-c", KERNEL, "%load_ext jupyter_sky", *cells)

    def effects(self, forbidden: str) -> list[str]:
        """Say what happened that was not to happen."""
        found = ["a file was made"] if self.canary.exists() else []
        with_timeout = self.listener
        with_timeout.settimeout(0.05)
        try:
            with_timeout.accept()[0].close()
            found.append("a connection was made")
        except TimeoutError:
            pass
        if self.sleeper.poll() is not None:
            found.append("a process was ended")
        if forbidden and forbidden in self.said:
            found.append(f"{forbidden} took effect")
        if "Traceback (most recent call last)" in self.said:
            found.append("a traceback was shown")
        return found


@dataclass(frozen=True)
class Try:
    """Something hostile: how it is made and met, what may not be said, what must be."""

    name: str
    do: Callable[[Scene], None]
    forbidden: str = ""
    expected: str = ""


@contextmanager
def scene(root: Path) -> Iterator[Scene]:
    """Make a scene with live canaries."""
    (root / "repository").mkdir(parents=True)
    (root / "home").mkdir()
    evil = EvilController(root / "canary")
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with socket.create_server(("127.0.0.2", 0)) as listener:
        try:
            yield Scene(root, evil, listener, sleeper)
        finally:
            evil.close()
            sleeper.kill()
            sleeper.wait()
