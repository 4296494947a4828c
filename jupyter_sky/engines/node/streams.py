"""Output streams of an engine: ordered, in bounded pieces, without needless waiting."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

from ipykernel.iostream import IOPubThread, OutStream

PIECE_CHARS = 2**20
SETTLE_SECONDS = 1.0
FORK_SETTLE_SECONDS = 0.004


class OutputPublisher(IOPubThread):
    """Thread that sends the outputs of cells and of processes that they fork.

    It takes no session, and so gets a plain publisher's socket from ipyparallel: one that welcomes
    its subscribers would send the controller messages that it cannot read.
    """

    def __init__(self, socket: Any) -> None:
        super().__init__(socket, pipe=True)
        self.on_forwarded: Callable[[list[bytes]], object] = lambda frames: None
        """Called with each message of a forked process that is passed on."""
        self._has_forked = False
        os.register_at_fork(after_in_parent=self._mark_forked)

    def _mark_forked(self) -> None:
        self._has_forked = True

    def _handle_pipe_msg(self, msg: list[bytes]) -> None:
        super()._handle_pipe_msg(msg)
        self.on_forwarded(msg[1:])

    def wait_for_forks(self) -> None:
        """Wait until the outputs of forked processes so far have been passed on."""
        if self._has_forked:
            time.sleep(FORK_SETTLE_SECONDS)  # ZeroMQ's own thread receives them first
            done = threading.Event()
            self.schedule(lambda: (self._pipe_in.flush(), done.set()))
            done.wait(SETTLE_SECONDS)

    def schedule(self, f: Any) -> None:
        """Call `f` in this thread; at once if called from it.

        ipykernel puts it at the end of the thread's own queue, behind the word that a flush is
        over. C code that keeps the interpreter would hold up what was flushed just before it.
        """
        if threading.current_thread() is self.thread:
            f()
        else:
            super().schedule(f)


class BoundedOutStream(OutStream):
    """Output stream in pieces of bounded size, whose flush is free when nothing is buffered.

    ipykernel flushes both streams twice a cell, each time waiting for another thread; and it sends
    whatever was written within its interval as one message, of a size that every process on the
    way must hold several times.
    """

    flush_interval = 0.02  # short enough to look immediate; ipykernel waits ten times as long
    _waiting = 0
    _all: ClassVar[list[BoundedOutStream]] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._free()
        os.register_at_fork(after_in_child=self._free)
        super().__init__(*args, **kwargs)
        self._all.append(self)

    def _free(self) -> None:
        self._sending, self._line = threading.RLock(), ""

    def _flush(self) -> None:
        with self._sending:
            super()._flush()

    def write(self, string: str) -> int | None:
        """Write text, in order with the other stream; send full pieces at once."""
        if not self._is_master_process():
            return self._write_lines(string)
        for other in self._all:
            if other is not self and getattr(other, "_buffers", None):
                other._flush()  # here: scheduled, it would come after what is written now
        if isinstance(string, str) and len(string) > PIECE_CHARS:
            for start in range(0, len(string), PIECE_CHARS):
                self.write(string[start : start + PIECE_CHARS])
            return len(string)
        written = super().write(string)
        self._waiting += len(string)
        if self._waiting >= PIECE_CHARS:
            self.flush()
        return written

    def _write_lines(self, string: str) -> int:
        """Write whole lines, so that outputs of concurrent processes do not mix within them.

        A forked process also has copies of its parent's buffers, which are the parent's to send.
        """
        lines, newline, self._line = (self._line + string).rpartition("\n")
        if newline:
            super().write(lines + newline)
        return len(string)

    @classmethod
    def wait_for_processes(cls) -> None:
        """Wait until outputs of child processes have been read by their threads."""
        quiet, deadline = 0, time.monotonic() + SETTLE_SECONDS
        while quiet < 2 and time.monotonic() < deadline:
            time.sleep(0.004)  # also lets those threads run
            quiet = 0 if cls.has_unread() else quiet + 1

    @classmethod
    def has_unread(cls) -> bool:
        """Return whether something was written to the file descriptors that nobody has read yet."""
        files: list[Any] = [
            each._fid for each in cls._all if getattr(each, "_fid", None) is not None
        ]
        return bool(select.select(files, [], [], 0)[0])

    def flush(self) -> None:
        """Send buffered text, if any."""
        self._waiting = 0
        if self._line:
            super().write(self._line)
            self._line = ""
        with self._sending:  # what another thread has taken but not sent yet goes first
            empty = not getattr(self, "_buffers", True)
        if not empty:
            super().flush()
