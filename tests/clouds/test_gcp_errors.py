"""Errors of Google Cloud: every code, credentials, proxies, connections."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from google.auth.exceptions import DefaultCredentialsError

from jupyter_sky.clouds.gcp import clients, errors
from jupyter_sky.clouds.gcp.errors import TABLE
from jupyter_sky.clouds.gcp.provider import Gcp
from jupyter_sky.clouds.launches.launcher import launch_machines
from tests.clouds.gcp_requests import ZONE, create, machine_config, order, trouble_of, use
from tests.emulators import gce_errors
from tests.emulators.gce import Compute

pytest_plugins = ["tests.clouds.gcp_fixtures"]


def _reached(code: str) -> str:
    """Return the origin of a code of the table."""
    if code in gce_errors.LATE:
        return "create"
    return "list" if code in gce_errors.AT_ONCE else "token"


OWN_WORDS = {"clock", "no credentials", "no project", "wrong project", "page", "certificate"}
OWN_WORDS |= {"connection", "timeout"}


@pytest.mark.parametrize("code", sorted(set(TABLE) - OWN_WORDS))
def test_every_code_of_the_table_is_known_over_the_wire(
    shared: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    use(monkeypatch, shared.env())
    action = _reached(code)
    # google-auth asks again by itself: for a token, and with a new one
    again = action == "token" or gce_errors.AT_ONCE.get(code, (0,))[0] == 401
    shared.refuse(code, action=action, times=3 if again else 1)
    try:
        if action == "create":
            trouble = trouble_of(lambda: create(provider, f"x-{abs(hash(code)):x}"))
        else:
            if action == "token":
                monkeypatch.setattr("google.auth._exponential_backoff.time.sleep", lambda _: None)
                shared.tokens.forget()
            trouble = trouble_of(provider.machines)
    finally:
        shared.scripts.clear()
    cause, width, fix = TABLE[code]
    assert (trouble.cause, trouble.code, trouble.scope) == (cause, code, width)
    assert trouble.message and "\n" not in trouble.message
    assert trouble.fix.startswith(fix)
    assert fix or cause in ("capacity", "throttled", "transient", "invalid")


@pytest.mark.parametrize(
    ("kind", "cause", "code", "says", "does"),
    [
        ("none", "permission", "no credentials", "no application default", "gcloud auth"),
        ("missing", "permission", "no credentials", "was not found", "gcloud auth"),
        ("broken", "permission", "no credentials", "not a valid json", "gcloud auth"),
        ("wrong", "permission", "invalid_grant", "Invalid JWT Signature", "gcloud auth"),
        ("expired", "permission", "invalid_grant", "expired or revoked", "gcloud auth"),
        ("project", "permission", "notFound", "'projects/sky-nowhere'", "gcloud projects list"),
        ("others", "permission", "forbidden", "'projects/sky-of-others'", "add-iam-policy"),
        ("no project", "permission", "no project", "no project", "GOOGLE_CLOUD_PROJECT"),
        ("api", "permission", "SERVICE_DISABLED", "has not been used", "gcloud services enable"),
        ("billing", "permission", "BILLING_DISABLED", "billing", "gcloud billing"),
        ("permission", "permission", "IAM_PERMISSION_DENIED", "Required", "add-iam-policy"),
    ],
)
def test_account_problem_is_told_with_its_fix(
    shared: Compute,
    provider: Gcp,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    cause: str,
    code: str,
    says: str,
    does: str,
) -> None:
    use(monkeypatch, shared.wrong_env(kind))
    for ask in (provider.identify, lambda: create(provider)):
        trouble = trouble_of(ask)
        assert (trouble.cause, trouble.code) == (cause, code)
        assert says in trouble.message and does in trouble.fix
        assert "PRIVATE KEY" not in str(trouble)


def test_a_clock_that_is_wrong_is_found_out(compute: Compute, provider: Gcp) -> None:
    compute.skew = 7200.0
    trouble = trouble_of(provider.identify)
    assert trouble.cause == "permission" and "timedatectl" in trouble.fix
    assert "reasonable timeframe" in trouble.message
    compute.skew = 0.0
    assert provider.identify() == "sky@sky-test.iam.gserviceaccount.com in project sky-test"


def test_a_token_that_has_ended_is_asked_for_anew(compute: Compute, provider: Gcp) -> None:
    provider.identify()
    before = compute.calls.count("POST /token")
    compute.tokens.forget()
    assert provider.identify().endswith("in project sky-test")
    assert compute.calls.count("POST /token") == before + 1


def test_nobody_is_asked_but_the_addresses_that_are_set(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resolve, asked = socket.getaddrinfo, list[str]()

    def noting(host: Any, *more: Any, **named: Any) -> Any:
        asked.append(str(host))
        return resolve(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", noting)
    anew = tmp_path / "key.json"  # nothing is known yet of these credentials
    anew.write_text(compute._key.read_text())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(anew))
    provider.identify()
    provider.machines()
    time.sleep(0.3)  # what is asked in the background
    assert set(asked) == {"localhost"}


def test_without_credentials_nobody_is_asked(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert provider.configured() == f"GOOGLE_APPLICATION_CREDENTIALS={compute._key}"
    use(monkeypatch, compute.wrong_env("none"))
    assert provider.configured() == ""
    with pytest.raises(DefaultCredentialsError):
        provider.identify()
    assert compute.calls == []
    login = Path(os.environ["CLOUDSDK_CONFIG"]) / "application_default_credentials.json"
    login.parent.mkdir()
    login.write_text(compute._key.read_text())
    assert str(login) in provider.configured()
    assert provider.identify().endswith("in project sky-test")


def test_asking_what_is_configured_imports_no_sdk() -> None:
    code = (
        "import sys, jupyter_sky.clouds.gcp.provider as gcp; gcp.Gcp().configured(); "
        "print([m for m in sys.modules if m.startswith('google.')])"
    )
    env = {**os.environ, "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere.json"}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert ran.stdout == "[]\n", ran.stderr


def test_impossible_request_is_explained(shared: Compute, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, shared.env())
    provider = Gcp()
    gone = trouble_of(lambda: create(provider, "g-00000001", instance_type="n1-standard-3"))
    assert gone.cause == "invalid" and "n1-standard-3" in gone.message
    large = machine_config("l-00000001", disk=70000)
    too_large = trouble_of(lambda: launch_machines(provider, order("l-00000001"), large))
    assert too_large.cause == "invalid" and "70000" in too_large.message
    nowhere = trouble_of(lambda: create(provider, "z-00000001", zone="us-central9-a"))
    assert nowhere.cause == "invalid" and "us-central9-a" in nowhere.message
    arm = trouble_of(lambda: create(provider, "r-00000001", arch="arm64"))
    assert arm.cause == "invalid" and "architecture" in arm.message
    assert not [m for m in shared.machines() if "first" not in m["id"]]


def test_a_page_in_place_of_an_answer_is_called_that(
    shared: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, shared.env())
    provider.identify()
    for status, cause in ((200, "unknown"), (403, "unknown"), (503, "transient")):
        shared.refuse(f"page:{status}", action="identify")
        trouble = trouble_of(provider.identify)
        assert trouble.cause == cause, status
        assert "Google" in trouble.message and "NO_PROXY" in trouble.fix
        assert "<" not in trouble.message
    for status in (200, 403):
        shared.refuse(f"page:{status}", action="token")
        shared.tokens.forget()
        trouble = trouble_of(provider.identify)
        assert trouble.cause == "unknown" and "NO_PROXY" in trouble.fix
    shared.refuse("page:503", action="create")
    assert trouble_of(lambda: create(provider, "h-00000001")).cause == "transient"


def test_unreachable_machine_is_not_taken_for_gone(
    shared: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = [f"{ZONE}/first-00000000-0"]
    use(monkeypatch, shared.env())
    shared.refuse("page:404", action="remove")
    assert trouble_of(lambda: provider.terminate(ours)).cause == "unknown"
    use(monkeypatch, shared.wrong_env("project"))
    assert trouble_of(lambda: provider.terminate(ours)).cause == "permission"
    assert trouble_of(lambda: provider.describe(ours)).cause == "permission"
    use(monkeypatch, shared.env())
    assert [m.id for m in provider.describe(ours)] == ours


def test_a_proxy_in_between_that_lets_nothing_through(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            self.send_error(403, "Forbidden by policy")

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "")
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.server_port}")
        trouble = trouble_of(provider.identify)
        assert trouble.cause == "transient" and "HTTPS_PROXY" in trouble.fix
        assert "proxy" in trouble.message
    finally:
        server.shutdown()
        server.server_close()


def test_a_certificate_that_is_not_trusted_is_not_called_a_bad_network(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    import certifi

    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
    trouble = trouble_of(provider.identify)
    assert trouble.cause == "unknown" and "REQUESTS_CA_BUNDLE" in trouble.fix


def test_connections_that_break_or_hang_pass(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.identify()
    compute.lose("identify")
    assert trouble_of(provider.identify).cause == "transient"
    compute.outage(0.3)
    assert trouble_of(provider.identify).cause == "transient"
    time.sleep(0.3)
    compute.slow("identify", 1.0)
    monkeypatch.setitem(clients.CALL_OPTIONS, "timeout", 0.2)
    trouble = trouble_of(provider.identify)
    assert (trouble.cause, trouble.code) == ("transient", "timeout")
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "https://localhost:1/compute/v1/")
    assert trouble_of(provider.identify).code == "connection"


def test_errors_of_others_are_not_ours() -> None:
    explain = Gcp().explain
    assert explain(ValueError("no")) is None
    assert explain(KeyError("x")) is None
    late = explain(requests.ConnectTimeout("timed out"))
    assert late is not None and late.code == "timeout"
    for cause, width, _ in TABLE.values():
        assert cause in ("capacity", "quota", "permission", "invalid", "throttled",
                         "transient", "unknown")  # fmt: skip
        assert width in ("zone", "region", "family", "market")
    assert errors.has_code(ValueError("x"), "gone") is False
