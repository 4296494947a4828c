"""Node worker: handles commands of pools in the engine, runs calls, sends results.

Orders come by the control channel, whose thread is free also while a cell or a call runs. What
calls have to say is gathered and sent by that thread too.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.messages import Receiver, handles
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.node.blob_cache import BlobCache
from jupyter_sky.execution.functions.node.calls import (
    Call,
    PlainCall,
    Stopped,
    clear_stopped,
    raise_in_thread,
)
from jupyter_sky.execution.functions.node.messages import (
    Arguments,
    BlobPart,
    BlobPartReply,
    BlobsReply,
    CallCommand,
    ClosePool,
    Consumed,
    Feed,
    FeedCall,
    FilesAdopted,
    FinalReport,
    FindBlobs,
    ItemsConsumed,
    OpenPool,
    Order,
    PlainResult,
    ProcessLost,
    ReleaseFiles,
    Report,
    Returned,
    RunCall,
    RunCalls,
    RunPlainCalls,
    StopCall,
    StopCalls,
    Text,
    Value,
    Values,
    process_report,
)
from jupyter_sky.execution.functions.node.pool_context import PoolContext
from jupyter_sky.execution.functions.node.result_files import CHECK_SECONDS, ResultFiles
from jupyter_sky.execution.serialization.payload import has_blobs, unwrap, wrap
from jupyter_sky.machines.engines.node.extensions import EngineExtension
from jupyter_sky.machines.engines.wire.messages import JupyterMessage

Identity = list[bytes]
"""Sender of a message, to which the replies go."""
TICK_SECONDS = 0.05
GRACE_SECONDS = {"timeout": 0.3, "cancel": 0.8, "close": 10.0}
"""Time that a call may take to stop before its executor goes on without it, by reason."""
CLOSE_SECONDS = 1.0
"""Time to the next item after which a generator without a receiver is stopped."""


def _grace_seconds(call: Call) -> float:
    """Return how long a call may take to stop; for the failure of its group the pool says so."""
    if call.stop_reason == "group":
        return call.context.description["cancel_grace"]
    return GRACE_SECONDS[call.stop_reason]


class NodeWorker(EngineExtension, Receiver):
    """Worker that runs the calls of pools in an engine.

    Parameters
    ----------
    kernel
        The engine's kernel: its sessions, its streams, its loops.
    """

    def __init__(self, kernel: Any) -> None:
        super().__init__(kernel)
        self.rank: int = kernel.engine_id
        self.main_loop = kernel.parent.loop
        self.control_loop = kernel.control_stream.io_loop
        self.blob_cache = BlobCache(Path(kernel.cell_file.folder) / "blobs")
        self.result_files = ResultFiles(
            lambda: self.control_loop.add_callback(self._check_result_files)
        )
        self.pools: dict[str, PoolExecutors] = {}
        self.batches: dict[str, CallBatch] = {}
        self._is_watching = False
        self._busy_batch: CallBatch | None = None
        self._attributed: CallBatch | None = None
        """Batch that outputs of the main thread belong to, if none of them is dropped."""

    # -- commands, in the thread of the control channel ------------------------------------------

    def handle_commands(self, ident: Identity, message: JupyterMessage) -> None:
        """Handle the commands of a message."""
        for values in unwrap(message["buffers"]):
            self.handle_tuple(values, ident, message)

    @handles(OpenPool)
    def _open_pool(self, command: OpenPool, ident: Identity, message: JupyterMessage) -> None:
        results = self.result_files.store_of(command.context["reader"])
        context = PoolContext(command.context, self.blob_cache.open, results)
        pool_executors = self.pools.get(context.pool)
        if pool_executors is None:
            self.pools[context.pool] = PoolExecutors(self, context)
            return
        context.reuse(pool_executors.context)
        pool_executors.context = context

    @handles(ClosePool)
    def _close_pool(self, command: ClosePool, ident: Identity, message: JupyterMessage) -> None:
        if pool_executors := self.pools.pop(command.pool, None):
            for executor in pool_executors.executors:
                executor.close()
        if not self.pools:
            from jupyter_sky.execution.functions.node.image_install import end_workers

            self.result_files.release_all()
            end_workers()

    @handles(ReleaseFiles)
    def _release(self, command: ReleaseFiles, ident: Identity, message: JupyterMessage) -> None:
        self.result_files.release(command.descriptors)

    def _check_result_files(self) -> None:
        if self.result_files.release_orphans():
            self.control_loop.call_later(CHECK_SECONDS, self._check_result_files)

    @handles(RunCalls)
    def _run_calls(self, command: RunCalls, ident: Identity, message: JupyterMessage) -> None:
        pool_executors = self.pools[command.pool]
        batch = CallBatch(ident, message, self, len(pool_executors.executors))
        batch.add(pool_executors.context, command.calls)
        self._begin(batch, pool_executors)
        if any(call[3] is not None for call in command.calls):
            self._watch()

    @handles(RunPlainCalls)
    def _run_plain_calls(
        self, command: RunPlainCalls, ident: Identity, message: JupyterMessage
    ) -> None:
        pool_executors = self.pools[command.pool]
        batch = CallBatch(ident, message, self, len(pool_executors.executors))
        batch.add_plain(pool_executors.context, command)
        self._begin(batch, pool_executors)
        if command.timeout is not None:
            self._watch()

    def _begin(self, batch: CallBatch, pool_executors: PoolExecutors) -> None:
        self.batches[batch.id] = batch
        self.kernel.output_counter.begin(batch.id)
        may_wait = batch.open_count > 1 or pool_executors.is_busy()
        pool_executors.add(batch)
        if may_wait:
            self.control_loop.call_later(RETURN_SECONDS, batch.return_unstarted)

    @handles(Feed)
    def _feed(self, command: Feed, ident: Identity, message: JupyterMessage) -> None:
        if executor_and_call := self._find(command.batch, command.key):
            _, call = executor_and_call
            if self._runs_in_process(call):
                call.forward(FeedCall(command.key, command.number, command.items))
            else:
                call.stream_inputs[command.number].feed(command.items)

    @handles(Consumed)
    def _acknowledge(self, command: Consumed, ident: Identity, message: JupyterMessage) -> None:
        if executor_and_call := self._find(command.batch, command.key):
            _, call = executor_and_call
            if self._runs_in_process(call):
                call.forward(ItemsConsumed(command.key, command.count))
            else:
                call.acknowledge(command.count)

    @handles(StopCalls)
    def _stop_calls(self, command: StopCalls, ident: Identity, message: JupyterMessage) -> None:
        if command.batch in self.batches:
            self.batches[command.batch].return_plain(command.keys)
        for key in command.keys:
            if executor_and_call := self._find(command.batch, key):
                self._stop(*executor_and_call, command.why)

    def _find(self, batch: str, key: int) -> tuple[Executor | None, Call] | None:
        """Return an unfinished call with its executor."""
        state = self.batches.get(batch)
        call = state.calls.get(key) if state else None
        if call is None:
            return None
        pool_executors = self.pools[call.context.pool]
        return pool_executors.executor_of(call), call

    def _runs_in_process(self, call: Call) -> bool:
        """Return whether a call runs in a child process, which takes its commands."""
        return self.pools[call.context.pool].context.description["executor"] == "process"

    def _stop(self, executor: Executor | None, call: Call, why: str) -> None:
        if executor is None:  # it has not begun, and runs into its end when it does
            call.stop(why, None)
            batch = next(b for b in self.batches.values() if b.calls.get(call.key) is call)
            batch.emit(call.failed(Stopped()))
            return
        call.stop_reason = call.stop_reason or why
        # a closed generator ends by itself, at its next item
        ends_itself = why == "close" and not self._runs_in_process(call)
        call.stop(why, None if ends_itself else executor.interrupt(call))
        self._watch()

    # -- time limits, in the same thread -----------------------------------------------------------

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self.control_loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        """Stop calls past their time limit, and abandon those that do not stop."""
        self._is_watching, again, now = False, False, time.monotonic()
        for batch in list(self.batches.values()):
            again = again or batch.timeout is not None  # between two calls it has none
            for call in list(batch.calls.values()):
                executor = self.pools[call.context.pool].executor_of(call)
                if call.is_overdue and not call.stop_reason and executor is not None:
                    self._stop(executor, call, "timeout")
                elif call.stopped_at and executor is not None:
                    since = now - call.stopped_at
                    if since > _grace_seconds(call):
                        self._abandon(batch, executor, call)
                    elif call.stop_reason == "close" and since > CLOSE_SECONDS:
                        call.stop("close", executor.interrupt(call))
                again = again or call.timeout is not None or bool(call.stopped_at)
        if again:
            self._watch()

    def _abandon(self, batch: CallBatch, executor: Executor, call: Call) -> None:
        call.is_over = True
        stuck = not executor.abandon(call)
        if stuck:
            batch.return_unstarted()
        batch.emit(call.failed(Stopped(), stuck=stuck))

    def runs_call(self) -> bool:
        """Return whether an executor runs a call."""
        pools = list(self.pools.values())
        return any(executor.call is not None for pool in pools for executor in pool.executors)

    # -- services for executors --------------------------------------------------------------------

    def mark_busy(self, batch: CallBatch) -> None:
        """Tell the controller that the main thread runs calls, and attribute outputs to them."""
        kernel = self.kernel
        # not over the entry of a cell that awaits something meanwhile
        if self._busy_batch is not batch and not kernel._busy_since:
            self._busy_batch = batch
            facts = {"run": f"calls-{batch.id}", "rank": self.rank, "ranks": [self.rank]}
            kernel.cell_file.write(batch.id, json.dumps({**facts, "call": True}))
        if self._attributed is not batch:
            self.attribute_output(batch)
            self._attributed = batch

    def mark_idle(self) -> None:
        """Tell the controller that the main thread is idle."""
        self._attributed = None
        if self._busy_batch is not None:
            self._busy_batch = None
            self.kernel.cell_file.clear()

    def attribute_output(self, batch: CallBatch, muted: Collection[str] = ()) -> None:
        """Attribute outputs of this thread to a batch; `muted` streams are dropped."""
        parent = batch.parent
        if muted:
            parent = {**parent, "header": {**parent["header"], "sky_mute": " ".join(muted)}}
        self.kernel.shell.set_parent(parent)

    def mute_output(self, batch: CallBatch, names: list[str]) -> None:
        """Drop outputs of this thread to some streams until the next call."""
        self._attributed = None
        self.attribute_output(batch, names)

    def show(self, batch: CallBatch, name: str, text: str) -> None:
        """Publish outputs of a process."""
        self.kernel.session.send(
            self.kernel.iopub_socket,
            "stream",
            {"name": name, "text": text},
            parent=batch.parent,
            ident=self.kernel._topic(f"{name}"),
        )

    # -- blobs, in the main thread -------------------------------------------------------------

    @handles(FindBlobs)
    def _find_blobs(self, request: FindBlobs) -> BlobsReply:
        is_present = all(self.blob_cache.has(name) for name in request.asked)
        return BlobsReply(is_present, self.blob_cache.identity)

    @handles(BlobPart)
    def _write_blob_part(self, request: BlobPart) -> BlobPartReply:
        return BlobPartReply(
            self.blob_cache.write_part(request.name, request.start, request.buffers, request.size)
        )

    def receive_blob(self, stream: Any, ident: Identity, parent: JupyterMessage) -> None:
        """Receive a part of a blob, or report which blobs are present."""
        request = self.decode(parent["content"], parent.get("buffers") or ())
        reply: JsonObject
        try:
            reply = {**self.dispatch(request).encode(), "status": "ok"}
        except OSError as error:
            reply = {"status": "error", "ename": "SkyTransferError", "evalue": str(error)}
        metadata = self.kernel.init_metadata(parent)
        session = self.kernel.session
        session.send(stream, "sky_reply", reply, parent=parent, ident=ident, metadata=metadata)


# -- Calls that came to a node in one message, and the executors that take them -------------------

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

    def __init__(
        self, ident: Identity, message: JupyterMessage, worker: NodeWorker, slots: int
    ) -> None:
        self.ident, self.site, self.slots = ident, worker, slots
        self.parent = {"header": message["header"], "metadata": {}}
        self.id: str = message["header"]["msg_id"]
        self.calls: dict[int, Call] = {}
        self.open_count = 0
        self.has_started = False
        self.timeout: float | None = None
        self._is_plain = False
        self._unstarted: deque[tuple[int, Arguments | None]] = deque()
        self._out: deque[Report] = deque()
        self._keys: list[int] = []
        self._values: list[Any] = []
        self._seconds: list[float] = []
        self._sent = 0.0
        self._scheduled = False
        self._lock = threading.Lock()

    def add(self, context: PoolContext, commands: Iterable[CallCommand]) -> None:
        """Take the calls of a message."""
        for command in commands:
            call = Call(context, command, self.emit)
            call.on_mute = lambda names: self.site.mute_output(self, names)
            self.calls[call.key] = call
        self._unstarted.extend((key, None) for key in self.calls)
        self.open_count = len(self.calls)

    def add_plain(self, context: PoolContext, command: RunPlainCalls) -> None:
        """Take calls of one function with plain arguments, which are made when they begin."""
        self._context, self._function = context, command.function
        self.timeout = command.timeout
        self._is_plain = True
        self._unstarted.extend(zip(command.keys, command.arguments, strict=True))
        self.open_count = len(command.keys)

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

    def emit(self, report: Report) -> None:
        """Queue a report of a call, from its thread."""
        final = report if isinstance(report, FinalReport) else None
        due = (
            final is None
            or self.open_count <= self.slots
            or time.monotonic() - self._sent > GATHER_SECONDS
        )
        if final is not None and (due or not self._is_plain):
            sys.stdout.flush()
            sys.stderr.flush()
        with self._lock:
            if final is not None:
                if self.calls.pop(final.key, None) is None:  # it was given up
                    return
                self.open_count -= 1
            if final is not None and isinstance(report, PlainResult):
                self._keys.append(report.key)
                self._values.append(report.value)
                self._seconds.append(report.seconds)
            else:
                self._out.append(report)
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
                self._out.append(Returned(returned))
        if not self.open_count:  # outputs of the last calls come before the end
            sys.stdout.flush()
            sys.stderr.flush()
        return bool(returned)

    def send_results(self) -> None:
        """Send gathered results, in the thread of the control channel."""
        with self._lock:
            self._scheduled, self._sent = False, time.monotonic()
            out, final = [report.to_tuple() for report in self._out], not self.open_count
            self._out.clear()
            if self._keys:
                out.append(Values(self._keys, self._values, self._seconds).to_tuple())
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

    def executor_of(self, call: Call) -> Executor | None:
        """Return the executor that runs a call."""
        return next((executor for executor in self.executors if executor.call is call), None)


# -- Executors of a node's calls: the main thread, threads beside it, or processes ----------------

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

    def _interrupted(self, signum: int, frame: FrameType | None) -> None:
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
        self._sent_context: PoolContext | None = None
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

    def _run_call(self, call: Call, batch: CallBatch) -> None:
        try:
            pipe = self._open()
            call.started_at = time.monotonic()
            context = None if self._sent_context is call.context else call.context.description
            self._sent_context = call.context
            self._send(RunCall(context, call.command))
            call.set_forwarder(self._send)
            while True:
                report = process_report(pipe.recv())
                if isinstance(report, Text):
                    self.pool_executors.site.show(batch, report.name, report.text)
                else:
                    call.emit(self._adopt_files(report, call))
                    if isinstance(report, FinalReport):
                        break
        except (EOFError, OSError):
            self._end()
            if not call.is_over:
                call.emit(ProcessLost(call.key, self._exit_reason()))
        call.is_over = True

    def _adopt_files(self, report: Report, call: Call) -> Report:
        """Take over the memory files of a result, which would end with the process."""
        if not isinstance(report, Value) or not has_blobs(report.payload):
            return report
        __, pid = call.context.description["reader"]
        payload = self.pool_executors.site.result_files.adopt(report.payload, pid)
        self._send(FilesAdopted())
        return replace(report, payload=payload)

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

    def _send(self, order: Order) -> None:
        with self._sending, suppress(OSError, ValueError):
            if self._pipe is not None:
                self._pipe.send(order.to_tuple())

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
        call.forward(StopCall(call.key, call.stop_reason))
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
Executor = MainThreadExecutor | ThreadExecutor | ProcessExecutor
EXECUTOR_CLASSES: dict[str, type[Executor]] = {
    "main": MainThreadExecutor,
    "thread": ThreadExecutor,
    "process": ProcessExecutor,
}
