"""Node worker: handles commands of pools in the engine, runs calls, sends results.

Orders come by the control channel, whose thread is free also while a cell or a call runs. What
calls have to say is gathered and sent by that thread too.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from jupyter_sky.execution.functions.node.blob_cache import BlobCache
from jupyter_sky.execution.functions.node.call_batch import RETURN_SECONDS, CallBatch, PoolExecutors
from jupyter_sky.execution.functions.node.calls import Call
from jupyter_sky.execution.functions.node.pool_context import PoolContext
from jupyter_sky.execution.functions.node.result_files import CHECK_SECONDS, ResultFiles
from jupyter_sky.execution.functions.node.stream_inputs import Stopped
from jupyter_sky.execution.serialization.payload import unwrap
from jupyter_sky.machines.engines.node.extensions import EngineExtension

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


class NodeWorker(EngineExtension):
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

    def handle_commands(self, ident: Any, message: dict[str, Any]) -> None:
        """Handle the commands of a message."""
        for command in unwrap(message["buffers"]):
            getattr(self, f"_command_{command[0]}")(ident, message, *command[1:])

    def _command_open(self, ident: Any, message: dict, told: dict[str, Any]) -> None:
        results = self.result_files.store_of(told["reader"])
        context = PoolContext(told, self.blob_cache.open, results)
        pool_executors = self.pools.get(context.pool)
        if pool_executors is None:
            self.pools[context.pool] = PoolExecutors(self, context)
            return
        context.reuse(pool_executors.context)
        pool_executors.context = context

    def _command_close(self, ident: Any, message: dict, pool: str) -> None:
        if pool_executors := self.pools.pop(pool, None):
            for executor in pool_executors.executors:
                executor.close()
        if not self.pools:
            from jupyter_sky.execution.functions.node.other_python import end_workers

            self.result_files.release_all()
            end_workers()

    def _command_release(self, ident: Any, message: dict, descriptors: list[int]) -> None:
        self.result_files.release(descriptors)

    def _check_result_files(self) -> None:
        if self.result_files.release_orphans():
            self.control_loop.call_later(CHECK_SECONDS, self._check_result_files)

    def _command_calls(self, ident: Any, message: dict, pool: str, commands: list[tuple]) -> None:
        pool_executors = self.pools[pool]
        batch = CallBatch(ident, message, self, len(pool_executors.executors))
        batch.add(pool_executors.context, commands)
        self._begin(batch, pool_executors)
        if any(command[3] is not None for command in commands):
            self._watch()

    def _command_plain_calls(
        self, ident: Any, message: dict, pool: str, timeout: float | None, *calls: Any
    ) -> None:
        pool_executors = self.pools[pool]
        batch = CallBatch(ident, message, self, len(pool_executors.executors))
        batch.add_plain(pool_executors.context, timeout, *calls)
        self._begin(batch, pool_executors)
        if timeout is not None:
            self._watch()

    def _begin(self, batch: CallBatch, pool_executors: PoolExecutors) -> None:
        self.batches[batch.id] = batch
        self.kernel.output_counter.begin(batch.id)
        may_wait = batch.open_count > 1 or pool_executors.is_busy()
        pool_executors.add(batch)
        if may_wait:
            self.control_loop.call_later(RETURN_SECONDS, batch.return_unstarted)

    def _command_feed(self, ident: Any, message: dict, batch: str, key: int, *fed: Any) -> None:
        if executor_and_call := self._find(batch, key):
            _, call = executor_and_call
            if self._runs_in_process(call):
                call.forward(("feed", key, *fed))
            else:
                call.stream_inputs[fed[0]].feed(fed[1])

    def _command_consumed(
        self, ident: Any, message: dict, batch: str, key: int, count: int
    ) -> None:
        if executor_and_call := self._find(batch, key):
            _, call = executor_and_call
            if self._runs_in_process(call):
                call.forward(("consumed", key, count))
            else:
                call.acknowledge(count)

    def _command_stop(
        self, ident: Any, message: dict, batch: str, keys: list[int], why: str
    ) -> None:
        if batch in self.batches:
            self.batches[batch].return_plain(keys)
        for key in keys:
            if executor_and_call := self._find(batch, key):
                self._stop(*executor_and_call, why)

    def _find(self, batch: str, key: int) -> tuple[Any, Call] | None:
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

    def _stop(self, executor: Any, call: Call, why: str) -> None:
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

    def _abandon(self, batch: CallBatch, executor: Any, call: Call) -> None:
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

    def attribute_output(self, batch: CallBatch, muted: Any = ()) -> None:
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

    def receive_blob(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Receive a part of a blob, or report which blobs are present."""
        content, buffers = parent["content"], parent.get("buffers") or []
        reply: dict[str, Any]
        try:
            if "asked" in content:
                is_present = all(self.blob_cache.has(name) for name in content["asked"])
                reply = {"here": is_present, "blob_cache": self.blob_cache.identity}
            else:
                start, size = content["start"], content["size"]
                reply = {"whole": self.blob_cache.write_part(content["name"], start, buffers, size)}
            reply["status"] = "ok"
        except OSError as error:
            reply = {"status": "error", "ename": "SkyTransferError", "evalue": str(error)}
        metadata = self.kernel.init_metadata(parent)
        session = self.kernel.session
        session.send(stream, "sky_reply", reply, parent=parent, ident=ident, metadata=metadata)
