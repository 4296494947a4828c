"""Observer of a cluster: asks its controller without keeping it up.

It has one socket and sends one request at a time; a notebook's `ClusterConnection` has seven
sockets and receives the outputs of cells.
"""

from __future__ import annotations

import threading
import time
from typing import Any, TypeVar

import zmq

from jupyter_sky.base.errors import SkyClusterLost
from jupyter_sky.base.messages import Message, Request
from jupyter_sky.base.translation import _

ReplyT = TypeVar("ReplyT", bound=Message)
REPLY_TIMEOUT_SECONDS = 5.0


class Observer:
    """Connection to the controller of one cluster, shared by any number of threads.

    Parameters
    ----------
    cluster
        Its name, for messages.
    connection
        The controller's connection, as `connection_file.read` returns it; it holds the key.

    Examples
    --------
    >>> observer = Observer("train", connection_file.read(path, "train"))  # doctest: +SKIP
    >>> observer.ask(ReadMetrics()).idle_left  # doctest: +SKIP
    593.1
    """

    def __init__(self, cluster: str, connection: dict[str, Any]) -> None:
        from jupyter_client.session import Session

        from jupyter_sky.machines.engines.wire.connection_file import REQUIRED_SETTINGS

        self.cluster = cluster
        self._url = f"{connection['interface']}:{connection['registration']}"
        self._serverkey = (connection.get("curve_serverkey") or "").encode()
        self._session = Session(
            packer=REQUIRED_SETTINGS["pack"],
            unpacker=REQUIRED_SETTINGS["unpack"],
            key=connection["key"].encode(),
            signature_scheme=REQUIRED_SETTINGS["signature_scheme"],
        )
        self._lock = threading.Lock()
        self._socket = self._open()

    def _open(self) -> zmq.Socket:
        socket = zmq.Context.instance().socket(zmq.DEALER)
        socket.linger = 0
        if self._serverkey:
            socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
            socket.curve_serverkey = self._serverkey
        socket.connect(self._url)
        return socket

    def ask(self, request: Request[ReplyT], timeout: float = REPLY_TIMEOUT_SECONDS) -> ReplyT:
        """Ask the controller.

        Raises
        ------
        SkyClusterLost
            No answer within `timeout` seconds, or it cannot do that.
        """
        with self._lock:
            message = self._session.msg("sky_request", content=request.encode())
            try:
                self._session.send(self._socket, message)
                answer = self._receive_reply(
                    message["header"]["msg_id"], time.monotonic() + timeout
                )
            except zmq.ZMQError as error:  # closed by another thread, to which it did not answer
                raise SkyClusterLost(
                    _("cluster {cluster} does not answer: {error}").format(
                        cluster=self.cluster, error=error
                    )
                ) from None
        if answer is None:
            raise SkyClusterLost(
                _("cluster {cluster} has not answered for {timeout:g} s").format(
                    cluster=self.cluster, timeout=timeout
                )
            )
        if "failed" in answer[0]:
            raise SkyClusterLost(
                _("cluster {cluster} cannot {op}: {answer}").format(
                    cluster=self.cluster, op=request.op, answer=answer[0]["failed"]
                )
            )
        return request.reply_type.decode(*answer)

    def _receive_reply(
        self, msg_id: str, deadline: float
    ) -> tuple[dict[str, Any], list[Any]] | None:
        """Wait for the reply to one request; discard late replies to earlier requests."""
        while (left := deadline - time.monotonic()) > 0 and self._socket.poll(int(left * 1000) + 1):
            try:
                __, frames = self._session.feed_identities(self._socket.recv_multipart())
                message = self._session.deserialize(frames, content=True)
                parent, content = message["parent_header"], message["content"]
                if parent.get("msg_id") == msg_id and isinstance(content, dict):
                    return content, list(message.get("buffers") or ())
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue  # not signed with the key of this cluster, or no message of Jupyter's
        return None

    def close(self) -> None:
        """Close the socket; the cluster goes on."""
        with self._lock:
            self._socket.close(linger=0)
