"""ipyparallel client that stores no outputs and connects to local engines directly.

Every message of a cell is handed to the cell's own sink, unchanged. Where engines run on this
machine, requests go to them and what they print comes back without passing the controller, which
still hears all that is printed and keeps it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, TypeVar

import zmq
from ipyparallel import error as ipp_error
from ipyparallel.client.client import Client

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.messages import Message
from jupyter_sky.machines.engines.wire.data_requests import ServeMount
from jupyter_sky.machines.engines.wire.engine_requests import Ping
from jupyter_sky.machines.engines.wire.messages import NOTICE_MESSAGE, JupyterMessage
from jupyter_sky.machines.engines.wire.private_sockets import PrivateSockets, output_socket_name

T = TypeVar("T")
FrameHandler = Callable[[list[zmq.Frame]], None]
Sink = Callable[[JupyterMessage], None]
ReplyHandler = Callable[[JupyterMessage | Exception], None]
"""Receives each reply of an engine to a command, or the error if none comes."""

REPLY_TIMEOUT_SECONDS = 10.0
DIRECT_TIMEOUT_SECONDS = 0.5
"""Limit of an engine's first direct answer; it has just answered by the controller."""


@dataclass(frozen=True, slots=True)
class DirectRoute:
    """Sockets of a direct connection to an engine."""

    requests: zmq.Socket[bytes]
    commands: zmq.Socket[bytes]
    outputs: zmq.Socket[bytes]
    topic: bytes
    """Prefix of the engine's messages when they come by the controller."""


class DirectClient(Client):
    """ipyparallel client that hands each message on instead of collecting it."""

    def __init__(self, *args: Any, folder: Path | None = None, **kwargs: Any) -> None:
        self._private = PrivateSockets(folder) if folder is not None else None
        self.sinks: OrderedDict[str, Sink] = OrderedDict()
        self.reply_handlers: dict[str, ReplyHandler] = {}
        self.default_handler: Sink = lambda message: None
        self.on_widget: Callable[[], None] = lambda: None
        """Called when a widget's message goes to an engine."""
        self.on_notices: Callable[[JsonObject], None] = lambda notices: None
        """Called with the notices of the cloud by rank when they have changed."""
        self.on_silence: Callable[[list[int]], None] = lambda ranks: None
        """Called with the ranks of nodes that the controller has not heard of for a while."""
        self.routes: dict[str, DirectRoute] = {}
        self.is_verifying_outputs = False
        self.is_local = True
        """Whether the ports that engines name may be ports of this machine."""
        self._direct_topics: tuple[bytes, ...] = ()
        self._is_subscribed = True
        super().__init__(*args, **kwargs)
        self.is_local = self._config["interface"].startswith("tcp:")
        # ipyparallel's own handler of apply_reply unpickles whatever a controller sends
        self._queue_handlers = {
            "execute_reply": self._resolve_future,
            "sky_reply": self._resolve_future,
        }
        self._notification_handlers[NOTICE_MESSAGE] = self._take_notices

    def _take_notices(self, msg: JsonObject) -> None:
        self.on_notices(msg["content"]["notices"])
        self.on_silence(msg["content"]["silent"])

    def _connect(self, *args: Any, **kwargs: Any) -> None:
        if self._private is not None and self._private.is_usable:
            port = self._config["iopub"].rpartition(":")[2]
            # it may not be there yet: ZeroMQ tries again until it is
            self._config["iopub"] = self._private.url(output_socket_name(port))
        super()._connect(*args, **kwargs)

    def close(self, *args: Any, **kwargs: Any) -> None:
        """Close the sockets."""
        super().close(*args, **kwargs)
        if self._private is not None:
            self._private.close()

    def activate(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Leave ``%px`` as it is: ipyparallel registers it on request."""

    def _make_io_loop(self) -> ZmqLoop:
        return ZmqLoop()

    def _setup_streams(self) -> None:
        """Receive from each socket; ipyparallel sends to what it calls their streams."""
        self._query_stream = self._query_socket
        self._control_stream = self._control_socket
        self._mux_stream = self._mux_socket
        self._task_stream = self._task_socket
        self._broadcast_stream = self._broadcast_socket
        self._iopub_stream = self._iopub_socket
        self._notification_stream = self._notification_socket
        for source, handler in (
            (self._query_socket, self._dispatch_single_reply),
            (self._control_socket, self._dispatch_command_reply),
            (self._mux_socket, self._dispatch_reply),
            (self._task_socket, self._dispatch_reply),
            (self._broadcast_socket, self._dispatch_reply),
            (self._iopub_socket, self._dispatch_iopub),
            (self._notification_socket, self._dispatch_notification),
        ):
            assert source is not None
            self._io_loop.on_recv(source, handler)

    # -- access to ipyparallel's private attributes, for this file alone ---------------------------

    @property
    def engines_by_rank(self) -> Mapping[int, str]:
        """Identities of the connected engines; `ids` would first process the queue of the hub."""
        return self._engines

    @property
    def connected_ranks(self) -> set[int]:
        """Ranks of the connected engines; `ids` would first process the queue of the hub."""
        return set(self._ids)

    @property
    def is_closed(self) -> bool:
        """Whether the sockets are closed: `close` has no public counterpart that tells."""
        return self._closed

    @property
    def query_socket(self) -> zmq.Socket[bytes]:
        """Socket to the hub, whose disconnections stand for those of all sockets."""
        assert self._query_socket is not None
        return self._query_socket

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call `callback` in the thread of the sockets, which no other thread may touch."""
        self._io_loop.add_callback(callback)

    def fail_pending(self, error: Exception) -> None:
        """Set `error` on all pending replies; no public method ends them without their engines."""
        for handler in list(self.reply_handlers.values()):
            handler(error)
        self.reply_handlers.clear()
        for future in list(self._futures.values()):
            if not future.done():
                future.set_exception(error)
        for future in list(self._output_futures.values()):
            if not future.done():
                future.set_result(None)  # one error is enough: ipyparallel would log a second one

    # -- receiving ---------------------------------------------------------------------------------

    def _dispatch_iopub(self, parts: list[zmq.Frame]) -> None:
        if not parts[0].bytes.startswith(self._direct_topics):  # else it has come the direct route
            self._dispatch_output(parts)

    def _dispatch_output(self, parts: list[zmq.Frame]) -> None:
        # skip messages that an engine is busy (only the controller needs them) or idle (only cells
        # whose reply does not count their outputs need them): unpacking costs time
        wanted = self.is_verifying_outputs or (
            self._output_futures and b'"idle"' in parts[-1].bytes
        )
        if wanted or not parts[0].bytes.endswith(b".status"):
            self._handle_output(parts)

    def _dispatch_command_reply(self, parts: list[zmq.Frame]) -> None:
        """Pass a reply to the handler of its command, or to the future of its request."""
        msg = self._deserialize(parts)
        if msg is None:
            return
        msg_id = msg["parent_header"].get("msg_id", "")
        handler = self.reply_handlers.get(msg_id)
        if handler is None:
            self._resolve_future(msg)
        else:
            if msg["content"].get("final"):
                self.forget_command(msg_id, msg["metadata"].get("engine", ""))
            handler(msg)

    def _deserialize(self, parts: list[zmq.Frame]) -> JupyterMessage | None:
        _, frames = self.session.feed_identities(parts, copy=False)
        try:
            return self.session.deserialize(frames, content=True, copy=False)  # type: ignore[arg-type]
        except ValueError:  # not of this cluster, or come both ways while one took over
            return None

    def _handle_output(self, parts: list[zmq.Frame]) -> None:
        msg = self._deserialize(parts)
        if msg is None:
            return
        parent = msg["parent_header"]
        if not parent or parent.get("session") != self.session.session:
            return
        msg_id = parent["msg_id"]
        sink = self.sinks.get(msg_id, self.default_handler)
        try:
            sink(msg)
        finally:
            if msg["msg_type"] == "status" and msg["content"]["execution_state"] == "idle":
                output = self._output_futures.get(msg_id)
                if output and not output.done():
                    output.set_result(None)

    def _handle_execute_reply(self, msg: JupyterMessage) -> None:
        self._resolve_future(msg)

    def _resolve_future(self, msg: JupyterMessage) -> None:
        msg_id = msg["parent_header"]["msg_id"]
        self.outstanding.discard(msg_id)
        engine = msg["metadata"].get("engine")
        if engine is not None:
            self._outstanding_dict[engine].discard(msg_id)
        future = self._futures.get(msg_id)
        if future and not future.done():
            future.set_result(msg)

    def _handle_stranded_msgs(self, eid: int, uuid: str) -> None:
        route = self.routes.pop(uuid, None)
        if route is not None:
            self._io_loop.add_callback(lambda: self._close_route(route))
        for msg_id in list(self._outstanding_dict[uuid]):
            self._outstanding_dict[uuid].discard(msg_id)
            self.outstanding.discard(msg_id)
            if handler := self.reply_handlers.pop(msg_id, None):
                handler(ipp_error.EngineError(str(eid)))
            for futures in (self._futures, self._output_futures):
                future = futures.get(msg_id)
                if future and not future.done():
                    future.set_result(ipp_error.EngineError(str(eid)))

    # -- sending -----------------------------------------------------------------------------------

    def send_to_engine(
        self, engine: str, kind: str, content: Any, route: DirectRoute | None = None, **parts: Any
    ) -> Any:
        """Send a request to an engine: directly where that is possible, else by the controller.

        Past the controller a message has half the way, and a value is copied half as often.
        """
        route = route or self.routes.get(engine)
        source, ident = self._route(engine, route)
        future = self._send(
            source, kind, content=content, ident=ident, track_outstanding=True, **parts
        )
        if route:
            self._outstanding_dict[engine].add(future.msg_id)
            if engine not in self._engines.values():  # it has just died
                self._handle_stranded_msgs(-1, engine)
        return future

    def send_command(
        self,
        engine: str,
        buffers: list[Any],
        handler: ReplyHandler | None = None,
        sink: Sink | None = None,
        journal: JsonObject | None = None,
    ) -> str:
        """Send a command to an engine, which takes it up whatever its main thread does.

        Parameters
        ----------
        handler
            Called with each reply up to the final one, in the thread of this client.
        sink
            Called with what is printed because of it.
        journal
            ``run`` and ``rank`` under which the controller records what is printed.

        Returns
        -------
        str
            The id of the message.
        """
        route = self.routes.get(engine)
        msg = self.session.msg("sky_commands", content={})
        if journal is not None:
            msg["header"]["sky_calls"] = json.dumps(journal)
        msg_id = msg["header"]["msg_id"]
        if handler is not None:
            self.reply_handlers[msg_id] = handler
            self.sinks[msg_id] = sink or self.default_handler
            self._outstanding_dict[engine].add(msg_id)
        source = route.commands if route else self._control_socket
        ident = None if route else engine.encode()
        self._io_loop.add_callback(
            lambda: self.session.send(source, msg, buffers=buffers, ident=ident)
        )
        if handler is not None and engine not in self._engines.values():  # it has just died
            self._io_loop.add_callback(lambda: self._handle_stranded_msgs(-1, engine))
        return msg_id

    def send_mount_request(self, engine: str, request: ServeMount) -> Future[JupyterMessage]:
        """Send requests for a mounted dataset; its engine answers whatever its main thread does."""
        route = self.routes.get(engine)
        return self._send_request(
            route.commands if route else self._control_stream,
            "sky_mount",
            content=request.encode(),
            ident=None if route else engine.encode(),
        )

    def _send_request(self, *arguments: Any, **parts: Any) -> Any:
        """Send a message; ipyparallel does not say that its future is one."""
        return self._send(*arguments, **parts)

    def send_query(self, kind: str, content: JsonObject | None = None) -> Future:
        """Send a request to the hub; return the future of its reply."""
        return self._send_request(self._query_stream, kind, content=content or {})

    def send_abort(self, rank: int, msg_ids: list[str]) -> Future:
        """Request that an engine aborts cells that have not begun; ipyparallel's `abort` waits."""
        return self._send_request(
            self._control_stream,
            "abort_request",
            content={"msg_ids": msg_ids},
            ident=self._engines[rank].encode(),
        )

    def broadcast(
        self, engines: Collection[str], kind: str, request: Message
    ) -> dict[str, Future[JupyterMessage]]:
        """Send one message to several engines; return the future of each engine's reply.

        ipyparallel's `BroadcastView` sends pickled functions only, so its wire format is used here.
        """
        ranks = {engine: rank for rank, engine in self._engines.items()}
        targets = [(engine, ranks[engine]) for engine in engines if engine in ranks]
        header = self.session.msg_header(kind)
        metadata = {
            "targets": targets,
            "is_broadcast": True,
            "is_coalescing": False,
            "original_msg_id": header["msg_id"],
        }
        futures: dict[str, Future] = {}
        for engine, _ in targets:
            name = f"{header['msg_id']}_{engine}"
            (future, *_) = self.create_message_futures(name, {**header, "msg_id": name})
            self._outstanding_dict[engine].add(name)
            futures[engine] = future
        message = self.session.msg(kind, request.encode(), header=header, metadata=metadata)
        buffers: Any = request.attached or None
        self.call_soon(lambda: self.session.send(self._broadcast_socket, message, buffers=buffers))
        return futures

    def forget_command(self, msg_id: str, engine: str) -> None:
        """Ignore further replies to a command."""
        self.reply_handlers.pop(msg_id, None)
        self._outstanding_dict[engine].discard(msg_id)

    def send_comm(self, engine: str, kind: str, content: Any, **parts: Any) -> str:
        """Send a widget's message to an engine; return its message id."""
        self.on_widget()
        header = self.session.msg_header(kind)
        source, ident = self._route(engine, self.routes.get(engine))
        self._send(source, kind, content=content, header=header, ident=ident, **parts)
        return header["msg_id"]

    def _route(self, engine: str, route: DirectRoute | None) -> tuple[Any, bytes | None]:
        """Return the socket to an engine, and its address where the socket leads to several."""
        return (route.requests, None) if route else (self._mux_socket, engine.encode())

    # -- the direct route ---------------------------------------------------------------------

    def connect_directly(self, rank: int, engine: str, ports: list[int | str]) -> None:
        """Open a direct connection to an engine on this machine, after verifying its identity.

        The ports may be those of another machine, behind a tunnel; then the controller's way
        stays.
        """
        route = self.run_in_loop(lambda: self._open_route(rank, ports))
        answer = self.send_to_engine(engine, "sky_value", Ping().encode(), route=route)
        try:
            reply = answer.result(DIRECT_TIMEOUT_SECONDS)
        except FutureTimeout:
            reply = None
        if isinstance(reply, dict) and reply["metadata"].get("engine") == engine:
            self.routes[engine] = route
            self.run_in_loop(lambda: self._activate_route(route))
        else:
            self._io_loop.add_callback(lambda: self._close_route(route))

    def run_in_loop(self, function: Callable[[], T]) -> T:
        """Call a function in the thread of the sockets; return its result."""
        made: Future[T] = Future()
        self._io_loop.add_callback(lambda: made.set_result(function()))
        return made.result(REPLY_TIMEOUT_SECONDS)

    def _open_route(self, rank: int, ports: list[int | str]) -> DirectRoute:
        requests, commands = self._context.socket(zmq.DEALER), self._context.socket(zmq.DEALER)
        outputs = self._context.socket(zmq.SUB)
        outputs.rcvhwm = 64  # a flood waits in the engine: a notebook's memory is not for it
        outputs.subscribe(b"")
        for source, port in zip((requests, commands, outputs), ports, strict=True):
            source.connect(self._port_url(port))
        self._io_loop.on_recv(requests, self._dispatch_reply)
        self._io_loop.on_recv(commands, self._dispatch_command_reply)
        return DirectRoute(requests, commands, outputs, b"engine.%d." % rank)

    def _port_url(self, port: int | str) -> str:
        """Return the address of a port of an engine, or of a socket by its name."""
        if isinstance(port, str) and self._private is not None:
            return self._private.url(PurePath(port).name)
        return f"tcp://127.0.0.1:{port}"

    def _activate_route(self, route: DirectRoute) -> None:
        """Receive messages of the engine by the direct route only."""
        self._io_loop.on_recv(route.outputs, self._dispatch_output)
        self._direct_topics = tuple({*self._direct_topics, route.topic})
        self._update_subscription()

    def _close_route(self, route: DirectRoute) -> None:
        self._direct_topics = tuple({*self._direct_topics} - {route.topic})
        self._io_loop.remove(route.requests)
        self._io_loop.remove(route.commands)
        self._io_loop.remove(route.outputs)
        route.outputs.close(linger=0)
        self._update_subscription()

    def _update_subscription(self) -> None:
        """Subscribe to the controller's outputs only while some engine lacks a direct route."""
        wanted = any(engine not in self.routes for engine in self._engines.values())
        if wanted != self._is_subscribed:
            self._is_subscribed = wanted
            feed = self._iopub_socket
            (feed.subscribe if wanted else feed.unsubscribe)(b"")

    def update_engines(self, engines: dict[str, str]) -> None:
        """Add engines whose registration was missed; in the loop's thread."""
        self._update_engines(engines)
        self._update_subscription()

    def _register_engine(self, msg: JupyterMessage) -> None:
        super()._register_engine(msg)
        self._update_subscription()


# -- Event loop over ZeroMQ sockets, in the thread of a cluster's client --------------------------
#
# ipyparallel's client runs tornado and asyncio in this place, which take longer over a message than
# everything else that happens to it on this side. A poll, a receive and a call are enough.

_log = logging.getLogger(__name__)

MAX_MESSAGES_PER_TURN = 200
"""Messages taken from one socket before the others, and other threads' callbacks, have a turn."""
MAX_SECONDS_PER_TURN = 0.05
"""Time after which they have it even if fewer were taken: pieces of a flood of text are large, and
the answers of a controller must not wait for seconds behind them."""


class ZmqLoop:
    """Event loop over sockets that only its own thread touches.

    It has as much of tornado's IOLoop as an ipyparallel client uses.
    """

    def __init__(self) -> None:
        self._handlers: dict[zmq.Socket[bytes], FrameHandler] = {}
        self._callbacks: deque[Callable[[], None]] = deque()
        self._poller = zmq.Poller()
        # other threads wake this one up by a byte
        self._wakeup_recv, self._wakeup_send = socket.socketpair()
        for end in (self._wakeup_recv, self._wakeup_send):
            end.setblocking(False)
        self._poller.register(self._wakeup_recv, zmq.POLLIN)
        self._stopped = False

    def on_recv(self, source: zmq.Socket[bytes], handler: FrameHandler) -> None:
        """Hand the messages of a socket to `handler`, as lists of frames."""
        self._handlers[source] = handler
        self._poller.register(source, zmq.POLLIN)

    def remove(self, source: zmq.Socket[bytes]) -> None:
        """Close a socket and stop polling it."""
        if self._handlers.pop(source, None) is not None:
            self._poller.unregister(source)
            source.close(linger=0)

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop's thread, soon; from any thread."""
        self._callbacks.append(callback)
        with contextlib.suppress(BlockingIOError, OSError):  # full: it is awake already
            self._wakeup_send.send(b"\0")

    def stop(self) -> None:
        """Let `start` return after this iteration."""
        self._stopped = True

    def start(self) -> None:
        """Run until stopped."""
        while not self._stopped:
            for source, _ in self._poller.poll():
                if source == self._wakeup_recv.fileno():
                    self._run_callbacks()
                else:
                    self._receive(source)

    def _run_callbacks(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wakeup_recv.recv(4096)
        for _ in range(len(self._callbacks)):
            _call_safely(self._callbacks.popleft())

    def _receive(self, source: zmq.Socket[bytes]) -> None:
        handler = self._handlers.get(source)
        if handler is None:  # forgotten in this very turn
            return
        deadline = time.monotonic() + MAX_SECONDS_PER_TURN
        for _ in range(MAX_MESSAGES_PER_TURN):
            if source.closed or time.monotonic() > deadline:  # closed by what it has just received
                return
            try:
                frames = source.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            _call_safely(handler, frames)

    def close(self, all_fds: bool = False) -> None:
        """Close the loop, and with `all_fds` its sockets."""
        for end in (self._wakeup_recv, self._wakeup_send):
            end.close()
        if all_fds:
            for source in self._handlers:
                source.close(linger=0)


def _call_safely(function: Callable[..., None], *arguments: Any) -> None:
    """Call a handler; log its error, which must not end the connection."""
    try:
        function(*arguments)
    except Exception:
        _log.exception("a message could not be handled")
