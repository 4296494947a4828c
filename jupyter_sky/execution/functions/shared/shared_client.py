"""Clients of the shared state: remote over a socket, or local to this process."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import threading
import time
import uuid
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from jupyter_sky.base.errors import SkyClusterLost, SkySharedLost, SkySharedMoved, SkyUsageError
from jupyter_sky.base.translation import _, ngettext
from jupyter_sky.execution.functions.calls import active_pools
from jupyter_sky.execution.functions.shared.messages import Cancel, SharedRequest
from jupyter_sky.execution.functions.shared.shared_objects import Responses
from jupyter_sky.execution.functions.shared.shared_state import SharedState
from jupyter_sky.machines.engines.node import instance
from jupyter_sky.machines.engines.wire.controller_requests import FindSharedState, SharedStateReply

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle

POLL_SECONDS = 0.2
"""Period in which a waiting thread checks whether it was told to end."""
RESEND_SECONDS = 5.0
"""A request without an answer is sent again; it is carried out once."""
FIRST_REPLY_SECONDS = 30.0
STANDALONE = "standalone"
"""Fact of a pool whose nodes do not communicate."""


class SharedStateClient(Protocol):
    """Client of one thread."""

    def ask(self, request: SharedRequest, frames: Sequence[bytes]) -> tuple[Any, list[bytes]]:
        """Send a request; return its response and values."""
        ...


def current_client() -> SharedStateClient:
    """Return this thread's client of the shared state of its pool."""
    facts = instance.pool_facts()
    active = None if facts else active_pools.active()
    if STANDALONE in (facts.get("facts", {}) if active is None else active.facts):
        raise SkyUsageError(
            _("tasks of this pool share nothing: it was brought up with Options(cluster=False)"),
            hint=_("leave that out, where the nodes reach each other"),
        )
    if active is not None:
        endpoint = notebook_endpoint(active.cluster)
    elif (endpoint := facts.get("shared_state")) is None:
        return _local_client()
    clients = _thread_clients()
    key = endpoint["url"], endpoint["key"], os.getpid()  # a socket does not outlive a fork
    if key not in clients:
        pool = instance.instance_info().job_id if active is None else active.id
        clients[key] = RemoteClient(endpoint, seen_states(pool))
    return clients[key]


_ENDPOINTS: WeakKeyDictionary[ClusterHandle, SharedStateReply] = WeakKeyDictionary()


def shared_state_endpoint(cluster: ClusterHandle) -> SharedStateReply:
    """Return the endpoint of a cluster's shared state and its rendezvous ports; asked once."""
    if cluster not in _ENDPOINTS:
        _ENDPOINTS[cluster] = cluster.connection.ask_controller(FindSharedState())
    return _ENDPOINTS[cluster]


def notebook_endpoint(cluster: ClusterHandle) -> dict[str, str]:
    """Return the endpoint at which this notebook reaches a cluster's shared state."""
    endpoint, tunnel = shared_state_endpoint(cluster), cluster.tunnel
    if tunnel is None:
        return {"url": endpoint.local_url, "key": endpoint.key}
    port = tunnel.forward(int(endpoint.local_url.rpartition(":")[2]))
    return {"url": f"tcp://127.0.0.1:{port}", "key": endpoint.key}


_local = threading.local()


def _thread_clients() -> dict[tuple[str, str, int], RemoteClient]:
    if not hasattr(_local, "clients"):
        _local.clients = {}
    return _local.clients


def _local_client() -> LocalClient:
    if active_pools.had_pool():
        warnings.warn(
            _(
                "no pool is up: this is shared by this process's own threads only; "
                "what tasks of a pool shared went with it"
            ),
            stacklevel=5,
        )
    if not hasattr(_local, "client"):
        _local.client = LocalClient(_PROCESS_STATE)
    return _local.client


class SeenStates:
    """Newest state of a pool's shared objects that this process has seen, of each server.

    A server in place of one that has died goes on from a copy, which may be older.

    Examples
    --------
    >>> seen = SeenStates()
    >>> seen.lost_changes("first", 0, 7), seen.lost_changes("second", 5, 6)
    (0, 2)
    >>> seen.lost_changes("first", 0, 6), seen.lost_changes("second", 5, 7)
    (0, 0)
    """

    def __init__(self) -> None:
        self._servers: set[str] = set()
        self._latest, self._newest = "", 0
        self._lock = threading.Lock()

    def lost_changes(self, server: str, first: int, revision: int) -> int:
        """Note a state; return how many changes a server that is new here lacks.

        Parameters
        ----------
        server
            Name of the server.
        first, revision
            Revisions that it began with, and that it has now.
        """
        with self._lock:
            lost = 0
            if server not in self._servers:
                self._servers.add(server)
                lost = max(0, self._newest - first)
                self._latest, self._newest = server, first
            if server == self._latest:  # else a late answer of one that is gone
                self._newest = max(self._newest, revision)
            return lost


_seen: dict[str, SeenStates] = {}


def seen_states(pool: str) -> SeenStates:
    """Return the states that this process has seen of a pool's shared objects."""
    return _seen.setdefault(pool, SeenStates())


class RemoteClient:
    """Connection to the shared-state server of a cluster.

    Parameters
    ----------
    endpoint
        ``url`` and ``key``.
    seen
        States that this process has seen.
    limit
        Most seconds that a request may take.
    """

    def __init__(
        self, endpoint: Mapping[str, str], seen: SeenStates, limit: float = math.inf
    ) -> None:
        import zmq

        self._seen, self._limit = seen, limit
        self._numbers = itertools.count(1)
        self._heard = False
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.curve_publickey, self._socket.curve_secretkey = zmq.curve_keypair()
        self._socket.curve_serverkey = endpoint["key"].encode()
        self._socket.setsockopt(zmq.IDENTITY, uuid.uuid4().bytes)
        self._socket.setsockopt(zmq.LINGER, 1000)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 8000)
        self._socket.connect(endpoint["url"])

    def ask(self, request: SharedRequest, frames: Sequence[bytes]) -> tuple[Any, list[bytes]]:
        """Send a request and wait for its answer."""
        number = next(self._numbers)
        message = [json.dumps([number, request.encode()]).encode(), *frames]
        try:
            return self._exchange(number, message, request)
        except BaseException as error:
            if not isinstance(error, SkyUsageError):  # an abandoned request must not be granted
                with contextlib.suppress(Exception):
                    cancel = Cancel(request.kind, request.name, number).encode()
                    self._socket.send(json.dumps([next(self._numbers), cancel]).encode())
            raise

    def _exchange(
        self, number: int, message: list[bytes], request: SharedRequest
    ) -> tuple[Any, list[bytes]]:
        begun = sent = time.monotonic()
        self._socket.send_multipart(message)
        while True:
            if not self._socket.poll(POLL_SECONDS * 1000):
                now = time.monotonic()
                limit = self._limit if self._heard else min(self._limit, FIRST_REPLY_SECONDS)
                if now - begun > limit:
                    raise SkyClusterLost(
                        _("the shared state of the pool does not answer ({seconds:g} s)").format(
                            seconds=limit
                        ),
                        hint=_("functions on a node reach the controller of their pool only"),
                    )
                if now - sent > RESEND_SECONDS:
                    self._socket.send_multipart(message)
                    sent = now
                continue
            head, *frames = self._socket.recv_multipart()
            answer = json.loads(head)
            self._heard = True
            if answer[0] != number:
                continue
            __, life, failed, value, first, revision = answer
            if not life:
                raise SkySharedMoved(_("what the pool shares has moved to another machine"))
            if lost := self._seen.lost_changes(life, first, revision):
                raise SkySharedLost(
                    ngettext(
                        "the last change of what the pool shares is lost: what kept it died",
                        "the last {lost} changes of what the pool shares are lost: "
                        "what kept them died",
                        lost,
                    ).format(lost=lost)
                )
            return _check_response(request, failed, value), frames

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._socket.close()


class _ProcessState:
    """Shared state of the threads of this process, without a pool."""

    def __init__(self) -> None:
        self.state = SharedState()
        self.changed = threading.Condition()
        self.boxes: dict[bytes, dict[int, tuple[str, Any, list[bytes]]]] = {}

    def deliver(self, responses: Responses) -> None:
        for response in responses:
            box = self.boxes.setdefault(response.request.client, {})
            box[response.request.number] = response.error, response.value, list(response.frames)
        self.changed.notify_all()


_PROCESS_STATE = _ProcessState()


class LocalClient:
    """Client of a thread to the shared state of its process."""

    def __init__(self, state: _ProcessState) -> None:
        self._state, self._name = state, uuid.uuid4().bytes
        self._numbers = itertools.count(1)

    def ask(self, request: SharedRequest, frames: Sequence[bytes]) -> tuple[Any, list[bytes]]:
        """Send a request, and wait for its response."""
        state, number = self._state, next(self._numbers)
        with state.changed:
            now = time.monotonic()
            state.deliver(state.state.handle_request(self._name, number, request, frames, now))
            box = state.boxes.setdefault(self._name, {})
            try:
                while number not in box:
                    state.changed.wait(POLL_SECONDS / 10)
                    state.deliver(state.state.expire(time.monotonic()))
            except BaseException:
                cancel = Cancel(request.kind, request.name, number)
                state.deliver(
                    state.state.handle_request(self._name, next(self._numbers), cancel, (), now)
                )
                raise
            failed, value, values = box.pop(number)
        return _check_response(request, failed, value), values

    def __del__(self) -> None:
        with self._state.changed:
            self._state.boxes.pop(self._name, None)
            self._state.deliver(self._state.state.remove_client(self._name))


def _check_response(request: SharedRequest, failed: str, value: Any) -> Any:
    if failed:
        raise SkyUsageError(
            _("sky.{arguments}({arguments2!r}): {failed}").format(
                arguments=request.kind, arguments2=request.name, failed=failed
            )
        )
    return value
