"""The network of machines of Google Cloud, who may reach them, and what is left behind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from jupyter_sky.clouds.gcp import instances as machine
from jupyter_sky.clouds.gcp.provider import Gcp
from jupyter_sky.clouds.launches.launcher import delete_unused_resources, launch_machines
from tests.clouds.gcp_requests import (
    OWNER,
    ZONE,
    create,
    instance,
    machine_config,
    order,
    trouble_of,
)
from tests.emulators.gce import Compute

pytest_plugins = ["tests.clouds.gcp_fixtures"]


def test_port_22_and_the_nodes_of_one_cluster_are_all_that_is_open(
    compute: Compute, provider: Gcp
) -> None:
    two, one = create(provider, "two-00000001", nodes=2), create(provider, "one-00000001")
    rules = {name: dict(rule) for name, rule in compute.world.firewalls.items()}
    assert set(rules) == {machine.ssh_rule_name(machine_config()), "two-00000001"}
    ssh = rules[machine.ssh_rule_name(machine_config())]
    assert ssh["sourceRanges"] == ["0.0.0.0/0"]
    assert ssh["allowed"] == [{"IPProtocol": "tcp", "ports": ["22"]}]
    inside = compute.world.ingress(instance(compute, two[0].id))
    assert ("0.0.0.0/0", 22) in inside
    assert {rule for rule in inside if rule[1] == 0} == {(f"{m.private}/32", 0) for m in two}
    assert compute.world.ingress(instance(compute, one[0].id)) == [("0.0.0.0/0", 22)]
    narrow = machine_config("far-00000001", ssh_from=("203.0.113.0/24", "198.51.100.7/32"))
    far = launch_machines(provider, order("far-00000001"), narrow)
    assert compute.world.ingress(instance(compute, far[0].id)) == [
        ("203.0.113.0/24", 22),
        ("198.51.100.7/32", 22),
    ]
    provider.terminate([m.id for m in two])
    assert "two-00000001" not in compute.world.firewalls


def test_many_notebooks_at_once_make_one_network(compute: Compute) -> None:
    compute.world.boot = 0.2
    tokens = [f"nb-{number:08x}" for number in range(6)]
    with ThreadPoolExecutor(6) as workers:
        made = list(workers.map(lambda token: create(Gcp(), token, nodes=2), tokens))
    assert sum(map(len, made)) == 12 == len(compute.machines())
    assert list(compute.world.networks) == ["jupyter-sky"]
    assert len(compute.world.firewalls) == 7


def test_a_network_whose_making_was_interrupted_is_finished(
    compute: Compute, provider: Gcp
) -> None:
    compute.lose("network")
    assert trouble_of(lambda: create(provider)).cause == "transient"
    assert create(provider)


def test_leftovers_are_found_once_they_are_old(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create(provider, nodes=2)
    for disk in compute.world.disks:
        compute.world.instances[disk]["disks"][0]["autoDelete"] = False
    compute.world._gone((ZONE, "train-3f2a91c0-0"))
    assert delete_unused_resources(provider, OWNER) == []  # young: it may be about to be used
    monkeypatch.setattr("jupyter_sky.clouds.gcp.provider.LAUNCH_GRACE_SECONDS", -60.0)
    assert delete_unused_resources(provider, "bob-1234abcd") == []
    assert delete_unused_resources(provider, OWNER, ["europe-west4"]) == []
    assert delete_unused_resources(provider, OWNER) == [f"disk {made[0].id}"]
    compute.world._gone((ZONE, "train-3f2a91c0-1"))
    found = delete_unused_resources(provider, OWNER)
    assert found == [f"disk {made[1].id}", "firewall rule train-3f2a91c0"]
    assert compute.world.disks == {} and delete_unused_resources(provider, OWNER) == []
