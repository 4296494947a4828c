"""Kubernetes: what pods do that machines of other clouds do not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyNoCapacity, SkyPermission, SkyUsageError
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds import launchers
from jupyter_sky.clouds.kubernetes import provider
from jupyter_sky.clouds.kubernetes import provider as status
from jupyter_sky.clouds.kubernetes.provider import Kubernetes
from jupyter_sky.clouds.provider import ProviderError
from jupyter_sky.clouds.testing.provider import wait_until
from jupyter_sky.machines.provisioner.placement import decide_placement, usable_providers
from jupyter_sky.machines.provisioner.preview import preview_plan
from jupyter_sky.workflows.pipelines.run import placing
from tests.clouds.kube_world import KubernetesWorld
from tests.clouds.rest_launches import Launches
from tests.emulators import kube_cluster
from tests.emulators.fleet import isolation_works
from tests.emulators.kube_nodes import GPU, make_node

GPU_TAINT = {"key": GPU, "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Launches]:
    with Launches(KubernetesWorld, Kubernetes) as launches:
        yield launches


@pytest.fixture(autouse=True)
def emptied(cluster: Launches, tmp_path, monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(launchers, "_live_offers", {})
    yield from cluster.prepare(tmp_path, monkeypatch)


def _setting(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    monkeypatch.setenv("SKY_PROVIDERS", repr({"kubernetes": settings}))
    Sky.clear_instance()


def test_offers_are_parts_of_what_nodes_have_free(cluster):
    found = {(o.instance_type, o.spot): o for o in cluster.provider.offers()}
    assert ("8cpu-32gib", False) in found and ("9cpu-32gib", False) not in found
    assert ("3cpu-8gib", True) in found and ("4cpu-8gib", True) not in found, "3.9 vCPUs are free"
    offer = found["2cpu-4gib-2x-L4", False]
    assert (offer.gpu, offer.gpu_count, offer.gpu_memory, offer.price) == ("L4", 2, 24.0, 0.0)
    assert {o.region for o in found.values()} == {kube_cluster.CONTEXT}

    everything = replace(cluster.account.request(), offer=found["8cpu-32gib", False])
    cluster.account.launch(everything)
    plain = [o for o in cluster.provider.offers() if not o.spot and not o.gpu]
    assert plain == [], "the only such node is full"


def test_offers_where_pods_of_others_may_not_be_listed(cluster, monkeypatch):
    monkeypatch.setattr(cluster.world.api, "lists_all", False)
    assert any(o.instance_type == "8cpu-32gib" for o in cluster.provider.offers())


def test_price_and_node_selector_are_settings(cluster, monkeypatch):
    _setting(monkeypatch, price="0.03", node_selector="karpenter.sh/capacity-type=spot")
    offers = list(cluster.provider.offers())
    assert offers and all(offer.spot for offer in offers)
    assert max(offer.price for offer in offers) == pytest.approx(0.09)


@pytest.mark.parametrize(
    ("change", "is_taken"),
    [
        ({}, True),
        ({"ready": False}, False),
        ({"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]}, False),
        ({"taints": [{"key": "dedicated", "value": "db", "effect": "PreferNoSchedule"}]}, True),
        ({"taints": [GPU_TAINT]}, False),
        ({"taints": [GPU_TAINT], "gpus": 1, "labels": {"nvidia.com/gpu.product": "L4"}}, True),
        ({"taints": [{"key": "karpenter.sh/capacity-type", "effect": "NoSchedule"}]}, False),
    ],
)
def test_nodes_that_take_no_pods_are_not_offered(change, is_taken):
    assert (provider.read_kind(make_node("a", "4", "8Gi", **change), {}) is not None) is is_taken


def test_cordoned_node_is_not_offered():
    node = make_node("a", "4", "8Gi")
    node["spec"]["unschedulable"] = True
    assert provider.read_kind(node, {}) is None


def test_pod_asks_for_its_limits_and_ends_with_its_lease(cluster):
    (machine,) = cluster.launch(lease=900.0)
    pod = cluster.entry(machine)["pod"]
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "2048Mi"}
    assert 880 < pod["spec"]["activeDeadlineSeconds"] <= 900
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["nodeName"] == "plain", "an on-demand pod stays off spot nodes"


def test_pod_past_its_deadline_is_over_and_swept(cluster):
    (machine,) = cluster.launch(lease=900.0)
    cluster.entry(machine)["created"] -= 1000
    (seen,) = cluster.provider.describe([machine.id])
    assert seen.state == "ended" and "lease" in seen.reason
    assert cluster.provider.machines() == [], "it costs nothing any more"
    assert cluster.provider.sweep(machine.owner, {machine.token}) == []
    assert cluster.provider.sweep(machine.owner, ()) == [f"pod that has ended: {machine.id}"]
    assert cluster.provider.describe([machine.id]) == []


def test_gpu_and_spot_pods_go_where_their_nodes_are(cluster):
    offers = list(cluster.provider.offers())
    for wanted, node in (("gpu", "gpu"), ("spot", "spot")):
        offer = next(o for o in offers if getattr(o, wanted))
        (machine,) = cluster.account.launch(replace(cluster.account.request(), offer=offer))
        assert cluster.entry(machine)["pod"]["spec"]["nodeName"] == node
    limits = [
        e.entry["pod"]["spec"]["containers"][0]["resources"]["limits"]
        for e in cluster.world.api.rented.values()
    ]
    assert {each.get(GPU) for each in limits} >= {"1", None}


def test_spot_nodes_of_several_pools_are_equal_to_a_pod(cluster, monkeypatch):
    label = {"cloud.google.com/gke-spot": "true"}
    taint = {"key": next(iter(label)), "value": "true", "effect": "NoSchedule"}
    other = make_node("other", "8", "32Gi", label, [taint])
    monkeypatch.setattr(cluster.world.api, "nodes", [*cluster.world.api.nodes, other])
    offers = [o for o in cluster.provider.offers() if o.spot and o.vcpus == 4]
    (machine,) = cluster.account.launch(replace(cluster.account.request(), offer=offers[0]))
    assert cluster.entry(machine)["pod"]["spec"]["nodeName"] == "other"


def test_pod_of_a_node_that_is_shut_down_was_taken_back(cluster):
    (machine,) = cluster.launch(spot=True)
    cluster.world.take_back(machine.id)
    (seen,) = cluster.provider.describe([machine.id])
    assert (seen.state, seen.preempted) == ("ended", True)
    assert "imminent node shutdown" in seen.reason


def test_pod_without_memory_says_so():
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    pod = {"status": {"phase": "Failed", "containerStatuses": [{"state": ended}]}}
    assert "more memory than its limit" in status.parse_state(pod).reason


# -- refusals -----------------------------------------------------------------------------------


def test_pod_that_fits_nowhere_is_a_lack_of_capacity_after_some_time(cluster):
    offer = next(o for o in cluster.provider.offers() if o.instance_type == "8cpu-32gib")
    request = replace(cluster.account.request(nodes=2), offer=offer)
    with pytest.raises(SkyNoCapacity, match="1 Insufficient cpu, 1 Insufficient memory") as refused:
        cluster.account.managed.launch(request)
    assert refused.value.cause == "capacity"
    assert cluster.world.bill() == set(), "the pod that had room is gone, too"


@pytest.mark.parametrize("promise", ["TriggeredScaleUp", "Nominated"])
def test_pod_is_waited_for_when_the_cluster_adds_a_node(cluster, monkeypatch, promise):
    monkeypatch.setattr(cluster.world.api, "scales_up", promise)
    cluster.world.refuse("capacity")
    request = cluster.account.request()

    events, asked = cluster.world.api._events, list[str]()

    def answer() -> list:
        """Say that a node comes, and let it come."""
        found = events()
        asked.extend(event["reason"] for event in found)
        for one in cluster.world.api.rented.values():
            if one.entry["phase"] == "Pending":
                one.entry |= {"unscheduled": "", "phase": "Running"}
        return found

    monkeypatch.setattr(cluster.world.api, "_events", answer)
    (machine,) = cluster.account.launch(request)
    assert set(asked) == {promise} and cluster.world.bill() == {machine.id}


def test_image_that_cannot_be_pulled_is_refused_with_what_to_do(cluster):
    request = cluster.account.request()
    resources = replace(request.resources, image="registry.example/no-such:1")
    with pytest.raises(ProviderError, match=r"registry\.example/no-such:1") as refused:
        cluster.account.launch(replace(request, resources=resources))
    trouble = cluster.provider.explain(refused.value)
    assert trouble.cause == "invalid" and "not found" in str(refused.value), "the words of the pull"
    assert "--image" in trouble.fix
    assert cluster.world.bill() == set()


def test_pull_that_succeeds_later_does_not_end_the_launch(cluster, monkeypatch):
    monkeypatch.setattr(cluster.world.api, "failed_pulls", 2)
    (machine,) = cluster.account.launch(cluster.account.request())
    assert cluster.world.bill() == {machine.id}


def test_node_that_does_not_come_is_a_lack_of_capacity(cluster, monkeypatch):
    monkeypatch.setattr(cluster.world.api, "scales_up", "TriggeredScaleUp")
    _setting(monkeypatch, schedule_seconds="1", scale_up_seconds="2")
    cluster.world.refuse("capacity")
    with pytest.raises(ProviderError, match="Insufficient cpu"):
        cluster.account.launch(cluster.account.request())
    assert cluster.world.bill() == set()


def test_pod_that_its_namespace_refuses_says_what_to_change(cluster):
    cluster.world.api.refusals = ["pod security"]
    with pytest.raises(ProviderError, match="violates PodSecurity") as refused:
        cluster.account.launch(cluster.account.request())
    trouble = cluster.provider.explain(refused.value)
    assert trouble.cause == "permission" and "enforces restricted" in trouble.fix
    assert "kubectl label namespace" in trouble.fix and "enforce=baseline" in trouble.fix


@pytest.mark.parametrize(
    ("reason", "age", "state"),
    [
        ("ImagePullBackOff", None, "ended"),
        ("ErrImagePull", None, "starting"),
        ("ImagePullBackOff", 60, "starting"),
        ("ImagePullBackOff", 400, "ended"),
        ("InvalidImageName", 1, "ended"),
    ],
)
def test_pod_without_its_image_has_ended_when_pulls_have_failed_for_long(reason, age, state):
    waiting = {"waiting": {"reason": reason, "message": "back-off"}}
    told = {"phase": "Pending", "containerStatuses": [{"state": waiting}]}
    if age is not None:
        begun = datetime.now(UTC) - timedelta(seconds=age)
        told["startTime"] = begun.strftime("%Y-%m-%dT%H:%M:%SZ")
    found = status.parse_state({"status": told})
    assert found.state == state
    assert found.reason == (f"{reason}: back-off" if state == "ended" else "")


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("quota", "quota"),
        ("permission", "permission"),
        ("gone", "invalid"),
        ("conflict", "transient"),
    ],
)
def test_refusals_of_one_status_are_told_apart(cluster, code, cause):
    cluster.world.api.refusals = [code]
    assert cluster.refusal() == cause


def test_wrong_token_is_a_missing_permission_with_the_way(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(cluster.world.api.kubeconfig(tmp_path, token="old")))
    found = cluster.account.managed.check()
    assert not found.usable and "Unauthorized" in found.found and "kubectl" in found.fix


def test_pod_of_the_same_name_is_our_own(cluster, monkeypatch):
    request = cluster.account.request()
    monkeypatch.setattr(Kubernetes, "machines", lambda *_, **__: [])  # a list that lags behind
    (first,) = cluster.account.launch(request)
    cluster.provider._made.clear()
    (again,) = cluster.account.launch(request)
    assert again.id == first.id and cluster.world.bill() == {first.id}


# -- contexts -----------------------------------------------------------------------------------


def test_missing_kubeconfig_is_told(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    found = cluster.account.managed.check()
    assert not found.usable and found.found == "no kubeconfig" and "kubeconfig" in found.fix
    with pytest.raises(SkyPermission, match="--cloud kubernetes: no kubeconfig"):
        preview_plan(Resources.parse(cloud="kubernetes"))


def test_broken_kubeconfig_and_unknown_context_are_told(cluster, tmp_path, monkeypatch):
    _setting(monkeypatch, contexts="prod")
    found = cluster.account.managed.check()
    assert "has no context prod; it has lab" in found.found and not found.usable
    path = tmp_path / "broken"
    path.write_text("{")
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert str(path) in clouds.check("kubernetes").found


def test_context_that_does_not_answer_leaves_the_others(cluster, tmp_path, monkeypatch, caplog):
    path = cluster.world.api.kubeconfig(tmp_path)
    known = json.loads(path.read_text())
    known["clusters"].append({"name": "away", "cluster": {"server": "https://127.0.0.1:9"}})
    known["contexts"].append({"name": "away", "context": {"cluster": "away", "user": "u"}})
    path.write_text(json.dumps(known))
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert {offer.region for offer in cluster.provider.offers()} == {kube_cluster.CONTEXT}
    assert "context away is left out" in caplog.text
    assert cluster.provider.identify() == "lab (team)"
    (machine,) = cluster.account.managed.launch(cluster.account.request())
    assert [each.id for each in cluster.provider.machines()] == [machine.id]
    cluster.account.managed.terminate([machine.id])
    assert cluster.world.bill() == set()


def test_clusters_are_asked_only_where_they_are_named(cluster):
    assert "kubernetes" not in usable_providers(Resources())
    decision = decide_placement(Resources.parse(cloud="kubernetes", cpus="2", memory="4"))
    assert decision.offer.instance_type == "2cpu-4gib" and decision.price == 0.0
    spot = decide_placement(Resources.parse(cloud="kubernetes", spot=True))
    assert spot.offer.spot
    cluster.world.api.requests.clear()
    assert cluster.account.managed.list_mine(everywhere=True) == []
    assert cluster.world.api.requests == [], "nothing was ever launched there"


def test_missing_client_says_how_it_is_installed(cluster, monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(SkyUsageError, match="its SDK is not installed") as missing:
        cluster.account.managed.list_offers()
    assert missing.value.hint == "pip install 'jupyter_sky[kubernetes]'"


# -- exec ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not isolation_works(), reason="needs root and namespaces")
@pytest.mark.parametrize("protocol", [kube_cluster.V5, kube_cluster.V4])
def test_connection_passes_bytes_and_the_exit_code(cluster, monkeypatch, protocol):
    """Version 5 tells a program that its input has ended; version 4 cannot."""
    monkeypatch.setattr(cluster.world.api, "protocols", [protocol])
    cluster.world.require("ssh")
    (machine,) = cluster.launch()
    host = cluster.world.api.rented[machine.id].host
    assert host.booted(60), host.console()
    program = "/usr/local/sbin/answer"
    text = "#!/bin/sh\nhead -c 200000 | tee /dev/fd/2\nexit 7\n"
    host.root('printf %s "$1" >"$2"; chmod 755 "$2"', text, program)
    (seen,) = cluster.provider.describe([machine.id])
    command = [*seen.through[:-1], program]
    data = bytes(range(256)) * 782  # 200,192 bytes: its end is cut off
    done = subprocess.run(command, input=data, capture_output=True, timeout=60)
    assert (done.stdout, done.stderr) == (data[:200000], data[:200000])
    assert done.returncode == 7
    assert cluster.world.api.requests[-1].endswith(protocol)
    gone = subprocess.run([*command[:-2], "sky-gone-0", "x"], capture_output=True, text=True)
    assert gone.returncode == 1 and "sky-gone-0" in gone.stderr
    assert "Traceback" not in gone.stderr


@pytest.mark.slow
@pytest.mark.skipif(not isolation_works(), reason="needs root and namespaces")
def test_pod_ends_with_its_first_process(cluster):
    cluster.world.require("ssh")
    (machine,) = cluster.launch()
    host = cluster.world.api.rented[machine.id].host
    assert host.booted(60), host.console()

    def has_ended() -> bool:
        with suppress(subprocess.CalledProcessError, psutil.Error, IndexError):  # it has ended
            host.root("pkill -TERM -f '^sh /tmp/sky stay' || true")
        return cluster.provider.describe([machine.id])[0].state == "ended"

    wait_until(has_ended)
    assert "exit code 0" in cluster.provider.describe([machine.id])[0].reason


# -- pipelines ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("other", "is_asked"), [("local", True), ("", False)])
def test_pipeline_takes_pods_where_each_task_names_its_clouds(cluster, other, is_asked):
    needs = [Resources.parse(cloud="kubernetes"), Resources.parse(cloud=other or None)]
    assert ("kubernetes" in placing._usable_providers(needs)) is is_asked
