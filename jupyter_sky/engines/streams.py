"""What a cell prints, leaving the engine: in order, in pieces, without needless waiting."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import Any, ClassVar

from ipykernel.iostream import OutStream

PIECE_CHARS = 2**20
SETTLE_SECONDS = 1.0


class QuickStream(OutStream):
    """An output stream in pieces of bounded size, whose flush is free when nothing is buffered.

    ipykernel flushes both streams twice a cell, each time waiting for another thread; and it sends
    whatever was written within its interval as one message, of a size that every process on the
    way must hold several times.
    """

    _waiting = 0
    _all: ClassVar[list[QuickStream]] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._free()
        os.register_at_fork(after_in_child=self._free)
        super().__init__(*args, **kwargs)
        self._all.append(self)
        _send_at_once(self.pub_thread)

    def _free(self) -> None:
        self._sending = threading.RLock()

    def _flush(self) -> None:
        with self._sending:
            super()._flush()

    def write(self, string: str) -> int | None:
        """Write, after what the other stream has taken; send at once what has grown to a piece."""
        for other in self._all:
            # a forked process has copies of buffers that are its parent's to send
            if other is not self and getattr(other, "_buffers", None) and self._is_master_process():
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

    @classmethod
    def settle(cls) -> None:
        """Wait for what processes have written to the streams' files, which other threads read."""
        quiet, deadline = 0, time.monotonic() + SETTLE_SECONDS
        while quiet < 2 and time.monotonic() < deadline:
            time.sleep(0.004)  # also lets those threads run
            files: list[Any] = [
                each._fid for each in cls._all if getattr(each, "_fid", None) is not None
            ]
            quiet = 0 if select.select(files, [], [], 0)[0] else quiet + 1

    def flush(self) -> None:
        """Send what is buffered, if anything is."""
        self._waiting = 0
        with self._sending:  # what another thread has taken but not sent yet goes first
            empty = not getattr(self, "_buffers", True)
        if not empty:
            super().flush()


def _send_at_once(publisher: Any) -> None:
    """Let what the publishing thread flushes be sent there and then.

    ipykernel puts it at the end of that thread's own queue, behind the word that the flush is
    over. C code that keeps the interpreter would hold up what was flushed just before it.
    """
    queue = publisher.schedule

    def schedule(task: Any) -> None:
        if threading.current_thread() is publisher.thread:
            task()
        else:
            queue(task)

    publisher.schedule = schedule
