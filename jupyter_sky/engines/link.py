"""The notebook's end of a cluster: one ipyparallel client, bent to our protocol.

Cells go out as ``execute_request`` with facts about them in the header; their messages come back
through a sink of their own, one at a time and unchanged. The client keeps no output: cost is
linear in what a cell prints, and memory is constant.
"""

from __future__ import annotations

import json
import platform
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

from ipyparallel import error as ipp_error
from ipyparallel.client.client import Client, unpack_message

from ..errors import SkyClusterLost, SkyEngineLost, SkyVersionError

Message = dict[str, Any]
Sink = Callable[[Message], None]

ANSWER_SECONDS = 10.0
PROOF_SECONDS = 5.0
KEPT_SINKS = 500
"""How many ended cells still receive what their threads print."""


class _QuietClient(Client):
    """An ipyparallel client that hands each message on instead of collecting it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.sinks: OrderedDict[str, Sink] = OrderedDict()
        self.stray: Sink = lambda message: None
        super().__init__(*args, **kwargs)
        self._queue_handlers["sky_reply"] = self._handle_sky_reply

    def activate(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Leave ``%px`` alone: it belongs to those who ask for it."""

    def _dispatch_iopub(self, parts: list[Any]) -> None:
        # that an engine is busy is the head's to know: not worth unpacking here
        if not (parts[0].bytes.endswith(b".status") and b'"busy"' in parts[-1].bytes):
            self._handle_iopub(parts)

    @unpack_message
    def _handle_iopub(self, msg: Message) -> None:
        parent = msg["parent_header"]
        if not parent or parent.get("session") != self.session.session:
            return
        msg_id = parent["msg_id"]
        sink = self.sinks.get(msg_id, self.stray)
        try:
            sink(msg)
        finally:
            if msg["msg_type"] == "status" and msg["content"]["execution_state"] == "idle":
                output = self._output_futures.get(msg_id)
                if output and not output.done():
                    output.set_result(None)

    def _handle_execute_reply(self, msg: Message) -> None:
        self._settle(msg, msg)

    def _handle_sky_reply(self, msg: Message) -> None:
        self._settle(msg, msg)

    def _settle(self, msg: Message, result: Any) -> None:
        msg_id = msg["parent_header"]["msg_id"]
        self.outstanding.discard(msg_id)
        engine = msg["metadata"].get("engine")
        if engine is not None:
            self._outstanding_dict[engine].discard(msg_id)
        future = self._futures.get(msg_id)
        if future and not future.done():
            future.set_result(result)

    def _handle_stranded_msgs(self, eid: int, uuid: str) -> None:
        for msg_id in list(self._outstanding_dict[uuid]):
            self._outstanding_dict[uuid].discard(msg_id)
            self.outstanding.discard(msg_id)
            for futures in (self._futures, self._output_futures):
                future = futures.get(msg_id)
                if future and not future.done():
                    future.set_result(ipp_error.EngineError(str(eid)))

    def comm_to_engine(self, engine: str, msg_type: str, content: Any, **parts: Any) -> str:
        """Send a widget's message to an engine; return its message id."""
        header = self.session.msg_header(msg_type)
        self._send(
            self._mux_stream,
            msg_type,
            content=content,
            header=header,
            ident=engine.encode(),
            **parts,
        )
        return header["msg_id"]


class Link:
    """A live connection to the head and the engines of one cluster.

    Parameters
    ----------
    cluster
        Its name, for messages.
    connection_file
        The controller's client file; it holds the key.
    timeout
        Seconds to wait for the controller's first answer.

    Raises
    ------
    SkyClusterLost
        Nothing answers there.
    SkyVersionError
        The engines run another minor version of Python.
    """

    def __init__(self, cluster: str, connection_file: Path, timeout: float = 10.0) -> None:
        self.cluster = cluster
        try:
            self.client = _QuietClient(str(connection_file), timeout=timeout)
        except (OSError, TimeoutError, ipp_error.TimeoutError) as error:
            raise SkyClusterLost(f"cluster {cluster} does not answer") from error
        # both are kept short by us, not by ipyparallel, which never forgets a message's id
        self.client.history = _Forgetful()
        self._lost = threading.Event()
        self._waiting: set[Future] = set()
        self._proven: set[bytes] = set()
        self.hello = self.head("hello")
        _check_python(cluster, self.hello["python"])

    # -- the head --------------------------------------------------------------------------

    def head(self, op: str, timeout: float = ANSWER_SECONDS, **content: Any) -> dict[str, Any]:
        """Ask the head of the cluster.

        Raises
        ------
        SkyClusterLost
            No answer within `timeout` seconds.
        """
        if self._lost.is_set():
            raise SkyClusterLost(f"cluster {self.cluster} is gone")
        client = self.client
        future = client._send(client._query_stream, "sky_request", content={"op": op, **content})
        try:
            answer = self.wait(future, timeout)["content"]
        except FutureTimeout:
            raise SkyClusterLost(
                f"cluster {self.cluster} has not answered for {timeout:g} s"
            ) from None
        if "failed" in answer:
            raise SkyClusterLost(f"cluster {self.cluster} cannot {op}: {answer['failed']}")
        return answer

    # -- the engines -----------------------------------------------------------------------

    def ranks(self) -> list[int]:
        """Return the ranks whose engines are connected now."""
        return sorted(self.client._ids)

    def wait_ranks(self, ranks: Iterable[int], timeout: float, alive: Callable[[], None]) -> None:
        """Wait until the engines of `ranks` are connected.

        `alive` is called again and again while waiting; it raises when there is no hope.
        """
        wanted, deadline, asked = set(ranks), time.monotonic() + timeout, 0.0
        while not wanted <= set(self.client._ids):
            now = time.monotonic()
            if now > deadline:
                raise SkyEngineLost(
                    f"engine {min(wanted - set(self.client._ids))} of cluster {self.cluster} "
                    f"has not come up within {timeout:g} s"
                )
            if now - asked > 0.25:
                asked = now
                alive()
            time.sleep(0.005)
        unproven = [rank for rank in wanted if self._ident(rank) not in self._proven]
        if unproven:
            busy = {e["rank"] for e in self.head("engines")["engines"] if e["running"]}
            for rank in unproven:
                self._prove(rank, rank in busy)

    def _prove(self, rank: int, busy: bool) -> None:
        """Wait until what an engine prints arrives here.

        ZeroMQ drops what is published before a subscription has made its way to the publisher:
        the first lines of a first cell would be lost now and then.
        """
        ident, deadline = self._ident(rank), time.monotonic() + PROOF_SECONDS
        arrived = threading.Event()
        while not busy and not arrived.is_set() and time.monotonic() < deadline:
            self.content(self.wait(self.value(rank, "ping", sink=lambda _: arrived.set()), 10.0))
            arrived.wait(0.05)
        self._proven.add(ident)

    def execute(
        self, rank: int, code: str, facts: dict[str, Any], request: dict[str, Any], sink: Sink
    ) -> Cell:
        """Send a cell to one engine.

        Parameters
        ----------
        facts
            Goes with every message of the cell (run, cell, notebook): never a secret.
        request
            Goes to the engine only: inputs, outputs, environment.
        """
        client = self.client
        header = client.session.msg_header("execute_request")
        # text: ipykernel hashes the values of a header
        header["sky"] = json.dumps(facts | {"rank": rank})
        msg_id = header["msg_id"]
        client.sinks[msg_id] = sink
        while len(client.sinks) > KEPT_SINKS:
            client.sinks.popitem(last=False)
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,  # one cell's error must not abort those queued behind it
        }
        reply = client._send(
            client._mux_stream,
            "execute_request",
            content=content,
            header=header,
            metadata={"sky": request},
            ident=self._ident(rank),
            track_outstanding=True,
        )
        return Cell(rank, msg_id, reply, reply.output)

    def value(
        self, rank: int, op: str, buffers: Any = None, sink: Sink | None = None, **content: Any
    ) -> Future:
        """Send a ``sky_value`` request; the future gives the reply message."""
        client = self.client
        header = client.session.msg_header("sky_value")
        if sink is not None:
            client.sinks[header["msg_id"]] = sink
        return client._send(
            client._mux_stream,
            "sky_value",
            header=header,
            content={"op": op, **content},
            buffers=buffers,
            ident=self._ident(rank),
            track_outstanding=True,
        )

    def ask(self, rank: int, op: str, **content: Any) -> dict[str, Any]:
        """Send a ``sky_value`` request and wait for its content."""
        return self.content(self.wait(self.value(rank, op, **content)))

    def content(self, reply: Any) -> dict[str, Any]:
        """Return the content of a reply, or raise what it says."""
        if isinstance(reply, ipp_error.EngineError):
            raise SkyEngineLost(f"engine {reply} of cluster {self.cluster} was lost")
        content = reply["content"]
        if content["status"] != "ok":
            from .. import errors

            kind = getattr(errors, content["ename"], errors.SkyTransferError)
            raise kind(content["evalue"])
        return content

    def abort(self, cells: Iterable[Cell]) -> None:
        """Take back cells that have not begun: they end now, not when their turn comes."""
        client = self.client
        for cell in cells:
            if not cell.reply.done() and cell.rank in client._engines:
                answer: Future = client._send(
                    client._control_stream,
                    "abort_request",
                    content={"msg_ids": [cell.msg_id]},
                    ident=self._ident(cell.rank),
                )
                answer.add_done_callback(cell.taken_back)

    def _ident(self, rank: int) -> bytes:
        try:
            return self.client._engines[rank].encode()
        except KeyError:
            raise SkyEngineLost(
                f"engine {rank} of cluster {self.cluster} is not connected"
            ) from None

    # -- waiting ---------------------------------------------------------------------------

    def wait(self, future: Future, timeout: float | None = None) -> Any:
        """Return a future's result; raise SkyClusterLost when the cluster is declared lost."""
        if not future.done():
            self._waiting.add(future)
            try:
                return future.result(timeout)
            finally:
                self._waiting.discard(future)
        return future.result()

    def lose(self, reason: str, hint: str | None = None) -> None:
        """Declare the cluster lost: whoever waits for it is told."""
        self._lost.set()
        error = SkyClusterLost(f"cluster {self.cluster} is gone: {reason}", hint=hint)
        pending = {*self._waiting, *self.client._futures.values()}
        for future in [*pending, *self.client._output_futures.values()]:
            if not future.done():
                future.set_exception(error)

    @property
    def lost(self) -> bool:
        """Whether the cluster has been declared lost."""
        return self._lost.is_set()

    def close(self) -> None:
        """Close the sockets; the cluster goes on."""
        self.client.close(linger=0)


class Cell:
    """One cell on one engine: its reply, and the end of its output."""

    __slots__ = ("msg_id", "output", "rank", "reply")

    def __init__(self, rank: int, msg_id: str, reply: Future, output: Future) -> None:
        self.rank, self.msg_id, self.reply, self.output = rank, msg_id, reply, output

    def taken_back(self, answer: Future) -> None:
        """Note the engine's answer to a request to take it back."""
        message = answer.result()
        waiting = message["content"].get("waiting", ()) if isinstance(message, dict) else ()
        if self.msg_id in waiting:
            for future, result in (
                (self.reply, {"content": {"status": "aborted"}}),
                (self.output, None),
            ):
                if not future.done():
                    future.set_result(result)


class _Forgetful(list):
    """A list that stays empty."""

    def append(self, item: Any) -> None:
        pass


def _check_python(cluster: str, version: str) -> None:
    here, there = platform.python_version_tuple()[:2], tuple(version.split(".")[:2])
    if here != there:
        raise SkyVersionError(
            f"cluster {cluster} runs Python {'.'.join(there)}, this notebook {'.'.join(here)}: "
            "values cannot travel between them",
            hint="start a cluster from this notebook, or use a kernel of the same minor version",
        )
