"""Datasets mounted on this machine by FUSE, each served by a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_sky.base.remote.supervisor import ENGINE_VARIABLE, unmount_below
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.datasets.signed_windows import Window
from jupyter_sky.machines.storage.stores.dataset import Dataset
from jupyter_sky.machines.storage.stores.errors import SkyStorageError

COMMAND = (sys.executable, "-m", "jupyter_sky.machines.storage.datasets.mount_process")
MOUNT_SECONDS = 20.0
DEVICE = Path("/dev/fuse")


def missing_for_mounts(device: Path = DEVICE) -> str:
    """Return what this machine lacks for mounts, in words; empty where it has all."""
    if sys.platform != "linux":
        return _("FUSE, which is used on Linux only")
    if not device.exists():
        return _("{device}, which containers often lack").format(device=device)
    if shutil.which("fusermount3") is None:
        return _("fusermount3 (apt install fuse3)")
    try:
        import mfusepy
    except ImportError:
        return "mfusepy (pip install mfusepy)"
    except OSError:
        return _("libfuse3 (apt install fuse3)")
    return "" if mfusepy.fuse_version_major == 3 else _("libfuse3 (apt install fuse3)")


class Mount:
    """A mounted dataset and the process that serves it.

    Parameters
    ----------
    dataset
        The dataset.
    path
        Folder that is made for it.
    command
        Command of the process.

    Attributes
    ----------
    reads, received : int
        Requests and bytes that its store bills so far.
    on_change : callable
        Called from a thread when the process wants something, reports an error or has ended.

    Raises
    ------
    SkyStorageError
        It cannot be mounted.
    """

    def __init__(self, dataset: Dataset, path: Path, command: Sequence[str] = COMMAND) -> None:
        self.dataset, self.path = dataset, path
        self.reads = self.received = 0
        self.on_change: Callable[[], object] = lambda: None
        self._wanted: dict[Window, None] = {}
        self._errors: list[str] = []
        self._last_errors: deque[str] = deque(maxlen=5)
        self._lock = threading.Lock()
        self._mounted = threading.Event()
        path.mkdir(mode=0o700, parents=True)
        # the process is not killed with its engine: it ends by itself, and unmounts
        environment = {name: text for name, text in os.environ.items() if name != ENGINE_VARIABLE}
        self._process = subprocess.Popen(
            [*command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd="/",
            start_new_session=True,  # an interrupt of the cell is not meant for it
        )
        for work in (self._read, self._read_errors):
            threading.Thread(target=work, name="sky-mount", daemon=True).start()
        self._begin()

    def _begin(self) -> None:
        objects = [[each.path, each.identity, each.size] for each in self.dataset.objects]
        folders = [*self.dataset.folders]
        self._send({"objects": objects, "folders": folders, "path": str(self.path)})
        if not self._mounted.wait(MOUNT_SECONDS) or self.has_ended:
            self.close()
            said = " ".join(self._last_errors) or _("no answer")
            raise SkyStorageError(
                _("it could not be mounted: {said}").format(said=said),
                hint=_("--data brings the data instead, once for each machine"),
            )

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, and the dataset is not there any more."""
        return self._process.poll() is not None

    def state(self) -> dict[str, Any]:
        """Return counts, windows whose requests are wanted, and errors that were not told yet."""
        with self._lock:
            errors, self._errors = self._errors, []
            counts = {"reads": self.reads, "received": self.received}
            return counts | {
                "wanted": [*self._wanted],
                "errors": errors,
                "ended": self.has_ended,
            }

    def is_idle(self) -> bool:
        """Whether there is nothing that the notebook has to hear."""
        with self._lock:
            return not (self._wanted or self._errors or self.has_ended)

    def add_requests(self, windows: Sequence[Sequence[Any]], refused: str = "") -> None:
        """Pass signed requests on; a reason why there are none fails the reads that wait."""
        with self._lock:
            for identity, number, __ in windows:
                self._wanted.pop((identity, number), None)
            if refused:
                self._wanted.clear()
        message: dict[str, Any] = {"windows": windows}
        self._send(message | ({"refused": refused} if refused else {}))

    def close(self) -> None:
        """Unmount it and end the process."""
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(MOUNT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def _send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError, ValueError):  # it has ended, and `state` tells that
            self._process.stdin.write(json.dumps(message) + "\n")  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]

    def _read(self) -> None:
        for line in self._process.stdout:  # type: ignore[union-attr]
            message = json.loads(line)
            with self._lock:
                for identity, number in message.get("wanted", ()):
                    self._wanted[(identity, number)] = None
                self._errors += [message["error"]] if "error" in message else []
                self.reads = message.get("reads", self.reads)
                self.received = message.get("received", self.received)
            if "mounted" in message:
                self._mounted.set()
            if "wanted" in message or "error" in message:
                self.on_change()
        self._process.wait()
        unmount_below(self.path)  # fusermount3 does not while something is open there
        self._mounted.set()
        self.on_change()

    def _read_errors(self) -> None:
        for line in self._process.stderr:  # type: ignore[union-attr]
            self._last_errors.append(line.strip())
