"""ipyparallel's hub in one process with the cluster controller, with private connection files.

The controller imports this module when its engines are starting: the imports take long.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import zmq

from jupyter_sky.base.remote.supervisor import write_private
from jupyter_sky.machines.engines.node.lazy_imports import gc_disabled
from jupyter_sky.machines.engines.wire.agent_link import ALL_ADDRESSES, listen_address
from jupyter_sky.machines.engines.wire.messages import NOTICE_MESSAGE, JupyterMessage
from jupyter_sky.machines.engines.wire.output_queues import (
    BOUNDED_READER,
    QUEUED_MESSAGES,
    WAITING_PUBLISHER,
    bound,
)
from jupyter_sky.machines.engines.wire.private_sockets import PrivateSockets, output_socket_name

with gc_disabled():  # half of what is imported in this process
    import zmq
    from ipyparallel.controller import app as controller_app
    from ipyparallel.controller import heartmonitor
    from ipyparallel.controller.hub import Hub
    from tornado.ioloop import PeriodicCallback

if TYPE_CHECKING:
    from jupyter_sky.machines.engines.controller.controller import ClusterController

HEARTBEAT_MS = 250
"""Period of the heartbeats to engines, in milliseconds."""
STARTUP_HEARTBEAT_MS, STARTUP_SECONDS = 50, 60.0
"""Shorter period while engines start: one is known from the first heartbeat that it answers."""
HEARTBEAT_TIMEOUT_SECONDS = 10.0
"""An engine that lives but has not answered for so long is given up."""
TICK_SECONDS = 0.05
DRAIN_PERIOD_MS = 50
COPY_BYTES = 64 * 1024
"""Smaller parts of messages are copied: a view of them would cost more."""
_QUEUE_TOPICS = {b"in", b"out", b"incontrol", b"outcontrol"}
DRAIN_LIMIT_SECONDS = 0.1  # at most, before it looks after other things
FLOOD_POLL_MS = 2
"""Wait for more in a flood, of which the bounded queues hold only a part at a time."""
_Hub: Any = Hub  # its traits have no types that a checker could follow


class SkyHub(_Hub):
    """Hub that passes requests and messages to the cluster controller."""

    controller: ClassVar[ClusterController]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.controller.engines.is_registered = lambda rank: rank in self.engines
        self.controller.unregister = lambda rank: self.unregister_engine(
            b"controller", {"content": {"id": rank}}
        )
        self.controller.publish_notices = lambda content: self.session.send(
            self.notifier, NOTICE_MESSAGE, content=content
        )
        self.controller.drain_outputs = self.drain
        self.query_handlers["sky_request"] = self.sky_request
        self.monitor_handlers[b"iopub"] = self.sky_output
        self.monitor.stop_on_recv()
        bound(self.monitor.socket, BOUNDED_READER)
        PeriodicCallback(self.drain, DRAIN_PERIOD_MS).start()

    def drain(self) -> None:
        """Process messages that have passed the schedulers.

        In batches: a wake-up for each message would compete with the engine for the CPU just
        while it runs the cell.
        """
        socket, deadline = self.monitor.socket, time.monotonic() + DRAIN_LIMIT_SECONDS
        taken = 0
        while time.monotonic() < deadline:
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                if taken < QUEUED_MESSAGES or not socket.poll(FLOOD_POLL_MS):
                    return
                continue
            taken += 1
            # of the chunks of values, which pass here too, only the headers are read
            kept = frames[:9] if frames[0].bytes in _QUEUE_TOPICS else frames
            # a large output is not copied
            parts = [f.bytes if len(f) < COPY_BYTES else f.buffer for f in kept]
            self.dispatch_monitor_traffic(parts)

    def sky_request(self, idents: list[bytes], message: JupyterMessage) -> None:
        """Reply to a request of a notebook or of an observer."""
        try:
            self.drain()
            reply = self.controller.handle_request(message["content"])
            content, buffers = reply.encode(), reply.attached
        except Exception as error:
            self.log.error("bad request", exc_info=True)
            content, buffers = {"failed": f"{type(error).__name__}: {error}"}, ()
        self.session.send(
            self.query, "sky_reply", content, ident=idents[0], parent=message, buffers=buffers
        )

    def sky_output(self, topics: list[bytes], frames: list) -> None:
        """Pass an output message to the controller; its content stays packed."""
        with self._log_invalid():
            self.controller.on_output(self.session.deserialize(frames, content=False))

    def save_queue_request(self, idents: list[bytes], msg: list) -> None:
        """Pass a cell on its way to an engine to the controller."""
        self._note(self.controller.on_request, msg[:5], idents[0] in self.by_ident)

    def save_queue_result(self, idents: list[bytes], msg: list) -> None:
        """Pass the reply of an engine to the controller."""
        self._note(self.controller.on_reply, msg[:5])

    def _note(self, handler: Callable[..., None], frames: list, *more: object) -> None:
        with self._log_invalid():
            handler(self.session.deserialize(frames, content=True), *more)

    @contextlib.contextmanager
    def _log_invalid(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            self.log.error("invalid message", exc_info=True)

    def handle_stopped_heart(self, heart: bytes) -> None:
        """Replace the engine: one that is merely unregistered would never come back."""
        rank = self.hearts.get(heart)
        if rank is not None:
            self.controller.engines.kill(
                rank, f"it has not answered for {HEARTBEAT_TIMEOUT_SECONDS:g} s"
            )

    def _handle_stranded_msgs(self, eid: int, uuid: str) -> None:
        """Do nothing: the controller has already ended the runs of a dead engine."""

    def _save_engine_state(self) -> None:
        """Do nothing: engines are children of the controller, with no state to restore."""


class SkyController(controller_app.IPController):
    """Application of ipyparallel's controller, with private connection files and sockets."""

    controller: ClassVar[ClusterController]
    private: ClassVar[PrivateSockets]
    _has_chosen = False
    """Whether a port has been chosen."""

    def save_connection_dict(self, fname: str, cdict: dict[str, Any]) -> None:
        """Write a connection file whole and private from its first byte: it has the key."""
        name = "engine.json" if "engine" in fname else "client.json"
        path = self.controller.directory / "security" / name
        write_private(path, cdict)
        if name == "engine.json":
            self.controller.publish_controller()

    def client_url(self, channel: str, index: Any = None) -> str:
        """Return the URL of a channel for clients; outputs use a private socket."""
        if channel == "iopub" and self.private.is_usable:
            return self.private.url(output_socket_name(self.client_info["iopub"]))
        return super().client_url(channel, index)

    def cleanup_connection_files(self) -> None:
        """Remove the connection files."""
        for name in ("engine.json", "client.json"):
            (self.controller.directory / "security" / name).unlink(missing_ok=True)

    def bind(self, socket: Any, url: str) -> None:
        """Bind a socket; one that listens at all addresses does so at that of clients, too."""
        if self.engine_ip != ALL_ADDRESSES or url != self.client_url("registration"):
            super().bind(socket, url)

    def next_port(self, pool_name: str = "common") -> int:
        """Return a port that nothing else can take from now on."""
        addresses = {"engine": self.engine_ip, "client": self.client_ip}
        wanted = [addresses.get(pool_name, self.monitor_ip)]
        if not self._has_chosen and self.engine_ip != ALL_ADDRESSES:
            wanted.append(self.client_ip)  # of registration, which comes first: clients ask there
        self._has_chosen = True
        return ReservingSocket.reserved.reserve(wanted)

    def init_hub(self) -> None:
        """Skip the fixed delay in `Hub.init_hub`: it waits for an unused database back end."""
        controller_app.time = SimpleNamespace(sleep=lambda seconds: None)
        try:
            super().init_hub()
        finally:
            controller_app.time = time

    def init_schedulers(self) -> None:
        """Let engines wait for whoever reads outputs slowest, a notebook or the journal.

        ipyparallel's queues have no limits: one that reads nothing would fill the memory.
        """
        super().init_schedulers()
        if self.private.is_usable:  # its number is only part of a name: see `client_url`
            listener = ReservingSocket.reserved.take(super().client_url("iopub"))
            assert listener is not None
            listener.close()
        outputs = self.children[0]
        for option, value in BOUNDED_READER:
            outputs.setsockopt_in(option, value)
        for option, value in WAITING_PUBLISHER:
            outputs.setsockopt_out(option, value)
            outputs.setsockopt_mon(option, value)

    def init_signal(self) -> None:
        """Handle signals in the controller."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(
                signum, lambda *_: self.loop.add_callback_from_signal(self.controller.on_signal)
            )

    def start(self) -> None:
        """Start the periodic checks of the controller, and the loop."""
        self.controller.stop_loop = self.loop.stop
        PeriodicCallback(self.controller.tick, TICK_SECONDS * 1000).start()
        super().start()


class FastHeartMonitor(heartmonitor.HeartMonitor):
    """Heart monitor that beats faster while engines start, and reports a new one at once."""

    controller: ClassVar[ClusterController]
    complete = time.monotonic()

    def beat(self) -> None:
        """Choose the period of heartbeats, and send one."""
        now = time.monotonic()
        if len(self.responses) >= self.controller.config["nodes"]:
            self.complete = now
        is_starting = 0 < now - self.complete < STARTUP_SECONDS
        period = STARTUP_HEARTBEAT_MS if is_starting else HEARTBEAT_MS
        if period != self.caller.callback_time:
            self.caller.callback_time = period
            self.max_heartmonitor_misses = _allowed_misses(period)
            self.on_probation = {}
        super().beat()

    def handle_pong(self, msg: list[bytes]) -> None:
        """Record the reply to a heartbeat, even a late one."""
        heart, beat = msg
        if self.lifetime - float(beat) < HEARTBEAT_TIMEOUT_SECONDS:  # a late one is one, too
            self.responses.add(heart)
            if heart not in self.hearts:
                self.handle_new_hearts({heart})


class HeartMonitorThread(threading.Thread):
    """Thread in place of the process that ipyparallel would fork for its heart monitor."""

    def __init__(self, target: Any, kwargs: dict[str, Any], daemon: bool) -> None:
        super().__init__(target=target, kwargs=kwargs, daemon=True, name="heartmonitor")


def run_controller(controller: ClusterController) -> None:
    """Run ipyparallel's controller around `controller` until it stops."""
    SkyHub.controller = SkyController.controller = FastHeartMonitor.controller = controller
    SkyController.private = PrivateSockets(controller.directory / "security")
    zmq.Context._socket_class = ReservingSocket  # type: ignore[misc]
    # ipyparallel names these classes in this module only; there are no traits for them.
    controller_app.Hub = SkyHub  # type: ignore[misc]
    controller_app.Process = HeartMonitorThread  # type: ignore[misc]
    heartmonitor.HeartMonitor = FastHeartMonitor  # type: ignore[misc]
    assert heartmonitor.start_heartmonitor is controller_app.start_heartmonitor
    app = SkyController.instance(work_dir=str(controller.directory / "work"))
    app.initialize(
        [
            "--IPController.use_threads=True",
            "--IPController.broadcast_scheduler_depth=0",
            "--IPController.location=127.0.0.1",
            "--IPController.log_level=30",
            f"--HeartMonitor.period={STARTUP_HEARTBEAT_MS}",
            f"--HeartMonitor.max_heartmonitor_misses={_allowed_misses(STARTUP_HEARTBEAT_MS)}",
            f"--ProfileDir.location={controller.directory / 'profile'}",
            # also where CURVE is on, which by itself would turn signatures off
            f"--Session.key={secrets.token_hex(32)}",
            *_curve_options(controller),
        ]
    )
    app.start()


def _allowed_misses(period: int) -> int:
    """Return how many beats of a period (ms) an engine may miss."""
    return int(HEARTBEAT_TIMEOUT_SECONDS * 1000 / period)


def _curve_options(controller: ClusterController) -> list[str]:
    """Return settings of encrypted sockets for engines on other nodes."""
    if controller.engines.agent_server is None:
        return []
    address = listen_address(controller.config.get("private", ""))
    return ["--IPController.enable_curve=True", f"--IPController.engine_ip={address}"]


# -- Ports of a controller, held from the moment they are chosen until ZeroMQ listens there -------
#
# ipyparallel chooses free ports first and binds them later, some of them in threads whose errors
# nobody sees: if another process takes the port of the heartbeats meanwhile, engines hear none, and
# end. Here each port listens at once, and ZeroMQ takes the listener over.

BACKLOG = 128
ATTEMPTS = 20
"""Number of ports that are tried until one is free at all addresses."""


class ReservedPorts:
    """Listeners of ports that are chosen and not in use yet.

    Examples
    --------
    >>> ports = ReservedPorts()
    >>> port = ports.reserve(["127.0.0.1"])
    >>> with ports.take(f"tcp://127.0.0.1:{port}") as listener:
    ...     listener.getsockname() == ("127.0.0.1", port)
    True
    >>> ports.take(f"tcp://127.0.0.1:{port}") is None
    True
    """

    def __init__(self) -> None:
        self._listeners: dict[str, socket.socket] = {}

    def reserve(self, addresses: Iterable[str]) -> int:
        """Return a port that is free, and from now on taken, at all of some addresses.

        Raises
        ------
        OSError
            No port is.
        """
        first, *others = dict.fromkeys(addresses)
        for attempt in range(ATTEMPTS):
            with ExitStack() as failed:
                listeners = [failed.enter_context(_listen(first, 0))]
                port = listeners[0].getsockname()[1]
                try:
                    listeners += [failed.enter_context(_listen(each, port)) for each in others]
                except OSError:
                    if attempt == ATTEMPTS - 1:
                        raise
                    continue
                failed.pop_all()
            for address, listener in zip((first, *others), listeners, strict=True):
                self._listeners[f"tcp://{address}:{port}"] = listener
            return port
        raise AssertionError

    def take(self, endpoint: str) -> socket.socket | None:
        """Return the listener of a ZeroMQ address, which is the caller's now; None without one."""
        return self._listeners.pop(endpoint, None)


def _listen(address: str, port: int) -> socket.socket:
    listener = socket.socket()
    try:
        # as ZeroMQ does: connections of a process that has ended do not block the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


class ReservingSocket(zmq.Socket):
    """ZeroMQ socket that listens on reserved ports by their listeners."""

    reserved: ClassVar[ReservedPorts] = ReservedPorts()

    def bind(self, addr: str) -> Any:
        """Bind the socket to an address."""
        listener = self.reserved.take(addr)
        if listener is None:
            return super().bind(addr)
        self.setsockopt(zmq.USE_FD, listener.fileno())
        try:
            bound = super().bind(addr)
            listener.detach()  # ZeroMQ closes it
        finally:
            listener.close()
            self.setsockopt(zmq.USE_FD, -1)
        return bound
