"""Emulator of a small cloud with a REST API, its machines those of a `Fleet`."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .fleet import Fleet, Host

KEY = "toy-key-4711"
PAGE = 40
"""Machines in one answer."""


class ToyCloud:
    """The cloud: one type of machine, one region, one account.

    Attributes
    ----------
    refusals : list of tuple
        HTTP status and code of the next refused launches.
    retry_after : int
        Seconds that a throttled client is told to wait.
    early : int
        Launches that came before such a wait was over.
    lost : list of str
        Requests, as ``POST``, that are carried out next without an answer.
    delays : dict
        Seconds after which requests are carried out.
    hidden : float
        Seconds after its launch in which a machine is not listed.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._entries: dict[str, tuple[dict[str, Any], Host | None]] = {}
        self._forget()
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
        """List the machines that cost: those that were not deleted, also when they are off."""
        return [entry for entry, _ in self._entries.values() if entry["state"] != "gone"]

    def power_off(self, id: str) -> None:
        """Press the power button of a machine."""
        host = self._entries[id][1]
        assert host
        host.shutdown()
        while host.running:
            time.sleep(0.02)

    def preempt(self, id: str) -> None:
        """Take a machine back."""
        self._delete(id)

    def fill(self, count: int, tags: dict[str, str]) -> set[str]:
        """Add machines that are nothing but entries."""
        return {self._enter(rank, tags, "sky", None)["id"] for rank in range(count)}

    def reset(self) -> None:
        """Delete all machines, and forget faults."""
        self._forget()
        for entry in self.machines():
            self._delete(entry["id"])

    def _forget(self) -> None:
        self.refusals, self.lost = list[tuple[int, str]](), list[str]()
        self.delays, self.hidden = dict[str, float](), 0.0
        self.retry_after, self._next_allowed, self.early = 0, 0.0, 0

    def close(self) -> None:
        """Stop the API; the fleet ends the machines."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, key: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Answer a request: HTTP status and JSON; 0 where the answer is lost."""
        time.sleep(self.delays.get(method, 0.0))
        with self._lock:
            found = self._answer(method, path, key, body)
            if method in self.lost:
                self.lost.remove(method)
                return 0, None
            return found

    def _answer(self, method: str, path: str, key: str, body: dict[str, Any]) -> tuple[int, Any]:
        if key != f"Bearer {KEY}":
            return 401, {"code": "unauthorized", "message": "the key is not known"}
        if (method, path) == ("GET", "/types"):
            size = {"region": "toy-1", "instance_type": "toy-2", "vcpus": 2, "memory": 4}
            return 200, [size | {"price": 0.12, "source": "Toy Cloud"}]
        if method == "GET":  # a page from an entry on
            start = int(path.partition("=")[2] or 0)
            listed = [e for e in self.machines() if time.time() - e["started"] >= self.hidden]
            more = start + PAGE if start + PAGE < len(listed) else None
            return 200, {"machines": listed[start : start + PAGE], "next": more}
        if (method, path) == ("POST", "/machines"):
            return self._launch(body)
        id = path.rpartition("/")[2]
        if method != "DELETE" or id not in {entry["id"] for entry in self.machines()}:
            return 404, {"code": "not_found", "message": f"{method} {path}: not found"}
        return 200, self._delete(id)

    def _delete(self, id: str) -> dict[str, Any]:
        entry, host = self._entries[id]
        entry["state"] = "gone"
        if host:
            host.kill()
        return entry

    def _launch(self, body: dict[str, Any]) -> tuple[int, Any]:
        self.early += time.monotonic() < self._next_allowed
        if self.refusals:
            status, code = self.refusals.pop(0)
            self._next_allowed = time.monotonic() + (self.retry_after if status == 429 else 0)
            return status, {"code": code, "message": "the launch is refused"}
        known = [e for e in self.machines() if e["tags"]["jupyter-sky-token"] == body["token"]]
        if known:
            return 200, known
        user = json.loads(body["user_data"].partition("\n")[2])["users"][0]["name"]
        return 201, [self._start(rank, body, user) for rank in range(body["count"])]

    def _start(self, rank: int, body: dict[str, Any], user: str) -> dict[str, Any]:
        name = f"m-{len(self._entries):04d}"

        def turn_off(_: str) -> None:
            if entry["state"] != "gone":
                entry["state"] = "off"

        host = self.fleet.launch(
            name, body["user_data"], ingress=[("0.0.0.0/0", 22)], on_end=turn_off
        )
        entry = self._enter(rank, body["tags"], self.fleet.user or user, host)
        return entry

    def _enter(
        self, rank: int, tags: dict[str, str], user: str, host: Host | None
    ) -> dict[str, Any]:
        entry = {
            "id": f"m-{len(self._entries):04d}",
            "rank": rank,
            "tags": tags,
            "state": "running",
            "started": time.time(),
            "address": host.address if host else "",
            "private": host.private if host else "",
            "user": user,
            "port": host.port if host else 0,
        }
        self._entries[entry["id"]] = (entry, host)
        return entry


def _handler(cloud: ToyCloud) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            key = self.headers.get("Authorization", "")
            status, found = cloud.answer(self.command, self.path, key, body)
            if not status:
                self.close_connection = True
                return
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if status == 429 and cloud.retry_after:
                self.send_header("Retry-After", str(cloud.retry_after))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _reply

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
