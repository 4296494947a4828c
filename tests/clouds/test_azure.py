"""Azure: machines by the real SDK over HTTPS, against an Azure of our own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jupyter_sky.clouds.azure import requests
from jupyter_sky.clouds.azure.provider import Azure
from jupyter_sky.clouds.launches.launcher import delete_unused_resources, launch_machines
from jupyter_sky.clouds.provider.naming import parse_rank
from tests.clouds.azure_requests import (
    GROUP,
    OWNER,
    TOKEN,
    a_machine_config,
    an_order,
    launch,
    left,
    refused,
    sent,
    until,
)
from tests.emulators.arm import Arm

pytest_plugins = ["tests.clouds.azure_fixtures"]


@pytest.mark.parametrize(("nodes", "spot"), [(1, False), (4, True)])
def test_machines_come_and_go(arm: Arm, azure: Azure, nodes: int, spot: bool) -> None:
    made = launch(azure, an_order(nodes=nodes, spot=spot, zone="eastus-2"))
    assert [one.id for one in made] == [f"{GROUP}/{TOKEN}-{rank}" for rank in range(nodes)]
    assert [one.rank for one in made] == list(range(nodes))

    seen = sorted(azure.describe([one.id for one in made]), key=lambda one: one.rank)
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

    azure.terminate([one.id for one in made])
    until(lambda: not left(arm))
    assert azure.describe([one.id for one in made]) == []
    assert azure.machines(owner=OWNER) == []
    azure.terminate([one.id for one in made])  # it is gone already


def test_ended_machine_takes_its_own_resources(arm: Arm, azure: Azure) -> None:
    made = launch(azure, an_order(nodes=2))
    azure.terminate([made[1].id])
    until(lambda: len(arm.machines()) == 1)
    assert [one.id for one in azure.machines(token=TOKEN)] == [made[0].id]
    for kind in ("disks", "networkinterfaces", "publicipaddresses"):
        assert len(arm.state.names(kind)) == 1
    azure.terminate([made[0].id])
    until(lambda: not left(arm))


def test_firewall_admits_ssh_from_allowed_addresses_only(arm: Arm, azure: Azure) -> None:
    launch(azure, an_order(), ssh_from=("203.0.113.0/24", "198.51.100.7/32"))
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
def test_image_fits_the_architecture_and_accelerator(
    arm: Arm, azure: Azure, offer: dict[str, Any], image: str, disk: int
) -> None:
    launch(azure, an_order(**offer))
    storage = sent(arm)["properties"]["storageProfile"]
    used = storage["imageReference"]
    assert f"{used['publisher']}:{used['offer']}:{used['sku']}" == image
    assert storage["osDisk"]["diskSizeGB"] == disk


def test_resource_names_fit_for_any_token() -> None:
    long = requests.machine_name("A" * 90 + "-3f2a91c0", 199)
    assert len(long) <= 64
    assert long != requests.machine_name("A" * 91 + "-3f2a91c0", 199)
    assert requests.resource_prefix("9-lives").startswith("sky-9-lives-")
    assert parse_rank(long) == 199


def test_operation_is_polled_more_often_than_azure_asks(arm: Arm, azure: Azure) -> None:
    arm.retry_after = "600"  # the SDK by itself would sleep so long, and this test time out
    assert len(launch(azure, an_order())) == 1


def test_lost_answers_make_nothing_twice(arm: Arm, azure: Azure) -> None:
    order = an_order(nodes=2)
    for action in ("PUT resourceGroups", "PUT virtualNetworks", "create", "role", "GET operations"):
        arm.lose(action, 9 if action.startswith("GET") else 1)
    for _ in range(9):
        try:
            made = launch(azure, order)
            break
        except Exception as error:
            trouble = azure.explain(error)
            assert trouble is not None and trouble.cause == "transient", repr(error)
    ids = [one.id for one in made]
    assert sorted(one["id"] for one in arm.machines()) == ids
    again = launch(azure, order)
    assert [one.id for one in again] == ids
    assert len(arm.state.names("disks")) == len(arm.state.names("roleassignments")) == 2


def test_requests_that_arrive_twice_make_one_machine(arm: Arm, azure: Azure) -> None:
    for action in ("PUT resourceGroups", "PUT virtualNetworks", "create", "role", "remove"):
        arm.double(action)
    made = launch(azure, an_order())
    assert len(arm.machines()) == len(arm.state.names("roleassignments")) == 1
    azure.terminate([one.id for one in made])
    until(lambda: not left(arm))


def test_equal_requests_get_the_same_machines(arm: Arm, azure: Azure) -> None:
    other = Azure(poll=0.02)
    with ThreadPoolExecutor() as both:
        answers = list(both.map(lambda one: launch(one, an_order(nodes=2)), (azure, other)))
    assert answers[0] and [one.id for one in answers[0]] == [one.id for one in answers[1]]
    assert len(arm.machines()) == len(arm.state.names("disks")) == 2


def test_too_many_requests_are_no_refusal(arm: Arm, azure: Azure) -> None:
    arm.throttle("create")
    assert refused(azure, an_order(nodes=2)).cause == "throttled"
    assert arm.groups() == [GROUP]
    assert len(launch(azure, an_order(nodes=2))) == len(arm.machines()) == 2


def test_slow_launch_calls_back_while_it_waits(arm: Arm, azure: Azure) -> None:
    arm.slow("create", 0.5)
    ticks: list[int] = []
    order = an_order()
    launch_machines(azure, order, a_machine_config(order), lambda: ticks.append(1))
    assert len(ticks) > 4


def test_a_failure_behind_a_lost_answer_is_found(arm: Arm, azure: Azure) -> None:
    arm.lose("create")
    arm.refuse("AllocationFailed")
    assert refused(azure, an_order()).cause == "transient"
    until(lambda: sent(arm)["properties"]["provisioningState"] == "Failed")
    (seen,) = azure.describe([f"{GROUP}/{TOKEN}-0"])
    assert seen.state == "ended" and "sufficient capacity" in seen.reason
    trouble = refused(azure, an_order())
    assert (trouble.cause, trouble.code) == ("capacity", "AllocationFailed")
    until(lambda: not left(arm))


def test_a_group_that_is_still_going_is_waited_for(arm: Arm, azure: Azure) -> None:
    ids = [one.id for one in launch(azure, an_order())]
    arm.state.boot = 0.6
    azure.terminate(ids)
    arm.state.boot = 0.05
    ticks: list[int] = []
    order = an_order()
    launch_machines(azure, order, a_machine_config(order), lambda: ticks.append(1))
    assert len(arm.machines()) == 1 and len(ticks) > 3


def test_cancelled_launch_leaves_nothing(arm: Arm, azure: Azure) -> None:
    arm.state.boot = 0.5

    def tick() -> None:
        if arm.state.names("virtualmachines"):
            raise KeyboardInterrupt

    order = an_order(nodes=3)
    with pytest.raises(KeyboardInterrupt):
        launch_machines(azure, order, a_machine_config(order), tick)
    until(lambda: not left(arm))


def test_preempted_machine_loses_its_own_resources(arm: Arm, azure: Azure) -> None:
    made = launch(azure, an_order(nodes=2, spot=True))
    account = azure._current_account()
    account.compute.virtual_machines.simulate_eviction(GROUP, f"{TOKEN}-1")
    until(lambda: len(arm.machines()) == 1)
    left_over, taken = sorted(azure.describe([one.id for one in made]), key=lambda one: one.rank)
    assert (left_over.state, left_over.preempted) == ("running", False)
    assert (taken.id, taken.state, taken.preempted) == (made[1].id, "ended", True)
    assert (taken.token, taken.owner, taken.rank) == (TOKEN, OWNER, 1)
    assert len(arm.state.names("disks")) == 1
    arm.preempt(made[0].id)
    until(lambda: not arm.machines())
    assert azure.machines(owner=OWNER) == []
    arm.state.boot = 0.3
    azure.terminate([made[0].id])
    assert azure.describe([made[0].id]) == []  # the group is going: that was us


def test_a_machine_that_is_off_is_not_forgotten(arm: Arm, azure: Azure) -> None:
    made = launch(azure, an_order())
    sent(arm)["_power"] = "stopped"
    (seen,) = azure.machines(owner=OWNER)
    assert (seen.id, seen.state) == (made[0].id, "running")
    assert seen.reason == "it is stopped, and still costs"


def test_machines_are_found_by_tag_on_all_pages(arm: Arm, azure: Azure) -> None:
    for number in range(5):
        place = {"region": "westeurope"} if number == 4 else {}
        launch(azure, an_order(f"c{number}-00000000", nodes=3 if number == 1 else 1, **place))
    launch(azure, an_order("other-00000000", owner="somebody"))
    assert len(azure.machines(owner=OWNER)) == 7
    assert len(azure.machines(owner=OWNER, regions=["westeurope"])) == 1
    assert len(azure.machines(token="c1-00000000")) == 3
    assert azure.machines(owner="somebody", token="c1-00000000") == []
    assert len(azure.machines()) == 8
    assert azure.machines(owner="nobody' or tagName eq 'x") == []


def test_leftovers_of_clusters_are_deleted(
    arm: Arm, azure: Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(azure, an_order("in-use-00000000"))
    launch(azure, an_order("other-00000000", owner="somebody"))
    for name in ("empty", "other"):
        made = launch(
            azure,
            an_order(f"{name}-00000000", spot=True, owner=OWNER if name == "empty" else "somebody"),
        )
        arm.preempt(made[0].id)
    until(lambda: len(arm.machines()) == 1)
    assert delete_unused_resources(azure, OWNER) == []  # they are young: somebody may be at it
    monkeypatch.setattr("jupyter_sky.clouds.azure.provider.LAUNCH_GRACE_SECONDS", -1.0)
    account, order = azure._current_account(), an_order("theirs-00000000")
    tags = requests.group_tags(order, a_machine_config(order), 1.0)
    body = {"location": "eastus", "tags": tags}
    account.resource.resource_groups.create_or_update("payroll", body)
    assert delete_unused_resources(azure, OWNER, regions=["westus"]) == []
    gone = delete_unused_resources(azure, OWNER)
    assert gone == ["resource group jupyter-sky-empty-00000000 in eastus"]
    until(lambda: len(arm.groups()) == 3)
    assert "payroll" in arm.groups()  # it carries our tags, and is not ours


def test_console_is_read_without_our_credentials(arm: Arm, azure: Azure) -> None:
    (made,) = launch(azure, an_order())
    assert "login:" in azure.console(made.id)
    assert azure.console(f"{GROUP}/nobody-0") == ""
