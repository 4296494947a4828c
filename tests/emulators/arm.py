"""Azure: the Resource Manager as far as machines need it, and Entra, which gives the tokens.

Real HTTPS with an authority of our own. State is kept, operations take time and are polled, lists
have pages, bodies are checked by the SDK's own models, credentials are checked, and errors come in
Azure's own words: at once, or in an operation that fails later.
"""

from __future__ import annotations

import json
import re
import ssl
import sys
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from .arm_bodies import Refused
from .arm_resources import refused
from .arm_state import State, kind_of
from .arm_words import words
from .entra import CLIENT, EXPIRED, SECRET, TENANT, Entra
from .server import Request, Response, _authority

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
ACTIONS = {
    "create": "PUT virtualMachines",
    "remove": "DELETE resourceGroups",
    "describe": "GET virtualMachines",
    "list": "GET resourceGroups",
    "token": "POST token",
    "role": "PUT roleAssignments",
}
"""Short names of requests, for scripts; any part of what `Arm.calls` says will do."""


CONTROLS = (
    "double env expire_tokens groups lose machines preempt refuse slow throttle wrong_env".split()
)
"""What another process may call, by ``POST /_sky/NAME``."""


@dataclass
class Script:
    """Something that happens to the next requests that match."""

    kind: str
    action: str
    times: int
    code: str = ""
    zone: str = ""
    instance_type: str = ""
    spot: bool | None = None
    seconds: float = 0.0
    fields: dict[str, str] = field(default_factory=dict)


class Arm:
    """Azure at a port of its own.

    Parameters
    ----------
    fleet
        Where its machines run; without one they only say so.
    boot
        Seconds that a machine takes to run, without a fleet.
    page
        Entries of a page of a list.
    """

    def __init__(self, fleet: Any = None, *, boot: float = 0.05, page: int = 2) -> None:
        self.fleet, self.page = fleet, page
        self.calls: list[str] = []
        self.scripts: list[Script] = []
        self.retry_after = "0"
        self.unregistered: set[str] = set()
        self.disabled = False
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="sky-arm-")
        host = fleet.gateway if fleet is not None else "localhost"
        self._serve(host)
        self.entra = Entra(self.url)
        authority = _authority().cert_pem.bytes().decode()
        self.state = State(SUBSCRIPTION, self.url, fleet, boot, self.entra.issue, authority)
        self._thread.start()

    # -- for tests ---------------------------------------------------------------------------

    def env(self) -> dict[str, str]:
        """Environment of a process that uses this Azure, with a secret that is valid."""
        folder = Path(self._folder.name)
        bundle = folder / "authority.pem"
        _authority().cert_pem.write_to_path(bundle)
        (folder / "config").mkdir(exist_ok=True)
        return {
            "AZURE_AUTHORITY_HOST": self.url,
            "AZURE_CLIENT_ID": CLIENT,
            "AZURE_CLIENT_SECRET": SECRET,
            "AZURE_CONFIG_DIR": str(folder / "config"),
            "AZURE_RESOURCE_MANAGER_URL": self.url,
            "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
            "AZURE_TENANT_ID": TENANT,
            "NO_PROXY": "*",
            "no_proxy": "*",
            "REQUESTS_CA_BUNDLE": str(bundle),
            "SSL_CERT_FILE": str(bundle),
        }

    def wrong_env(self, kind: str) -> dict[str, str]:
        """The same with something wrong.

        ``none``, ``wrong`` and ``expired`` (the secret), ``tenant``, ``application``,
        ``subscription`` (one that is not there) and ``malformed`` (no id at all).
        """
        env = self.env()
        if kind == "none":
            for name in ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID"):
                del env[name]
            return env
        nobody = "00000000-0000-4000-8000-000000000000"
        return (
            env
            | {
                "wrong": {"AZURE_CLIENT_SECRET": "1~wrong"},
                "expired": {"AZURE_CLIENT_SECRET": EXPIRED},
                "tenant": {"AZURE_TENANT_ID": nobody},
                "application": {"AZURE_CLIENT_ID": nobody},
                "subscription": {"AZURE_SUBSCRIPTION_ID": nobody},
                "malformed": {"AZURE_SUBSCRIPTION_ID": "my-subscription"},
            }[kind]
        )

    def refuse(
        self,
        code: str,
        *,
        zone: str = "",
        instance_type: str = "",
        spot: bool | None = None,
        times: int = 1,
        action: str = "create",
        **fields: str,
    ) -> None:
        """Refuse the next requests; ``HTML`` is what a proxy in between would send."""
        number = zone.rpartition("-")[2]
        self._script("refuse", action, times, code, number, instance_type, spot, fields=fields)

    def lose(self, action: str = "create", times: int = 1) -> None:
        """Do what is asked, and lose the answer."""
        self._script("lose", action, times)

    def double(self, action: str = "create", times: int = 1) -> None:
        """Let a request arrive twice."""
        self._script("double", action, times)

    def slow(self, action: str, seconds: float, times: int = 1) -> None:
        """Take time to answer."""
        self._script("slow", action, times, seconds=seconds)

    def throttle(self, action: str, times: int = 1) -> None:
        """Say that there were too many requests."""
        self._script("refuse", action, times, "TooManyRequests")

    def machines(self) -> list[dict[str, Any]]:
        """Machines that have not ended."""
        return self.state.machines()

    def groups(self) -> list[str]:
        """Resource groups that are there."""
        return self.state.names("resourcegroups")

    def preempt(self, id: str, notice: float = 0.0) -> None:
        """Take a spot machine back, some seconds after its metadata service says so."""
        self.state.evict(self.state.machine_of(id), notice)

    def expire_tokens(self) -> None:
        """Let all tokens that were given out be old."""
        self.entra.expire_tokens()

    def close(self) -> None:
        """Stop; nothing is left."""
        self.state.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._folder.cleanup()

    def _script(self, kind: str, action: str, times: int, *rest: Any, **more: Any) -> None:
        script = Script(kind, ACTIONS.get(action, action), times, *rest, **more)
        with self._lock:
            self.scripts.append(script)

    # -- the server --------------------------------------------------------------------------

    def _serve(self, host: str) -> None:
        arm = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_any(self) -> None:
                arm._handle(self)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = handle_any

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """A client that went away is no news."""

        bound = "127.0.0.1" if host == "localhost" else host
        self._server = Server((bound, 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _authority().issue_cert(host, "127.0.0.1").configure_cert(context)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://{host}:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        address = urlsplit(handler.path)
        length = int(handler.headers.get("Content-Length") or 0)
        request = Request(
            handler.command,
            unquote(address.path).rstrip("/"),
            {name: values[-1] for name, values in parse_qs(address.query).items()},
            {name.lower(): value for name, value in handler.headers.items()},
            handler.rfile.read(length),
        )
        if request.path.startswith("/_sky/"):
            return self._send(handler, self._control(request))
        described = f"{request.method} {kind_of(request.path)}"
        with self._lock:
            self.calls.append(described)
            scripts = self._matching(described, request)
        refused = next((one for one in scripts if one.kind == "refuse"), None)
        kinds = {one.kind for one in scripts}
        time.sleep(sum(one.seconds for one in scripts))
        if refused is not None and not words(refused.code).later:
            return self._send(handler, self._refusal(refused, request))
        response = self._answer(request, refused)
        if "double" in kinds:
            response = self._answer(request, refused)
        if "lose" in kinds:
            handler.close_connection = True
            handler.connection.close()
            return None
        return self._send(handler, response)

    def _send(self, handler: BaseHTTPRequestHandler, response: Response) -> None:
        handler.send_response(response.status)
        for name, value in response.headers.items():
            handler.send_header(name, value)
        handler.send_header("x-ms-request-id", str(uuid.uuid4()))
        handler.send_header("Content-Length", str(len(response.body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(response.body)

    def _matching(self, described: str, request: Request) -> list[Script]:
        found: list[Script] = []
        body = _json(request)
        about = body.get("properties") or {}
        for script in self.scripts:
            if script.times < 1 or script.action not in described:
                continue
            if any(script.kind == one.kind for one in found):
                continue
            size = (about.get("hardwareProfile") or {}).get("vmSize", "")
            if script.zone and script.zone not in (body.get("zones") or ()):
                continue
            if script.instance_type and script.instance_type != size:
                continue
            if script.spot is not None and script.spot != (about.get("priority") == "Spot"):
                continue
            script.times -= 1
            found.append(script)
        return found

    def _refusal(self, script: Script, request: Request) -> Response:
        if script.code.startswith("HTML"):
            page = b"<html><body><h1>Corporate proxy</h1>Please log in.</body></html>"
            status = int(script.code[4:] or 503)
            return Response(page, status, {"Content-Type": "text/html; charset=utf-8"})
        if script.code.startswith("AADSTS"):
            return self.entra.error(
                script.code, {"client": CLIENT, "tenant": TENANT, "scope": self.url}
            )
        said = words(script.code)
        message = said.message.format_map(self._names(request, script))
        return self._error(Refused(script.code, message, said.status))

    def _names(self, request: Request, script: Script) -> dict[str, str]:
        body = _json(request)
        about = body.get("properties") or {}
        spot = about.get("priority") == "Spot"
        group = re.search("/resourcegroups/([^/]+)", request.path, re.IGNORECASE)
        return {
            "size": (about.get("hardwareProfile") or {}).get("vmSize", ""),
            "region": body.get("location", ""),
            "cores": "LowPriorityCores" if spot else "standardDSv5Family",
            "who": CLIENT,
            "action": f"{kind_of(request.path)}/write",
            "scope": request.path,
            "namespace": "Microsoft.Compute",
            "name": request.path.rpartition("/")[2],
            "group": group[1] if group else "",
        } | script.fields

    def _control(self, request: Request) -> Response:
        """The methods for tests, for another process: ``POST /_sky/refuse {"code": ...}``."""
        name, given = request.path.removeprefix("/_sky/"), _json(request)
        if name == "calls":
            return Response.json(self.calls)
        if name not in CONTROLS:
            return Response.json({"error": name}, 404)
        return Response.json(getattr(self, name)(**given))

    # -- the services ------------------------------------------------------------------------

    def _answer(self, request: Request, refused: Script | None) -> Response:
        if (answered := self.entra.answer(request)) is not None:
            return answered
        if request.path.startswith("/console/"):
            return self.state.console(request)
        try:
            who = self.entra.who(request)
            self._permit(request, who)
            later = None
            if refused is not None:
                said = words(refused.code)
                message = said.message.format_map(self._names(request, refused))
                later = {"code": refused.code, "message": message}
            return self.state.answer(request, self.page, self.retry_after, later)
        except Refused as refusal:
            return self._error(refusal)

    def _error(self, refusal: Refused) -> Response:
        body = {"error": {"code": refusal.code, "message": refusal.message}}
        headers = {"x-ms-failure-cause": "gateway"}
        if refusal.status == 429:
            headers["Retry-After"] = self.retry_after
        if refusal.status == 401:
            headers["WWW-Authenticate"] = (
                f'Bearer authorization_uri="{self.url}/{TENANT}", error="invalid_token"'
            )
        return Response.json(body, refusal.status, **headers)

    def _permit(self, request: Request, who: str) -> None:
        """Refuse a subscription that is not there, and who has no role for what is asked."""
        if "api-version" not in request.query:
            message = "The api-version query parameter (?api-version=) is required."
            raise Refused("MissingApiVersionParameter", message)
        match = re.match("/subscriptions/([^/]+)", request.path, re.IGNORECASE)
        if match is None:
            return
        try:
            uuid.UUID(match[1])
        except ValueError:
            message = f"The provided subscription identifier '{match[1]}' is malformed or invalid."
            raise Refused("InvalidSubscriptionId", message) from None
        if match[1] != SUBSCRIPTION:
            raise refused("SubscriptionNotFound", scope=match[1])
        if who != CLIENT and not self.state.may(who, request.path):
            action = f"{kind_of(request.path)}/{request.method.lower()}"
            raise refused("AuthorizationFailed", who=who, action=action, scope=request.path)
        if request.method == "PUT":
            if self.disabled:
                raise refused("ReadOnlyDisabledSubscription")
            for namespace in self.unregistered:
                if f"/providers/{namespace}/" in request.path:
                    raise refused("MissingSubscriptionRegistration", namespace=namespace)


def _json(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(request.body or b"{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def main(argv: list[str]) -> None:
    """Run until the standard input ends; the first line says how to use it.

    ``--fleet`` gives real machines.
    """
    fleet = None
    if "--fleet" in argv:
        from .fleet import Fleet

        fleet = Fleet()
    arm = Arm(fleet)
    try:
        print(json.dumps(arm.env()), flush=True)
        sys.stdin.read()
    finally:
        arm.close()
        if fleet is not None:
            fleet.close()


if __name__ == "__main__":
    main(sys.argv[1:])
