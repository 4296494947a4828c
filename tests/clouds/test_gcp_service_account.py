"""The service account that machines of Google Cloud may have, and what it may do."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import requests
from google.api_core import exceptions

from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.gcp import service_account
from jupyter_sky.clouds.gcp.provider import Gcp
from tests.clouds.gcp_requests import ZONE, create, instance, order, trouble_of, until
from tests.emulators.gce import PROJECT, Compute
from tests.emulators.gce_validation import Refused

pytest_plugins = ["tests.clouds.gcp_fixtures"]

ACCOUNT = f"engines@{PROJECT}.iam.gserviceaccount.com"


def give(monkeypatch: pytest.MonkeyPatch, account: str) -> None:
    """Set the account that machines are to have."""
    monkeypatch.setattr(Sky.load(), "providers", {"gcp": {"service_account": account}})


@pytest.mark.parametrize("account", ["default", ACCOUNT, f" {ACCOUNT} "])
def test_machines_get_the_account_with_one_scope(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch, account: str
) -> None:
    compute.accounts.add(ACCOUNT)
    give(monkeypatch, account)
    email = compute.accounts.default if account == "default" else ACCOUNT
    for each in create(provider, nodes=2):
        (attached,) = instance(compute, each.id)["serviceAccounts"]
        assert attached == {"email": email, "scopes": [service_account.SCOPE]}
    assert service_account.SCOPE == "https://www.googleapis.com/auth/compute"


def test_self_deletion_is_known_without_requests(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert provider.self_delete_script(order()) == ""
    give(monkeypatch, "default")
    shell = provider.self_delete_script(order())
    assert f'"{compute.url}/compute/v1/projects/"' in shell
    assert compute.calls == []
    checked = subprocess.run(["sh", "-n"], input=shell, text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr
    program = shell.partition("\n")[2].rpartition("\nEOF")[0]
    compile(program, "ending", "exec")
    assert (
        '"https://compute.googleapis.com/compute/v1/projects/"'
        in service_account.self_delete_script("")
    )


@pytest.mark.parametrize(
    ("account", "says"),
    [
        (f"nobody@{PROJECT}.iam.gserviceaccount.com", "of type 'serviceAccount' was not found"),
        (ACCOUNT, "roles/iam.serviceAccountUser"),
        ("engines", "not an e-mail address"),
    ],
)
def test_machines_come_without_an_account_that_they_may_not_have(
    compute: Compute,
    provider: Gcp,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    account: str,
    says: str,
) -> None:
    compute.accounts.add(ACCOUNT, lent=False)
    give(monkeypatch, account)
    made = create(provider, nodes=3)
    assert [each.state for each in made] == ["running"] * 3 and len(compute.machines()) == 3
    assert all("serviceAccounts" not in instance(compute, each.id) for each in made)
    (warning,) = caplog.messages
    assert says in warning and account in warning and "billed until %sky reap" in warning
    assert create(provider, nodes=3) == made  # an order that is sent again finds them
    assert len(compute.machines()) == 3


def test_an_account_that_only_some_machines_get_is_no_obstacle(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, asked = compute.accounts.check, list[int]()

    def some(attached: Any) -> str:
        asked.append(1)
        return "SERVICE_ACCOUNT_ACCESS_DENIED" if attached and len(asked) % 2 else check(attached)

    monkeypatch.setattr(compute.accounts, "check", some)
    compute.world.boot = 0.2
    give(monkeypatch, "default")
    made = create(provider, nodes=4)
    with_role = ["serviceAccounts" in instance(compute, each.id) for each in made]
    assert len(made) == 4 and sorted(with_role) == [False, False, True, True]


def test_other_refusals_are_not_the_account_s(
    compute: Compute,
    provider: Gcp,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    give(monkeypatch, "default")
    create(provider, "first-00000000")
    for code, cause in (("ZONE_RESOURCE_POOL_EXHAUSTED", "capacity"), ("forbidden", "permission")):
        compute.refuse(code)
        before = len([call for call in compute.calls if call.startswith("POST")])
        assert trouble_of(lambda: create(provider, f"{cause}-00000000")).cause == cause  # noqa: B023
        assert len([call for call in compute.calls if call.startswith("POST")]) == before + 1
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (exceptions.Forbidden("Required 'iam.serviceAccounts.actAs' permission for 'x'"), True),
        (exceptions.Forbidden("Required 'compute.instances.setServiceAccount' permission"), True),
        (exceptions.Forbidden("Required 'compute.instances.create' permission for 'x'"), False),
        (exceptions.Forbidden("sky@p.iam.gserviceaccount.com may not"), False),
        (exceptions.ServiceUnavailable("iam.serviceAccounts.actAs is not known now"), False),
        (ValueError("iam.serviceAccounts.actAs"), False),
    ],
)
def test_refusal_of_a_service_account_is_read_from_its_message(
    error: Exception, refused: bool
) -> None:
    assert service_account.is_refused(error) is refused


def test_an_answer_that_was_lost_makes_no_second_machine_with_an_account(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, "default")
    compute.lose("create", times=1)
    assert trouble_of(lambda: create(provider, nodes=2)).cause == "transient"
    assert len(create(provider, nodes=2)) == 2
    for each in compute.machines():
        assert "serviceAccounts" in instance(compute, each["id"])
    assert len(compute.machines()) == 2


# -- the emulator: what a machine's token is good for ---------------------------------------


def ask(compute: Compute, token: str, path: str, method: str = "DELETE") -> requests.Response:
    url = f"{compute.url}/compute/v1/projects/{PROJECT}/zones/{ZONE}/{path}"
    headers = {"Authorization": f"Bearer {token}"}
    return requests.request(method, url, headers=headers, timeout=10)


def test_a_machine_s_token_deletes_with_the_scope_and_the_permission_only(
    compute: Compute, provider: Gcp
) -> None:
    create(provider)
    issue, me = compute.tokens.issue, "instances/train-3f2a91c0-0"
    compute.accounts.add(ACCOUNT, may=["compute.instances.get"])
    default, scopes = compute.accounts.default, [service_account.SCOPE]
    narrow = ask(compute, issue(default, [f"{service_account.SCOPE}.readonly"]), me)
    assert narrow.status_code == 403
    assert narrow.json()["error"]["details"][0]["reason"] == "ACCESS_TOKEN_SCOPE_INSUFFICIENT"
    for email in (ACCOUNT, "stranger@elsewhere.iam.gserviceaccount.com"):
        refused = ask(compute, issue(email, scopes), me)
        assert refused.status_code == 403
        assert "Required 'compute.instances.delete'" in refused.json()["error"]["message"]
    assert ask(compute, issue(ACCOUNT, scopes), me, "GET").status_code == 200
    assert ask(compute, issue(default, scopes), "instances", "POST").status_code == 403
    assert ask(compute, issue(default, scopes, seconds=-1), me).status_code == 401
    assert ask(compute, "made up", me).status_code == 401
    assert len(compute.machines()) == 1
    assert ask(compute, issue(default, scopes), me).status_code == 200
    until(lambda: not compute.machines())
    assert compute.world.disks == {}


@pytest.mark.parametrize(
    ("attached", "says"),
    [
        ([{"email": "default", "scopes": []}], "At least one scope"),
        ([{"email": "default", "scopes": ["a"]}] * 2, "At most one service account"),
    ],
)
def test_accounts_that_cannot_be_are_refused_at_once(
    compute: Compute, attached: Any, says: str
) -> None:
    with pytest.raises(Refused, match=says):
        compute.accounts.check(attached)
