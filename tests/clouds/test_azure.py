"""Azure: machines by the real SDK over HTTPS, against an Azure of our own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from jupyter_sky.clouds.azure import machine_roles, requests
from jupyter_sky.clouds.azure.driver import Azure
from jupyter_sky.clouds.azure.errors import TABLE
from jupyter_sky.clouds.azure.machine_roles import MARGIN_SECONDS
from jupyter_sky.clouds.base import LaunchRequest
from jupyter_sky.clouds.operations import delete_unused_resources, launch_machines
from jupyter_sky.clouds.self_delete import RETRY_DELAYS
from jupyter_sky.provider.naming import parse_rank
from tests.clouds.azure_requests import (
    GROUP,
    OWNER,
    TOKEN,
    a_machine_config,
    an_azure,
    an_order,
    launch,
    left,
    refused,
    sent,
    until,
    use,
)
from tests.clouds.launched_machine import needs_isolation
from tests.emulators.arm import SUBSCRIPTION, Arm
from tests.emulators.arm_errors import ENTRA
from tests.emulators.arm_state import action_of
from tests.emulators.fleet import Fleet


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Arm]:
    yield from an_azure(monkeypatch)


@pytest.fixture
def driver(arm: Arm) -> Azure:
    return Azure(poll=0.02)


# -- life --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "spot"), [(1, False), (4, True)])
def test_machines_come_and_go(arm: Arm, driver: Azure, nodes: int, spot: bool) -> None:
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

    driver.terminate([one.id for one in made])
    until(lambda: not left(arm))
    assert driver.describe([one.id for one in made]) == []
    assert driver.machines(owner=OWNER) == []
    driver.terminate([one.id for one in made])  # it is gone already


def test_one_machine_goes_and_takes_what_is_its_own(arm: Arm, driver: Azure) -> None:
    made = launch(driver, an_order(nodes=2))
    driver.terminate([made[1].id])
    until(lambda: len(arm.machines()) == 1)
    assert [one.id for one in driver.machines(token=TOKEN)] == [made[0].id]
    for kind in ("disks", "networkinterfaces", "publicipaddresses"):
        assert len(arm.state.names(kind)) == 1
    driver.terminate([made[0].id])
    until(lambda: not left(arm))


def test_ssh_is_let_in_from_where_it_may_come_and_nothing_else(arm: Arm, driver: Azure) -> None:
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
    arm: Arm, driver: Azure, offer: dict[str, Any], image: str, disk: int
) -> None:
    launch(driver, an_order(**offer))
    storage = sent(arm)["properties"]["storageProfile"]
    used = storage["imageReference"]
    assert f"{used['publisher']}:{used['offer']}:{used['sku']}" == image
    assert storage["osDisk"]["diskSizeGB"] == disk


def test_names_fit_whatever_the_token() -> None:
    long = requests.machine_name("A" * 90 + "-3f2a91c0", 199)
    assert len(long) <= 64
    assert long != requests.machine_name("A" * 91 + "-3f2a91c0", 199)
    assert requests.resource_prefix("9-lives").startswith("sky-9-lives-")
    assert parse_rank(long) == 199


def test_an_operation_is_looked_at_more_often_than_azure_asks(arm: Arm, driver: Azure) -> None:
    arm.retry_after = "600"  # the SDK by itself would sleep so long, and this test time out
    assert len(launch(driver, an_order())) == 1


def test_nothing_is_made_twice_whatever_answers_get_lost(arm: Arm, driver: Azure) -> None:
    order = an_order(nodes=2)
    for action in ("PUT resourceGroups", "PUT virtualNetworks", "create", "role", "GET operations"):
        arm.lose(action, 9 if action.startswith("GET") else 1)
    for _ in range(9):
        try:
            made = launch(driver, order)
            break
        except Exception as error:
            trouble = driver.explain(error)
            assert trouble is not None and trouble.cause == "transient", repr(error)
    ids = [one.id for one in made]
    assert sorted(one["id"] for one in arm.machines()) == ids
    again = launch(driver, order)
    assert [one.id for one in again] == ids
    assert len(arm.state.names("disks")) == len(arm.state.names("roleassignments")) == 2


def test_requests_that_arrive_twice_make_one_machine(arm: Arm, driver: Azure) -> None:
    for action in ("PUT resourceGroups", "PUT virtualNetworks", "create", "role", "remove"):
        arm.double(action)
    made = launch(driver, an_order())
    assert len(arm.machines()) == len(arm.state.names("roleassignments")) == 1
    driver.terminate([one.id for one in made])
    until(lambda: not left(arm))


def test_two_who_send_the_same_order_get_the_same_machines(arm: Arm, driver: Azure) -> None:
    other = Azure(poll=0.02)
    with ThreadPoolExecutor() as both:
        answers = list(both.map(lambda one: launch(one, an_order(nodes=2)), (driver, other)))
    assert answers[0] and [one.id for one in answers[0]] == [one.id for one in answers[1]]
    assert len(arm.machines()) == len(arm.state.names("disks")) == 2


def test_too_many_requests_are_no_refusal(arm: Arm, driver: Azure) -> None:
    arm.throttle("create")
    assert refused(driver, an_order(nodes=2)).cause == "throttled"
    assert arm.groups() == [GROUP]
    assert len(launch(driver, an_order(nodes=2))) == len(arm.machines()) == 2


def test_who_waits_is_told_so_meanwhile(arm: Arm, driver: Azure) -> None:
    arm.slow("create", 0.5)
    ticks: list[int] = []
    order = an_order()
    launch_machines(driver, order, a_machine_config(order), lambda: ticks.append(1))
    assert len(ticks) > 4


def test_a_failure_behind_a_lost_answer_is_found(arm: Arm, driver: Azure) -> None:
    arm.lose("create")
    arm.refuse("AllocationFailed")
    assert refused(driver, an_order()).cause == "transient"
    until(lambda: sent(arm)["properties"]["provisioningState"] == "Failed")
    (seen,) = driver.describe([f"{GROUP}/{TOKEN}-0"])
    assert seen.state == "ended" and "sufficient capacity" in seen.reason
    trouble = refused(driver, an_order())
    assert (trouble.cause, trouble.code) == ("capacity", "AllocationFailed")
    until(lambda: not left(arm))


def test_a_group_that_is_still_going_is_waited_for(arm: Arm, driver: Azure) -> None:
    ids = [one.id for one in launch(driver, an_order())]
    arm.state.boot = 0.6
    driver.terminate(ids)
    arm.state.boot = 0.05
    ticks: list[int] = []
    order = an_order()
    launch_machines(driver, order, a_machine_config(order), lambda: ticks.append(1))
    assert len(arm.machines()) == 1 and len(ticks) > 3


def test_who_gives_up_meanwhile_leaves_nothing(arm: Arm, driver: Azure) -> None:
    arm.state.boot = 0.5

    def tick() -> None:
        if arm.state.names("virtualmachines"):
            raise KeyboardInterrupt

    order = an_order(nodes=3)
    with pytest.raises(KeyboardInterrupt):
        launch_machines(driver, order, a_machine_config(order), tick)
    until(lambda: not left(arm))


def test_spot_machine_is_taken_back_with_all_that_was_its(arm: Arm, driver: Azure) -> None:
    made = launch(driver, an_order(nodes=2, spot=True))
    account = driver._current_account()
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
    driver.terminate([made[0].id])
    assert driver.describe([made[0].id]) == []  # the group is going: that was us


def test_a_machine_that_is_off_is_not_forgotten(arm: Arm, driver: Azure) -> None:
    made = launch(driver, an_order())
    sent(arm)["_power"] = "stopped"
    (seen,) = driver.machines(owner=OWNER)
    assert (seen.id, seen.state) == (made[0].id, "running")
    assert seen.reason == "it is stopped, and still costs"


def test_machines_are_found_by_tag_on_all_pages(arm: Arm, driver: Azure) -> None:
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
    arm: Arm, driver: Azure, monkeypatch: pytest.MonkeyPatch
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
    assert delete_unused_resources(driver, OWNER) == []  # they are young: somebody may be at it
    monkeypatch.setattr("jupyter_sky.clouds.azure.driver.LAUNCH_GRACE_SECONDS", -1.0)
    account, order = driver._current_account(), an_order("theirs-00000000")
    tags = requests.group_tags(order, a_machine_config(order), 1.0)
    body = {"location": "eastus", "tags": tags}
    account.resource.resource_groups.create_or_update("payroll", body)
    assert delete_unused_resources(driver, OWNER, regions=["westus"]) == []
    gone = delete_unused_resources(driver, OWNER)
    assert gone == ["resource group jupyter-sky-empty-00000000 in eastus"]
    until(lambda: len(arm.groups()) == 3)
    assert "payroll" in arm.groups()  # it carries our tags, and is not ours


def test_console_is_read_without_our_credentials(arm: Arm, driver: Azure) -> None:
    (made,) = launch(driver, an_order())
    assert "login:" in driver.console(made.id)
    assert driver.console(f"{GROUP}/nobody-0") == ""


# -- ending itself -----------------------------------------------------------------------------


def test_a_machine_may_delete_its_own_group_and_no_other(arm: Arm, driver: Azure) -> None:
    launch(driver, an_order(nodes=2))
    launch(driver, an_order("other-00000000"))
    principal = sent(arm, 1)["identity"]["principalId"]
    mine = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
    other = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/jupyter-sky-other-00000000"
    machine = "/providers/Microsoft.Compute/virtualMachines/m"
    may = partial(_may, arm, principal)
    assert may("DELETE", mine) and may("DELETE", mine + machine)
    assert not may("DELETE", other) and not may("DELETE", other + machine)
    for method in ("GET", "PUT", "POST"):
        assert not may(method, mine) and not may(method, mine + machine), method
    assert len(arm.state.names("roleassignments")) == 3
    assert len(arm.state.names("roledefinitions")) == 1
    assert arm.calls.count("PUT roleDefinitions") == 1


def _may(arm: Arm, who: str, method: str, path: str) -> bool:
    return arm.state.may(who, path, action_of(method, path))


@pytest.mark.parametrize("how", ["refused", "not known yet"])
def test_without_a_role_of_our_own_machines_get_contributor_of_their_group(
    arm: Arm, driver: Azure, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    if how == "refused":
        arm.refuse("AuthorizationFailed", action="define", times=9)
    arm.state.roles_lag = how != "refused"
    launch(driver, an_order())
    principal = sent(arm)["identity"]["principalId"]
    assert _may(arm, principal, "DELETE", f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}")
    assert ("they get Contributor" in caplog.text) == (how == "refused")


def test_azure_deallocates_at_the_end_of_a_lease(arm: Arm, driver: Azure) -> None:
    ends = time.time() + 3 * 86400
    launch(driver, an_order(nodes=2), lease_end=ends)
    whens = list(arm.state.schedules.values())
    assert len(whens) == 2 and all(0 <= when - ends - MARGIN_SECONDS + 1 <= 1 for when in whens)


@pytest.mark.parametrize("how", ["refused", "past", "unregistered"])
def test_without_a_timer_of_azure_machines_come_all_the_same(
    arm: Arm, driver: Azure, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    if how == "refused":
        arm.refuse("AuthorizationFailed", action="schedule")
    if how == "unregistered":
        arm.unregistered.add("Microsoft.ComputeSchedule")
    ends = 1000.0 if how == "past" else time.time() + 100
    assert len(launch(driver, an_order(), lease_end=ends)) == 1
    assert arm.state.schedules == {}
    (warning,) = caplog.messages
    assert "az provider register -n Microsoft.ComputeSchedule" in warning


def test_an_identity_may_come_after_the_answer(arm: Arm, driver: Azure) -> None:
    arm.state.late_identity = True
    launch(driver, an_order(nodes=2))
    assert len(arm.state.names("roleassignments")) == 2


def test_without_the_right_to_give_roles_machines_come_all_the_same(
    arm: Arm, driver: Azure, caplog: pytest.LogCaptureFixture
) -> None:
    arm.refuse("AuthorizationFailed", action="role", times=9)
    assert len(launch(driver, an_order(nodes=2))) == 2
    assert arm.state.names("roleassignments") == []
    assert "may not delete itself (AuthorizationFailed)" in caplog.text


def test_how_a_machine_ends_itself_is_known_without_asking(arm: Arm, driver: Azure) -> None:
    shell = driver.self_delete_script(an_order())
    assert f"{arm.url}/subscriptions/{SUBSCRIPTION}/resourcegroups/{GROUP}" in shell
    assert arm.calls == []
    checked = subprocess.run(["sh", "-n"], input=shell, text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Iterator[Arm]:
    """An Azure with real machines."""
    with Fleet() as fleet:
        arm = Arm(fleet)
        use(arm.env(), monkeypatch)
        yield arm
        arm.close()


def end_at(driver: Azure, order: LaunchRequest, rank: int) -> str:
    """A document by which a machine of a rank ends as it starts."""
    ending = driver.self_delete_script(order).replace(repr(RETRY_DELAYS), "(0.1, 0.1, 0.1, 0.1)")
    script = f"case $(hostname) in *-{rank}) ;; *) exit;; esac\nsleep 2\n{ending}\nshutdown -P now"
    return "#cloud-config\n" + json.dumps({"runcmd": [["sh", "-c", script]]})


@needs_isolation
@pytest.mark.slow
def test_the_head_ends_the_whole_cluster(real: Arm) -> None:
    driver, order = Azure(poll=0.1), an_order(nodes=2)
    launch(driver, order, user_data=end_at(driver, order, 0))
    until(lambda: not left(real))
    until(lambda: not real.fleet.hosts())
    assert "DELETE resourceGroups" in real.calls


@needs_isolation
@pytest.mark.slow
def test_another_node_ends_itself_alone(real: Arm) -> None:
    driver, order = Azure(poll=0.1), an_order(nodes=2)
    made = launch(driver, order, user_data=end_at(driver, order, 1))
    until(lambda: len(real.machines()) == 1)
    assert [one.id for one in driver.machines(owner=OWNER)] == [made[0].id]
    until(lambda: len(real.state.names("disks")) == len(real.fleet.hosts()) == 1)
    assert "DELETE resourceGroups" not in real.calls


@needs_isolation
@pytest.mark.slow
def test_machine_without_the_right_stays_up_until_azure_deallocates_it(
    real: Arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_roles, "MARGIN_SECONDS", 0.0)
    driver, order = Azure(poll=0.1), an_order()
    real.refuse("AuthorizationFailed", action="role", times=9)
    ends = time.time() + 12
    (made,) = launch(driver, order, user_data=end_at(driver, order, 0), lease_end=ends)
    until(lambda: driver.console(made.id).count("AuthorizationFailed") > 5)
    assert real.machines()[0]["state"] == "running", "off, it would be billed and tried no more"
    until(lambda: real.machines()[0]["state"] == "deallocated")
    assert time.time() >= ends - 1


@needs_isolation
@pytest.mark.slow
def test_machine_deletes_itself_after_long_trouble(real: Arm) -> None:
    driver, order = Azure(poll=0.1), an_order()
    real.refuse("InternalServerError", action="remove", times=12)
    launch(driver, order, user_data=end_at(driver, order, 0))
    until(lambda: not real.machines())
    assert real.calls.count("DELETE resourceGroups") == 13


@needs_isolation
@pytest.mark.slow
def test_machine_deletes_itself_though_our_credentials_are_revoked(real: Arm) -> None:
    driver, order = Azure(poll=0.1), an_order()
    real.refuse("AuthorizationFailed", action="remove", times=1000)
    (made,) = launch(driver, order, user_data=end_at(driver, order, 0))
    with pytest.raises(Exception, match="AuthorizationFailed"):
        driver.terminate([made.id])
    until(lambda: not real.machines())


# -- the emulator ------------------------------------------------------------------------------


def test_the_emulator_checks_bodies_by_the_models_of_the_sdk(arm: Arm, driver: Azure) -> None:
    order = an_order()
    launch(driver, order)
    machines = driver._current_account().compute.virtual_machines
    home = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"

    def put(change: Any) -> str:
        body = requests.virtual_machine(order, a_machine_config(order), 7, home)
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

        driver = Azure(poll=0.02)
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
