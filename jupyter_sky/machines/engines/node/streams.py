"""Output streams of an engine: ordered, in bounded pieces, without needless waiting."""

from __future__ import annotations

import codecs
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

from ipykernel.iostream import IOPubThread, OutStream

from jupyter_sky.machines.engines.node.output_pacer import (
    CHARACTER_BURST,
    CHARACTERS_PER_SECOND,
    OutputPacer,
)
from jupyter_sky.machines.engines.wire.output_queues import WAITING_PUBLISHER, bound

PIECE_CHARS = 2**20
PIPE_BYTES = 2**16
"""Most that is read at a time of what was written to a file descriptor."""
SETTLE_SECONDS = 1.0
FORK_SETTLE_SECONDS = 0.004
CONTROL_THREAD = "Control"
"""Name of ipykernel's thread for commands."""
MAX_QUEUED_EVENTS = 64
"""Events that wait for the thread of the outputs, most of which send a message."""
QUEUE_CHECK_SECONDS = 0.001


class OutputPublisher(IOPubThread):
    """Thread that sends the outputs of cells and of processes that they fork.

    It takes no session, and so gets a plain publisher's socket from ipyparallel: one that welcomes
    its subscribers would send the controller messages that it cannot read. It waits for readers
    that are slow: what they have not taken would fill the memory.
    """

    def __init__(self, socket: Any) -> None:
        super().__init__(socket, pipe=True)
        bound(socket, WAITING_PUBLISHER)
        self.on_forwarded: Callable[[list[bytes]], object] = lambda frames: None
        """Called with each message of a forked process that is passed on."""
        self._has_forked = False
        os.register_at_fork(after_in_parent=self._mark_forked)

    def _mark_forked(self) -> None:
        self._has_forked = True

    def _handle_pipe_msg(self, msg: list[bytes]) -> None:
        super()._handle_pipe_msg(msg)
        self.on_forwarded(msg[1:])

    def wait_for_room(self) -> None:
        """Wait while more is to be sent than readers take."""
        while len(self._events) > MAX_QUEUED_EVENTS and self.thread.is_alive():
            if threading.current_thread() is self.thread:
                return
            time.sleep(QUEUE_CHECK_SECONDS)

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
    flush_timeout = threading.TIMEOUT_MAX  # as long as nobody reads: see `OutputPublisher`
    pub_thread: OutputPublisher
    _waiting = 0
    _is_passing = False
    _all: ClassVar[list[BoundedOutStream]] = []
    _pacer: ClassVar = OutputPacer(CHARACTERS_PER_SECOND, CHARACTER_BURST)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._free()
        os.register_at_fork(after_in_child=self._free)
        super().__init__(*args, **kwargs)
        self._all.append(self)

    def _free(self) -> None:
        self._sending, self._line = threading.RLock(), ""

    def _watch_pipe_fd(self) -> None:
        """Write what arrives at the file descriptor; run in a thread of its own.

        In ipykernel's own loop nobody knows of text that is read and not yet written, when a cell
        may end; and it breaks characters at the ends of what it reads.
        """
        if self._fid is None:
            return
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            while self._should_watch:
                select.select([self._fid], [], [])
                self._is_passing = True  # before it is read
                data = os.read(self._fid, PIPE_BYTES)
                if not data or not self._should_watch:
                    break
                self.write(decoder.decode(data))
                os.write(self._original_stdstream_copy, data)
                self._is_passing = False
        except Exception:
            self._exc = sys.exc_info()
        finally:
            self._is_passing = False

    def _flush(self) -> None:
        with self._sending:
            try:
                super()._flush()
            except UnicodeEncodeError:
                # raised, it would keep the thread from the event that a flush waits for; a kernel's
                # tornado reports it in these words
                logging.getLogger("tornado.general").exception(
                    "Uncaught exception in ZMQStream callback"
                )

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
        self._pacer.wait(len(string))  # whoever writes waits, also a process behind its pipe
        self.pub_thread.wait_for_room()
        return written

    def _write_lines(self, string: str) -> int:
        """Write whole lines, so that outputs of concurrent processes do not mix within them.

        A forked process also has copies of its parent's buffers, which are the parent's to send.
        """
        lines, newline, self._line = (self._line + string).rpartition("\n")
        if newline:
            super().write(lines + newline)
        self._pacer.wait(len(string))
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
        """Return whether something was written to the file descriptors that is still on its way."""
        files: list[Any] = [
            each._fid for each in cls._all if getattr(each, "_fid", None) is not None
        ]
        unread = bool(select.select(files, [], [], 0)[0])
        return unread or any(each._is_passing for each in cls._all)  # in this order

    def flush(self) -> None:
        """Send buffered text, if any; commands do not wait until somebody reads it."""
        self._waiting = 0
        if self._line:
            super().write(self._line)
            self._line = ""
        with self._sending:  # what another thread has taken but not sent yet goes first
            empty = not getattr(self, "_buffers", True)
        if empty:
            return
        if threading.current_thread().name == CONTROL_THREAD:
            self.pub_thread.schedule(self._flush)
        else:
            super().flush()
