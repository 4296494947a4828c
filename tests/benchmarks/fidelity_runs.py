"""Headless runs of notebooks that keep every message, reply and time."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fidelity_variants import Mode, Variant, make_variant, read_sources
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from notebook_client import end_processes, own_folders

CELL_SECONDS = 60
"""A cell is interrupted after this time."""
STARTS = 3
"""Attempts to start a kernel."""
FOREIGN = {"JPY_SESSION_NAME", "PYTHONUNBUFFERED"}
"""Variables that a kernel started by a front end does not have."""


class Recorder(NotebookClient):
    """Notebook client that keeps messages and replies by the index of their cell."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, extra_arguments=["--log-level=50"], **kwargs)
        self.messages: dict[int, list[dict[str, Any]]] = {}
        self.replies: dict[int, dict[str, Any]] = {}
        self.seconds: dict[int, float] = {}
        self.on_cell_executed = self._keep_reply

    def _keep_reply(self, cell_index: int, execute_reply: dict[str, Any], **_: Any) -> None:
        self.replies[cell_index] = execute_reply["content"]

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """Keep a message of a cell."""
        self.messages.setdefault(cell_index, []).append(msg)
        return super().process_message(msg, cell, cell_index)

    async def async_execute_cell(
        self, cell: Any, cell_index: int, *args: Any, **kwargs: Any
    ) -> Any:
        """Run a cell and keep its duration."""
        begun = time.perf_counter()
        try:
            return await super().async_execute_cell(cell, cell_index, *args, **kwargs)
        finally:
            self.seconds[cell_index] = time.perf_counter() - begun


@dataclass(frozen=True)
class NotebookRun:
    """Run of one variant of a notebook.

    Attributes
    ----------
    folder
        Folder in which its kernel has run.
    failure
        Reason why it ended before its last cell, or an empty string.
    """

    variant: Variant
    client: Recorder
    folder: Path
    failure: str

    @property
    def cells(self) -> Any:
        """Cells of the notebook, with their outputs."""
        return self.variant.notebook.cells


def run_notebook(path: Path, mode: Mode, home: Path, other: Mode = "remote") -> NotebookRun:
    """Run one variant of a notebook in a copy of its folder, in a kernel of its own.

    Parameters
    ----------
    other
        Mode of the run that a plain one is compared with.
    """
    folder = home / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(path.parent, folder, ignore=lambda top, names: _notebooks(path, top, names))
    variant = make_variant(read_sources(path), mode, any(folder.iterdir()), other)
    with kernel_folders(home) as environment:
        client = Recorder(
            variant.notebook,
            timeout=CELL_SECONDS,
            kernel_name="python3",
            allow_errors=True,
            interrupt_on_timeout=True,
            resources={"metadata": {"path": str(folder)}},
        )
        failure = execute(client, environment)
    return NotebookRun(variant, client, folder, failure)


def execute(client: Recorder, environment: dict[str, str]) -> str:
    """Run a notebook; return the reason why it ended before its last cell, if it did."""
    for remaining in reversed(range(STARTS)):
        try:
            client.execute(env=environment)
        except DeadKernelError as error:
            return str(error)
        except Exception as error:  # whatever a notebook of others does to the client
            # another program has taken a port between its choice and the start of the kernel
            if remaining and str(error).startswith("Kernel died before replying"):
                continue
            return f"{type(error).__name__}: {error}"
        break
    return ""


@contextlib.contextmanager
def kernel_folders(home: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a kernel that writes below `home`; end its processes afterwards."""
    base = home / "kernel"
    base.mkdir(parents=True)
    outside = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    try:
        yield outside | own_folders(base) | {"PYTHONHASHSEED": "0"}
    finally:
        end_processes(base)
        shutil.rmtree(base, ignore_errors=True)


def _notebooks(path: Path, top: str, names: list[str]) -> set[str]:
    """Return the notebooks beside `path`, which are no data of it."""
    if Path(top) != path.parent:
        return set()
    return {name for name in names if name.endswith((".ipynb", ".ipynb_checkpoints"))}
