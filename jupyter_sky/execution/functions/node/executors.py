"""Executors of a node's calls: the main thread, threads beside it, or processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.node.calls import Call, clear_stopped, raise_in_thread
from jupyter_sky.execution.functions.node.stream_inputs import Stopped
from jupyter_sky.execution.serialization.payload import has_blobs

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.node.call_batch import PoolExecutors

MAIN_THREAD_SECONDS = 0.05
"""Time that calls keep the main thread before cells, which share it, have a turn."""


class MainThreadExecutor:
    """Main thread of the engine, where signals arrive and libraries expect to run."""

    def __init__(self, pool_executors: PoolExecutors, number: int) -> None:
        self.pool_executors, self.number = pool_executors, number
        self.call: Call | None = None
        self._is_scheduled = False
        self._thread = threading.main_thread().ident or 0

    def wake(self) -> None:
        """Schedule waiting calls in the engine's loop."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self.pool_executors.site.main_loop.add_callback(self._run_calls)

    def _run_calls(self) -> None:
        self._is_scheduled = False
        until = time.monotonic() + MAIN_THREAD_SECONDS
        before = signal.signal(signal.SIGINT, self._interrupted)
        site = self.pool_executors.site
        try:
            while (batch_call := self.pool_executors.next_call()) is not None:
                batch, self.call = batch_call
                site.mark_busy(batch)
                self.call.run(self.number)
                self.call = None
                if time.monotonic() > until:
                    break
        finally:
            self.call = None
            site.mark_idle()
            signal.signal(signal.SIGINT, before)
        if self.pool_executors.has_waiting():
            self.wake()

    def _interrupted(self, signum: int, frame: Any) -> None:
        call = self.call
        if call is not None and call.stop_reason and not call.is_over:
            raise Stopped

    def interrupt(self, call: Call) -> Callable[[int], None]:
        """Signal the main thread, which also wakes it from a sleep."""
        return lambda __: signal.pthread_kill(self._thread, signal.SIGINT)

    def abandon(self, call: Call) -> bool:
        """Return False: there is only one main thread."""
        return False

    def close(self) -> None:
        """Do nothing: the main thread belongs to the engine."""


class ThreadExecutor:
    """Thread of the engine."""

    def __init__(self, pool_executors: PoolExecutors, number: int) -> None:
        self.pool_executors, self.number = pool_executors, number
        self.call: Call | None = None
        self._wake = threading.Event()
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(
            target=self._run, name=f"sky-call-{self.number}", daemon=True
        )
        self._thread.start()

    def wake(self) -> None:
        """Run waiting calls."""
        self._wake.set()

    def _run(self) -> None:
        while self._owns_thread():
            self._wake.wait()
            self._wake.clear()
            with suppress(Stopped):
                while (
                    self._owns_thread()
                    and (next_call := self.pool_executors.next_call()) is not None
                ):
                    batch, call = next_call
                    self.call = call
                    self.pool_executors.site.attribute_output(batch)
                    call.run(self.number)
                    clear_stopped(threading.get_ident())
                    if self._owns_thread():
                        self.call = None

    def _owns_thread(self) -> bool:
        return not self._closed and self._thread is threading.current_thread()

    def interrupt(self, call: Call) -> Callable[[int], None]:
        """Raise `Stopped` at the thread's next bytecode."""
        return raise_in_thread

    def abandon(self, call: Call) -> bool:
        """Leave the thread running, and start another."""
        self.call = None
        self._start()
        self._wake.set()
        return True

    def close(self) -> None:
        """End the thread once it is idle."""
        self._closed = True
        self._wake.set()


class ProcessExecutor:
    """Child process of the engine, and the thread that talks to it."""

    def __init__(self, pool_executors: PoolExecutors, number: int) -> None:
        self.pool_executors, self.number = pool_executors, number
        self.call: Call | None = None
        self._process: subprocess.Popen | None = None
        self._pipe: Connection | None = None
        self._sending = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._sent_context: Any = None
        threading.Thread(target=self._run, name=f"sky-call-{number}", daemon=True).start()

    def wake(self) -> None:
        """Run waiting calls."""
        self._wake.set()

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait()
            self._wake.clear()
            while not self._closed and (next_call := self.pool_executors.next_call()) is not None:
                batch, self.call = next_call
                self.pool_executors.site.attribute_output(batch)
                self._run_call(self.call, batch)
                self.call = None

    def _run_call(self, call: Call, batch: Any) -> None:
        try:
            pipe = self._open()
            call.started_at = time.monotonic()
            context = None if self._sent_context is call.context else call.context.description
            self._sent_context = call.context
            self._send(("run", context, call.command))
            call.set_forwarder(self._send)
            while True:
                message = pipe.recv()
                if message[0] == "text":
                    self.pool_executors.site.show(batch, *message[1:])
                else:
                    call.emit(self._adopt_files(message, call))
                    if message[0] in FINAL_KINDS:
                        break
        except (EOFError, OSError):
            self._end()
            if not call.is_over:
                call.emit(("lost", call.key, self._exit_reason()))
        call.is_over = True

    def _adopt_files(self, message: tuple, call: Call) -> tuple:
        """Take over the memory files of a result, which would end with the process."""
        if message[0] != "value" or not has_blobs(message[2]):
            return message
        __, pid = call.context.description["reader"]
        payload = self.pool_executors.site.result_files.adopt(message[2], pid)
        self._send(("adopted",))
        return (*message[:2], payload, *message[3:])

    def _open(self) -> Connection:
        if self._pipe is None:
            number = str(self.number)
            parent_end, child_end = socket.socketpair()
            with child_end:
                self._process = subprocess.Popen(
                    [
                        *_CHILD,
                        str(child_end.fileno()),
                        str(self.pool_executors.site.blob_cache.folder),
                        number,
                    ],
                    pass_fds=[child_end.fileno()],
                    stdin=subprocess.DEVNULL,
                )
            self._pipe, self._sent_context = Connection(parent_end.detach()), None
            self._pipe.recv()  # it is there: the time of a call is not that of its process
        return self._pipe

    def _send(self, order: tuple) -> None:
        with self._sending, suppress(OSError, ValueError):
            if self._pipe is not None:
                self._pipe.send(order)

    def _exit_reason(self) -> str:
        from jupyter_sky.base.remote.supervisor import describe_exit

        code = self._process.returncode if self._process else 0
        return _("its process {describe_exit}").format(describe_exit=describe_exit(code or 0))

    def _end(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def interrupt(self, call: Call) -> None:
        """Send the interrupt to the process."""
        call.forward(("stop", call.key, call.stop_reason))
        return None

    def abandon(self, call: Call) -> bool:
        """Kill the process."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        return True

    def close(self) -> None:
        """End the process and its thread."""
        self._closed = True
        self._wake.set()
        self._end()


_CHILD = (sys.executable, "-m", "jupyter_sky.execution.functions.node.call_process")
FINAL_KINDS = {"plain", "value", "error", "end", "missing", "lost"}
"""Kinds of the last report of a call."""
EXECUTOR_CLASSES: dict[str, type] = {
    "main": MainThreadExecutor,
    "thread": ThreadExecutor,
    "process": ProcessExecutor,
}
