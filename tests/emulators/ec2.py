"""EC2 with all that a launch needs around it: moto in this process, behind a layer of our own.

moto keeps the state and speaks the protocols of EC2, STS and EventBridge Scheduler. The layer adds
what moto leaves out and a launch depends on: signatures that are checked, machines that take their
time, client tokens, pages, groups in use, reasons of an end, and failures by script. With a fleet
every instance is a real machine.

Run by itself (``python -m tests.emulators.ec2``) it prints its environment as JSON on one line, and
ends with its standard input. Its methods are then reached by ``POST /_sky/<method>`` with JSON.
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

from .ec2_account import Account
from .ec2_errors import error, nobody, scope, stranger
from .fault_injection import Script, Scripted
from .server import Request, Response, _authority

KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
OLD, OLD_TOKEN = "ASIAIOSFODNN7EXAMPLE", "a-token-of-yesterday"


def account_env(url: str, folder: Path) -> dict[str, str]:
    """Return the environment that points a process at an emulated account, with its credentials.

    Parameters
    ----------
    url
        Address of the emulator.
    folder
        Folder with the certificate of its authority.
    """
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
        "AWS_CA_BUNDLE": str(folder / "authority.pem"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
        "AWS_CONFIG_FILE": str(folder / "config"),
        "NO_PROXY": "localhost,127.0.0.1",
        "no_proxy": "localhost,127.0.0.1",
    }


class Ec2(Scripted):
    """An account of AWS.

    Parameters
    ----------
    fleet : Fleet, optional
        Where instances are real machines; without one they only have an address.
    boot
        Seconds from launch until an instance runs, and from its end until it is gone.
    minute
        Seconds that a minute takes until a schedule is due.

    Attributes
    ----------
    skew : float
        Seconds that AWS's clock is ahead of this machine's.
    calls : list
        What was asked, as ``RunInstances us-east-1``.
    """

    ACTIONS: ClassVar[Mapping[str, str]] = {
        "create": "RunInstances",
        "remove": "TerminateInstances",
        "describe": "DescribeInstances",
        "group": "CreateSecurityGroup",
        "image": "GetParameter",
        "identify": "GetCallerIdentity",
        "schedule": "CreateSchedule",
        "stop": "StopInstances",
        "start": "StartInstances",
    }
    TOO_MANY = "RequestLimitExceeded"

    def __init__(self, fleet: Any = None, *, boot: float = 0.05, minute: float = 60.0) -> None:
        self.fleet, self.boot, self.minute = fleet, boot, minute
        self._kept = tempfile.TemporaryDirectory(prefix="ec2-")
        self._folder = Path(self._kept.name)
        _authority().cert_pem.write_to_path(self._folder / "authority.pem")
        self._account = Account(fleet, boot, minute)
        self.reset()
        super().__init__()
        self._server.handle_error = lambda *_: None  # clients may not trust us, or hang up
        self._closing = threading.Event()
        self._ticking = threading.Thread(target=self._tick, daemon=True)
        self._ticking.start()

    def reset(self) -> None:
        """Begin anew, with an account that has nothing."""
        self._account.close()
        self._account = Account(self.fleet, self.boot, self.minute)
        self.scripts: list[Script] = []
        self.calls: list[str] = []
        self.skew = 0.0

    def close(self) -> None:
        """Leave nothing of it."""
        self._closing.set()
        self._ticking.join()
        super().close()
        self._account.close()
        self._kept.cleanup()

    @property
    def account(self) -> Account:
        """Return the state behind it: ``closed`` regions, and how much is on a ``page``."""
        return self._account

    # -- for whoever uses it -----------------------------------------------------------------

    def env(self) -> dict[str, str]:
        """Environment that points a process at it, with credentials of the account."""
        return account_env(self.url, self._folder)

    def wrong_env(self, kind: str) -> dict[str, str]:
        """An environment that does not work: ``none``, ``wrong``, ``unknown`` or ``expired``."""
        env = self.env()
        if kind == "none":
            del env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"]
        elif kind == "wrong":
            env["AWS_SECRET_ACCESS_KEY"] = SECRET[::-1]
        elif kind == "unknown":
            env["AWS_ACCESS_KEY_ID"] = KEY[::-1]
        elif kind == "expired":
            env |= {"AWS_ACCESS_KEY_ID": OLD, "AWS_SESSION_TOKEN": OLD_TOKEN}
        else:
            raise ValueError(kind)
        return env

    def garble(self, action: str, status: int = 502, times: int = 1) -> None:
        """Let a proxy in between answer with a page of its own."""
        self._order("page", action, times, status=status)

    def machines(self) -> list[dict[str, Any]]:
        """Machines that cost money now, and so have not ended."""
        return self._account.machines()

    def bills(self) -> list[dict[str, Any]]:
        """Bills of all machines that ever were: see `Bills.listed`."""
        return self._account.bills.listed()

    def preempt(self, id: str, notice: float = 0.0) -> None:
        """Take a spot machine back, so many seconds after its notice."""
        self._account.preempt(id, notice)

    def come_up(self, id: str) -> None:
        """Let a machine boot at once whose boot would take longer."""
        self._account.come_up(id)

    def power_off(self, id: str) -> None:
        """Power a machine off from within."""
        self._account.power_off(id)

    def reboot(self, id: str) -> None:
        """Restart a machine."""
        self._account.reboot(id)

    def expire(self, now: float | None = None) -> None:
        """Carry out schedules that are due, by another clock (unix seconds) if one is given."""
        self._account.expire(now)

    # -- requests ----------------------------------------------------------------------------

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        request = self._read(handler)
        if request.path.startswith("/_sky/"):
            response: Response | None = self._control(request)
        else:
            response = self._attend(request)
        if response is None:
            handler.close_connection = True
            return
        date = formatdate(time.time() + self.skew, usegmt=True)
        handler.date_time_string = lambda timestamp=None: date  # type: ignore[method-assign]
        self._write(handler, response)

    def _control(self, request: Request) -> Response:
        name = request.path.rpartition("/")[2]
        if name == "calls":
            return Response.json(self.calls)
        method = getattr(type(self), name, None)
        if name.startswith("_") or not inspect.isfunction(method) or name == "close":
            return Response.json({"error": f"no method {name}"}, 404)
        try:
            return Response.json(method(self, **json.loads(request.body or b"{}")))
        except (KeyError, TypeError, ValueError) as error:
            return Response.json({"error": repr(error)}, 400)

    def _attend(self, request: Request) -> Response | None:
        service, region, action = scope(request)
        with self._lock:
            self.calls.append(f"{action} {region}")
        keys = {KEY: (SECRET, ""), OLD: (SECRET, OLD_TOKEN)}
        refused = stranger(request, keys, {OLD}, time.time() + self.skew)
        if refused is None and region in self._account.closed:
            refused = nobody(service)
        if refused is not None:
            return refused
        form = request.form if not request.path.startswith("/schedules") else {}
        due = self._due(lambda script: _meets(script, action, form))
        if slow := due.get("slow"):
            time.sleep(slow.seconds)
        if script := due.get("refuse"):
            words = {"type": form.get("InstanceType", ""), "zone": script.zone or f"{region}a"}
            return error(service, script.code, status=script.status, **words)
        if script := due.get("page"):
            page = b"<html><body><h1>Proxy</h1><p>The gateway has no answer.</body></html>"
            return Response(page, script.status, {"Content-Type": "text/html"})
        response = self._account.answer(request, service, region, action, form)
        if "double" in due:
            response = self._account.answer(request, service, region, action, form)
        return None if "lose" in due else response

    def _tick(self) -> None:
        while not self._closing.wait(0.05):
            self._account.settle()
            self._account.expire()


def _meets(script: Script, action: str, form: dict[str, str]) -> bool:
    """Whether a script is about a request."""
    zone, kind = form.get("Placement.AvailabilityZone", ""), form.get("InstanceType", "")
    spot = form.get("InstanceMarketOptions.MarketType") == "spot"
    return script.action in (action, "") and script.fits(zone, kind, spot)


def main(argv: list[str]) -> None:
    """Run until the standard input ends."""
    import argparse

    parser = argparse.ArgumentParser(description="An account of AWS on loopback.")
    parser.add_argument("--fleet", action="store_true", help="instances are real machines")
    parser.add_argument("--boot", type=float, default=0.05, metavar="SECONDS")
    parser.add_argument("--minute", type=float, default=60.0, metavar="SECONDS")
    options = parser.parse_args(argv)
    fleet = None
    if options.fleet:
        from .fleet import Fleet

        fleet = Fleet(minute=options.minute)
    emulator = Ec2(fleet, boot=options.boot, minute=options.minute)
    try:
        print(json.dumps(emulator.env()), flush=True)
        sys.stdin.read()
    finally:
        emulator.close()
        if fleet is not None:
            fleet.close()


if __name__ == "__main__":
    main(sys.argv[1:])
