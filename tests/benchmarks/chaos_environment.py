"""Environment of the users of the chaos: a home folder, one data directory, a Jupyter server."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.conftest import Notebook
from tests.emulators.isolation import mount

DISK_BYTES = "160m"
SERVER_SECONDS = 60.0
"""Time within which a server ends on a busy machine."""
LOOK_SECONDS = 5.0
"""Seconds between two requests of a page of JupyterLab."""
_NEW_MOUNTS, _PRIVATE = 0x20000, 0x44000  # CLONE_NEWNS; MS_REC | MS_PRIVATE


class Home:
    """A home folder.

    Attributes
    ----------
    disk : Path
        A small file system of its own, where mounting is allowed.
    data : Path
        The data directory of all users.
    roomy : threading.Event
        Set while the disk is not full.
    isolated : bool
        Whether mounts and host names can be changed for one process alone.
    """

    def __init__(self, env: dict[str, str]) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="sky-chaos-"))
        self.disk, self.env = self.root / "disk", env
        self.disk.mkdir()
        self.data = self.disk / "data"
        self.data.mkdir(mode=0o700)
        self.isolated = os.geteuid() == 0 and shutil.which("nsenter") is not None
        if self.isolated:
            self._mount()
        self._server: subprocess.Popen[bytes] | None = None
        self.roomy = threading.Event()
        self.roomy.set()
        self._url, self._token = "", secrets.token_hex(16)
        self._over = threading.Event()

    def _mount(self) -> None:
        """Give the disk a file system that nobody else sees, and that ends with us."""
        try:
            if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS):
                raise OSError(ctypes.get_errno(), "unshare")
            mount("none", "/", "", _PRIVATE)
            mount("chaos", str(self.disk), "tmpfs", 0, f"size={DISK_BYTES},mode=700")
            self.data.mkdir(mode=0o700)
        except OSError as error:
            self.isolated = False
            print(f"no mounts and no host names are changed: {error}")

    def own_data(self, number: int) -> Path:
        """Make a data directory for one cell; the catalog in it is ready."""
        data = self.root / f"own{number}"
        data.mkdir(mode=0o700)
        with contextlib.suppress(OSError):
            shutil.copytree(self.data / "cache", data / "cache", symlinks=True)
        return data

    # -- a Jupyter server with a page open ---------------------------------------------------

    def open_panel(self) -> None:
        """Start a Jupyter server of these users, whose panel somebody looks at."""
        log = (self.root / "server.log").open("wb")
        command = [sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser"]
        command += [f"--IdentityProvider.token={self._token}", "--ServerApp.port=0"]
        command += ["--ServerApp.jpserver_extensions=jupyter_sky=True", "--ip=127.0.0.1"]
        runtime = self.root / "runtime"
        env = {**os.environ, **self.env, "SKY_DATA_DIR": str(self.data)}
        env |= {"JUPYTER_RUNTIME_DIR": str(runtime), "PYTHONFAULTHANDLER": "1"}
        self._server = subprocess.Popen(command, cwd=self.root, env=env, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not (found := list(runtime.glob("jpserver-*.json"))):
            if time.monotonic() > deadline or self._server.poll() is not None:
                raise RuntimeError((self.root / "server.log").read_text()[-2000:])
            time.sleep(0.1)
        self._url = json.loads(found[0].read_text())["url"]
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            with contextlib.suppress(OSError):
                self.panel("GET", "state")

    def panel(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the server as the panel does."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{self._url}jupyter-sky/{path}", data, headers, method=method
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=150) as answer:
            return json.loads(answer.read())

    def close_panel(self) -> None:
        """End the server."""
        self._over.set()
        if self._server is not None:
            self._server.terminate()
            try:
                self._server.wait(SERVER_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"the server did not end in {SERVER_SECONDS:g} s", flush=True)
                self._server.send_signal(signal.SIGABRT)  # it writes where it stood
                self._server.wait(30)
                print((self.root / "server.log").read_text()[-6000:], flush=True)

    def close(self) -> None:
        """Leave nothing of it."""
        self.close_panel()
        if os.path.ismount(self.disk):
            subprocess.run(["umount", "-l", str(self.disk)], check=False)
        shutil.rmtree(self.root, ignore_errors=True)


class IsolatedNotebook(Notebook):
    """A kernel with mounts and a host name of its own, so that both can be changed."""

    def start(self) -> None:
        """Start the kernel within namespaces."""
        spec = self.manager.kernel_spec
        assert spec is not None
        options = "--mount --uts --propagation private --".split()
        spec.argv = ["unshare", *options, self.python, *spec.argv[1:]]
        self.python = spec.argv[0]  # what a notebook puts in front
        super().start()
