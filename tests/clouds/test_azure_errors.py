"""Azure: what its errors mean, from the wire; who we are, and what is wrong with that."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyPermission
from jupyter_sky.clouds.azure import clients
from jupyter_sky.clouds.azure.errors import TABLE
from jupyter_sky.clouds.azure.provider import Azure
from jupyter_sky.clouds.launches.launcher import Launcher
from jupyter_sky.clouds.provider.parallel_requests import pause, send_parallel
from tests.clouds.azure_requests import (
    GROUP,
    OWNER,
    SIZE,
    TOKEN,
    an_order,
    failure,
    launch,
    left,
    refused,
    until,
    use,
)
from tests.emulators.arm import CLIENT, SUBSCRIPTION, Arm
from tests.emulators.arm_errors import words

pytest_plugins = ["tests.clouds.azure_fixtures"]


_OURS = {"CredentialUnavailable", "UnknownTenant", "UntrustedCertificate"}
_ON_THE_WIRE = sorted(code for code in TABLE if code not in _OURS)


@pytest.fixture(scope="module")
def refusing() -> Iterator[tuple[Arm, Azure]]:
    """One Azure for all codes, and a azure that has its clients."""
    with pytest.MonkeyPatch.context() as patch:
        arm = Arm(boot=0.0)
        use(arm.env(), patch)
        azure = Azure(poll=0.01)
        azure.identify()
        yield arm, azure
        arm.close()


@pytest.mark.parametrize("code", _ON_THE_WIRE)
def test_every_code_is_understood_from_the_wire(refusing: tuple[Arm, Azure], code: str) -> None:
    arm, azure = refusing
    if code == "ResourceGroupBeingDeleted":
        action = "PUT virtualNetworks"  # that of a group is waited for
    elif code.startswith("AADSTS"):
        action, azure = "token", Azure(poll=0.01)
    else:
        action = "create" if words(code).later else "PUT resourceGroups"
    arm.refuse(code, action=action)
    trouble = refused(azure, an_order(f"{code}-00000000"))
    cause, _, fix = TABLE[code]
    assert trouble.code == code
    if code == "MissingSubscriptionRegistration":
        assert trouble.fix == "az provider register --wait --namespace Microsoft.Compute"
    elif code != "InvalidParameter":
        assert (trouble.cause, trouble.fix) == (cause, fix)
    assert trouble.message and len(trouble.message) < 450 and "Trace ID" not in trouble.message
    arm.scripts.clear()


@pytest.mark.parametrize(
    "code", ["SkuNotAvailable", "ZonalAllocationFailed", "OperationNotAllowed"]
)
def test_all_or_none(arm: Arm, azure: Azure, code: str) -> None:
    arm.refuse(code)  # one of four
    trouble = refused(azure, an_order(nodes=4))
    assert trouble.code == code and trouble.cause in ("capacity", "quota")
    until(lambda: not left(arm))


def test_a_refusal_goes_before_an_answer_that_was_lost() -> None:
    from azure.core.exceptions import HttpResponseError, ServiceResponseError

    def lost(halt: Event) -> None:
        raise ServiceResponseError("the connection was closed")

    def refusal(halt: Event) -> None:
        halt.wait(10)  # until the other has failed
        raise HttpResponseError("no capacity")

    def waiting(halt: Event) -> None:
        pause(halt, 1000)

    with pytest.raises(HttpResponseError, match="no capacity"):
        send_parallel([lost, refusal, waiting], Azure().is_transient)


def test_refusals_are_of_the_place_that_was_asked(arm: Arm, azure: Azure) -> None:
    arm.refuse("SkuNotAvailable", zone="eastus-1", instance_type=SIZE, spot=True, times=9)
    assert refused(azure, an_order(zone="eastus-1", spot=True)).code == "SkuNotAvailable"
    for number, place in enumerate(({"zone": "eastus-2"}, {"spot": False})):
        asked = {"zone": "eastus-1", "spot": True, **place}
        assert launch(azure, an_order(f"p{number}-00000000", **asked))


@pytest.mark.parametrize(
    ("code", "cores", "width"),
    [
        ("OperationNotAllowed", "LowPriorityCores", "market"),
        ("OperationNotAllowed", "Total Regional", "region"),
        ("QuotaExceeded", "standardNCASv3_T4Family", "family"),
    ],
)
def test_quota_refusal_has_its_scope(
    arm: Arm, azure: Azure, code: str, cores: str, width: str
) -> None:
    arm.refuse(code, cores=cores)
    trouble = refused(azure, an_order())
    assert (trouble.cause, trouble.scope) == ("quota", width)
    assert "quota" in trouble.fix


def test_an_operation_that_is_not_allowed_may_be_no_quota(arm: Arm, azure: Azure) -> None:
    launch(azure, an_order())
    with pytest.raises(Exception, match="cannot be evicted") as caught:
        azure._current_account().compute.virtual_machines.simulate_eviction(GROUP, f"{TOKEN}-0")
    trouble = azure.explain(caught.value)
    assert trouble is not None and trouble.cause == "invalid"


def test_invalid_request_is_explained(arm: Arm, azure: Azure) -> None:
    trouble = refused(azure, an_order(), disk=9000.0)
    assert trouble.cause == "invalid" and "4095 GiB" in trouble.fix
    assert "'9000'" in trouble.message

    arm.state.gone_sizes.add("Standard_NC6")
    trouble = refused(azure, an_order("b-00000000", instance_type="Standard_NC6"))
    assert trouble.cause == "invalid" and "list-skus" in trouble.fix
    assert trouble.message.startswith("The value Standard_NC6 provided for the VM size")

    trouble = refused(azure, an_order("c-00000000", zone="eastus-7"))
    assert (trouble.cause, trouble.code) == ("invalid", "InvalidAvailabilityZone")
    until(lambda: not left(arm))


def test_a_provider_that_is_not_registered(arm: Arm, azure: Azure) -> None:
    arm.unregistered.add("Microsoft.Network")
    trouble = refused(azure, an_order())
    assert trouble.cause == "permission"
    assert trouble.fix == "az provider register --wait --namespace Microsoft.Network"


@pytest.mark.parametrize("status", [200, 407, 503])
def test_a_page_of_a_proxy_is_called_so(arm: Arm, azure: Azure, status: int) -> None:
    azure.identify()
    arm.refuse(f"HTML{status}", action="PUT resourceGroups")
    arm.refuse(f"HTML{status}", action="GET resourceGroups")
    trouble = refused(azure, an_order())
    assert trouble.cause == "transient" and "proxy" in trouble.fix
    assert "<html>" not in trouble.message
    with pytest.raises(Exception) as caught:
        azure.machines(owner=OWNER)
    trouble = azure.explain(caught.value)
    assert trouble is not None and trouble.cause == "transient"


@pytest.mark.parametrize("name", ["AZURE_AUTHORITY_HOST", "AZURE_RESOURCE_MANAGER_URL"])
def test_nobody_answers(arm: Arm, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        monkeypatch.setenv(name, f"https://localhost:{unused.getsockname()[1]}")
        trouble = failure(Azure())
    assert trouble.cause == "transient"
    assert Azure().explain(ValueError("ours")) is None


@pytest.mark.parametrize("name", ["AZURE_AUTHORITY_HOST", "AZURE_RESOURCE_MANAGER_URL"])
def test_a_certificate_that_nobody_here_trusts(
    arm: Arm, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    azure = Azure()
    if name == "AZURE_RESOURCE_MANAGER_URL":
        azure.identify()  # there is a token
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    trouble = failure(azure)
    assert trouble.cause == "permission" and "REQUESTS_CA_BUNDLE" in trouble.fix


@pytest.mark.parametrize(
    ("kind", "code", "fix"),
    [
        ("wrong", "AADSTS7000215", "az ad app credential reset"),
        ("expired", "AADSTS7000222", "az ad app credential reset"),
        ("tenant", "UnknownTenant", "az account show --query tenantId"),
        ("application", "AADSTS700016", "AZURE_CLIENT_ID is not of that tenant"),
        ("subscription", "SubscriptionNotFound", "az account list"),
        ("malformed", "InvalidSubscriptionId", "az account list"),
    ],
)
def test_wrong_credentials_come_with_their_fix(
    arm: Arm, monkeypatch: pytest.MonkeyPatch, kind: str, code: str, fix: str
) -> None:
    use(arm.wrong_env(kind), monkeypatch)
    azure = Azure()
    with pytest.raises(Exception) as caught:
        azure.identify()
    trouble = azure.explain(caught.value)
    assert trouble is not None
    assert (trouble.cause, trouble.code) == ("permission", code)
    assert fix in trouble.fix
    found = Launcher(azure).check()
    assert not found.usable and code in found.found and found.fix == trouble.fix


def test_credentials_that_are_right_and_none(
    arm: Arm, azure: Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Launcher(azure).check()
    assert found.usable and f"service principal {CLIENT}" in found.found
    assert SUBSCRIPTION in found.found
    use(arm.wrong_env("none"), monkeypatch)
    arm.calls.clear()
    assert azure.configured() == ""
    found = Launcher(azure).check()
    assert not found.usable and "az login" in found.fix
    assert arm.calls == []
    with pytest.raises(Exception) as caught:
        azure.identify()
    trouble = azure.explain(caught.value)
    assert trouble is not None and trouble.cause == "permission" and "az login" in trouble.fix


def test_a_token_that_got_old(arm: Arm, azure: Azure) -> None:
    azure.identify()
    arm.expire_tokens()
    with pytest.raises(Exception) as caught:
        azure.machines(owner=OWNER)
    trouble = azure.explain(caught.value)
    assert trouble is not None
    assert (trouble.cause, trouble.code) == ("permission", "ExpiredAuthenticationToken")
    assert "clock" in trouble.fix


def test_the_subscription_is_the_only_one_or_what_az_uses(
    arm: Arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_SUBSCRIPTION_ID")
    assert SUBSCRIPTION in Azure().identify()

    arm.state.subscriptions["22222222-0000-4000-8000-000000000000"] = "Another"
    with pytest.raises(SkyPermission, match="2 subscriptions are seen") as caught:
        Azure().identify()
    assert SUBSCRIPTION in (caught.value.hint or "")

    folder = os.environ["AZURE_CONFIG_DIR"]
    user = {"name": "ada@example.org", "type": "user"}
    seen = [{"id": SUBSCRIPTION, "isDefault": True, "user": user}]
    with open(f"{folder}/azureProfile.json", "w", encoding="utf-8-sig") as file:
        json.dump({"subscriptions": seen}, file)
    assert SUBSCRIPTION in Azure().identify()
    monkeypatch.delenv("AZURE_CLIENT_SECRET")
    assert Azure().configured() == "az login as ada@example.org"


def test_a_subscription_that_is_disabled(arm: Arm, azure: Azure) -> None:
    arm.disabled = True
    assert refused(azure, an_order()).code == "ReadOnlyDisabledSubscription"


def test_looking_for_credentials_needs_no_sdk(tmp_path: Any) -> None:
    code = (
        "import sys; from jupyter_sky import clouds; "
        "print(clouds.get_launcher('azure').has_credentials(), "
        "[name for name in sys.modules if name.startswith(('azure.', 'msal'))])"
    )
    env = {k: v for k, v in os.environ.items() if k not in clients.VARIABLES}
    env |= {"AZURE_CONFIG_DIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert ran.stdout == "False []\n", ran.stderr
