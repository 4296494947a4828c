"""TPU VMs of Google Cloud: single hosts, slices of several, and how they end."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds import launch_obstacle, power_off_note
from jupyter_sky.clouds.gcp import instances
from jupyter_sky.clouds.gcp.provider import Gcp
from jupyter_sky.clouds.launches import lease_watch
from jupyter_sky.clouds.launches.launcher import launch_machines
from jupyter_sky.clouds.provider import ProviderError
from jupyter_sky.clouds.provider.parallel_requests import StopRequested
from jupyter_sky.clouds.provider.values import Machine
from jupyter_sky.knowledge.catalog import load
from tests.clouds.gcp_requests import OWNER, ZONE, create, machine_config, order, trouble_of, until
from tests.emulators.gce import Compute
from tests.emulators.tpu import NO_CAPACITY, NO_QUOTA

pytest_plugins = ["tests.clouds.gcp_fixtures"]
V2: dict[str, Any] = {"instance_type": "tpu-v2-8", "gpu": "tpu-v2-8", "gpu_count": 1}
FOUR: dict[str, Any] = {"instance_type": "tpu-v2-32", "gpu": "tpu-v2-32", "gpu_count": 1}


def queue(patch: pytest.MonkeyPatch, seconds: str = "60s") -> None:
    patch.setattr(Sky.load(), "providers", {"gcp": {"tpu_queue": seconds}})


def node_of(compute: Compute) -> dict[str, Any]:
    (node,) = compute.tpus.nodes.values()
    return node


def ids(machines: list[Machine]) -> list[str]:
    return [machine.id for machine in machines]


def test_one_host_is_a_node_with_its_script(compute: Compute, provider: Gcp) -> None:
    config = machine_config(script="echo here\n")
    (machine,) = launch_machines(provider, order(**V2), config)
    node = node_of(compute)
    assert machine.id == f"{ZONE}/train-3f2a91c0-0/0" and machine.address.startswith("192.0.2.")
    assert (machine.token, machine.owner, machine.state) == ("train-3f2a91c0", OWNER, "running")
    assert (node["acceleratorType"], node["runtimeVersion"]) == ("v2-8", "tpu-ubuntu2204-base")
    assert node["metadata"]["startup-script"] == "echo here\n"
    assert node["metadata"]["ssh-keys"] == "sky:ssh-ed25519 AAAA sky"
    assert "schedulingConfig" not in node and node["networkConfig"]["network"] == "jupyter-sky"
    assert provider.console(machine.id) == "", "Compute Engine knows no machine of this name"


def test_each_network_endpoint_is_a_machine(compute: Compute, provider: Gcp) -> None:
    machines = create(provider, **FOUR, spot=True)
    assert [machine.rank for machine in machines] == [0, 1, 2, 3]
    assert len({machine.address for machine in machines}) == 4 and len(compute.tpus.nodes) == 1
    assert node_of(compute)["schedulingConfig"] == {"spot": True}
    assert "train-3f2a91c0" in compute.world.firewalls, "they reach each other"
    provider.terminate([machines[2].id])
    until(lambda: compute.tpus.billed() == [])


def test_two_slices_have_ranks_in_a_row(compute: Compute, provider: Gcp) -> None:
    machines = create(provider, **FOUR, nodes=2)
    assert [machine.rank for machine in machines] == list(range(8))
    assert len(compute.tpus.billed()) == 2


def test_same_request_finds_its_slice(compute: Compute, provider: Gcp) -> None:
    compute.tpus.lost.append("POST")
    assert trouble_of(lambda: create(provider, **V2)).cause == "transient"
    first, second = create(provider, **V2), create(provider, **V2)
    assert ids(first) == ids(second) and len(compute.tpus.nodes) == 1
    created = [each for each in compute.tpus.requests if each.startswith("POST")]
    assert len(created) == 3, "the second and third are answered by 409"


def test_name_of_another_request_is_refused(compute: Compute, provider: Gcp) -> None:
    create(provider, **V2)
    node_of(compute)["metadata"]["jupyter-sky-token"] = "other-00000000"
    assert trouble_of(lambda: create(provider, **V2)).cause == "invalid"


@pytest.mark.parametrize(
    ("status", "words", "cause"),
    [
        (429, NO_QUOTA, "quota"),
        (
            429,
            "Quota exceeded for quota metric 'Requests' and limit 'Requests per minute'",
            "throttled",
        ),
        (403, "Permission 'tpu.nodes.create' denied", "permission"),
        (400, "Invalid value", "invalid"),
        (503, "The service is currently unavailable.", "transient"),
    ],
)
def test_refusal_is_classified(
    compute: Compute, provider: Gcp, status: int, words: str, cause: str
) -> None:
    compute.tpus.refusals.append((status, words))
    trouble = trouble_of(lambda: create(provider, **V2))
    assert trouble.cause == cause and trouble.message == words
    assert compute.tpus.billed() == []


@pytest.mark.parametrize(
    ("code", "words", "cause", "scope"),
    [
        (8, NO_CAPACITY, "capacity", "zone"),
        (8, NO_QUOTA, "quota", "region"),
        (7, "Permission denied", "permission", "region"),
        (13, "Internal error", "transient", "zone"),
    ],
)
def test_operation_that_fails_leaves_nothing(
    compute: Compute, provider: Gcp, code: int, words: str, cause: str, scope: str
) -> None:
    compute.tpus.failures.append((code, words))
    trouble = trouble_of(lambda: create(provider, **FOUR, nodes=2))
    assert (trouble.cause, trouble.scope, trouble.message) == (cause, scope, words)
    if cause != "transient":
        until(lambda: compute.tpus.billed() == [])


def test_preempted_slice_stays_until_it_is_deleted(compute: Compute, provider: Gcp) -> None:
    machines = create(provider, **FOUR, spot=True)
    compute.tpus.preempt("train-3f2a91c0-0")
    seen = provider.describe(ids(machines))
    assert [(each.state, each.preempted) for each in seen] == [("ended", True)] * 4
    listed = provider.machines(owner=OWNER)
    assert ids(listed) == ids(machines), "it holds quota"
    provider.terminate(ids(machines))
    until(lambda: compute.tpus.billed() == [])
    assert provider.describe(ids(machines)) == [] and provider.machines() == []


def test_lists_have_pages_and_other_machines(compute: Compute, provider: Gcp) -> None:
    compute.tpus.page = 1
    for token in ("a-00000001", "b-00000002"):
        create(provider, token, **V2)
    (virtual,) = create(provider, "c-00000003")
    assert {each.token for each in provider.machines()} == {
        "a-00000001",
        "b-00000002",
        "c-00000003",
    }
    assert ids(provider.machines(token="c-00000003")) == [virtual.id]
    assert provider.machines(regions=["us-east1"]) == provider.machines(owner="eve") == []


def test_zone_that_does_not_answer_is_not_taken_for_empty(compute: Compute, provider: Gcp) -> None:
    compute.tpus.unreachable.append(f"projects/sky-test/locations/{ZONE}")
    assert trouble_of(lambda: provider.machines()).cause == "transient"


def test_unknown_slice_is_no_error(compute: Compute, provider: Gcp) -> None:
    (machine,) = create(provider, **V2)
    provider.terminate([f"{ZONE}/gone-00000000-0/0", machine.id, machine.id])
    until(lambda: compute.tpus.billed() == [])
    provider.terminate([machine.id])


def test_launch_that_is_given_up_leaves_nothing(compute: Compute, provider: Gcp) -> None:
    stop = Event()
    stop.set()
    with pytest.raises(StopRequested):
        provider.launch(order(**V2), machine_config(), stop)
    until(lambda: compute.tpus.billed() == [])


# -- queued resources ---------------------------------------------------------------------------


def test_queued_slice_is_waited_for_and_deleted_with_its_queue(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(monkeypatch)
    machines = create(provider, **FOUR, spot=True)
    assert len(machines) == 4
    (queued,) = compute.tpus.queued.values()
    assert queued["queueingPolicy"] == {"validUntilDuration": "60s"} and queued["spot"] == {}
    assert ids(create(provider, **FOUR, spot=True)) == ids(machines), "by the same requestId"
    provider.terminate(ids(machines))
    until(lambda: not compute.tpus.queued and not compute.tpus.nodes)


def test_queued_request_that_fails_is_deleted(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(monkeypatch)
    compute.tpus.failures.append((8, NO_CAPACITY))
    trouble = trouble_of(lambda: create(provider, **V2))
    assert (trouble.cause, trouble.message) == ("capacity", NO_CAPACITY)
    until(lambda: not compute.tpus.queued)


def test_slice_may_wait_in_the_queue_longer_than_it_takes_to_start(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(monkeypatch)
    compute.tpus.boot = 0.3
    monkeypatch.setattr("jupyter_sky.clouds.gcp.tpu.OPERATION_SECONDS", 0.0)
    assert len(create(provider, **V2)) == 1


def test_request_in_the_queue_is_listed_and_ended(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after its process was killed: it would cost once it is served."""
    queue(monkeypatch)
    compute.tpus.boot = 60.0  # longer than the test takes
    monkeypatch.setattr("jupyter_sky.clouds.gcp.tpu._await_ready", lambda *_: None)
    create(provider, **FOUR)
    listed = provider.machines(owner=OWNER)
    assert [each.state for each in listed] == ["starting"] * 4 and not compute.tpus.nodes
    assert ids(provider.describe(ids(listed))) == ids(listed)
    compute.tpus.boot = 0.05
    provider.terminate(ids(listed))
    until(lambda: not compute.tpus.queued)
    assert compute.tpus.billed() == []


# -- machine types of Compute Engine, and what is known before ----------------------------------


@pytest.mark.parametrize(
    ("slice_", "machine"),
    [("tpu-v5p-8", "ct5p-hightpu-4t"), ("tpu-v6e-1", "ct6e-standard-1t")],
)
def test_newer_single_hosts_are_machine_types(slice_: str, machine: str) -> None:
    request = order(instance_type=slice_, gpu=slice_, gpu_count=1)
    body = instances.instance_body(request, machine_config(), ZONE, 0)
    assert body.machine_type.endswith(f"/{machine}") and not body.guest_accelerators
    assert body.scheduling.on_host_maintenance == "TERMINATE"
    assert body.scheduling.max_run_duration.seconds == 3 * 86400
    assert "tpu" in body.disks[0].initialize_params.source_image


def test_tpu_offers_have_the_size_of_a_vm() -> None:
    need = Resources.parse(gpus="tpu-v3-8", cpus=4)
    offers = load().filter(need).offers()
    assert offers and {(offer.vcpus, offer.memory) for offer in offers} == {(96, 334)}
    assert all(not need.unmet_labels(offer) for offer in offers)
    assert not len(load().filter(replace(need, cpus=Resources.parse(cpus=97).cpus)))
    plain = load().filter(cloud="gcp", cpus=96).offers()
    assert not [offer for offer in plain if (offer.gpu or "").startswith("tpu")]


def test_slice_can_be_launched_and_is_watched() -> None:
    offer = Offer("gcp", "us-central1", "tpu-v3-8", 96, 334, gpu="tpu-v3-8")
    assert launch_obstacle(offer) == ""
    assert lease_watch.needs_watch("gcp", "tpu-v3-8")
    assert not lease_watch.needs_watch("gcp", "n2-standard-2")
    assert "in full" in power_off_note("gcp", "tpu-v3-8") and power_off_note("gcp") == ""


def test_slice_deletes_itself_by_its_path(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sky.load(), "providers", {"gcp": {"service_account": "default"}})
    shell = provider.self_delete_script(order(**V2))
    assert f'"{compute.url}/v2/projects/"' in shell
    assert subprocess.run(["sh", "-n"], input=shell, text=True).returncode == 0
    compile(shell.partition("\n")[2].rpartition("\nEOF")[0], "ending", "exec")
    create(provider, **V2)
    assert node_of(compute)["metadata"]["jupyter-sky-path"] == "nodes/train-3f2a91c0-0"


def test_slice_without_a_zone_is_refused(compute: Compute, provider: Gcp) -> None:
    with pytest.raises(ProviderError, match="needs a zone"):
        create(provider, **V2, zone=None)
