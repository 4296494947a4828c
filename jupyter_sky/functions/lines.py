"""The way of a thread to what tasks share: over a socket of its own, or to this process alone."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time
import uuid
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..engines.commons import Answers, Commons
from ..errors import SkyClusterLost, SkyUsageError
from . import instance

if TYPE_CHECKING:
    from ..executor.cluster import Cluster
    from .pool import Pool

SLICE_SECONDS = 0.2
"""How often a thread that waits looks up: it may have been told to end."""
AGAIN_SECONDS = 5.0
"""A request without an answer is sent again; it is carried out once."""
FIRST_SECONDS = 30.0
STANDALONE = "standalone"
"""The fact of a pool whose nodes do not speak to each other."""


class Line(Protocol):
    """The way of one thread."""

    def ask(self, arguments: dict[str, Any], frames: Sequence[bytes]) -> tuple[Any, list[bytes]]:
        """Have something done; return what is answered and the values with it."""
        ...


def line() -> Line:
    """Return this thread's way to what is shared where it runs."""
    here = instance.facts()
    active = None if here else _active()
    if STANDALONE in (here.get("facts", {}) if active is None else active.facts):
        raise SkyUsageError(
            "tasks of this pool share nothing: it was brought up with Options(cluster=False)",
            hint="leave that out, where the nodes reach each other",
        )
    if active is not None:
        known = _from_here(active.cluster)
    elif (known := here.get("commons")) is None:
        return _alone()
    lines = _lines()
    key = known["url"], known["key"], os.getpid()  # a socket does not outlive a fork
    if key not in lines:
        lines[key] = Wire(known)
    return lines[key]


def _active() -> Pool | None:
    from . import pool  # not on nodes, which need none of it

    return pool.active()


def _from_here(cluster: Cluster) -> dict[str, str]:
    """Return how this notebook reaches what a cluster's tasks share."""
    known, tunnel = instance.commons(cluster), cluster.tunnel
    if tunnel is None:
        return {"url": known["near"], "key": known["key"]}
    port = tunnel.forward(int(known["near"].rpartition(":")[2]))
    return {"url": f"tcp://127.0.0.1:{port}", "key": known["key"]}


_local = threading.local()


def _lines() -> dict[tuple[str, str, int], Wire]:
    if not hasattr(_local, "lines"):
        _local.lines = {}
    return _local.lines


def _alone() -> Here:
    if instance.had_pool():
        warnings.warn(
            "no pool is up: this is shared by this process's own threads only; what tasks of a "
            "pool shared went with it",
            stacklevel=5,
        )
    if not hasattr(_local, "here"):
        _local.here = Here(_OWN)
    return _local.here


class Wire:
    """A connection to the steward of a cluster.

    Parameters
    ----------
    known
        ``url`` and ``key``.
    """

    def __init__(self, known: Mapping[str, str]) -> None:
        import zmq

        self._life = ""
        self._numbers = itertools.count(1)
        self._heard = False
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.curve_publickey, self._socket.curve_secretkey = zmq.curve_keypair()
        self._socket.curve_serverkey = known["key"].encode()
        self._socket.setsockopt(zmq.IDENTITY, uuid.uuid4().bytes)
        self._socket.setsockopt(zmq.LINGER, 1000)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 8000)
        self._socket.connect(known["url"])

    def ask(self, arguments: dict[str, Any], frames: Sequence[bytes]) -> tuple[Any, list[bytes]]:
        """Send a request and wait for its answer."""
        number = next(self._numbers)
        message = [json.dumps([number, arguments]).encode(), *frames]
        try:
            return self._answered(number, message, arguments)
        except BaseException as error:
            if not isinstance(error, SkyUsageError):  # what nobody waits for must not be given
                with contextlib.suppress(Exception):
                    cancel = {**arguments, "op": "cancel", "number": number}
                    self._socket.send(json.dumps([next(self._numbers), cancel]).encode())
            raise

    def _answered(
        self, number: int, message: list[bytes], arguments: dict[str, Any]
    ) -> tuple[Any, list[bytes]]:
        begun = sent = time.monotonic()
        self._socket.send_multipart(message)
        while True:
            if not self._socket.poll(SLICE_SECONDS * 1000):
                now = time.monotonic()
                if not self._heard and now - begun > FIRST_SECONDS:
                    raise SkyClusterLost(
                        f"nobody answers for what the pool shares ({FIRST_SECONDS:g} s)",
                        hint="functions on a node reach the head of their pool only",
                    )
                if now - sent > AGAIN_SECONDS:
                    self._socket.send_multipart(message)
                    sent = now
                continue
            head, *frames = self._socket.recv_multipart()
            answer = json.loads(head)
            self._heard = True
            if answer[0] != number:
                continue
            _, life, failed, value = answer
            if self._life and life != self._life:
                self._life = life
                raise SkyClusterLost("what the pool shared is lost: the process that kept it died")
            self._life = life
            return _opened(arguments, failed, value), frames

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._socket.close()


class _Own:
    """What the threads of this process share where there is no pool."""

    def __init__(self) -> None:
        self.commons = Commons()
        self.changed = threading.Condition()
        self.boxes: dict[bytes, dict[int, tuple[str, Any, list[bytes]]]] = {}

    def deliver(self, answers: Answers) -> None:
        for each in answers:
            box = self.boxes.setdefault(each.asked.client, {})
            box[each.asked.number] = each.failed, each.value, list(each.frames)
        self.changed.notify_all()


_OWN = _Own()


class Here:
    """The way of a thread to what its process shares."""

    def __init__(self, own: _Own) -> None:
        self._own, self._name = own, uuid.uuid4().bytes
        self._numbers = itertools.count(1)

    def ask(self, arguments: dict[str, Any], frames: Sequence[bytes]) -> tuple[Any, list[bytes]]:
        """Have something done, and wait for it."""
        own, number = self._own, next(self._numbers)
        with own.changed:
            now = time.monotonic()
            own.deliver(own.commons.ask(self._name, number, arguments, frames, now))
            box = own.boxes.setdefault(self._name, {})
            try:
                while number not in box:
                    own.changed.wait(SLICE_SECONDS / 10)
                    own.deliver(own.commons.expire(time.monotonic()))
            except BaseException:
                cancel = {"op": "cancel", "number": number}
                own.deliver(own.commons.ask(self._name, next(self._numbers), cancel, (), now))
                raise
            failed, value, values = box.pop(number)
        return _opened(arguments, failed, value), values

    def __del__(self) -> None:
        with self._own.changed:
            self._own.boxes.pop(self._name, None)
            self._own.deliver(self._own.commons.gone(self._name))


def _opened(arguments: dict[str, Any], failed: str, value: Any) -> Any:
    if failed:
        raise SkyUsageError(f"sky.{arguments['kind']}({arguments['name']!r}): {failed}")
    return value
