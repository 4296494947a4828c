"""Client of JSON APIs: retries by its policy, and refusals with their body."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from jupyter_sky.base.http import ONCE, HttpRefusal, JsonClient, RetryPolicy

FEW = RetryPolicy(retries=3, connects=1, backoff=0.0)


class Api:
    """Server whose next answers are listed; then it answers with the request."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], str]] = []
        self.seen: list[str] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size).decode()
                api.seen.append(f"{self.command} {self.path}")
                said = json.dumps({"body": body, "agent": self.headers["User-Agent"]})
                status, headers, text = api.answers.pop(0) if api.answers else (200, {}, said)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = _answer

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    api = Api()
    yield api
    api.server.shutdown()
    api.server.server_close()


def test_busy_server_is_asked_again_after_the_wait_that_it_names(api: Api) -> None:
    api.answers += [(429, {"Retry-After": "1"}, ""), (503, {}, "")]
    client, begun = JsonClient(api.url, policy=FEW), time.monotonic()
    assert client.get("/types", {"page": "2"})["agent"].startswith("jupyter_sky/")
    assert api.seen == ["GET /types?page=2"] * 3 and time.monotonic() - begun >= 1.0
    client.close()


def test_refusal_has_status_headers_and_body(api: Api) -> None:
    api.answers += [(503, {"retry-after": "7"}, '{"code": "busy"}')]
    client = JsonClient(api.url, {"Authorization": "Bearer K"}, ONCE)
    with pytest.raises(HttpRefusal) as caught:
        client.send("GET", "/types")
    refusal = caught.value
    assert (refusal.status, refusal.text, refusal.url) == (
        503,
        '{"code": "busy"}',
        f"{api.url}/types",
    )
    assert refusal.headers["Retry-After"] == "7" and len(api.seen) == 1
    client.close()


def test_request_with_an_effect_is_sent_once(api: Api) -> None:
    api.answers += [(503, {}, "")]
    client = JsonClient(api.url, policy=FEW)
    with pytest.raises(HttpRefusal):
        client.send("POST", "/machines", {"count": 1})
    assert api.seen == ["POST /machines"]
    assert json.loads(client.send("POST", "/machines", {"count": 1}).json()["body"])["count"] == 1
    client.close()


def test_unreachable_server_raises_the_error_of_requests() -> None:
    with pytest.raises(requests.ConnectionError):
        JsonClient("http://127.0.0.1:9", policy=ONCE).get("/")
