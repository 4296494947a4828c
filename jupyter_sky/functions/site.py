"""Functions on a node: takes orders in the engine, gives calls to lanes, says what comes of them.

Orders come by the control channel, whose thread is free also while a cell or a call runs. What
calls have to say is gathered and sent by that thread too.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from .calls import Call, Camp
from .inlets import Stopped
from .lanes import ENDS, LANES
from .payload import unwrap, wrap
from .vault import Vault

GIVE_BACK_SECONDS = 0.1
"""Calls of a batch that have not begun by then go back: another node may be free."""
GATHER_SECONDS = 0.02
"""Results of quick calls travel together, for no longer than this."""
TICK_SECONDS = 0.05
GRACE_SECONDS = {"timeout": 0.3, "cancel": 0.8, "close": 10.0}
"""How long a call may take to stop before its lane goes on without it, by why it is to stop."""
CLOSE_SECONDS = 1.0
"""How long a generator that nobody listens to may take to its next item before it is stopped."""


class Batch:
    """The calls that came in one message, and what they have to say."""

    def __init__(self, ident: Any, message: dict[str, Any], site: Site) -> None:
        self.ident, self.site = ident, site
        self.parent = {"header": message["header"], "metadata": {}}
        self.id: str = message["header"]["msg_id"]
        self.calls: dict[int, Call] = {}
        self.open = 0
        self.begun = False
        self._out: deque[tuple] = deque()
        self._sent = 0.0
        self._scheduled = False
        self._lock = threading.Lock()

    def emit(self, said: tuple) -> None:
        """Take what a call says, from its thread."""
        ends = said[0] in ENDS
        if ends:
            sys.stdout.flush()
            sys.stderr.flush()
        with self._lock:
            if ends:
                if said[1] not in self.calls:  # it was given up
                    return
                del self.calls[said[1]]
                self.open -= 1
            self._out.append(said)
            due = not ends or not self.open or time.monotonic() - self._sent > GATHER_SECONDS
            schedule, self._scheduled = due and not self._scheduled, self._scheduled or due
        if schedule:
            self.site.control_loop.add_callback(self.send)

    def give_back(self) -> None:
        """Give back what has not begun, when something has; and say what there is to say."""
        with self._lock:
            waiting = [key for key, call in self.calls.items() if not call.taken]
            waiting = waiting if self.begun else []
            for key in waiting:
                del self.calls[key]
            self.open -= len(waiting)
            if waiting:
                self._out.append(("back", waiting))
        if self._out:
            self.send()

    def send(self) -> None:
        """Send what is gathered, in the thread of the control channel."""
        with self._lock:
            self._scheduled, self._sent = False, time.monotonic()
            out, final = list(self._out), not self.open
            self._out.clear()
        kernel = self.site.kernel
        content = {"final": final, "printed": kernel._printed.get(self.id, 0)}
        if final:
            kernel._printed.pop(self.id, None)
            self.site.batches.pop(self.id, None)
        kernel.session.send(
            kernel.control_stream,
            "sky_results",
            content,
            parent=self.parent,
            ident=self.ident,
            buffers=wrap(out),
        )


class Crew:
    """The lanes of one pool on this node, and the calls that wait for one."""

    def __init__(self, site: Site, camp: Camp) -> None:
        self.site, self.camp = site, camp
        self._waiting: deque[tuple[Batch, Call]] = deque()
        kind = LANES[camp.order["executor"]]
        self.lanes = [kind(self, number) for number in range(camp.order["concurrency"])]

    def add(self, batch: Batch, calls: list[Call]) -> None:
        """Let calls wait for a lane."""
        self._waiting.extend((batch, call) for call in calls)
        for lane in self.lanes:
            if lane.call is None:
                lane.wake()

    def next(self) -> tuple[Batch, Call] | None:
        """Return the next call to run, for a lane that is free."""
        while True:
            try:
                batch, call = self._waiting.popleft()
            except IndexError:
                return None
            with batch._lock:
                if call.key in batch.calls and not call.taken:  # else it was given back
                    batch.begun = call.taken = True
                    return batch, call

    def waiting(self) -> bool:
        """Whether any call waits."""
        return bool(self._waiting)

    def lane_of(self, call: Call) -> Any:
        """Return the lane that runs a call."""
        return next((lane for lane in self.lanes if lane.call is call), None)


class Site:
    """What an engine does for pools.

    Parameters
    ----------
    kernel
        The engine's kernel: its sessions, its streams, its loops.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.rank: int = kernel.engine_id
        self.main_loop = kernel.parent.loop
        self.control_loop = kernel.control_stream.io_loop
        self.vault = Vault(Path(kernel.docket.folder) / "blobs")
        self.crews: dict[str, Crew] = {}
        self.batches: dict[str, Batch] = {}
        self._watching = False
        self._told: Batch | None = None

    # -- orders, in the thread of the control channel ------------------------------------------

    def take(self, ident: Any, message: dict[str, Any]) -> None:
        """Carry out the orders of a message."""
        for order in unwrap(message["buffers"]):
            getattr(self, f"_order_{order[0]}")(ident, message, *order[1:])

    def _order_open(self, ident: Any, message: dict, told: dict[str, Any]) -> None:
        camp = Camp(told, self.vault.open)
        crew = self.crews.get(camp.pool)
        if crew is None:
            self.crews[camp.pool] = Crew(self, camp)
            return
        camp.inherit(crew.camp)
        crew.camp = camp

    def _order_close(self, ident: Any, message: dict, pool: str) -> None:
        if crew := self.crews.pop(pool, None):
            for lane in crew.lanes:
                lane.close()

    def _order_calls(self, ident: Any, message: dict, pool: str, orders: list[tuple]) -> None:
        batch = self.batches[message["header"]["msg_id"]] = Batch(ident, message, self)
        self.kernel._printed[batch.id] = 0
        crew = self.crews[pool]
        calls = [Call(crew.camp, order, batch.emit) for order in orders]
        for call in calls:
            call.mute = lambda names: self.speak_for(batch, names)
        batch.calls = {call.key: call for call in calls}
        batch.open = len(calls)
        crew.add(batch, calls)
        if len(calls) > 1:
            self.control_loop.call_later(GIVE_BACK_SECONDS, batch.give_back)
        if any(call.timeout is not None for call in calls):
            self._watch()

    def _order_feed(self, ident: Any, message: dict, batch: str, key: int, *fed: Any) -> None:
        if found := self._find(batch, key):
            _, call = found
            if self._is_elsewhere(call):
                call.forward(("feed", key, *fed))
            else:
                call.inlets[fed[0]].feed(fed[1])

    def _order_took(self, ident: Any, message: dict, batch: str, key: int, count: int) -> None:
        if found := self._find(batch, key):
            _, call = found
            if self._is_elsewhere(call):
                call.forward(("took", key, count))
            else:
                call.consumed(count)

    def _order_stop(self, ident: Any, message: dict, batch: str, keys: list[int], why: str) -> None:
        for key in keys:
            if found := self._find(batch, key):
                self._stop(*found, why)

    def _find(self, batch: str, key: int) -> tuple[Any, Call] | None:
        """Return a call that is not over, with the lane that runs it."""
        found = self.batches.get(batch)
        call = found.calls.get(key) if found else None
        if call is None:
            return None
        crew = self.crews[call.camp.pool]
        return crew.lane_of(call), call

    def _is_elsewhere(self, call: Call) -> bool:
        """Whether a call runs in a process of its own, which takes its orders."""
        return self.crews[call.camp.pool].camp.order["executor"] == "process"

    def _stop(self, lane: Any, call: Call, why: str) -> None:
        if lane is None:  # it has not begun, and runs into its end when it does
            call.stop(why, None)
            batch = next(b for b in self.batches.values() if b.calls.get(call.key) is call)
            call.taken = True
            batch.emit(call.failed(Stopped()))
            return
        call.why = call.why or why
        # a closed generator ends by itself, at its next item
        ends_itself = why == "close" and not self._is_elsewhere(call)
        call.stop(why, None if ends_itself else lane.interrupt(call))
        self._watch()

    # -- time, in the same thread --------------------------------------------------------------

    def _watch(self) -> None:
        if not self._watching:
            self._watching = True
            self.control_loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        """Stop calls whose time is over, and go on without those that do not stop."""
        self._watching, again, now = False, False, time.monotonic()
        for batch in list(self.batches.values()):
            for call in list(batch.calls.values()):
                lane = self.crews[call.camp.pool].lane_of(call)
                if call.overdue and not call.why and lane is not None:
                    self._stop(lane, call, "timeout")
                elif call.stopped_at and lane is not None:
                    since = now - call.stopped_at
                    if since > GRACE_SECONDS[call.why]:
                        self._go_on_without(batch, lane, call)
                    elif call.why == "close" and since > CLOSE_SECONDS:
                        call.stop("close", lane.interrupt(call))
                again = again or call.timeout is not None or bool(call.stopped_at)
        if again:
            self._watch()

    def _go_on_without(self, batch: Batch, lane: Any, call: Call) -> None:
        call.over = True
        stuck = not lane.abandon(call)
        if stuck:
            batch.give_back()
        batch.emit(call.failed(Stopped(), stuck=stuck))

    # -- what lanes need -----------------------------------------------------------------------

    def at_work(self, batch: Batch) -> None:
        """Let the head know that the main thread runs calls, and whose what it prints is."""
        kernel = self.kernel
        # not over the entry of a cell that awaits something meanwhile
        if self._told is not batch and not kernel._busy_since:
            self._told = batch
            facts = {"run": f"calls-{batch.id}", "rank": self.rank, "ranks": [self.rank]}
            kernel.docket.write(batch.id, json.dumps({**facts, "call": True}))
        self.speak_for(batch)

    def at_rest(self) -> None:
        """Let it know that there are none now."""
        if self._told is not None:
            self._told = None
            self.kernel.docket.clear()

    def speak_for(self, batch: Batch, muted: Any = ()) -> None:
        """Let what this thread prints from now on belong to a batch; `muted` streams to nobody."""
        parent = batch.parent
        if muted:
            parent = {**parent, "header": {**parent["header"], "sky_mute": " ".join(muted)}}
        self.kernel.shell.set_parent(parent)

    def show(self, batch: Batch, name: str, text: str) -> None:
        """Show what a process has printed."""
        self.kernel.session.send(
            self.kernel.iopub_socket,
            "stream",
            {"name": name, "text": text},
            parent=batch.parent,
            ident=self.kernel._topic(f"{name}"),
        )

    # -- blobs, in the main thread -------------------------------------------------------------

    def take_blob(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Take a part of a blob, or say which of some are here."""
        content, buffers = parent["content"], parent.get("buffers") or []
        reply: dict[str, Any]
        try:
            if "asked" in content:
                here = all(self.vault.has(name) for name in content["asked"])
                reply = {"here": here, "vault": self.vault.identity}
            else:
                start, size = content["start"], content["size"]
                reply = {"whole": self.vault.fill(content["name"], start, buffers, size)}
            reply["status"] = "ok"
        except OSError as error:
            reply = {"status": "error", "ename": "SkyTransferError", "evalue": str(error)}
        metadata = self.kernel.init_metadata(parent)
        session = self.kernel.session
        session.send(stream, "sky_reply", reply, parent=parent, ident=ident, metadata=metadata)
