"""Display of a run in a terminal: outputs on stdout and stderr, the status line on stderr."""

from __future__ import annotations

import sys
import threading
from typing import Any, TextIO

from jupyter_sky.execution.display import NoDisplay, RunStatus
from jupyter_sky.interfaces.widgets.status_line import to_text

HIDDEN_ERRORS = frozenset({"CalledProcessError", "KeyboardInterrupt"})
"""Errors of a command that its exit code tells."""


class TerminalDisplay(NoDisplay):
    """Display of one run: text as it comes, and a line on stderr for each new stage.

    Parameters
    ----------
    stdout, stderr
        Streams; those of the process unless given.

    Examples
    --------
    >>> TerminalDisplay().send("stream", {"name": "stdout", "text": "epoch 1"})
    epoch 1
    """

    def __init__(self, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self._streams = {"stdout": stdout or sys.stdout, "stderr": stderr or sys.stderr}
        self._lock = threading.Lock()
        self._shown: tuple[Any, ...] = ()

    def status(self, status: RunStatus) -> None:
        """Print the status line where its stage or its cluster is new."""
        told = (status.stage, status.cluster, status.notes, status.warning)
        with self._lock:
            if told != self._shown:
                self._shown = told
                print(to_text(status), file=self._streams["stderr"], flush=True)

    def send(self, kind: str, content: Any, metadata: Any = None, buffers: Any = None) -> None:
        """Print one message."""
        if kind == "stream":
            self._write(content["name"], content["text"])
        elif kind == "error" and content["ename"] not in HIDDEN_ERRORS:
            self._write("stderr", "\n".join(content["traceback"]) + "\n")
        elif "data" in content and "text/plain" in content["data"]:
            text = content["data"]["text/plain"]
            self._write("stdout", f"{text if isinstance(text, str) else ''.join(text)}\n")

    def _write(self, name: str, text: str) -> None:
        with self._lock:
            stream = self._streams.get(name, self._streams["stdout"])
            stream.write(text)
            stream.flush()
