"""Azure: the driver and its errors, by the real SDK over HTTPS against an Azure of our own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jupyter_sky.clouds import azure_account, azure_bodies
from jupyter_sky.clouds.azure import AzureDriver
from jupyter_sky.clouds.azure_errors import TABLE, explain
from jupyter_sky.clouds.azure_waits import Stop, together
from jupyter_sky.clouds.base import TAGS, Birth, Launch, Machine, Trouble
from jupyter_sky.clouds.rented import RentedCloud
from jupyter_sky.errors import SkyPermission
from jupyter_sky.offers import Offer
from jupyter_sky.resources import Resources
from tests.emulators.arm import CLIENT, SUBSCRIPTION, Arm
from tests.emulators.arm_words import ENTRA, words
from tests.emulators.fleet import Fleet, isolation_works

OWNER, TOKEN = "ada@desk 'one'", "train-3f2a91c0"
GROUP = f"jupyter-sky-{TOKEN}"
SIZE = "Standard_D2s_v5"
KINDS = (
    "resourcegroups virtualmachines disks networkinterfaces publicipaddresses virtualnetworks "
    "networksecuritygroups roleassignments"
).split()


def use(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in azure_account.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Arm]:
    arm = Arm()
    use(arm.env(), monkeypatch)
    yield arm
    arm.close()


@pytest.fixture
def driver(arm: Arm) -> AzureDriver:
    return AzureDriver(poll=0.02)


def an_order(token: str = TOKEN, nodes: int = 1, owner: str = OWNER, **offer: Any) -> Launch:
    about = {"zone": None, "spot": False, "arch": "x86_64", "instance_type": SIZE, **offer}
    sold = Offer("azure", vcpus=2, memory=8, **{"region": "eastus", **about})
    return Launch(token, "train", sold, Resources(nodes=nodes), 600, owner, "a.ipynb")


def a_birth(order: Launch, **fields: Any) -> Birth:
    ends = 2_000_000_000.0
    values = (order.owner, order.cluster, order.token, order.notebook, f"{ends:.0f}")
    given = {
        "user": "sky",
        "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 us",
        "user_data": "#cloud-config\n{}",
        "disk": 50.0,
        "lease_end": ends,
        "tags": dict(zip(TAGS, values, strict=True)),
    }
    return Birth(**{**given, **fields})


def quiet() -> None:
    """Nothing is to be done meanwhile."""


def launch(driver: AzureDriver, order: Launch, **birth: Any) -> list[Machine]:
    return driver.create(order, a_birth(order, **birth), quiet)


def refused(driver: AzureDriver, order: Launch, **birth: Any) -> Trouble:
    """What a launch is refused with, as the driver explains it."""
    with pytest.raises(Exception) as caught:
        launch(driver, order, **birth)
    trouble = driver.explain(caught.value)
    assert trouble is not None, repr(caught.value)
    return trouble


def failure(driver: AzureDriver) -> Trouble:
    """Why the credentials cannot be proved."""
    with pytest.raises(Exception) as caught:
        driver.identify()
    trouble = driver.explain(caught.value)
    assert trouble is not None, repr(caught.value)
    return trouble


def until(true: Any) -> None:
    for _ in range(3000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come true")


def left(arm: Arm) -> dict[str, list[str]]:
    return {kind: names for kind in KINDS if (names := arm.state.names(kind))}


def sent(arm: Arm, rank: int = 0) -> dict[str, Any]:
    return arm.state.machine_of(f"{GROUP}/{TOKEN}-{rank}")


# -- life --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "spot"), [(1, False), (4, True)])
def test_machines_come_and_go(arm: Arm, driver: AzureDriver, nodes: int, spot: bool) -> None:
    made = launch(driver, an_order(nodes=nodes, spot=spot, zone="eastus-2"))
    assert [one.id for one in made] == [f"{GROUP}/{TOKEN}-{rank}" for rank in range(nodes)]
    assert [one.rank for one in made] == list(range(nodes))

    seen = sorted(driver.describe([one.id for one in made]), key=lambda one: one.rank)
    assert {one.state for one in seen} == {"running"}
    assert len({one.address for one in seen} | {one.private for one in seen}) == 2 * nodes
    first = seen[0]
    assert (first.owner, first.token, first.cluster) == (OWNER, TOKEN, "train")
    assert first.lease_end == 2_000_000_000

    about = sent(arm)["properties"]
    assert sent(arm)["zones"] == ["2"]
    assert about["storageProfile"]["osDisk"]["deleteOption"] == "Delete"
    assert about["storageProfile"]["osDisk"]["diskSizeGB"] == 50
    market = {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": -1}}
    assert {name: about.get(name) for name in market} == (market if spot else dict.fromkeys(market))
    assert len(arm.state.names("networkinterfaces")) == nodes
    for kind in ("virtualmachines", "networkinterfaces", "publicipaddresses"):
        assert {one["jupyter-sky-token"] for one in arm.state.tags(kind)} == {TOKEN}

    driver.remove([one.id for one in made])
    until(lambda: not left(arm))
    assert driver.describe([one.id for one in made]) == []
    assert driver.machines(owner=OWNER) == []
    driver.remove([one.id for one in made])  # it is gone already


def test_one_machine_goes_and_takes_what_is_its_own(arm: Arm, driver: AzureDriver) -> None:
    made = launch(driver, an_order(nodes=2))
    driver.remove([made[1].id])
    until(lambda: len(arm.machines()) == 1)
    assert [one.id for one in driver.machines(token=TOKEN)] == [made[0].id]
    for kind in ("disks", "networkinterfaces", "publicipaddresses"):
        assert len(arm.state.names(kind)) == 1
    driver.remove([made[0].id])
    until(lambda: not left(arm))


def test_ssh_is_let_in_from_where_it_may_come_and_nothing_else(
    arm: Arm, driver: AzureDriver
) -> None:
    launch(driver, an_order(), ssh_from=("203.0.113.0/24", "198.51.100.7/32"))
    (firewall,) = arm.state.all("networksecuritygroups")
    (rule,) = firewall["properties"]["securityRules"]
    about = rule["properties"]
    assert about["sourceAddressPrefixes"] == ["203.0.113.0/24", "198.51.100.7/32"]
    assert (about["destinationPortRange"], about["direction"]) == ("22", "Inbound")
    interface = sent(arm)["properties"]["networkProfile"]["networkInterfaces"][0]
    assert interface["properties"]["deleteOption"] == "Delete"


@pytest.mark.parametrize(
    ("offer", "image", "disk"),
    [
        ({}, "Canonical:ubuntu-24_04-lts:server", 50),
        (
            {"instance_type": "Standard_D2ps_v5", "arch": "arm64"},
            "Canonical:ubuntu-24_04-lts:server-arm64",
            50,
        ),
        (
            {"instance_type": "Standard_NC4as_T4_v3", "gpu": "T4", "gpu_count": 1},
            "microsoft-dsvm:ubuntu-hpc:2404",
            128,
        ),
        (
            {"instance_type": "Standard_ND96isr_MI300X_v5", "gpu": "MI300X", "gpu_count": 8},
            "microsoft-dsvm:ubuntu-hpc:2404-rocm",
            128,
        ),
    ],
)
def test_image_by_what_the_machine_has(
    arm: Arm, driver: AzureDriver, offer: dict[str, Any], image: str, disk: int
) -> None:
    launch(driver, an_order(**offer))
    storage = sent(arm)["properties"]["storageProfile"]
    used = storage["imageReference"]
    assert f"{used['publisher']}:{used['offer']}:{used['sku']}" == image
    assert storage["osDisk"]["diskSizeGB"] == disk


def test_names_fit_whatever_the_token() -> None:
    long = azure_bodies.machine_name("A" * 90 + "-3f2a91c0", 199)
    assert len(long) <= 64
    assert long != azure_bodies.machine_name("A" * 91 + "-3f2a91c0", 199)
    assert azure_bodies.stem("9-lives").startswith("sky-9-lives-")
    assert azure_bodies.rank_of(long) == 199


def test_an_operation_is_looked_at_more_often_than_azure_asks(
    arm: Arm, driver: AzureDriver
) -> None:
    arm.retry_after = "600"  # the SDK by itself would sleep so long, and this test time out
    assert len(launch(driver, an_order())) == 1


def test_nothing_is_made_twice_whatever_answers_get_lost(arm: Arm, driver: AzureDriver) -> None:
    order = an_order(nodes=2)
    for action in ("PUT resourceGroups", "PUT virtualNetworks", "create", "role", "GET operations"):
        arm.lose(action, 9 if action.startswith("GET") else 1)
    for _ in range(9):
        try:
            made = launch(driver, order)
            break
        except Exception as error:
            trouble = explain(error)
            assert trouble is not None and trouble.cause == "transient", repr(error)
    ids = [one.id for one in made]
    assert sorted(one["id"] for one in arm.machines()) == ids
    again = launch(driver, order)
    assert [one.id for one in again] == ids
    assert len(arm.state.names("disks")) == len(arm.state.names("roleassignments")) == 2


def test_requests_that_arrive_twice_make_one_machine(arm: Arm, driver: AzureDriver) -> None:
    for action in ("PUT resourceGroups", "PUT virtualNetworks", "create", "role", "remove"):
        arm.double(action)
    made = launch(driver, an_order())
    assert len(arm.machines()) == len(arm.state.names("roleassignments")) == 1
    driver.remove([one.id for one in made])
    until(lambda: not left(arm))


def test_two_who_send_the_same_order_get_the_same_machines(arm: Arm, driver: AzureDriver) -> None:
    other = AzureDriver(poll=0.02)
    with ThreadPoolExecutor() as both:
        answers = list(both.map(lambda one: launch(one, an_order(nodes=2)), (driver, other)))
    assert answers[0] and [one.id for one in answers[0]] == [one.id for one in answers[1]]
    assert len(arm.machines()) == len(arm.state.names("disks")) == 2


def test_too_many_requests_are_no_refusal(arm: Arm, driver: AzureDriver) -> None:
    arm.throttle("create")
    assert refused(driver, an_order(nodes=2)).cause == "throttled"
    assert arm.groups() == [GROUP]
    assert len(launch(driver, an_order(nodes=2))) == len(arm.machines()) == 2


def test_who_waits_is_told_so_meanwhile(arm: Arm, driver: AzureDriver) -> None:
    arm.slow("create", 0.5)
    ticks: list[int] = []
    order = an_order()
    driver.create(order, a_birth(order), lambda: ticks.append(1))
    assert len(ticks) > 4


def test_a_failure_behind_a_lost_answer_is_found(arm: Arm, driver: AzureDriver) -> None:
    arm.lose("create")
    arm.refuse("AllocationFailed")
    assert refused(driver, an_order()).cause == "transient"
    until(lambda: sent(arm)["properties"]["provisioningState"] == "Failed")
    (seen,) = driver.describe([f"{GROUP}/{TOKEN}-0"])
    assert seen.state == "ended" and "sufficient capacity" in seen.reason
    trouble = refused(driver, an_order())
    assert (trouble.cause, trouble.code) == ("capacity", "AllocationFailed")
    until(lambda: not left(arm))


def test_a_group_that_is_still_going_is_waited_for(arm: Arm, driver: AzureDriver) -> None:
    ids = [one.id for one in launch(driver, an_order())]
    arm.state.boot = 0.3
    driver.remove(ids)
    arm.state.boot = 0.05
    ticks: list[int] = []
    order = an_order()
    driver.create(order, a_birth(order), lambda: ticks.append(1))
    assert len(arm.machines()) == 1 and len(ticks) > 3


def test_who_gives_up_meanwhile_leaves_nothing(arm: Arm, driver: AzureDriver) -> None:
    arm.state.boot = 0.5

    def tick() -> None:
        if arm.state.names("virtualmachines"):
            raise KeyboardInterrupt

    order = an_order(nodes=3)
    with pytest.raises(KeyboardInterrupt):
        driver.create(order, a_birth(order), tick)
    until(lambda: not left(arm))


def test_spot_machine_is_taken_back_with_all_that_was_its(arm: Arm, driver: AzureDriver) -> None:
    made = launch(driver, an_order(nodes=2, spot=True))
    account = driver._use()
    account.compute.virtual_machines.simulate_eviction(GROUP, f"{TOKEN}-1")
    until(lambda: len(arm.machines()) == 1)
    left_over, taken = sorted(driver.describe([one.id for one in made]), key=lambda one: one.rank)
    assert (left_over.state, left_over.preempted) == ("running", False)
    assert (taken.id, taken.state, taken.preempted) == (made[1].id, "ended", True)
    assert (taken.token, taken.owner, taken.rank) == (TOKEN, OWNER, 1)
    assert len(arm.state.names("disks")) == 1
    arm.preempt(made[0].id)
    until(lambda: not arm.machines())
    assert driver.machines(owner=OWNER) == []
    arm.state.boot = 0.3
    driver.remove([made[0].id])
    assert driver.describe([made[0].id]) == []  # the group is going: that was us


def test_a_machine_that_is_off_is_not_forgotten(arm: Arm, driver: AzureDriver) -> None:
    made = launch(driver, an_order())
    sent(arm)["_power"] = "stopped"
    (seen,) = driver.machines(owner=OWNER)
    assert (seen.id, seen.state) == (made[0].id, "running")
    assert seen.reason == "it is stopped, and still costs"


def test_machines_are_found_by_tag_on_all_pages(arm: Arm, driver: AzureDriver) -> None:
    for number in range(5):
        place = {"region": "westeurope"} if number == 4 else {}
        launch(driver, an_order(f"c{number}-00000000", nodes=3 if number == 1 else 1, **place))
    launch(driver, an_order("other-00000000", owner="somebody"))
    assert len(driver.machines(owner=OWNER)) == 7
    assert len(driver.machines(owner=OWNER, regions=["westeurope"])) == 1
    assert len(driver.machines(token="c1-00000000")) == 3
    assert driver.machines(owner="somebody", token="c1-00000000") == []
    assert len(driver.machines()) == 8
    assert driver.machines(owner="nobody' or tagName eq 'x") == []


def test_what_is_left_of_clusters_is_deleted(
    arm: Arm, driver: AzureDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(driver, an_order("in-use-00000000"))
    launch(driver, an_order("other-00000000", owner="somebody"))
    for name in ("empty", "other"):
        made = launch(
            driver,
            an_order(f"{name}-00000000", spot=True, owner=OWNER if name == "empty" else "somebody"),
        )
        arm.preempt(made[0].id)
    until(lambda: len(arm.machines()) == 1)
    assert driver.leftovers(OWNER) == []  # they are young: somebody may be at it
    monkeypatch.setattr("jupyter_sky.clouds.azure.FRESH_SECONDS", -1.0)
    account, order = driver._use(), an_order("theirs-00000000")
    tags = azure_bodies.group_tags(order, a_birth(order), 1.0)
    body = {"location": "eastus", "tags": tags}
    account.resource.resource_groups.create_or_update("payroll", body)
    assert driver.leftovers(OWNER, regions=["westus"]) == []
    gone = driver.leftovers(OWNER)
    assert gone == ["resource group jupyter-sky-empty-00000000 in eastus"]
    until(lambda: len(arm.groups()) == 3)
    assert "payroll" in arm.groups()  # it carries our tags, and is not ours


def test_console_is_read_without_our_credentials(arm: Arm, driver: AzureDriver) -> None:
    (made,) = launch(driver, an_order())
    assert "login:" in driver.console(made.id)
    assert driver.console(f"{GROUP}/nobody-0") == ""


# -- refusals ----------------------------------------------------------------------------------

_OURS = {"CredentialUnavailable", "UnknownTenant", "UntrustedCertificate"}
_ON_THE_WIRE = sorted(code for code in TABLE if code not in _OURS)


@pytest.fixture(scope="module")
def refusing() -> Iterator[tuple[Arm, AzureDriver]]:
    """One Azure for all codes, and a driver that has its clients."""
    with pytest.MonkeyPatch.context() as patch:
        arm = Arm(boot=0.0)
        use(arm.env(), patch)
        driver = AzureDriver(poll=0.01)
        driver.identify()
        yield arm, driver
        arm.close()


@pytest.mark.parametrize("code", _ON_THE_WIRE)
def test_every_code_is_understood_from_the_wire(
    refusing: tuple[Arm, AzureDriver], code: str
) -> None:
    arm, driver = refusing
    if code == "ResourceGroupBeingDeleted":
        action = "PUT virtualNetworks"  # that of a group is waited for
    elif code.startswith("AADSTS"):
        action, driver = "token", AzureDriver(poll=0.01)
    else:
        action = "create" if words(code).later else "PUT resourceGroups"
    arm.refuse(code, action=action)
    trouble = refused(driver, an_order(f"{code}-00000000"))
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
def test_all_or_none(arm: Arm, driver: AzureDriver, code: str) -> None:
    arm.refuse(code)  # one of four
    trouble = refused(driver, an_order(nodes=4))
    assert trouble.code == code and trouble.cause in ("capacity", "quota")
    until(lambda: not left(arm))


def test_a_refusal_goes_before_an_answer_that_was_lost() -> None:
    from azure.core.exceptions import HttpResponseError, ServiceResponseError

    def lost(stop: Stop) -> None:
        raise ServiceResponseError("the connection was closed")

    def refusal(stop: Stop) -> None:
        stop.set.wait(10)  # until the other has failed
        raise HttpResponseError("no capacity")

    def waiting(stop: Stop) -> None:
        stop.sleep(1000)

    with pytest.raises(HttpResponseError, match="no capacity"):
        together([lost, refusal, waiting], 1.0)


def test_refusals_are_of_the_place_that_was_asked(arm: Arm, driver: AzureDriver) -> None:
    arm.refuse("SkuNotAvailable", zone="eastus-1", instance_type=SIZE, spot=True, times=9)
    assert refused(driver, an_order(zone="eastus-1", spot=True)).code == "SkuNotAvailable"
    for number, place in enumerate(({"zone": "eastus-2"}, {"spot": False})):
        asked = {"zone": "eastus-1", "spot": True, **place}
        assert launch(driver, an_order(f"p{number}-00000000", **asked))


@pytest.mark.parametrize(
    ("code", "cores", "width"),
    [
        ("OperationNotAllowed", "LowPriorityCores", "market"),
        ("OperationNotAllowed", "Total Regional", "region"),
        ("QuotaExceeded", "standardNCASv3_T4Family", "family"),
    ],
)
def test_how_much_a_quota_closes(
    arm: Arm, driver: AzureDriver, code: str, cores: str, width: str
) -> None:
    arm.refuse(code, cores=cores)
    trouble = refused(driver, an_order())
    assert (trouble.cause, trouble.width) == ("quota", width)
    assert "quota" in trouble.fix


def test_an_operation_that_is_not_allowed_may_be_no_quota(arm: Arm, driver: AzureDriver) -> None:
    launch(driver, an_order())
    with pytest.raises(Exception, match="cannot be evicted") as caught:
        driver._use().compute.virtual_machines.simulate_eviction(GROUP, f"{TOKEN}-0")
    trouble = driver.explain(caught.value)
    assert trouble is not None and trouble.cause == "invalid"


def test_what_was_asked_wrongly_is_told(arm: Arm, driver: AzureDriver) -> None:
    trouble = refused(driver, an_order(), disk=9000.0)
    assert trouble.cause == "invalid" and "4095 GiB" in trouble.fix
    assert "'9000'" in trouble.message

    arm.state.gone_sizes.add("Standard_NC6")
    trouble = refused(driver, an_order("b-00000000", instance_type="Standard_NC6"))
    assert trouble.cause == "invalid" and "list-skus" in trouble.fix
    assert trouble.message.startswith("The value Standard_NC6 provided for the VM size")

    trouble = refused(driver, an_order("c-00000000", zone="eastus-7"))
    assert (trouble.cause, trouble.code) == ("invalid", "InvalidAvailabilityZone")
    until(lambda: not left(arm))


def test_a_provider_that_is_not_registered(arm: Arm, driver: AzureDriver) -> None:
    arm.unregistered.add("Microsoft.Network")
    trouble = refused(driver, an_order())
    assert trouble.cause == "permission"
    assert trouble.fix == "az provider register --wait --namespace Microsoft.Network"


@pytest.mark.parametrize("status", [200, 407, 503])
def test_a_page_of_a_proxy_is_called_so(arm: Arm, driver: AzureDriver, status: int) -> None:
    driver.identify()
    arm.refuse(f"HTML{status}", action="PUT resourceGroups")
    arm.refuse(f"HTML{status}", action="GET resourceGroups")
    trouble = refused(driver, an_order())
    assert trouble.cause == "transient" and "proxy" in trouble.fix
    assert "<html>" not in trouble.message
    with pytest.raises(Exception) as caught:
        driver.machines(owner=OWNER)
    trouble = driver.explain(caught.value)
    assert trouble is not None and trouble.cause == "transient"


@pytest.mark.parametrize("name", ["AZURE_AUTHORITY_HOST", "AZURE_RESOURCE_MANAGER_URL"])
def test_nobody_answers(arm: Arm, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        monkeypatch.setenv(name, f"https://localhost:{unused.getsockname()[1]}")
        trouble = failure(AzureDriver())
    assert trouble.cause == "transient"
    assert AzureDriver().explain(ValueError("ours")) is None


@pytest.mark.parametrize("name", ["AZURE_AUTHORITY_HOST", "AZURE_RESOURCE_MANAGER_URL"])
def test_a_certificate_that_nobody_here_trusts(
    arm: Arm, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    driver = AzureDriver()
    if name == "AZURE_RESOURCE_MANAGER_URL":
        driver.identify()  # there is a token
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    trouble = failure(driver)
    assert trouble.cause == "permission" and "REQUESTS_CA_BUNDLE" in trouble.fix


# -- who we are --------------------------------------------------------------------------------


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
    driver = AzureDriver()
    with pytest.raises(Exception) as caught:
        driver.identify()
    trouble = driver.explain(caught.value)
    assert trouble is not None
    assert (trouble.cause, trouble.code) == ("permission", code)
    assert fix in trouble.fix
    found = RentedCloud(driver).check()
    assert not found.usable and code in found.found and found.fix == trouble.fix


def test_credentials_that_are_right_and_none(
    arm: Arm, driver: AzureDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = RentedCloud(driver).check()
    assert found.usable and f"service principal {CLIENT}" in found.found
    assert SUBSCRIPTION in found.found
    use(arm.wrong_env("none"), monkeypatch)
    arm.calls.clear()
    assert driver.configured() == ""
    found = RentedCloud(driver).check()
    assert not found.usable and "az login" in found.fix
    assert arm.calls == []
    with pytest.raises(Exception) as caught:
        driver.identify()
    trouble = driver.explain(caught.value)
    assert trouble is not None and trouble.cause == "permission" and "az login" in trouble.fix


def test_a_token_that_got_old(arm: Arm, driver: AzureDriver) -> None:
    driver.identify()
    arm.expire_tokens()
    with pytest.raises(Exception) as caught:
        driver.machines(owner=OWNER)
    trouble = driver.explain(caught.value)
    assert trouble is not None
    assert (trouble.cause, trouble.code) == ("permission", "ExpiredAuthenticationToken")
    assert "clock" in trouble.fix


def test_the_subscription_is_the_only_one_or_what_az_uses(
    arm: Arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_SUBSCRIPTION_ID")
    assert SUBSCRIPTION in AzureDriver().identify()

    arm.state.subscriptions["22222222-0000-4000-8000-000000000000"] = "Another"
    with pytest.raises(SkyPermission, match="2 subscriptions are seen") as caught:
        AzureDriver().identify()
    assert SUBSCRIPTION in (caught.value.hint or "")

    folder = os.environ["AZURE_CONFIG_DIR"]
    user = {"name": "ada@example.org", "type": "user"}
    seen = [{"id": SUBSCRIPTION, "isDefault": True, "user": user}]
    with open(f"{folder}/azureProfile.json", "w", encoding="utf-8-sig") as file:
        json.dump({"subscriptions": seen}, file)
    assert SUBSCRIPTION in AzureDriver().identify()
    monkeypatch.delenv("AZURE_CLIENT_SECRET")
    assert AzureDriver().configured() == "az login as ada@example.org"


def test_a_subscription_that_is_disabled(arm: Arm, driver: AzureDriver) -> None:
    arm.disabled = True
    assert refused(driver, an_order()).code == "ReadOnlyDisabledSubscription"


def test_looking_for_credentials_needs_no_sdk(tmp_path: Any) -> None:
    code = (
        "import sys; from jupyter_sky.clouds.azure import cloud; print(cloud.usable(), "
        "[name for name in sys.modules if name.startswith(('azure.', 'msal'))])"
    )
    env = {k: v for k, v in os.environ.items() if k not in azure_account.VARIABLES}
    env |= {"AZURE_CONFIG_DIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert ran.stdout == "False []\n", ran.stderr


# -- ending itself -----------------------------------------------------------------------------


def test_a_machine_may_delete_its_own_group_and_no_other(arm: Arm, driver: AzureDriver) -> None:
    launch(driver, an_order(nodes=2))
    launch(driver, an_order("other-00000000"))
    principal = sent(arm, 1)["identity"]["principalId"]
    for method in ("GET", "DELETE"):
        assert arm.state.may(principal, f"/subscriptions/{SUBSCRIPTION}/resourcegroups/{GROUP}")
        other = f"/subscriptions/{SUBSCRIPTION}/resourcegroups/jupyter-sky-other-00000000"
        assert not arm.state.may(principal, other), method
    assert len(arm.state.names("roleassignments")) == 3


def test_without_the_right_to_give_roles_machines_come_all_the_same(
    arm: Arm, driver: AzureDriver, caplog: pytest.LogCaptureFixture
) -> None:
    arm.refuse("AuthorizationFailed", action="role", times=9)
    assert len(launch(driver, an_order(nodes=2))) == 2
    assert arm.state.names("roleassignments") == []
    assert "may not delete itself (AuthorizationFailed)" in caplog.text


def test_how_a_machine_ends_itself_is_known_without_asking(arm: Arm, driver: AzureDriver) -> None:
    shell = driver.ending(an_order())
    assert f"{arm.url}/subscriptions/{SUBSCRIPTION}/resourcegroups/{GROUP}?" in shell
    assert arm.calls == []
    checked = subprocess.run(["sh", "-n"], input=shell, text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.slow
@pytest.mark.skipif(not isolation_works(), reason="needs machines with a metadata service")
@pytest.mark.parametrize("allowed", [True, False])
def test_a_machine_ends_itself(monkeypatch: pytest.MonkeyPatch, allowed: bool) -> None:
    with Fleet() as fleet:
        arm = Arm(fleet)
        use(arm.env(), monkeypatch)
        driver, order = AzureDriver(poll=0.1), an_order()
        if not allowed:
            arm.refuse("AuthorizationFailed", action="role")
        ending = driver.ending(order).replace("(1, 5, 20, 0)", "(0.1, 0.5, 1, 2)")
        document = {"runcmd": [["sh", "-c", ending], ["shutdown", "-P", "now"]]}
        (made,) = launch(driver, order, user_data="#cloud-config\n" + json.dumps(document))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if not arm.machines() or arm.machines()[0]["state"] == "stopped":
                break
            time.sleep(0.05)
        if allowed:
            until(lambda: not left(arm))
            until(lambda: not fleet.hosts())
            assert "DELETE resourceGroups" in arm.calls
        else:
            assert "AuthorizationFailed" in driver.console(made.id)
            (seen,) = driver.machines(owner=OWNER)
            assert "still costs" in seen.reason
        arm.close()


# -- the emulator ------------------------------------------------------------------------------


def test_the_emulator_checks_bodies_by_the_models_of_the_sdk(arm: Arm, driver: AzureDriver) -> None:
    order = an_order()
    launch(driver, order)
    machines = driver._use().compute.virtual_machines
    home = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"

    def put(change: Any) -> str:
        body = azure_bodies.virtual_machine(order, a_birth(order), 7, home).as_dict()
        change(body)
        with pytest.raises(Exception) as caught:
            machines.begin_create_or_update(GROUP, "seven", body, polling=False)
        trouble = driver.explain(caught.value)
        assert trouble is not None
        return f"{trouble.code}: {trouble.message}"

    disk = ("properties", "storageProfile", "osDisk")

    def at(body: Any, path: tuple[str, ...]) -> Any:
        for name in path:
            body = body[name]
        return body

    assert "Could not find member 'colour'" in put(lambda b: b.update(colour="red"))
    assert "'createOption' is missing" in put(lambda b: at(b, disk).pop("createOption"))
    assert "not a valid value" in put(lambda b: at(b, disk).update(deleteOption="Perhaps"))
    assert "not of type int" in put(lambda b: at(b, disk).update(diskSizeGB="50"))
    assert "'location' is missing" in put(lambda b: b.pop("location"))
    assert "Eviction policy" in put(lambda b: b["properties"].update(evictionPolicy="Delete"))
    sku = ("properties", "storageProfile", "imageReference")
    assert "CPU Architecture" in put(lambda b: at(b, sku).update(sku="server-arm64"))


@pytest.mark.slow
def test_the_emulator_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.emulators.arm"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    try:
        env = json.loads(process.stdout.readline())
        use(env, monkeypatch)

        def control(name: str, **given: Any) -> Any:
            import ssl

            context = ssl.create_default_context(cafile=env["SSL_CERT_FILE"])
            url = f"{env['AZURE_RESOURCE_MANAGER_URL']}/_sky/{name}"
            asked = urllib.request.Request(url, json.dumps(given).encode(), method="POST")
            with urllib.request.urlopen(asked, context=context) as answer:
                return json.load(answer)

        driver = AzureDriver(poll=0.02)
        control("refuse", code="SkuNotAvailable")
        assert refused(driver, an_order()).code == "SkuNotAvailable"
        launch(driver, an_order("b-00000000"))
        assert [one["state"] for one in control("machines")] == ["running"]
    finally:
        process.stdin.close()
        process.wait(20)
    assert process.returncode == 0


def test_entra_knows_its_words() -> None:
    assert set(ENTRA) <= set(TABLE)
