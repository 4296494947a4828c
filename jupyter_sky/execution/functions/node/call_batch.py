"""Calls that came to a node in one message, and the executors that take them."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jupyter_sky.execution.functions.node.calls import Call, PlainCall
from jupyter_sky.execution.functions.node.executors import EXECUTOR_CLASSES, FINAL_KINDS
from jupyter_sky.execution.functions.node.pool_context import PoolContext
from jupyter_sky.execution.serialization.payload import Payload, wrap

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.node.node_worker import NodeWorker

Arguments = tuple[tuple, dict]
"""Positional and keyword arguments."""
RETURN_SECONDS = 0.1
"""Calls of a batch that have not begun by then go back: another node may be free."""
GATHER_SECONDS = 0.02
"""Results of quick calls travel together, for no longer than this."""


class CallBatch:
    """Calls that came in one message, and their pending results.

    Parameters
    ----------
    slots
        Executors that may run its calls side by side.

    Attributes
    ----------
    calls : dict
        Calls that have not ended, by key; those with plain arguments only from their beginning.
    open_count : int
        Number of calls that have not ended.
    timeout : float, optional
        Time limit of each call with plain arguments (s).
    """

    def __init__(self, ident: Any, message: dict[str, Any], worker: NodeWorker, slots: int) -> None:
        self.ident, self.site, self.slots = ident, worker, slots
        self.parent = {"header": message["header"], "metadata": {}}
        self.id: str = message["header"]["msg_id"]
        self.calls: dict[int, Call] = {}
        self.open_count = 0
        self.has_started = False
        self.timeout: float | None = None
        self._is_plain = False
        self._unstarted: deque[tuple[int, Arguments | None]] = deque()
        self._out: deque[tuple] = deque()
        self._keys: list[int] = []
        self._values: list[Any] = []
        self._seconds: list[float] = []
        self._sent = 0.0
        self._scheduled = False
        self._lock = threading.Lock()

    def add(self, context: PoolContext, commands: Iterable[tuple]) -> None:
        """Take the calls of a message."""
        for command in commands:
            call = Call(context, command, self.emit)
            call.on_mute = lambda names: self.site.mute_output(self, names)
            self.calls[call.key] = call
        self._unstarted.extend((key, None) for key in self.calls)
        self.open_count = len(self.calls)

    def add_plain(
        self,
        context: PoolContext,
        timeout: float | None,
        function: Payload,
        keys: Collection[int],
        arguments: Iterable[Arguments],
    ) -> None:
        """Take calls of one function with plain arguments, which are made when they begin."""
        self._context, self._function, self.timeout = context, function, timeout
        self._is_plain = True
        self._unstarted.extend(zip(keys, arguments, strict=True))
        self.open_count = len(keys)

    def begin_call(self) -> Call | None:
        """Return the next call, which an executor has from now on; None if there is none."""
        with self._lock:
            while self._unstarted:
                key, arguments = self._unstarted.popleft()
                if arguments is not None:
                    call = self.calls[key] = PlainCall(
                        self._context, key, self._function, arguments, self.timeout, self.emit
                    )
                else:
                    call = self.calls.get(key)
                if call is not None:  # else it was stopped
                    self.has_started = True
                    return call
        return None

    def has_unstarted(self) -> bool:
        """Return whether some of its calls may not have begun."""
        return bool(self._unstarted)

    def emit(self, said: tuple) -> None:
        """Queue a message of a call, from its thread."""
        kind = said[0]
        ends = kind in FINAL_KINDS
        due = (
            not ends
            or self.open_count <= self.slots
            or time.monotonic() - self._sent > GATHER_SECONDS
        )
        if ends and (due or not self._is_plain):
            sys.stdout.flush()
            sys.stderr.flush()
        with self._lock:
            if ends:
                if self.calls.pop(said[1], None) is None:  # it was given up
                    return
                self.open_count -= 1
            if kind == "plain":
                self._keys.append(said[1])
                self._values.append(said[2])
                self._seconds.append(said[3])
            else:
                self._out.append(said)
            schedule, self._scheduled = due and not self._scheduled, self._scheduled or due
        if schedule:
            self.site.control_loop.add_callback(self.send_results)

    def return_unstarted(self) -> None:
        """Return calls that have not begun while another call runs; and send results."""
        with self._lock:
            waiting = [key for key, _ in self._unstarted]
        if waiting and (self.has_started or self.site.runs_call()):
            self._return(waiting)
        elif waiting:  # a cell is in their way
            self.site.control_loop.call_later(RETURN_SECONDS, self.return_unstarted)
        if self._out or self._keys:
            self.send_results()

    def return_plain(self, keys: Collection[int]) -> None:
        """Return those of some calls that have plain arguments and have not begun."""
        if self._is_plain and self._return(keys):
            self.send_results()

    def _return(self, keys: Collection[int]) -> bool:
        """Return calls to the notebook unless they have begun; say whether there are any."""
        with self._lock:
            asked, entries = set(keys), list(self._unstarted)
            self._unstarted = deque(entry for entry in entries if entry[0] not in asked)
            returned = [
                key
                for key, arguments in entries
                # others were stopped
                if key in asked and (arguments is not None or self.calls.pop(key, None) is not None)
            ]
            self.open_count -= len(returned)
            if returned:
                self._out.append(("returned", returned))
        if not self.open_count:  # outputs of the last calls come before the end
            sys.stdout.flush()
            sys.stderr.flush()
        return bool(returned)

    def send_results(self) -> None:
        """Send gathered results, in the thread of the control channel."""
        with self._lock:
            self._scheduled, self._sent = False, time.monotonic()
            out, final = list(self._out), not self.open_count
            self._out.clear()
            if self._keys:
                out.append(("values", self._keys, self._values, self._seconds))
                self._keys, self._values, self._seconds = [], [], []
        kernel = self.site.kernel
        counter = kernel.output_counter
        printed = counter.end(self.id) if final else counter.count(self.id)
        content = {"final": final, "printed": printed}
        if final:
            self.site.batches.pop(self.id, None)
        kernel.session.send(
            kernel.control_stream,
            "sky_results",
            content,
            parent=self.parent,
            ident=self.ident,
            buffers=wrap(out),
        )


class PoolExecutors:
    """Executors of one pool on this node, and the batches whose calls wait for one."""

    def __init__(self, worker: NodeWorker, context: PoolContext) -> None:
        self.site, self.context = worker, context
        self._waiting: deque[CallBatch] = deque()
        kind = EXECUTOR_CLASSES[context.description["executor"]]
        self.executors = [
            kind(self, number) for number in range(context.description["concurrency"])
        ]

    def add(self, batch: CallBatch) -> None:
        """Queue the calls of a batch for an executor."""
        self._waiting.append(batch)
        for executor in self.executors:
            if executor.call is None:
                executor.wake()

    def next_call(self) -> tuple[CallBatch, Call] | None:
        """Return the next call for a free executor, or None."""
        while self._waiting:
            try:
                batch = self._waiting[0]
            except IndexError:  # another executor has taken its last call
                break
            if (call := batch.begin_call()) is not None:
                return batch, call
            with suppress(ValueError):
                self._waiting.remove(batch)
        return None

    def has_waiting(self) -> bool:
        """Whether any call waits."""
        return any(batch.has_unstarted() for batch in list(self._waiting))

    def is_busy(self) -> bool:
        """Whether another call would wait."""
        return self.has_waiting() or all(executor.call for executor in self.executors)

    def executor_of(self, call: Call) -> Any:
        """Return the executor that runs a call."""
        return next((executor for executor in self.executors if executor.call is call), None)
