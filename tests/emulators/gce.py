"""Google's Compute Engine: a machine API that keeps state, with the token server before it.

Requests are checked against Google's discovery document, operations take their time and may fail
late, lists have pages, tokens are given for real signatures. What goes wrong comes from a script.
With a `Fleet` each machine is a real host.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import sys
import tempfile
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from . import gce_errors as errors
from . import google_tokens
from .fault_injection import Scripted
from .fleet import Fleet
from .gce_faults import action_of, applies, permission_for
from .gce_lists import aggregated, listed
from .gce_service_accounts import Accounts
from .gce_state import World
from .gce_validation import Refused
from .google_tokens import Tokens
from .server import Request, Response, _authority
from .tpu import Tpus

PROJECT = "sky-test"
CLOSED = {
    "sky-no-api": "SERVICE_DISABLED",
    "sky-no-billing": "BILLING_DISABLED",
    "sky-no-role": "IAM_PERMISSION_DENIED",
    "sky-of-others": "forbidden",
}
"""Projects that exist and refuse, each with its code."""
_REVOKED = "ACCOUNT_STATE_INVALID"
_ROOT = re.compile(r"/compute/v1/projects/([^/]+)(?:/(.*))?")
_CONTROL = frozenset(
    "bills called double expire lose machines outage power_off preempt reboot refuse slow "
    "throttle wrong_env".split()
)


class Compute(Scripted):
    """One account's Compute Engine.

    Parameters
    ----------
    fleet
        Starts a real host for each machine.
    boot
        Seconds that operations take.
    minute
        Seconds that a minute of a machine's limit of run time takes.

    Attributes
    ----------
    page : int
        Most entries of a page of a list, whatever is asked.
    skew : float
        Seconds that the token server's clock is ahead of this machine's.
    accounts : Accounts
        Service accounts that machines can have.
    quotas : dict of str to list
        Quotas of each region as they are on the wire; of the project under an empty name.

    A code that is one of operations is told late, by the operation; ``QUOTA_EXCEEDED:N2_CPUS``
    names the quota; ``page:503`` is a page of HTML.
    """

    TOO_MANY = "RATE_LIMIT_EXCEEDED"

    def __init__(
        self, fleet: Fleet | None = None, *, boot: float = 0.05, minute: float = 60.0
    ) -> None:
        self._host = fleet.gateway if fleet is not None else "localhost"
        super().__init__(self._host)
        self._folder = Path(tempfile.mkdtemp(prefix="sky-compute-"))
        self._server.handle_error = _told
        self.tokens = Tokens(f"{self.url}/token", lambda: time.time() + self.skew)
        self._key = self.tokens.write_key(self._folder / "right.json", PROJECT)
        _authority().cert_pem.write_to_path(self._folder / "authority.pem")
        authority = _authority().cert_pem.bytes().decode()
        self._kept: dict[str, Any] = {
            "fleet": fleet,
            "boot": boot,
            "minute": minute,
            "authority": authority,
        }
        self._begin()

    def _begin(self) -> None:
        self.accounts = Accounts(PROJECT, self.tokens)
        self.world = World(PROJECT, accounts=self.accounts, **self._kept)
        self.tpus = Tpus(PROJECT, self._kept["fleet"], self._kept["boot"])
        self.page, self.skew = 500, 0.0
        self.quotas: dict[str, list[dict[str, Any]]] = {}
        self.scripts.clear()
        self._dark = 0.0

    def reset(self) -> None:
        """Be as new, at the same address and with the same accounts."""
        self.tpus.close()
        self.world.close()
        self._begin()
        self.requests.clear()

    def close(self) -> None:
        """Stop; nothing is left."""
        self.tpus.close()
        self.world.close()
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- for tests ---------------------------------------------------------------------------

    @property
    def calls(self) -> list[str]:
        """Return the requests, as ``POST zones/us-central1-a/instances``."""
        return list(self.requests)

    def called(self) -> list[str]:
        """`calls`, for other processes."""
        return self.calls

    def env(self) -> dict[str, str]:
        """Environment that points a process here, with good credentials."""
        authority = str(self._folder / "authority.pem")
        here = f"localhost,127.0.0.1,{self._host}"
        return {
            "GOOGLE_APPLICATION_CREDENTIALS": str(self._key),
            "GOOGLE_CLOUD_PROJECT": PROJECT,
            "CLOUDSDK_CONFIG": str(self._folder / "gcloud"),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{self.url}/compute/v1/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": self.url,
            "REQUESTS_CA_BUNDLE": authority,
            "SSL_CERT_FILE": authority,
            "NO_GCE_CHECK": "true",
            "NO_PROXY": here,
            "no_proxy": here,
        }

    def wrong_env(self, kind: str) -> dict[str, str]:
        """`env` with something wrong: ``none``, ``wrong`` (another's key), ``expired``,
        ``missing`` (no such file), ``broken`` (not a key), ``project`` (none such), ``others``
        (another's), ``no project``, ``api``, ``billing``, ``permission``."""
        env, path = self.env(), self._folder / f"{kind}.json"
        projects = {"project": "sky-nowhere", "others": "sky-of-others", "api": "sky-no-api",
                    "billing": "sky-no-billing", "permission": "sky-no-role"}  # fmt: skip
        if kind in projects:
            return env | {"GOOGLE_CLOUD_PROJECT": projects[kind]}
        if kind == "none":
            return env | {"GOOGLE_APPLICATION_CREDENTIALS": ""}
        if kind == "wrong":
            self.tokens.write_key(path, PROJECT, key="wrong")
        elif kind == "expired":
            self.tokens.write_key(path, PROJECT, account="expired")
            self.tokens.revoke("expired")
        elif kind == "broken":
            path.write_text('{"type": "service_account"')
        elif kind == "no project":
            key = json.loads(self._key.read_text())
            path.write_text(json.dumps({**key, "project_id": ""}))
            env |= {"GOOGLE_CLOUD_PROJECT": ""}
        elif kind != "missing":
            raise ValueError(kind)
        return env | {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}

    def outage(self, seconds: float) -> None:
        """Do nothing and answer nothing for some seconds."""
        self._dark = time.monotonic() + seconds

    def bills(self) -> list[dict[str, Any]]:
        """Bills of all machines that ever were: see `Bills.listed`."""
        return self.world.bills.listed()

    def machines(self) -> list[dict[str, Any]]:
        """Machines that are not gone; one that was powered off is kept, and costs its disk."""
        return self.world.machines()

    def preempt(self, id: str, notice: float = 0.0) -> None:
        """Take a spot machine back after a notice of some seconds."""
        zone, _, name = id.partition("/")
        self.world.preempt((zone, name), notice)

    def power_off(self, id: str) -> None:
        """Power a machine off from within; its disk is kept, and so is it."""
        zone, _, name = id.partition("/")
        self.world.power_off((zone, name))

    def reboot(self, id: str) -> None:
        """Restart a machine."""
        zone, _, name = id.partition("/")
        self.world.reboot((zone, name))

    def expire(self, now: float) -> list[str]:
        """Delete the machines whose limit of run time is reached at a unix time."""
        return self.world.expire(now)

    # -- the server --------------------------------------------------------------------------

    def describe(self, request: Request) -> str:
        found = _ROOT.fullmatch(request.path)
        return f"{request.method} {found[2] or '' if found else request.path}".strip()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        request = self._read(handler)
        if request.path.startswith("/_sky/"):
            self._write(handler, self._control(request))
            return
        if request.path.startswith("/v2/"):  # of TPUs, with faults and a record of their own
            answer = self._stranger(request) or self.tpus.answer(request)
            if answer is None or time.monotonic() < self._dark:
                self._hang_up(handler)
            else:
                self._write(handler, answer)
            return
        described, action = self.describe(request), self._action(request)
        stranger = self._stranger(request)
        with self._lock:
            self.requests.append(described)
        known = request.query.get("requestId") in self.world.requests
        machine = self._is_machine(request)
        due = self._due(
            lambda script: (
                not stranger
                and not (machine and script.code == _REVOKED)
                and applies(script, action, request, known)
            )
        )
        if time.monotonic() < self._dark:
            self._hang_up(handler)
            return
        if slow := due.get("slow"):
            time.sleep(slow.seconds)
        refused = due.get("refuse")
        response = stranger or self._respond(request, refused.code if refused else "")
        if "double" in due:
            response = self._respond(request, "")
        if "lose" in due:
            self._hang_up(handler)
            return
        self._write(handler, response)

    def _hang_up(self, handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True

    def _is_machine(self, request: Request) -> bool:
        """Whether a machine asks as itself: our credentials are not its own."""
        holder = self.tokens.holder(request.headers.get("authorization", ""))
        return not isinstance(holder, str) and holder.email == self.accounts.default

    def _stranger(self, request: Request) -> Response | None:
        """The refusal of a request whose sender is not known, or may not send it."""
        if request.path == "/token":
            return None
        holder = self.tokens.holder(request.headers.get("authorization", ""))
        if isinstance(holder, str):
            return errors.refusal(holder)
        permission = permission_for(self._action(request))
        refused = self.accounts.refusal(holder, request.method, permission)
        words = {"permission": permission, "resource": request.path.partition("/v1/")[2]}
        return errors.refusal(refused, **words) if refused else None

    def _respond(self, request: Request, code: str) -> Response:
        found = _ROOT.fullmatch(request.path)
        project = found[1] if found else PROJECT
        words = {
            "project": project,
            "resource": request.path.partition("/v1/")[2],
            "metric": "CPUS",
            "permission": permission_for(self._action(request)),
        }
        words |= {"zone": "", "region": "us-central1"}
        if code.startswith("page"):
            return errors.refusal(code)
        if request.path == "/token":
            return google_tokens.refusal(code) if code else self.tokens.answer(request)
        if found is None:
            return errors.error(404, "notFound", f"{request.path} was not found")
        if project != PROJECT:
            words["resource"] = f"projects/{project}"
            return errors.refusal(CLOSED.get(project, "notFound"), **words)
        late = code.partition(":")[0] in errors.LATE
        if code and not late:
            return errors.refusal(code.partition(":")[0], **words)
        try:
            with self.world.lock:
                answer = self._route(request, found[2] or "", code if late else "")
                return Response.json(copy.deepcopy(answer))
        except Refused as refusal:
            return errors.error(refusal.status, refusal.reason, refusal.message, refusal.detail)

    def _route(self, request: Request, path: str, fails: str) -> Any:
        world, query = self.world, request.query
        body = json.loads(request.body) if request.body else {}
        parts = path.split("/") if path else []
        match request.method, parts:
            case "GET", []:
                quotas = self.quotas.get("", [])
                return {"kind": "compute#project", "id": "1", "name": PROJECT, "quotas": quotas}
            case "GET", ["regions"]:
                regions = [
                    {"kind": "compute#region", "name": name, "status": "UP", "quotas": quotas}
                    for name, quotas in self.quotas.items()
                    if name
                ]
                return listed("region", regions, query, self.page)
            case "GET", ["aggregated", kind]:
                return aggregated(world, kind, query, self.page)
            case "POST", ["zones", zone, "instances"]:
                return world.insert(zone, body, query.get("requestId"), fails)
            case "GET", ["zones", zone, "instances"]:
                held = [each for (place, _), each in world.instances.items() if place == zone]
                return listed("instance", held, query, self.page)
            case "GET", ["zones", zone, "instances", name]:
                return world.instance((zone, name))
            case "DELETE", ["zones", zone, "instances", name]:
                return world.delete((zone, name))
            case "GET", ["zones", zone, "instances", name, "serialPort"]:
                said = world.console((zone, name))
                return {"kind": "compute#serialPortOutput", "contents": said, "start": "0",
                        "next": str(len(said))}  # fmt: skip
            case "POST", ["zones", zone, "instances", name, "stop"]:
                return world.stop((zone, name))
            case "POST", ["zones", zone, "instances", name, "start"]:
                return world.start((zone, name), fails)
            case "DELETE", ["zones", zone, "disks", name]:
                return world.delete_disk((zone, name))
            case "GET", ["zones", _, "operations"]:
                scope = f"/{parts[0]}/{parts[1]}/"
                held = [each for each in world.operations.values() if scope in each["selfLink"]]
                return listed("operation", held, query, self.page)
            case "GET", [*_, "operations", name] if name in world.operations:
                return world.operations[name]
            case "POST", ["global", "networks"]:
                return world.insert_network(body)
            case "POST", ["global", "firewalls"]:
                return world.insert_firewall(body)
            case "GET", ["global", "firewalls"]:
                return listed("firewall", world.firewalls.values(), query, self.page)
            case "DELETE", ["global", "networks" | "firewalls" as kind, name]:
                return world.delete_global(kind, name)
        raise Refused(404, "notFound", f"The resource 'projects/{PROJECT}/{path}' was not found")

    # -- the script --------------------------------------------------------------------------

    def _action(self, request: Request) -> str:
        found = _ROOT.fullmatch(request.path)
        return action_of(request.method, (found[2] or "") if found else request.path)

    def _control(self, request: Request) -> Response:
        """Any of this emulator's methods, for other processes: ``POST /_sky/refuse`` and JSON."""
        name = request.path.removeprefix("/_sky/")
        if request.method != "POST" or name not in _CONTROL:
            return Response.json({"error": f"no such method: {name}"}, 404)
        try:
            given = json.loads(request.body or b"{}")
            return Response.json(getattr(self, name)(**given))
        except (TypeError, ValueError, Refused) as error:
            return Response.json({"error": str(error)}, 400)


def _told(*_: Any) -> None:
    """Tell of what goes wrong with a request, unless its sender has hung up."""
    if not isinstance(sys.exc_info()[1], OSError):
        traceback.print_exc()


def main(argv: list[str]) -> None:
    """Run until standard input ends; print the environment that points here, as JSON."""
    import argparse
    import signal

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boot", type=float, default=0.05)
    parser.add_argument("--minute", type=float, default=60.0)
    parser.add_argument("--hosts", action="store_true", help="a real host for each machine")
    given = parser.parse_args(argv)
    fleet = Fleet(minute=given.minute) if given.hosts else None
    compute = Compute(fleet, boot=given.boot, minute=given.minute)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    print(json.dumps(compute.env()), flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    over.wait()
    compute.close()
    if fleet is not None:
        fleet.close()


if __name__ == "__main__":
    main(sys.argv[1:])
