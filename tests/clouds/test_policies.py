"""Least rights of users: they are what providers ask, as the emulated clouds have heard it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.aws.account import PRICE_ACTIONS, policy_actions, policy_document
from jupyter_sky.clouds.aws.provider import Aws
from jupyter_sky.clouds.azure.provider import ACTIONS, Azure
from jupyter_sky.clouds.gcp.account import PERMISSIONS
from jupyter_sky.clouds.gcp.provider import Gcp
from tests.clouds import azure_requests, gcp_requests
from tests.clouds.aws_cases import (
    account_fixture,
    create,
    ec2_fixture,
    order,
    provider_fixture,
    running,
)
from tests.clouds.azure_fixtures import arm, azure
from tests.clouds.gcp_fixtures import compute, server
from tests.conftest import wait_until
from tests.emulators.arm import Arm
from tests.emulators.arm_state import action_of
from tests.emulators.ec2 import Ec2
from tests.emulators.gce import Compute

__all__ = [
    "account_fixture",
    "arm",
    "azure",
    "compute",
    "ec2_fixture",
    "provider_fixture",
    "server",
]

AWS_UNASKED = {  # by a launch in an account that is as usual
    "ec2:CreateDefaultSubnet",  # where somebody has deleted it
    "ec2:CreateDefaultVpc",
    "ec2:CreateTags",  # with RunInstances and CreateSecurityGroup, not by a request of its own
    "ec2:DeleteNetworkInterface",  # what is left of a machine
    "ec2:DeleteVolume",
    "ec2:DescribeInstanceTypes",  # of offers that say no architecture
    "iam:CreateServiceLinkedRole",  # with the first spot machine of an account
    *PRICE_ACTIONS,
}


def test_policy_of_aws_allows_what_a_launch_asks_and_no_more(ec2: Ec2, provider: Aws) -> None:
    provider.identify()
    (machine,) = running(provider, create(provider, order()))
    provider.machines(owner="me")
    provider.console(machine.id)
    provider.stop([machine.id])
    wait_until(lambda: provider.describe([machine.id])[0].stopped)
    provider.start([machine.id])
    running(provider, [machine])
    provider.terminate([machine.id])
    wait_until(lambda: provider.describe([machine.id])[0].state == "ended")
    provider.sweep("me", [], ["us-east-1"])
    services = {"GetParameter": "ssm", "GetCallerIdentity": "sts"}
    names = {call.split()[0] for call in ec2.calls}
    asked = {f"{services.get(name, 'ec2')}:{name}" for name in names}
    allowed = policy_actions(policy_document())
    assert asked <= allowed, asked - allowed
    assert allowed - asked == AWS_UNASKED, "an action that nothing asks is not allowed"


def test_policy_of_aws_reaches_what_was_made_here_alone() -> None:
    text = Aws().policy()
    compact = json.dumps(json.loads(text), separators=(",", ":"))
    assert len(compact) < 6144, "the longest that IAM takes for a policy of its own"
    for statement in json.loads(text)["Statement"]:
        changes = [a for a in statement["Action"] if re.search("Delete|Terminate|Stop|Start", a)]
        if changes:
            assert statement["Condition"] == {
                "Null": {"aws:ResourceTag/jupyter-sky-token": "false"}
            }, changes
    with_role = policy_document("arn:aws:iam::123456789012:role/ends")
    assert "iam:PassRole" in policy_actions(with_role)
    assert "scheduler:CreateSchedule" in policy_actions(with_role)


GCP_NEEDS = (  # of methods, as Compute Engine's reference lists them
    (r"GET ", "compute.projects.get"),
    (r"GET zones/[^/]+/instances", "compute.instances.list"),
    (r"GET zones/[^/]+/instances/[^/]+", "compute.instances.get"),
    (r"GET zones/[^/]+/instances/[^/]+/serialPort", "compute.instances.getSerialPortOutput"),
    (r"POST zones/[^/]+/instances", "compute.instances.create"),
    (r"POST zones/[^/]+/instances/[^/]+/stop", "compute.instances.stop"),
    (r"POST zones/[^/]+/instances/[^/]+/start", "compute.instances.start"),
    (r"DELETE zones/[^/]+/instances/[^/]+", "compute.instances.delete"),
    (r"GET aggregated/(\w+)", "compute.{0}.list"),
    (r"DELETE zones/[^/]+/disks/[^/]+", "compute.disks.delete"),
    (r"POST global/(networks|firewalls)", "compute.{0}.create"),
    (r"GET global/firewalls", "compute.firewalls.list"),
    (r"DELETE global/firewalls/[^/]+", "compute.firewalls.delete"),
    (r"GET zones/[^/]+/operations", "compute.zoneOperations.list"),
    (r"GET zones/[^/]+/operations/[^/]+", "compute.zoneOperations.get"),
    (r"GET global/operations/[^/]+", "compute.globalOperations.get"),
)
TPU_NEEDS = {  # of methods of the TPU API; queued resources have no permissions of their own
    ("GET", "operations"): "tpu.operations.get",
    ("GET", "nodes"): "tpu.nodes.get",
    ("POST", "nodes"): "tpu.nodes.create",
    ("DELETE", "nodes"): "tpu.nodes.delete",
}
GCP_WITH_INSERT = {  # listed for instances.insert with a body such as ours, and firewalls.insert
    "compute.disks.create",
    "compute.disks.setLabels",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.networks.updatePolicy",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
}
GCP_UNASKED = {
    "compute.acceleratorTypes.list",  # of machines to which GPUs are attached
    "compute.disks.delete",  # what is left of a machine
    "compute.firewalls.delete",  # of several nodes
    "compute.regions.list",  # quotas
}


def _gcp_permission(call: str) -> str:
    for pattern, needed in GCP_NEEDS:
        if found := re.fullmatch(pattern, f"{call} " if call == "GET" else call):
            return needed.format(*found.groups())
    raise AssertionError(call)


def _is_of_compute(call: str) -> bool:
    return "/token" not in call and "/v2/projects/" not in call


def _tpu_permission(call: str) -> str:
    """Return the permission of a request to the TPU API, as the emulator has heard it."""
    method, path = call.split(" ")
    kind, _slash, name = path.partition("/locations/")[2].partition("/")[2].partition("/")
    kind = kind.replace("queuedResources", "nodes")
    return TPU_NEEDS[method, kind] if name or method == "POST" else f"tpu.{kind}.list"


def _use_slices(compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Launch and end slices of TPUs, at once and by a queue; return what the TPU API has heard."""
    of_tpu = {"instance_type": "tpu-v2-8", "gpu": "tpu-v2-8", "gpu_count": 1}
    for number, queue in enumerate(("", "60s")):
        monkeypatch.setattr(Sky.load(), "providers", {"gcp": {"tpu_queue": queue}})
        (vm,) = gcp_requests.create(provider, f"slice-{number}f2a91c0", **of_tpu)
        assert provider.describe([vm.id])
        provider.machines(owner="me")
        provider.terminate([vm.id])
        wait_until(lambda: not compute.tpus.nodes)
    return {_tpu_permission(call) for call in compute.tpus.requests}


def test_role_of_gcp_allows_what_a_launch_asks_and_no_more(
    compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = Gcp()
    provider.identify()
    (machine,) = gcp_requests.create(provider, zone="", region="us-central1")
    provider.console(machine.id)
    provider.stop([machine.id])
    provider.start([machine.id])
    provider.machines(owner="me")
    provider.terminate([machine.id])
    wait_until(lambda: not provider.describe([machine.id]))
    provider.sweep(machine.owner, [])
    of_tpus = _use_slices(compute, provider, monkeypatch)
    assert of_tpus == {permission for permission in PERMISSIONS if permission.startswith("tpu.")}
    asked = of_tpus | {_gcp_permission(call) for call in compute.calls if _is_of_compute(call)}
    asked |= {"compute.instances.get"}  # after a request that was sent twice
    allowed = set(PERMISSIONS)
    assert asked | GCP_WITH_INSERT <= allowed, (asked | GCP_WITH_INSERT) - allowed
    assert allowed - asked - GCP_WITH_INSERT <= GCP_UNASKED, allowed - asked


AZURE_WITH_MACHINE = {  # of resources that the body of a machine makes and names
    "Microsoft.Compute/disks/write",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/publicIPAddresses/write",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.Compute/virtualMachines/instanceView/read",  # $expand=instanceView
}
AZURE_UNASKED = {
    "Microsoft.Compute/locations/usages/read",  # quotas
    "Microsoft.Compute/virtualMachines/delete",  # of one of several machines
    "Microsoft.Network/locations/operations/read",
    "Microsoft.Network/networkSecurityGroups/read",  # after a write that takes time
    "Microsoft.Network/virtualNetworks/read",
}


def _azure_action(method: str, path: str) -> str:
    if path.endswith("/virtualMachinesSubmitDeallocate"):
        return "Microsoft.ComputeSchedule/locations/virtualMachinesSubmitDeallocate/action"
    action = action_of(method, path)
    action = action.replace("/operations/read", "/locations/operations/read")
    return action.replace("subscriptions/subscriptions/read", "subscriptions/read")


def test_role_of_azure_allows_what_a_launch_asks_and_no_more(
    arm: Arm, azure: Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[str] = set()
    permit = arm._permit

    def hear(request: Any, who: str) -> None:
        asked.add(_azure_action(request.method, request.path))
        permit(request, who)

    monkeypatch.setattr(arm, "_permit", hear)
    azure.identify()
    (machine,) = azure_requests.launch(azure, azure_requests.an_order())
    azure.machines(owner=azure_requests.OWNER)
    azure.console(machine.id)
    azure.stop([machine.id])
    wait_until(lambda: azure.describe([machine.id])[0].stopped)
    azure.start([machine.id])
    azure.terminate([machine.id])
    wait_until(lambda: not arm.groups())
    azure.sweep(azure_requests.OWNER, [])
    allowed = {action.lower() for action in ACTIONS}
    heard = {action.lower() for action in (*asked, *AZURE_WITH_MACHINE)}
    assert heard <= allowed, heard - allowed
    assert allowed - heard <= {action.lower() for action in AZURE_UNASKED}, allowed - heard
