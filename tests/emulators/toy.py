"""Emulator of a small cloud with a REST API, its machines those of a `Fleet`."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .fleet import Fleet, Host

KEY = "toy-key"


class ToyCloud:
    """The cloud: one type of machine, one region, one account.

    Attributes
    ----------
    refusals : list of tuple
        HTTP status and code of the next refused launches.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.refusals = fleet, list[tuple[int, str]]()
        self._entries: dict[str, tuple[dict[str, Any], Host]] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def env(self) -> dict[str, str]:
        """Environment of a process that uses it."""
        return {
            "TOY_URL": f"http://127.0.0.1:{self._server.server_port}",
            "TOY_KEY": KEY,
            "NO_PROXY": "localhost,127.0.0.1",
            "no_proxy": "localhost,127.0.0.1",
        }

    def machines(self) -> list[dict[str, Any]]:
        """List the machines that run."""
        return [entry for entry, host in self._entries.values() if host.running]

    def close(self) -> None:
        """Stop the API; the fleet ends the machines."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, key: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Answer a request: HTTP status and JSON."""
        with self._lock:
            if key != f"Bearer {KEY}":
                return 401, {"code": "unauthorized", "message": "the key is not known"}
            if (method, path) == ("GET", "/types"):
                size = {"region": "toy-1", "instance_type": "toy-2", "vcpus": 2, "memory": 4}
                return 200, [size | {"price": 0.12, "source": "Toy Cloud"}]
            if (method, path) == ("GET", "/machines"):
                return 200, self.machines()
            if (method, path) == ("POST", "/machines"):
                return self._launch(body)
            entry, host = self._entries.get(path.rpartition("/")[2], (None, None))
            if method != "DELETE" or entry is None or host is None:
                return 404, {"code": "not_found", "message": f"{method} {path}: not found"}
            host.kill()
            return 200, entry

    def _launch(self, body: dict[str, Any]) -> tuple[int, Any]:
        if self.refusals:
            status, code = self.refusals.pop(0)
            return status, {"code": code, "message": "the launch is refused"}
        known = [e for e in self.machines() if e["tags"]["jupyter-sky-token"] == body["token"]]
        if known:
            return 200, known
        return 201, [self._start(rank, body) for rank in range(body["count"])]

    def _start(self, rank: int, body: dict[str, Any]) -> dict[str, Any]:
        name = f"m-{len(self._entries):04d}"
        user = json.loads(body["user_data"].partition("\n")[2])["users"][0]["name"]
        host = self.fleet.launch(name, body["user_data"], ingress=[("0.0.0.0/0", 22)])
        entry = {
            "id": name,
            "rank": rank,
            "tags": body["tags"],
            "state": "running",
            "started": time.time(),
            "address": host.address,
            "private": host.private,
            "user": self.fleet.user or user,
            "port": host.port,
        }
        self._entries[name] = (entry, host)
        return entry


def _handler(cloud: ToyCloud) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            key = self.headers.get("Authorization", "")
            status, found = cloud.answer(self.command, self.path, key, body)
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _reply

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
