"""Surroundings of machines of AWS: network, images, disks, the end of their lease."""

from __future__ import annotations

import dataclasses
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.aws import network
from jupyter_sky.clouds.aws import provider as images
from jupyter_sky.clouds.aws.provider import Aws
from jupyter_sky.clouds.launches.launcher import delete_unused_resources, launch_machines
from tests.clouds.aws_cases import (  # noqa: F401 fixtures
    REGION,
    account_fixture,
    client,
    create,
    described,
    ec2_fixture,
    machine_config,
    order,
    provider_fixture,
    trouble,
    use,
)
from tests.conftest import wait_until
from tests.emulators.ec2 import Ec2

# -- network -----------------------------------------------------------------------------------


def test_a_group_lets_ssh_in_and_the_nodes_of_a_cluster_to_each_other(
    ec2: Ec2, provider: Aws
) -> None:
    nets = ("192.0.2.0/24", "203.0.113.7/32", "2001:db8::/32")
    (alone,) = create(provider, order("alone"))
    pair = create(provider, order("pair", nodes=2), ssh_from=nets)
    groups = {id: described(id)["SecurityGroups"] for id in (alone.id, *(m.id for m in pair))}
    assert all(len(found) == 1 for found in groups.values())
    assert groups[pair[0].id] == groups[pair[1].id] != groups[alone.id]

    def rules(id: str) -> list[dict[str, Any]]:
        asked = client().describe_security_groups(GroupIds=[groups[id][0]["GroupId"]])
        return asked["SecurityGroups"][0]["IpPermissions"]

    (ssh,) = rules(alone.id)
    assert (ssh["IpProtocol"], ssh["FromPort"], ssh["ToPort"]) == ("tcp", 22, 22)
    assert [r["CidrIp"] for r in ssh["IpRanges"]] == ["0.0.0.0/0"]
    found = rules(pair[0].id)
    between = [rule for rule in found if rule["IpProtocol"] == "-1"]
    (own,) = between[0]["UserIdGroupPairs"]
    assert own["GroupId"] == groups[pair[0].id][0]["GroupId"] and len(between) == 1
    ssh_rules = [rule for rule in found if rule["IpProtocol"] == "tcp"]
    let_in = {r["CidrIp"] for rule in ssh_rules for r in rule["IpRanges"]}
    let_in |= {r["CidrIpv6"] for rule in ssh_rules for r in rule.get("Ipv6Ranges", ())}
    assert let_in == set(nets) and {rule["FromPort"] for rule in ssh_rules} == {22}


def test_a_group_is_made_once_however_many_ask(ec2: Ec2, provider: Aws) -> None:
    asked = order(nodes=2)
    provider.terminate([machine.id for machine in create(provider, order("before"))])
    config = machine_config(asked)
    with ThreadPoolExecutor(4) as workers:
        made = list(workers.map(lambda _: launch_machines(provider, asked, config), range(4)))
    assert len({machine.id for machines in made for machine in machines}) == 2
    names = [g["GroupName"] for g in client().describe_security_groups()["SecurityGroups"]]
    assert sorted(names) == ["default", "jupyter-sky-before", "jupyter-sky-train-0a1b2c3d"]
    (group,) = described(made[0][0].id)["SecurityGroups"]
    assert group["GroupName"] == "jupyter-sky-train-0a1b2c3d"


def test_another_place_of_a_region_costs_few_requests(ec2: Ec2, provider: Aws) -> None:
    ec2.refuse("InsufficientInstanceCapacity", times=2)
    for zone in ("us-east-1a", "us-east-1b"):
        ec2.calls.clear()
        assert (
            trouble(provider, lambda zone=zone: create(provider, order(zone=zone))).cause
            == "capacity"
        )
    assert [call.split()[0] for call in ec2.calls] == [
        "CreateSecurityGroup",
        "AuthorizeSecurityGroupIngress",
        "RunInstances",
        "DeleteSecurityGroup",
    ]


def test_a_group_that_cannot_be_deleted_hides_no_refusal(ec2: Ec2, provider: Aws) -> None:
    ec2.refuse("InsufficientInstanceCapacity")
    ec2.refuse("UnauthorizedOperation", action="DeleteSecurityGroup")
    assert trouble(provider, lambda: create(provider, order())).cause == "capacity"
    assert "DeleteSecurityGroup us-east-1" in ec2.calls


def test_a_default_vpc_that_was_deleted_is_made_again(ec2: Ec2, provider: Aws) -> None:
    ask = client()
    (vpc,) = ask.describe_vpcs()["Vpcs"]
    for each in ask.describe_subnets()["Subnets"]:
        ask.delete_subnet(SubnetId=each["SubnetId"])
    ask.delete_vpc(VpcId=vpc["VpcId"])
    (made,) = create(provider, order())
    (home,) = ask.describe_vpcs()["Vpcs"]
    assert home["IsDefault"] and described(made.id)["VpcId"] == home["VpcId"] != vpc["VpcId"]


def test_new_resources_are_waited_for(ec2: Ec2, provider: Aws) -> None:
    ec2.refuse("InvalidGroup.NotFound", times=2)
    ec2.refuse("MissingInput", zone="us-east-1d")
    assert len(create(provider, order("a-1"))) == len(
        create(provider, order("a-2", zone="us-east-1d"))
    )
    assert "CreateDefaultSubnet us-east-1" in ec2.calls
    assert len(ec2.machines()) == 2


def test_nothing_is_left_over(ec2: Ec2, provider: Aws) -> None:
    ask = client()
    mine = machine_config(order("gone")).tags
    tags = [{"Key": name, "Value": value} for name, value in mine.items()]
    spec = {"ResourceType": "volume", "Tags": tags}
    made = ask.create_volume(AvailabilityZone="us-east-1a", Size=9, TagSpecifications=[spec])
    ask.create_volume(AvailabilityZone="us-east-1a", Size=10)  # somebody's
    (alive,) = create(provider, order("alive"))
    ended = create(provider, order("ended", nodes=2))
    provider.terminate([machine.id for machine in ended])
    wait_until(lambda: described(ended[0].id)["State"]["Name"] == "terminated")
    assert delete_unused_resources(provider, "bob", [REGION]) == []
    told = delete_unused_resources(provider, "me", [REGION])
    assert f"disk {made['VolumeId']} in us-east-1" in told
    assert len(told) == 2 and any(text.startswith("security group sg-") for text in told)
    groups = {g["GroupName"] for g in ask.describe_security_groups()["SecurityGroups"]}
    assert groups == {"default", "jupyter-sky-alive"}
    sizes = {each["Size"] for each in ask.describe_volumes()["Volumes"]}
    assert sizes == {10, 50}, "what is not ours stays, and what a machine uses"
    provider.terminate([alive.id])
    delete_unused_resources(
        provider, "me", [REGION]
    )  # the machine is ending: its group is still in use
    wait_until(lambda: described(alive.id)["State"]["Name"] == "terminated")
    delete_unused_resources(provider, "me", [REGION])
    groups = {g["GroupName"] for g in ask.describe_security_groups()["SecurityGroups"]}
    assert groups == {"default"}


def test_the_group_of_a_launch_under_way_is_left_alone(ec2: Ec2, provider: Aws) -> None:
    asked = order("young")
    network.ensure_security_group(client(), asked, machine_config(asked))
    assert delete_unused_resources(provider, "me", [REGION]) == []
    (group,) = (g for g in client().describe_security_groups()["SecurityGroups"] if g.get("Tags"))
    long_ago = {"Key": "jupyter-sky-made", "Value": str(int(time.time() - 3600))}
    client().create_tags(Resources=[group["GroupId"]], Tags=[long_ago])
    assert len(delete_unused_resources(provider, "me", [REGION])) == 1


# -- images and disks --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "arch", "gpu", "image", "gib"),
    [
        ("m5.large", "x86_64", None, "ami-0a64", 50),
        ("m6g.large", "arm64", None, "ami-0b64", 50),
        ("m6g.large", "", None, "ami-0b64", 50),
        ("g5.xlarge", "x86_64", "A10G", "ami-0c64", 75),
        ("g5g.xlarge", "arm64", "T4g", "ami-0d64", 75),
        ("p3.2xlarge", "x86_64", "V100", "ami-0e64", 75),
    ],
)
@pytest.mark.parametrize("readable", [True, False])
def test_images_fit_the_machine(
    ec2: Ec2,
    provider: Aws,
    kind: str,
    arch: str,
    gpu: str,
    image: str,
    gib: int,
    readable: bool,
) -> None:
    if not readable:  # the account may not read public parameters
        ec2.refuse("AccessDeniedException", action="image")
    offer = order(instance_type=kind, arch=arch, gpu=gpu, gpu_count=1 if gpu else 0).offer
    found = images.find_image(provider._client, offer)
    assert (found.id, found.root, max(found.gib, 50)) == (image, "/dev/sda1", gib)


def test_an_image_that_is_gone_is_looked_up_again(ec2: Ec2, provider: Aws) -> None:
    create(provider, order("a-1"))
    ec2.refuse("InvalidAMIID.NotFound")
    assert trouble(provider, lambda: create(provider, order("a-2"))).cause == "invalid"
    ec2.calls.clear()
    create(provider, order("a-2"))
    assert "GetParameter us-east-1" in ec2.calls


def test_images_of_chips_that_need_no_driver_of_nvidia() -> None:
    assert "neuron" in images.select_source("x86_64", "Trainium1").parameter
    plain = images.select_source("x86_64").parameter
    assert plain == images.select_source("x86_64", "RadeonProV520").parameter
    assert plain == images.select_source("x86_64", "of-my-own").parameter


def test_a_gpu_machine_has_a_disk_that_its_image_fits_on(ec2: Ec2, provider: Aws) -> None:
    asked = order(instance_type="g5.xlarge", gpu="A10G", gpu_count=1)
    (made,) = create(provider, asked, disk=50)
    id = described(made.id)["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    assert client().describe_volumes(VolumeIds=[id])["Volumes"][0]["Size"] == 75


def test_request_without_gpu_gets_the_plain_image(ec2: Ec2, provider: Aws) -> None:
    asked = order(instance_type="g5.xlarge", gpu="A10G", gpu_count=1)
    (made,) = create(provider, dataclasses.replace(asked, resources=Resources()), disk=50)
    id = described(made.id)["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    assert client().describe_volumes(VolumeIds=[id])["Volumes"][0]["Size"] == 50


# -- the end of the lease ----------------------------------------------------------------------

ROLE = "arn:aws:iam::123456789012:role/ends-machines"


def test_eventbridge_ends_machines_whose_lease_is_over(
    ec2: Ec2, provider: Aws, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SKY_PROVIDERS_AWS_SCHEDULER_ROLE", ROLE)
    Sky.clear_instance()
    asked = order(nodes=2)
    config = machine_config(asked)
    made = launch_machines(provider, asked, config)
    launch_machines(provider, asked, config)  # sent again: one schedule all the same
    (plan,) = client("scheduler").list_schedules()["Schedules"]
    assert not caplog.records
    plan = client("scheduler").get_schedule(Name=plan["Name"])
    assert plan["ActionAfterCompletion"] == "DELETE" and plan["Target"]["RoleArn"] == ROLE
    assert plan["Target"]["Arn"] == "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"
    ids = [machine.id.partition("/")[2] for machine in made]
    assert sorted(json.loads(plan["Target"]["Input"])["InstanceIds"]) == sorted(ids)
    ec2.expire(config.lease_end - 1)
    assert len(ec2.machines()) == 2
    ec2.expire(config.lease_end + 1)
    assert ec2.machines() == [] == client("scheduler").list_schedules()["Schedules"]


def test_schedules_are_carried_out_when_their_time_has_come(
    ec2: Ec2, provider: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKY_PROVIDERS_AWS_SCHEDULER_ROLE", ROLE)
    Sky.clear_instance()
    ec2.account.minute = 0.005  # so that the hour of the lease takes 0.3 s
    create(provider, order())
    assert len(ec2.machines()) == 1
    wait_until(lambda: ec2.machines() == [])


def test_schedules_go_with_what_is_left_over(
    ec2: Ec2, provider: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKY_PROVIDERS_AWS_SCHEDULER_ROLE", ROLE)
    Sky.clear_instance()
    (made,) = create(provider, order())
    provider.terminate([made.id])
    wait_until(lambda: described(made.id)["State"]["Name"] == "terminated")
    assert len(client("scheduler").list_schedules()["Schedules"]) == 1
    delete_unused_resources(provider, "me", [REGION])
    assert client("scheduler").list_schedules()["Schedules"] == []


def test_a_schedule_that_is_refused_is_told_and_stops_nothing(
    ec2: Ec2, provider: Aws, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create(provider, order("plain"))
    assert not any(call.startswith("CreateSchedule") for call in ec2.calls), "no role, none asked"
    monkeypatch.setenv("SKY_PROVIDERS_AWS_SCHEDULER_ROLE", ROLE)
    Sky.clear_instance()
    ec2.refuse("AccessDeniedException", action="schedule")
    assert len(create(provider, order())) == 1
    assert "EventBridge will not end it" in caplog.text
