"""HTTP and HTTPS server of the store, with faults and a count of what passed."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import trustme

from .azure import AzureOperations
from .azure_signatures import ACCOUNT, SignedAddress, verify_address
from .calls import Answer, Call
from .faults import Fault, FaultPlan
from .refusals import Refusal
from .s3 import MIN_PART, Operations
from .signatures import Account, SignedRequest, verify
from .state import PIECE, ContentFiles, StoredVersion, spoil


class ObjectStore:
    """A strict store on a port of its own.

    Parameters
    ----------
    dialect : str
        ``aws``, ``r2``, ``google`` or ``azure``.
    keep : bool
        Whether bytes are kept on disk; else they are counted, and reads yield zeros.
    tls : bool
        HTTPS with a certificate of `authority`.
    min_part : int
        Bytes that all parts but the last need; small in tests that want many parts.
    port : int
        0 takes a free one.
    """

    def __init__(
        self,
        dialect: str = "aws",
        *,
        keep: bool = True,
        tls: bool = False,
        region: str = "us-east-1",
        min_part: int = MIN_PART,
        port: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        self._folder = tempfile.TemporaryDirectory() if keep else None
        contents = ContentFiles(Path(self._folder.name) if self._folder else None)
        self.account = Account(region)
        self.operations: Operations | AzureOperations = (
            AzureOperations(contents, self.account, region)
            if dialect == "azure"
            else Operations(contents, dialect, region, min_part)
        )
        self.faults = FaultPlan()
        self.requests: list[str] = []
        self.crashes: list[str] = []
        self._block_ids: dict[str, list[str]] = {}
        self.bytes_in = Counter[str]()
        self.bytes_out = Counter[str]()
        self._lock = threading.Lock()
        self._server = _server(self, host, port)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority().issue_cert("127.0.0.1", "localhost").configure_cert(context)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"http{'s' if tls else ''}://{host}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.daemon = True
        self._thread.start()

    def close(self) -> None:
        """Stop and remove the files."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if self._folder:
            self._folder.cleanup()

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- for tests

    def create(self, *names: str) -> None:
        """Create buckets."""
        for name in names:
            self.operations.answer(Call("PUT", name, "", {}, {}, "", iter(())))

    def put(self, bucket: str, key: str, content: bytes | Iterable[bytes]) -> StoredVersion:
        """Store an object without a request."""
        pieces = iter([content] if isinstance(content, bytes) else content)
        self.operations.answer(Call("PUT", bucket, key, {}, {}, "", pieces))
        return self.operations.buckets[bucket].objects[key]

    def content(self, bucket: str, key: str) -> bytes:
        """Return the bytes of an object."""
        call = Call("GET", bucket, key, {}, {}, "", iter(()))
        return b"".join(self.operations.answer(call).pieces or ())

    def keys(self, bucket: str) -> list[str]:
        """Return the keys of a bucket."""
        return sorted(self.operations.buckets[bucket].objects)

    def open_uploads(self, bucket: str) -> int:
        """Return the number of uploads that were neither completed nor aborted."""
        found = self.operations.buckets[bucket]
        return len(found.uploads) + len(found.blocks)

    def fail(self, match: str, kind: str, **options: Any) -> None:
        """Inject a fault, see `Fault`."""
        self.faults.add(Fault(match, kind, **options))

    def count(self, text: str) -> int:
        """Return the number of requests whose description contains a text."""
        return sum(text in request for request in self.requests)

    def reset(self) -> None:
        """Forget all buckets, faults, counts and settings of a test."""
        self.account = Account()
        self.operations.region = self.account.region
        if isinstance(self.operations, AzureOperations):
            self.operations.account = self.account
        self.operations.buckets.clear()
        self.faults = FaultPlan()
        self.crashes.clear()
        self._block_ids.clear()
        self.forget_counts()

    def forget_counts(self) -> None:
        """Count requests and bytes from zero."""
        self.requests.clear()
        self.bytes_in.clear()
        self.bytes_out.clear()

    def add_bytes(self, counter: Counter[str], name: str, count: int) -> None:
        """Count bytes that passed, from any thread."""
        with self._lock:
            counter[name] += count

    def byte_counts(self) -> list[int]:
        """Return the bytes that came in and that went out."""
        with self._lock:
            return [sum(self.bytes_in.values()), sum(self.bytes_out.values())]

    # -- the server

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        address = urlsplit(handler.path)
        query = dict(parse_qsl(address.query, keep_blank_values=True))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        description = self._describe(handler.command, address.path, query)
        self.requests.append(description)
        fault = self.faults.choose(description)
        if fault and fault.seconds:
            time.sleep(fault.seconds)
        signed = SignedRequest(handler.command, address.path, query, headers)
        body = _Body(self, handler, headers, fault, description)
        try:
            if fault and fault.kind in REFUSALS:
                extra = {"Retry-After": fault.retry_after} if fault.retry_after else {}
                raise Refusal(fault.kind, "Please reduce your request rate.", extra)
            payload = self._verify(signed)
            bucket, _, key = self._path(address.path).partition("/")
            if fault and fault.kind == "shift":
                headers = _shifted(headers)
            call = Call(handler.command, bucket, key, query, headers, payload, iter(body))
            call.trailers = body.trailers
            answer = _spoiled(self.operations.answer(call), fault)
        except Refusal as refusal:
            body.drain()
            kind = {"Content-Type": "application/xml", **refusal.headers}
            if self.operations.dialect == "azure":
                kind["x-ms-error-code"] = refusal.code
            if not key_of(address.path) and self.operations.dialect not in ("google", "azure"):
                kind["x-amz-bucket-region"] = self.operations.region  # told to everybody
            answer = Answer(refusal.status, kind, refusal.body())
        except ConnectionError:
            handler.close_connection = True
            return
        except Exception:
            self.crashes.append(traceback.format_exc())
            answer = Answer(500, {}, b"the emulator itself has failed")
        body.drain()
        if fault and fault.kind == "rot" and answer.stored:
            spoil(answer.stored)
        if fault and fault.kind == "lose":
            _hang_up(handler)
            return
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            self._write(handler, answer, fault, description)

    def _verify(self, request: SignedRequest) -> str:
        """Return the claimed hash of the payload, or raise a `Refusal`."""
        if self.operations.dialect == "azure":
            path = unquote(request.path)
            address = SignedAddress(request.method, path, request.query, request.headers)
            verify_address(self.account, address)
            return ""
        return verify(self.account, request, self.operations.dialect == "google")

    def _path(self, path: str) -> str:
        """Return bucket and key of a path."""
        path = unquote(path).removeprefix("/")
        return path.removeprefix(f"{ACCOUNT}/") if self.operations.dialect == "azure" else path

    def _describe(self, method: str, path: str, query: dict[str, str]) -> str:
        """Return a request as faults and counts know it.

        Azure's blocks have the number in which their ids were first seen.
        """
        named = {k: v for k, v in query.items() if k not in _SIGNATURE and k[:6] != "X-Amz-"}
        if "blockid" in named:
            seen = self._block_ids.setdefault(path, [])
            if named["blockid"] not in seen:
                seen.append(named["blockid"])
            named["partNumber"] = str(seen.index(named.pop("blockid")) + 1)
        tail = "&".join(f"{name}={value}" for name, value in sorted(named.items()))
        return f"{method} /{self._path(path)}?{tail}"

    def _write(
        self,
        handler: BaseHTTPRequestHandler,
        answer: Answer,
        fault: Fault | None,
        description: str,
    ) -> None:
        size = answer.size if answer.pieces or handler.command == "HEAD" else len(answer.body)
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        if answer.status not in (204, 304):
            handler.send_header("Content-Length", str(size))
        handler.end_headers()
        if handler.command == "HEAD":
            return
        kind = fault.kind if fault and handler.command == "GET" else ""
        pieces = _damaged(answer.pieces or iter([answer.body]), kind, fault, size)
        for piece in pieces:
            handler.wfile.write(piece)
            self.add_bytes(self.bytes_out, description.partition("?")[0], len(piece))
        if kind == "cut":
            _hang_up(handler)


REFUSALS = {"SlowDown", "TooManyRequests", "InternalError", "AccessDenied", "ExpiredToken"} | {
    "ConditionalRequestConflict",
    "NoSuchKey",
    "PreconditionFailed",
}


_SIGNATURE = {"sv", "spr", "se", "sr", "sp", "sig"} | {"skoid", "sktid", "skt", "ske", "sks", "skv"}


class _Body:
    """Body of a request, by pieces, as it came or damaged."""

    def __init__(
        self,
        store: ObjectStore,
        handler: BaseHTTPRequestHandler,
        headers: dict[str, str],
        fault: Fault | None,
        description: str,
    ) -> None:
        self.trailers: dict[str, str] = {}
        self._store, self._handler, self._headers = store, handler, headers
        self._fault, self._name = fault, description.partition("?")[0]
        self._rest = int(headers.get("content-length") or 0)
        self._chunked = headers.get("x-amz-content-sha256", "").startswith("STREAMING-")

    def __iter__(self) -> Iterator[bytes]:
        writes = self._handler.command == "PUT" and self._rest
        fault = self._fault if writes else None
        pieces = self._decoded() if self._chunked else self._raw(self._rest)
        if fault and fault.kind == "cut":
            keep = int(self._rest * fault.at)
            for _ in self._raw(keep):
                pass
            _hang_up(self._handler)
            raise ConnectionError("cut by the test")
        yield from _damaged(pieces, fault.kind if fault else "", fault, self._rest)

    def drain(self) -> None:
        """Read what nobody has read, so that the connection can go on."""
        for _ in self._raw(self._rest):
            pass

    def _raw(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self._handler.rfile.read(min(PIECE, size))
            if not piece:
                raise ConnectionError("the client has gone")
            size -= len(piece)
            self._rest -= len(piece)
            self._store.add_bytes(self._store.bytes_in, self._name, len(piece))
            yield piece

    def _decoded(self) -> Iterator[bytes]:
        """Yield chunks of Amazon's own chunked encoding; note the trailers."""
        file = self._handler.rfile

        def line() -> str:
            raw = file.readline()
            self._rest -= len(raw)
            return raw.decode().strip()

        while size := int(line().partition(";")[0], 16):
            yield from self._raw(size)
            line()
        while self._rest > 0 and (text := line()):
            name, _, value = text.partition(":")
            self.trailers[name.lower()] = value.strip()


def _damaged(pieces: Iterator[bytes], kind: str, fault: Fault | None, size: int) -> Iterator[bytes]:
    position = int(size * fault.at) if fault else 0
    offset = 0
    for piece in pieces:
        inside = position - offset
        offset += len(piece)
        if kind == "flip" and 0 <= inside < len(piece):
            piece = piece[:inside] + bytes([piece[inside] ^ 1]) + piece[inside + 1 :]
        if kind == "cut" and inside < len(piece):
            yield piece[:inside]
            return
        yield piece


def _shifted(headers: dict[str, str]) -> dict[str, str]:
    """Return headers that ask for a range one byte off."""
    match = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
    if not match:
        return headers
    step = -1 if int(match[1]) else 1
    return {**headers, "range": f"bytes={int(match[1]) + step}-{int(match[2]) + step}"}


def _spoiled(answer: Answer, fault: Fault | None) -> Answer:
    """Return an answer that is wrong as a whole, where a fault wants that."""
    kind = fault.kind if fault else ""
    if kind == "error200":
        return Answer(200, {"Content-Type": "application/xml"}, Refusal("InternalError").body())
    if kind == "truncate" and fault and answer.pieces:
        answer.size = int(answer.size * fault.at)
        answer.pieces = iter([b"".join(answer.pieces)[: answer.size]])
    if kind == "sum":
        sums = {"x-amz-checksum-crc32c": "AAAAAA==", "x-goog-hash": "crc32c=AAAAAA=="}
        answer.headers |= {name: value for name, value in sums.items() if name in answer.headers}
    return answer


def _hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    with contextlib.suppress(OSError):
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)


def key_of(path: str) -> str:
    """Return the key of a path; empty for a bucket."""
    return path.lstrip("/").partition("/")[2]


def _server(store: ObjectStore, host: str, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = 64 * 1024

        def version_string(self) -> str:
            return "strict"

        def date_time_string(self, timestamp: float | None = None) -> str:
            from email.utils import formatdate

            return formatdate(timestamp or store.account.now(), usegmt=True)

        def do_GET(self) -> None:
            store.serve(self)

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_: Any) -> None:
            pass  # a client that was killed

    return Server((host, port), Handler)


@cache
def authority() -> trustme.CA:
    """Return the authority of all stores of this process."""
    return trustme.CA()
