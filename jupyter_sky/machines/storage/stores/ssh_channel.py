"""Connections to hosts of ``ssh:`` addresses, over which their files are read and written."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import threading
from concurrent.futures import Future
from itertools import count
from typing import Any, TypeVar

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.messages import Message
from jupyter_sky.base.remote import ssh
from jupyter_sky.machines.storage.stores.answers import restore_error
from jupyter_sky.machines.storage.stores.connections import Bytes
from jupyter_sky.machines.storage.stores.errors import SkyConnectionLost
from jupyter_sky.machines.storage.stores.ssh_host import find_host, install_worker, module_command
from jupyter_sky.machines.storage.stores.ssh_messages import FileOperation, ReadPart, WritePart
from jupyter_sky.machines.storage.stores.ssh_server import read_frame, write_frame
from jupyter_sky.machines.storage.stores.store import PartRequest

ReplyT = TypeVar("ReplyT", bound=Message)
SERVER_MODULE = "jupyter_sky.machines.storage.stores.ssh_server"
SCHEME = "ssh://"


class SshChannel:
    """One connection to a host; it ends with this process, and the process there with it.

    Parameters
    ----------
    authority
        Host as an address names it.
    """

    def __init__(self, authority: str) -> None:
        host = find_host(authority)
        self._address = host.address
        command = module_command(install_worker(host), SERVER_MODULE)
        pipe = subprocess.PIPE
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._errors, start_new_session=True
        )
        self._waiting: dict[int, Future[tuple[dict[str, Any], bytes]]] = {}
        self._numbers, self._lock = count(1), threading.Lock()
        threading.Thread(target=self._read, name="sky-ssh-files", daemon=True).start()

    @property
    def is_lost(self) -> bool:
        """Whether the process has ended: a host that is asked again gets another."""
        return self._process.poll() is not None

    def ask(self, operation: FileOperation[ReplyT]) -> ReplyT:
        """Carry out an operation there; return its reply.

        Raises
        ------
        SkyStorageError
            The error of the operation.
        SkyConnectionLost
            The connection has ended; the same may succeed later.
        """
        number, future = next(self._numbers), Future[tuple[dict[str, Any], bytes]]()
        self._waiting[number] = future
        try:
            with self._lock:
                header = {"id": number, **operation.encode()}
                payload = operation.attached[0] if operation.attached else b""
                write_frame(self._process.stdin, header, payload)  # type: ignore[arg-type]
        except (OSError, ValueError):
            self._process.wait()
        if self.is_lost:
            self._fail()
        answer, data = future.result()
        if "error" in answer:
            raise restore_error(answer)
        return operation.reply_type.decode(answer, (data,))

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        while (frame := read_frame(stdout)) is not None:
            if future := self._waiting.pop(frame[0]["id"], None):
                future.set_result(frame)
        self._process.wait()
        self._fail()

    def _fail(self) -> None:
        """Report all that waits for an answer as lost."""
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace").strip()
        message = ssh.explain_failure(self._address, errors).message
        for number in list(self._waiting):
            if future := self._waiting.pop(number, None):
                future.set_exception(SkyConnectionLost(message))


_channels: dict[str, SshChannel] = {}
_opening: dict[str, threading.Lock] = {}


def open_channel(authority: str) -> SshChannel:
    """Return the connection to a host, which all stores of this process share."""
    with _opening.setdefault(authority, threading.Lock()):
        channel = _channels.get(authority)
        if channel is None or channel.is_lost:
            channel = _channels[authority] = SshChannel(authority)
        return channel


def close_channels() -> None:
    """End all connections."""
    while _channels:
        _channels.popitem()[1].close()


def read_ssh_part(request: PartRequest) -> bytes:
    """Return the bytes that a request reads on its host."""
    return bytes(_ask(request, ReadPart(*_place(request))).buffers[0])


def write_ssh_part(request: PartRequest, data: Bytes) -> str:
    """Write bytes on the host of a request; return their checksum, as it was computed there."""
    return _ask(request, WritePart(*_place(request), buffers=(memoryview(data),))).tag


def host_request(request: PartRequest) -> PartRequest:
    """Return a request of an ``ssh:`` address as its own host carries it out."""
    __, path = split_url(request.url)
    return PartRequest(request.method, f"file:{path}", request.headers, request.span)


def split_url(url: str) -> tuple[str, str]:
    """Return host and path of the address of a part.

    Examples
    --------
    >>> split_url("ssh://ada@box:22/srv/a b")
    ('ada@box:22', '/srv/a b')
    """
    authority, __, path = url.removeprefix(SCHEME).partition("/")
    return authority, f"/{path}"


def _place(request: PartRequest) -> tuple[str, dict[str, str], tuple[int, int]]:
    """Return address, headers and span of a request as its own host has them."""
    __, path = split_url(request.url)
    return f"file:{path}", dict(request.headers), (request.span.start, request.span.stop)


def _ask(request: PartRequest, operation: FileOperation[ReplyT]) -> ReplyT:
    authority, __ = split_url(request.url)
    try:
        channel = open_channel(authority)
    except SkyError as error:
        raise SkyConnectionLost(error.message) from error
    return channel.ask(operation)
