"""Call process (``python -m``): runs calls of an engine one at a time, in its own interpreter.

python -m jupyter_sky.execution.functions.node.call_process DESCRIPTOR BLOBS NUMBER
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

from jupyter_sky.base.messages import Receiver, handles
from jupyter_sky.execution.functions.node.blob_cache import BlobCache
from jupyter_sky.execution.functions.node.calls import Call, Stopped
from jupyter_sky.execution.functions.node.messages import (
    FeedCall,
    FilesAdopted,
    ItemsConsumed,
    Ready,
    Report,
    RunCall,
    StopCall,
    Text,
)
from jupyter_sky.execution.functions.node.pool_context import PoolContext
from jupyter_sky.execution.functions.node.result_files import ResultFiles
from jupyter_sky.machines.engines.node.engine import exit_with_parent


class EnginePipe:
    """Pipe to the engine for results and outputs of calls."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self._sending = threading.Lock()

    def send_result(self, report: Report) -> None:
        """Send a report of a call, after its outputs."""
        sys.stdout.flush()
        sys.stderr.flush()
        self.send(report)

    def send(self, report: Report) -> None:
        """Send a report at once."""
        with self._sending:
            self.pipe.send(report.to_tuple())


class ForwardedStream(io.TextIOBase):
    """Output stream that is shown in the notebook, line by line."""

    encoding = "utf-8"

    def __init__(self, engine_pipe: EnginePipe, name: str) -> None:
        self.engine_pipe, self.name = engine_pipe, name
        self.is_muted = False
        self._text: list[str] = []
        self._lock = threading.Lock()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Write text; whole lines are sent at once."""
        with self._lock:
            self._text.append(text)
        if "\n" in text or "\r" in text:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Send buffered text."""
        with self._lock:
            text, self._text = "".join(self._text), []
        if text and not self.is_muted:
            self.engine_pipe.send(Text(self.name, text))


class CallProcess(Receiver):
    """Process of calls: one thread reads commands of the engine, the main thread runs calls."""

    def __init__(self, pipe: Connection, blob_cache: BlobCache, number: int) -> None:
        self.pipe, self.blob_cache, self.number = pipe, blob_cache, number
        self.engine_pipe = EnginePipe(pipe)
        self.result_files = ResultFiles()
        self.context: PoolContext | None = None
        self.call: Call | None = None
        self._calls: SimpleQueue[Call] = SimpleQueue()
        self._main = threading.main_thread().ident or 0
        self.streams = [ForwardedStream(self.engine_pipe, name) for name in ("stdout", "stderr")]
        sys.stdout, sys.stderr = self.streams

    def run(self) -> None:
        """Run calls until the engine is gone."""
        signal.signal(signal.SIGINT, self._interrupted)
        threading.Thread(target=self._listen, name="sky-engine", daemon=True).start()
        self.engine_pipe.send(Ready())
        while True:
            self._calls.get().run(self.number)

    def _interrupted(self, signum: int, frame: FrameType | None) -> None:
        call = self.call
        if call is not None and call.started_at and call.stop_reason and not call.is_over:
            raise Stopped

    def _listen(self) -> None:
        try:
            while True:
                self.handle_tuple(self.pipe.recv())
        except (EOFError, OSError):
            os._exit(0)

    @handles(RunCall)
    def _run_call(self, order: RunCall) -> None:
        if order.context is not None:
            results = self.result_files.store_of(order.context["reader"])
            context = PoolContext(order.context, self.blob_cache.open, results)
            if self.context is not None:
                context.reuse(self.context)
            self.context = context
        assert self.context is not None
        for stream in self.streams:
            stream.is_muted = False
        call = Call(self.context, order.command, self.engine_pipe.send_result)
        call.on_mute = self._mute
        self.call = call
        self._calls.put(call)

    @handles(FilesAdopted)
    def _release_files(self, order: FilesAdopted) -> None:
        self.result_files.release_all()

    def _mute(self, names: list[str]) -> None:
        for stream in self.streams:
            stream.is_muted = stream.name in names

    @handles(StopCall)
    def _stop(self, order: StopCall) -> None:
        if self.call is not None and self.call.key == order.key:
            again = bool(self.call.stopped_at)
            ends_itself = order.why == "close" and not again  # at its next item
            wake = None if ends_itself else self._wake
            self.call.stop(order.why, wake)

    def _wake(self, thread: int) -> None:
        signal.pthread_kill(self._main, signal.SIGINT)

    @handles(FeedCall)
    def _feed(self, order: FeedCall) -> None:
        if self.call is not None and self.call.key == order.key:
            self.call.stream_inputs[order.number].feed(order.items)

    @handles(ItemsConsumed)
    def _acknowledge(self, order: ItemsConsumed) -> None:
        if self.call is not None and self.call.key == order.key:
            self.call.acknowledge(order.count)


def main(argv: list[str]) -> None:
    """Serve the engine at the other end of a socket."""
    exit_with_parent(os.getppid())
    CallProcess(Connection(int(argv[0])), BlobCache(Path(argv[1])), int(argv[2])).run()


if __name__ == "__main__":
    main(sys.argv[1:])
