"""Azure: the Resource Manager as far as machines need it, and Entra, which gives the tokens.

Real HTTPS with an authority of our own. State is kept, operations take time and are polled, lists
have pages, bodies are checked by the SDK's own models, credentials are checked, and errors come in
Azure's own words: at once, or in an operation that fails later.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

from .arm_errors import words
from .arm_resources import refused
from .arm_state import State, action_of, kind_of
from .arm_validation import Refused
from .entra import CLIENT, EXPIRED, SECRET, TENANT, Entra
from .fault_injection import Script, Scripted
from .server import Request, Response, _authority

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
CONTROLS = frozenset(
    "bills double env expire_tokens groups lose machines preempt reboot refuse slow throttle "
    "wrong_env".split()
)
"""Methods that another process may call, by ``POST /_sky/NAME``."""
_NOT_ALLOWED = "AuthorizationFailed"


class Arm(Scripted):
    """Azure at a port of its own.

    Parameters
    ----------
    fleet
        Where its machines run; without one they only say so.
    boot
        Seconds that a machine takes to run, without a fleet.
    page
        Entries of a page of a list.

    Attributes
    ----------
    calls : list
        What was asked, as ``PUT virtualMachines``; a script's action is any part of that. A code
        that is one of operations is told late, by the operation; ``HTML`` is what a proxy in
        between would send.
    """

    ACTIONS: ClassVar[Mapping[str, str]] = {
        "create": "PUT virtualMachines",
        "remove": "DELETE resourceGroups",
        "describe": "GET virtualMachines",
        "list": "GET resourceGroups",
        "token": "POST token",
        "role": "PUT roleAssignments",
        "define": "PUT roleDefinitions",
        "schedule": "POST operations",
    }
    TOO_MANY = "TooManyRequests"

    def __init__(self, fleet: Any = None, *, boot: float = 0.05, page: int = 2) -> None:
        self.fleet, self.page, self._boot = fleet, page, boot
        self._folder = tempfile.TemporaryDirectory(prefix="sky-arm-")
        super().__init__(fleet.gateway if fleet is not None else "localhost")
        self._server.handle_error = lambda *_: None  # a client that went away is no news
        self.calls = self.requests
        self.entra = Entra(self.url)
        self._begin()

    def _begin(self) -> None:
        self.retry_after = "0"
        self.unregistered: set[str] = set()
        self.disabled = False
        self.scripts.clear()
        authority = _authority().cert_pem.bytes().decode()
        self.state = State(
            SUBSCRIPTION, self.url, self.fleet, self._boot, self.entra.issue, authority
        )

    def reset(self) -> None:
        """Begin anew, with a subscription that has nothing."""
        self.state.close()
        self._begin()

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

    def machines(self) -> list[dict[str, Any]]:
        """Machines that have not ended."""
        return self.state.machines()

    def bills(self) -> list[dict[str, Any]]:
        """Bills of all machines that ever were: see `Bills.listed`."""
        return self.state.bills.listed()

    def groups(self) -> list[str]:
        """Resource groups that are there."""
        return self.state.names("resourcegroups")

    def preempt(self, id: str, notice: float = 0.0) -> None:
        """Take a spot machine back, some seconds after its metadata service says so."""
        self.state.evict(self.state.machine_of(id), notice)

    def power_off(self, id: str) -> None:
        """Power a machine off from within."""
        self.state.power_off(self.state.machine_of(id))

    def reboot(self, id: str) -> None:
        """Restart a machine, as service healing does."""
        self.state.reboot(self.state.machine_of(id))

    def expire_tokens(self) -> None:
        """Let all tokens that were given out be old."""
        self.entra.expire_tokens()

    def close(self) -> None:
        """Stop; nothing is left."""
        self.state.close()
        super().close()
        self._folder.cleanup()

    # -- the server --------------------------------------------------------------------------

    def _read(self, handler: BaseHTTPRequestHandler) -> Request:
        request = super()._read(handler)
        return replace(request, path=unquote(request.path).rstrip("/"))

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        request = self._read(handler)
        if request.path.startswith("/_sky/"):
            return self._write(handler, self._control(request))
        described = f"{request.method} {kind_of(request.path)}"
        with self._lock:
            self.requests.append(described)
        machine = self._is_machine(request)
        due = self._due(
            lambda script: (
                _meets(script, described, request) and not (machine and script.code == _NOT_ALLOWED)
            )
        )
        if slow := due.get("slow"):
            time.sleep(slow.seconds)
        refused = due.get("refuse")
        if refused is not None and not words(refused.code).later:
            return self._write(handler, self._refusal(refused, request))
        response = self._answer(request, refused)
        if "double" in due:
            response = self._answer(request, refused)
        if "lose" in due:
            handler.close_connection = True
            handler.connection.close()
            return None
        return self._write(handler, response)

    def _write(
        self, handler: BaseHTTPRequestHandler, response: Response, cut: bool = False
    ) -> None:
        headers = {**response.headers, "x-ms-request-id": str(uuid.uuid4())}
        super()._write(handler, replace(response, headers=headers), cut)

    def _is_machine(self, request: Request) -> bool:
        """Whether a machine asks as itself: our credentials are not its own."""
        try:
            return self.entra.who(request) != CLIENT
        except Refused:
            return False

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
        action = action_of(request.method, request.path)
        if who != CLIENT and not self.state.may(who, request.path, action):
            raise refused("AuthorizationFailed", who=who, action=action, scope=request.path)
        if request.method in ("PUT", "POST"):
            if self.disabled:
                raise refused("ReadOnlyDisabledSubscription")
            for namespace in self.unregistered:
                if f"/providers/{namespace}/" in request.path:
                    raise refused("MissingSubscriptionRegistration", namespace=namespace)


def _meets(script: Script, described: str, request: Request) -> bool:
    """Whether a script is about a request."""
    body = _json(request)
    about = body.get("properties") or {}
    size = (about.get("hardwareProfile") or {}).get("vmSize", "")
    zone = next(iter(body.get("zones") or ()), "")
    asked = replace(script, zone=script.zone.rpartition("-")[2])
    return script.action in described and asked.fits(zone, size, about.get("priority") == "Spot")


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
