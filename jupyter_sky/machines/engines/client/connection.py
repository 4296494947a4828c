"""Connection of a notebook to a cluster: one ipyparallel client with our protocol.

Cells go out as ``execute_request`` with facts about them in the header; their messages come back
through a sink of their own, one at a time and unchanged. The client keeps no output: cost is
linear in what a cell prints, and memory is constant.
"""

from __future__ import annotations

import json
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import zmq
from ipyparallel import error as ipp_error

from jupyter_sky.base.errors import (
    SkyClusterLost,
    SkyEngineLost,
    SkyError,
    SkyTimeout,
    SkyVersionError,
)
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.messages import Message, Request
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.client.cell_execution import CellExecution
from jupyter_sky.machines.engines.client.client import REPLY_TIMEOUT_SECONDS, DirectClient, Sink
from jupyter_sky.machines.engines.client.waits import wait_result
from jupyter_sky.machines.engines.wire.controller_requests import PROTOCOL, Beat, Hello, ListEngines
from jupyter_sky.machines.engines.wire.data_requests import MountState, ServeMount
from jupyter_sky.machines.engines.wire.engine_requests import Packed, Ping
from jupyter_sky.machines.engines.wire.messages import JupyterMessage, cell_label

ReplyT = TypeVar("ReplyT", bound=Message)
T = TypeVar("T")
OUTPUT_CHECK_SECONDS = 5.0
INTERNAL_REQUESTS = (Ping, Packed)
"""Requests that this package sends by itself: they are no use of the cluster."""
MAX_ENDED_SINKS = 500
"""Number of ended cells that still receive what their threads print."""


class ClusterConnection:
    """Live connection to the controller and the engines of one cluster.

    Parameters
    ----------
    cluster
        Its name, for messages.
    connection_file
        The controller's client file on this machine, or a tunnel's checked connection; it holds
        the key.
    timeout
        Seconds to wait for the controller's first answer.

    Raises
    ------
    SkyClusterLost
        Nothing answers there.
    SkyVersionError
        The engines run another minor version of Python.
    """

    def __init__(
        self, cluster: str, connection_file: Path | dict[str, Any], timeout: float = 10.0
    ) -> None:
        self.cluster = cluster
        self.down_reason: Callable[[], str] = lambda: ""
        """Reason why the connection is down, while it is and heals."""
        self.client = _open_client(cluster, connection_file, timeout)
        # both are kept short by us, not by ipyparallel, which never forgets a message's id
        self.client.history = _EmptyList()
        self.use = ClusterUse()
        self.client.on_widget = lambda: self.use.record("a widget")
        self._lost = threading.Event()
        self.lost_reason = ""
        """Sentence that the cluster is lost, and why; empty until it is declared so."""
        self._loss: tuple[type[SkyError], str | None, bool] = (SkyClusterLost, None, False)
        self.on_lost: list[Callable[[], None]] = []
        """Called when the cluster has been declared lost."""
        self._waiting: set[Future] = set()
        self._verified_outputs: set[bytes] = set()
        self.disconnections = DisconnectionMonitor(self.client)
        try:
            self.hello = self.ask_controller(Hello())
            _check_python(cluster, self.hello.python)
        except BaseException:
            self.close()
            raise

    # -- the controller --------------------------------------------------------------------------

    def ask_controller(
        self,
        request: Request[ReplyT],
        timeout: float = REPLY_TIMEOUT_SECONDS,
        wait_reconnect: bool = True,
    ) -> ReplyT:
        """Ask the controller of the cluster.

        Parameters
        ----------
        timeout
            Seconds to wait for an answer.
        wait_reconnect
            Wait on while the connection is down: what was asked arrives when it has healed.

        Raises
        ------
        SkyClusterLost
            No answer within `timeout` seconds.
        """
        future = self.send_controller_request(request)
        return self.controller_reply(request, future, request.op, timeout, wait_reconnect)

    def send_controller_request(self, request: Request[ReplyT]) -> Future[JupyterMessage]:
        """Send a request to the controller; `controller_reply` waits for the reply."""
        if self._lost.is_set():
            raise self.lost_error()
        return self.client.send_query("sky_request", request.encode())

    def controller_reply(
        self,
        request: Request[ReplyT],
        future: Future[JupyterMessage],
        what: str,
        timeout: float = REPLY_TIMEOUT_SECONDS,
        wait_reconnect: bool = True,
    ) -> ReplyT:
        """Return the reply of the controller to a request; an error names it as `what`.

        Raises
        ------
        SkyClusterLost
            No answer within `timeout` seconds, or the controller cannot do that.
        """
        while True:
            try:
                reply = self.wait(future, timeout)
                break
            except FutureTimeout:
                if wait_reconnect and self.down_reason():
                    continue
                raise SkyClusterLost(
                    _("cluster {cluster} has not answered for {timeout:g} s").format(
                        cluster=self.cluster, timeout=timeout
                    )
                ) from None
        if "failed" in reply["content"]:
            reason = reply["content"]["failed"]
            raise SkyClusterLost(
                _("cluster {cluster} cannot {op}: {reason}").format(
                    cluster=self.cluster, op=what, reason=reason
                )
            )
        return request.reply_type.decode(reply["content"], reply.get("buffers") or ())

    # -- the engines -----------------------------------------------------------------------

    def ranks(self) -> list[int]:
        """Return the ranks whose engines are connected now."""
        return sorted(self.client.connected_ranks)

    def wait_ranks(
        self, ranks: Iterable[int], timeout: float, check_alive: Callable[[], None]
    ) -> None:
        """Wait until the engines of `ranks` are connected.

        `check_alive` is called periodically while waiting; it raises when there is no hope.
        """
        wanted, deadline, last_check = set(ranks), time.monotonic() + timeout, 0.0
        while not wanted <= self.client.connected_ranks:
            now = time.monotonic()
            if now > deadline:
                raise SkyEngineLost(
                    _(
                        "engine {wanted} of cluster {cluster} has not come up within {timeout:g} s"
                    ).format(
                        wanted=min(wanted - self.client.connected_ranks),
                        cluster=self.cluster,
                        timeout=timeout,
                    )
                )
            if now - last_check > 0.25:
                last_check = now
                check_alive()
                self._refresh_engines()
            time.sleep(0.005)
        unproven = [rank for rank in wanted if self._ident(rank) not in self._verified_outputs]
        if unproven:
            busy = {e["rank"] for e in self.ask_controller(ListEngines()).engines if e["running"]}
            self.client.is_verifying_outputs = True
            try:
                for rank in unproven:
                    self._verify_output(rank, rank in busy)
            finally:
                self.client.is_verifying_outputs = False

    def _refresh_engines(self) -> None:
        """Ask which engines are connected.

        The registration of an engine during the connection of this client is missed: the hub
        replies before the client subscribes to notifications.
        """
        future = self.client.send_query("connection_request")
        try:
            engines = self.wait(future, REPLY_TIMEOUT_SECONDS)["content"]["engines"]
        except FutureTimeout:
            return
        self.client.run_in_loop(lambda: self.client.update_engines(engines))

    def _verify_output(self, rank: int, busy: bool) -> None:
        """Wait until what an engine prints arrives here.

        ZeroMQ drops what is published before a subscription has made its way to the publisher:
        the first lines of a first cell would be lost now and then.
        """
        ident, deadline = self._ident(rank), time.monotonic() + OUTPUT_CHECK_SECONDS
        arrived, ports = threading.Event(), None
        while not busy and not arrived.is_set() and time.monotonic() < deadline:
            answer = self.wait(
                self.send_value_request(rank, Ping(), sink=lambda __: arrived.set()), 10.0
            )
            named_ports = [*self.engine_reply(Ping(), answer).ports]
            if named_ports and ports is None and self.client.is_local:
                self.client.connect_directly(rank, ident.decode(), named_ports)
                arrived.clear()  # outputs must arrive by the route that is used from now on
            ports = named_ports
            arrived.wait(0.05)
        self._verified_outputs.add(ident)

    def execute(
        self, rank: int, code: str, facts: Mapping[str, object], request: JsonObject, sink: Sink
    ) -> CellExecution:
        """Send a cell to one engine.

        Parameters
        ----------
        facts
            Goes with every message of the cell (run, cell, notebook): never a secret.
        request
            Goes to the engine only: inputs, outputs, environment.
        """
        self.check_protocol()
        client = self.client
        header = client.session.msg_header("execute_request")
        # text: ipykernel hashes the values of a header
        header["sky"] = json.dumps({**facts, "rank": rank})
        msg_id = header["msg_id"]
        while len(client.sinks) > MAX_ENDED_SINKS:
            client.sinks.popitem(last=False)
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,  # one cell's error must not abort those queued behind it
        }
        cell = CellExecution(rank, msg_id, sink)
        what = cell_label(facts)
        self.use.record(what)
        client.sinks[msg_id] = cell.receive
        client.send_to_engine(
            self._ident(rank).decode(),
            "execute_request",
            content,
            header=header,
            metadata={"sky": request},
            message_future_hook=cell.set_futures,
        )
        cell.reply.add_done_callback(lambda __: self.use.record(what))
        return cell

    def send_value_request(
        self, rank: int, request: Request[ReplyT], sink: Sink | None = None
    ) -> Future[JupyterMessage]:
        """Send a ``sky_value`` request; `engine_reply` reads the message that the future gives."""
        if getattr(request, "since_protocol", PROTOCOL) > self.hello.protocol:
            raise self.version_error()
        client = self.client
        header = client.session.msg_header("sky_value")
        if sink is not None:
            client.sinks[header["msg_id"]] = sink
        engine = self._ident(rank).decode()
        future = client.send_to_engine(
            engine, "sky_value", request.encode(), header=header, buffers=request.attached or None
        )
        if not isinstance(request, INTERNAL_REQUESTS):
            self.use.record_until_done("variables", future)
        return future

    def ask_engine(self, rank: int, request: Request[ReplyT]) -> ReplyT:
        """Send a ``sky_value`` request and wait for its reply."""
        return self.engine_reply(request, self.wait(self.send_value_request(rank, request)))

    def ask_mount(self, rank: int, timeout: float, request: ServeMount) -> MountState:
        """Send requests for a mounted dataset, and wait for what it wants next; also in a cell."""
        engine = self._ident(rank).decode()
        return self.engine_reply(
            request, self.wait(self.client.send_mount_request(engine, request), timeout)
        )

    def engine_reply(self, request: Request[ReplyT], reply: JupyterMessage | Exception) -> ReplyT:
        """Return the reply of an engine to a request, or raise the error in it."""
        content = self.reply_content(reply)
        assert isinstance(reply, dict)
        return request.reply_type.decode(content, reply.get("buffers") or ())

    def reply_content(self, reply: JupyterMessage | Exception) -> JsonObject:
        """Return the content of a reply, or raise the error in it."""
        if isinstance(reply, ipp_error.EngineError):
            raise SkyEngineLost(
                _("engine {reply} of cluster {cluster} was lost").format(
                    reply=reply, cluster=self.cluster
                )
            )
        assert isinstance(reply, dict)
        content: JsonObject = reply["content"]
        if content["status"] != "ok":
            from jupyter_sky.base import errors

            kind = vars(errors).get(str(content["ename"]))
            if not (isinstance(kind, type) and issubclass(kind, SkyError)):
                kind = errors.SkyTransferError
            raise kind(str(content["evalue"]))
        return content

    def check_protocol(self) -> None:
        """Raise SkyVersionError for a cell or a call, if the cluster runs another version."""
        if self.hello.protocol != PROTOCOL:
            raise self.version_error()

    def version_error(self) -> SkyVersionError:
        """Return the error of a cell for a cluster that runs another version of this package."""
        from jupyter_sky._version import __version__

        there = f"jupyter_sky {self.hello.version}"
        if self.hello.version == __version__:  # a development version
            is_older = self.hello.protocol < PROTOCOL
            there = (_("an earlier {name}") if is_older else _("a later {name}")).format(name=there)
        return SkyVersionError(
            _(
                "cluster {cluster} runs {there}, which takes no cells from this version: "
                "end it with %sky down {cluster}, or use {there} here"
            ).format(cluster=self.cluster, there=there)
        )

    def abort_cells(self, cells: Iterable[CellExecution]) -> None:
        """Abort cells that have not begun; they end at once."""
        for cell in cells:
            if not cell.reply.done() and cell.rank in self.client.engines_by_rank:
                answer = self.client.send_abort(cell.rank, [cell.msg_id])
                answer.add_done_callback(cell.on_aborted)

    def _ident(self, rank: int) -> bytes:
        try:
            return self.client.engines_by_rank[rank].encode()
        except KeyError:
            raise SkyEngineLost(
                _("engine {rank} of cluster {cluster} is not connected").format(
                    rank=rank, cluster=self.cluster
                )
            ) from None

    # -- waiting ---------------------------------------------------------------------------

    def wait(self, future: Future[T], timeout: float | None = None) -> T:
        """Return a future's result.

        Raises
        ------
        SkyClusterLost
            The cluster is declared lost meanwhile.
        SkyTimeout
            There is no answer within `timeout` seconds.
        """
        if not future.done():
            self._waiting.add(future)
            try:
                return wait_result(future, timeout)
            except FutureTimeout:
                if future.done():
                    raise
                raise SkyTimeout(
                    _("cluster {cluster} has not answered within {timeout:g} s").format(
                        cluster=self.cluster, timeout=timeout
                    ),
                    hint=_("its machines may be cut off, or busy: run the cell again"),
                ) from None
            finally:
                self._waiting.discard(future)
        return future.result()

    def mark_lost(
        self,
        reason: str,
        hint: str | None = None,
        kind: type[SkyError] = SkyClusterLost,
        is_intended: bool = False,
    ) -> None:
        """Declare the cluster lost, intended or not: pending waits raise an error."""
        self.lost_reason = f"cluster {self.cluster} is gone: {reason}"
        self._loss = kind, hint, is_intended
        self._lost.set()
        error = self.lost_error()
        self.client.fail_pending(error)
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(error)
        for function in list(self.on_lost):
            function()

    def lost_error(self) -> SkyError:
        """Return the error that the cluster is lost."""
        kind, hint, is_intended = self._loss
        error = kind(self.lost_reason, hint=hint)
        if isinstance(error, SkyClusterLost):
            error.is_intended = is_intended
        return error

    @property
    def is_lost(self) -> bool:
        """Whether the cluster has been declared lost."""
        return self._lost.is_set()

    def close(self) -> None:
        """Close the sockets; the cluster goes on."""
        self.disconnections.close()
        self.client.close(linger=0)


def _open_client(
    cluster: str, connection_file: Path | dict[str, Any], timeout: float
) -> DirectClient:
    """Return the client of a cluster, connected to its controller."""
    from jupyter_sky.machines.engines.wire import connection_file as files

    try:
        if isinstance(connection_file, dict):
            return DirectClient(connection_file, timeout=timeout)
        settings = files.read(connection_file, cluster)
        return DirectClient(settings, timeout=timeout, folder=connection_file.parent)
    except (OSError, TimeoutError, ipp_error.TimeoutError) as error:
        raise SkyClusterLost(
            _("cluster {cluster} does not answer").format(cluster=cluster)
        ) from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise SkyClusterLost(
            _("cluster {cluster} does not answer at its address: {error}").format(
                cluster=cluster, error=error
            )
        ) from error


class _EmptyList(list):
    """A list that stays empty."""

    def append(self, item: Any) -> None:
        pass


def _check_python(cluster: str, version: str) -> None:
    here, there = platform.python_version_tuple()[:2], tuple(version.split(".")[:2])
    if here != there:
        raise SkyVersionError(
            _(
                "cluster {cluster} runs Python {there}, this notebook {here}: values "
                "cannot travel between them"
            ).format(cluster=cluster, there=".".join(there), here=".".join(here)),
            hint=_("start a cluster from this notebook, or use a kernel of the same minor version"),
        )


# -- Use that a notebook makes of a cluster: it keeps the cluster up for its idle limit -----------


class ClusterUse:
    """Uses of a cluster by one notebook: the latest, and those that go on.

    Attributes
    ----------
    used_at : float or None
        Time of the latest use, by the monotonic clock.
    pools : list of callable
        Functions that name the current use of a pool of nodes; empty when there is none.
    """

    def __init__(self) -> None:
        self.used_at: float | None = None
        self.pools: list[Callable[[], str]] = []
        self._label = ""
        self._requests: dict[Future, str] = {}

    def record(self, label: str) -> None:
        """Note a use, such as ``"a call"``."""
        self.used_at, self._label = time.monotonic(), label

    def record_until_done(self, label: str, request: Future) -> None:
        """Note a use that goes on until a request is answered."""

        def end(request: Future) -> None:
            self._requests.pop(request, None)
            self.record(label)

        self._requests[request] = label
        self.record(label)
        request.add_done_callback(end)

    @contextmanager
    def going_on(self, label: str) -> Iterator[None]:
        """Note a use that goes on inside, such as the preparation of a cell."""
        use: Future[None] = Future()
        self.record_until_done(label, use)
        try:
            yield
        finally:
            use.set_result(None)

    def describe(self, notebook: str) -> Beat:
        """Return the next heartbeat of the notebook."""
        going_on = [uses for pool in list(self.pools) if (uses := pool())]
        going_on += list(self._requests.values())
        ago = None if self.used_at is None else time.monotonic() - self.used_at
        uses = ", ".join(dict.fromkeys(going_on))
        return Beat(notebook, ago, self._label, uses)


# -- Monitor of the cuts of a connection to a controller ------------------------------------------


class DisconnectionMonitor:
    """Monitor of the socket by which a client asks its controller.

    Parameters
    ----------
    client
        Client whose connection is watched.
    """

    def __init__(self, client: DirectClient) -> None:
        self._client, self._socket = client, client.query_socket
        self._lock = threading.Lock()
        self._events: Any = client.run_in_loop(
            lambda: self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        )

    def was_cut(self) -> bool:
        """Return whether the connection was cut since the last call."""
        was_cut = False
        with self._lock:
            while not self._events.closed and self._events.poll(0):
                self._events.recv_multipart()
                was_cut = True
        return was_cut

    def close(self) -> None:
        """End the monitor; before its client is closed, whose loop would not do it any more."""
        if self._client.is_closed:
            self._end()
        else:
            self._client.call_soon(self._end)

    def _end(self) -> None:
        with self._lock:
            if self._events.closed:
                return
            # first: ZeroMQ's own thread, which all connections of this process share, would wait
            # for ever for the next cut to be read
            if not self._socket.closed:
                self._socket.disable_monitor()
            self._events.close(linger=0)
