"""The `aws` cloud: boto3 against an account of AWS on loopback, over HTTPS."""

from __future__ import annotations

import dataclasses
import json
import os
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

import botocore.exceptions
import botocore.session
import pytest

from jupyter_sky import ssh
from jupyter_sky.clouds import aws_access, aws_images, aws_network
from jupyter_sky.clouds import birth as births
from jupyter_sky.clouds.aws import AwsDriver
from jupyter_sky.clouds.aws_errors import TABLE
from jupyter_sky.clouds.base import TAGS, Birth, Launch, Machine, Trouble, patient
from jupyter_sky.config import Sky
from jupyter_sky.errors import SkyUnreachable
from jupyter_sky.offers import Offer
from jupyter_sky.resources import Resources
from tests.conftest import wait_until
from tests.emulators.ec2 import Ec2
from tests.emulators.ec2_account import REGIONS
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import loopback

REGION = "us-east-1"
HERE = {"cloud": "aws", "region": REGION, "instance_type": "m5.large", "arch": "x86_64"}


@pytest.fixture(scope="module")
def account() -> Iterator[Ec2]:
    made = Ec2()
    yield made
    made.close()


@pytest.fixture
def ec2(account: Ec2, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Ec2]:
    """A new account, and an environment that leads to it alone."""
    account.reset()
    use(monkeypatch, account.env())
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    yield account
    Sky.clear_instance()


@pytest.fixture(scope="module")
def driver() -> Iterator[AwsDriver]:
    """One for all tests; sessions share what they have read of AWS's models, which takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", cache(botocore.session.create_loader))
        yield AwsDriver()


def use(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)


def order(token: str = "train-0a1b2c3d", nodes: int = 1, **offer: Any) -> Launch:
    at = Offer(vcpus=2, memory=8, **HERE | offer)
    return Launch(token, "train", at, Resources(nodes=nodes), 600, "me", "a.ipynb", 3600)


def birth(asked: Launch, **changes: Any) -> Birth:
    ends = int(time.time()) + asked.lease
    words = (asked.owner, asked.cluster, asked.token, asked.notebook, f"{ends:.0f}")
    tags = dict(zip(TAGS, words, strict=True))
    made = Birth("sky", "ssh-ed25519 AAAA", "#cloud-config\n{}", 50, ends, tags)
    return dataclasses.replace(made, **changes)


def create(driver: AwsDriver, asked: Launch, **changes: Any) -> list[Machine]:
    return driver.create(asked, birth(asked, **changes), patient)


def trouble(driver: AwsDriver, request: Callable[[], object]) -> Trouble:
    """What an error that boto3 really raises is read as."""
    with pytest.raises(Exception) as caught:
        request()
    found = driver.explain(caught.value)
    assert found is not None, repr(caught.value)
    return found


def client(service: str = "ec2", region: str = REGION) -> Any:
    import boto3

    return boto3.client(service, region_name=region)


def described(id: str) -> dict[str, Any]:
    """A machine in boto3's own words."""
    region, _, name = id.partition("/")
    answer = client(region=region).describe_instances(InstanceIds=[name])
    return answer["Reservations"][0]["Instances"][0]


def running(driver: AwsDriver, machines: list[Machine]) -> list[Machine]:
    ids = [machine.id for machine in machines]
    wait_until(lambda: {m.state for m in driver.describe(ids)} == {"running"})
    return sorted(driver.describe(ids), key=lambda machine: machine.rank)


# -- life of machines --------------------------------------------------------------------------


@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize("nodes", [1, 4])
def test_machines_are_made_together_described_and_removed(
    ec2: Ec2, driver: AwsDriver, nodes: int, spot: bool
) -> None:
    asked = order(nodes=nodes, spot=spot, zone="us-east-1b")
    made = create(driver, asked)
    assert [machine.rank for machine in made] == list(range(nodes))
    assert {machine.state for machine in made} == {"starting"}
    assert not any(machine.address for machine in made), "an address comes when it runs"
    up = running(driver, made)
    assert len({machine.address for machine in up}) == nodes
    assert all(machine.private for machine in up)
    truth = ec2.machines()
    assert {m["id"] for m in truth} == {machine.id for machine in up}
    assert {(m["zone"], m["spot"]) for m in truth} == {("us-east-1b", spot)}
    assert ec2.calls.count("RunInstances us-east-1") == 1, "all or nothing is one request"
    ids = [machine.id for machine in up]
    driver.remove(ids)
    ended = driver.describe(ids)
    assert {machine.state for machine in ended} == {"ended"}
    assert {machine.reason for machine in ended} == {"it was terminated on request"}
    assert all(abs(machine.ended - time.time()) < 60 for machine in ended if machine.ended)
    assert driver.machines(token=asked.token, regions=[REGION]) == [] == ec2.machines()
    driver.remove(ids)  # once more is no error


def test_what_machines_are_born_with(ec2: Ec2, driver: AwsDriver) -> None:
    asked = order(spot=True)
    (made,) = create(driver, asked, disk=123.4)
    (up,) = running(driver, [made])
    found = described(up.id)
    assert found["MetadataOptions"]["HttpTokens"] == "required"
    assert found["InstanceLifecycle"] == "spot"
    assert "KeyName" not in found and "IamInstanceProfile" not in found
    assert found["ImageId"] == "ami-0a64", "the latest Ubuntu, not that of a month before"
    (disk,) = found["BlockDeviceMappings"]
    assert disk["DeviceName"] == found["RootDeviceName"] and disk["Ebs"]["DeleteOnTermination"]
    ask, name = client(), up.id.partition("/")[2]
    (volume,) = ask.describe_volumes(VolumeIds=[disk["Ebs"]["VolumeId"]])["Volumes"]
    assert volume["Size"] == 124 and volume["VolumeType"] == "gp3"
    behaviour = ask.describe_instance_attribute(
        InstanceId=name, Attribute="instanceInitiatedShutdownBehavior"
    )
    assert behaviour["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
    words = birth(asked).tags
    for thing in (found, volume):
        tags = {tag["Key"]: tag["Value"] for tag in thing["Tags"]}
        assert tags.items() >= {k: v for k, v in words.items() if k != TAGS[4]}.items()
    driver.remove([up.id])
    assert ask.describe_volumes()["Volumes"] == [], "the disk goes with the machine"


def test_tags_come_back_as_they_were(ec2: Ec2, driver: AwsDriver) -> None:
    asked = dataclasses.replace(
        order("a.b-1_2"), owner="ann@host-1", notebook="Übung, №1 (neu) <x>.ipynb" + "y" * 300
    )
    made = birth(asked)
    driver.create(asked, made, patient)
    (found,) = driver.machines(owner="ann@host-1", regions=[REGION])
    assert (found.owner, found.token, found.cluster) == ("ann@host-1", "a.b-1_2", "train")
    assert found.lease_end == made.lease_end and found.cloud == "aws"
    (truth,) = ec2.machines()
    notebook = truth["tags"][TAGS[3]]
    assert notebook.startswith("Übung_ _1 _neu_ _x_.ipynb") and len(notebook) == 256
    assert driver.machines(owner="bob", regions=[REGION]) == []
    assert driver.machines(token="a.b-1_3", regions=[REGION]) == []


def test_machines_are_found_over_many_regions_and_pages(ec2: Ec2, driver: AwsDriver) -> None:
    ec2.account.page = 2
    ec2.account.closed |= {
        r for r in REGIONS if r.startswith(("ca", "sa", "us-w", "ap-n", "ap-southeast"))
    }
    made = [
        machine.id
        for region in (REGION, "eu-west-1", "ap-south-1")
        for number in range(3)
        for machine in create(driver, order(f"t-{region}-{number}", region=region))
    ]
    ec2.calls.clear()
    found = driver.machines(owner="me")
    assert sorted(machine.id for machine in found) == sorted(made)
    asked = {call.split()[1] for call in ec2.calls if call.startswith("DescribeInstances")}
    assert len(asked) == 8, "all regions of the account, and none that it has not enabled"
    assert ec2.calls.count("DescribeInstances eu-west-1") == 2, "two pages"
    assert {m.id for m in driver.describe(made)} == set(made)
    driver.remove(made)
    assert ec2.machines() == []


def test_machines_that_are_not_known_are_left_out_and_keep_no_other_alive(
    ec2: Ec2, driver: AwsDriver
) -> None:
    (made,) = create(driver, order())
    nobody = f"{REGION}/i-0123456789abcdef0"
    assert [m.id for m in driver.describe([nobody, made.id])] == [made.id]
    driver.remove([nobody, made.id])
    assert ec2.machines() == []
    driver.remove([nobody])


def test_how_machines_end(ec2: Ec2, driver: AwsDriver) -> None:
    taken, off = create(driver, order("a-1", nodes=2, spot=True))
    running(driver, [taken, off])
    ec2.preempt(taken.id)
    ec2.power_off(off.id)
    found = {m.id: m for m in driver.describe([taken.id, off.id])}
    assert found[taken.id].preempted and "spot" in found[taken.id].reason
    assert not found[off.id].preempted
    assert found[off.id].reason == "the machine powered itself off"
    assert ec2.machines() == [], "powering off ends it, disk and all"


def test_machines_that_are_stopped_have_not_ended(ec2: Ec2, driver: AwsDriver) -> None:
    (made,) = create(driver, order())
    running(driver, [made])
    client().stop_instances(InstanceIds=[made.id.partition("/")[2]])
    (found,) = driver.machines(owner="me", regions=[REGION])
    assert found.state == "running" and "stopped" in found.reason


def test_the_console_is_read(ec2: Ec2, driver: AwsDriver) -> None:
    (made,) = create(driver, order())
    assert "kernel" in driver.console(made.id) or driver.console(made.id)


# -- once only ---------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_lost_answer_never_makes_a_second_machine(
    ec2: Ec2, driver: AwsDriver, nodes: int
) -> None:
    asked = order(nodes=nodes)
    born = birth(asked)
    ec2.lose("create", 2)
    for _ in range(2):
        assert trouble(driver, lambda: driver.create(asked, born, patient)).cause == "transient"
    made = driver.create(asked, born, patient)
    assert {m["id"] for m in ec2.machines()} == {machine.id for machine in made}
    assert len(made) == nodes
    assert {m.id for m in driver.create(asked, born, patient)} == {m.id for m in made}


def test_a_doubled_request_never_makes_a_second_machine(ec2: Ec2, driver: AwsDriver) -> None:
    ec2.double("create")
    (made,) = create(driver, order())
    assert [m["id"] for m in ec2.machines()] == [made.id]
    ec2.double("remove")
    driver.remove([made.id])
    assert ec2.machines() == []


def test_an_order_sent_again_with_another_lease_gives_the_same_machines(
    ec2: Ec2, driver: AwsDriver
) -> None:
    asked = order(nodes=2)
    ec2.lose("create")
    with pytest.raises(Exception):  # noqa: B017 whatever botocore calls it
        create(driver, asked)
    again = create(driver, asked, user_data="#cloud-config\n{ }", disk=60)
    assert {m["id"] for m in ec2.machines()} == {machine.id for machine in again}
    assert [machine.rank for machine in again] == [0, 1]


def test_other_orders_and_other_places_make_machines_of_their_own(
    ec2: Ec2, driver: AwsDriver
) -> None:
    create(driver, order("a-1"))
    create(driver, order("a-2"))
    create(driver, order("a-1", zone="us-east-1c"))
    assert len(ec2.machines()) == 3


def test_a_request_that_makes_something_is_sent_once(ec2: Ec2, driver: AwsDriver) -> None:
    ec2.refuse("InsufficientInstanceCapacity", times=9)
    assert trouble(driver, lambda: create(driver, order())).cause == "capacity"
    assert ec2.calls.count("RunInstances us-east-1") == 1
    (group,) = client().describe_security_groups()["SecurityGroups"]
    assert group["GroupName"] == "default", "nothing stays in a place that refuses"


def test_a_notebook_that_gives_up_while_aws_thinks_leaves_nothing(
    ec2: Ec2, driver: AwsDriver
) -> None:
    asked, ticks = order(), []

    def tick() -> None:
        ticks.append(time.monotonic())
        if len(ticks) == 3:
            raise KeyboardInterrupt

    create(driver, order("warm"))  # clients exist
    ec2.slow("create", 0.6)
    with pytest.raises(KeyboardInterrupt):
        driver.create(asked, birth(asked), tick)
    assert len(ticks) == 3 and not ec2.machines()[1:], "it did not wait for the answer"
    wait_until(lambda: any(c.startswith("TerminateInstances") for c in ec2.calls), 10)
    assert [m["tags"][TAGS[2]] for m in ec2.machines()] == ["warm"]


# -- network -----------------------------------------------------------------------------------


def test_a_group_lets_ssh_in_and_the_nodes_of_a_cluster_to_each_other(
    ec2: Ec2, driver: AwsDriver
) -> None:
    nets = ("192.0.2.0/24", "203.0.113.7/32", "2001:db8::/32")
    (alone,) = create(driver, order("alone"))
    pair = create(driver, order("pair", nodes=2), ssh_from=nets)
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


def test_a_group_is_made_once_however_many_ask(ec2: Ec2, driver: AwsDriver) -> None:
    asked = order(nodes=2)
    driver.remove([machine.id for machine in create(driver, order("before"))])
    born = birth(asked)
    with ThreadPoolExecutor(4) as workers:
        made = list(workers.map(lambda _: driver.create(asked, born, patient), range(4)))
    assert len({machine.id for machines in made for machine in machines}) == 2
    names = [g["GroupName"] for g in client().describe_security_groups()["SecurityGroups"]]
    assert sorted(names) == ["default", "jupyter-sky-before", "jupyter-sky-train-0a1b2c3d"]
    (group,) = described(made[0][0].id)["SecurityGroups"]
    assert group["GroupName"] == "jupyter-sky-train-0a1b2c3d"


def test_a_default_vpc_that_was_deleted_is_made_again(ec2: Ec2, driver: AwsDriver) -> None:
    ask = client()
    (vpc,) = ask.describe_vpcs()["Vpcs"]
    for each in ask.describe_subnets()["Subnets"]:
        ask.delete_subnet(SubnetId=each["SubnetId"])
    ask.delete_vpc(VpcId=vpc["VpcId"])
    (made,) = create(driver, order())
    (home,) = ask.describe_vpcs()["Vpcs"]
    assert home["IsDefault"] and described(made.id)["VpcId"] == home["VpcId"] != vpc["VpcId"]


def test_what_is_not_known_everywhere_yet_is_waited_for(ec2: Ec2, driver: AwsDriver) -> None:
    ec2.refuse("InvalidGroup.NotFound", times=2)
    ec2.refuse("MissingInput", zone="us-east-1d")
    assert len(create(driver, order("a-1"))) == len(create(driver, order("a-2", zone="us-east-1d")))
    assert "CreateDefaultSubnet us-east-1" in ec2.calls
    assert len(ec2.machines()) == 2


def test_nothing_is_left_over(ec2: Ec2, driver: AwsDriver) -> None:
    ask = client()
    mine = birth(order("gone")).tags
    tags = [{"Key": name, "Value": value} for name, value in mine.items()]
    spec = {"ResourceType": "volume", "Tags": tags}
    made = ask.create_volume(AvailabilityZone="us-east-1a", Size=9, TagSpecifications=[spec])
    ask.create_volume(AvailabilityZone="us-east-1a", Size=10)  # somebody's
    (alive,) = create(driver, order("alive"))
    ended = create(driver, order("ended", nodes=2))
    driver.remove([machine.id for machine in ended])
    wait_until(lambda: described(ended[0].id)["State"]["Name"] == "terminated")
    assert driver.leftovers("bob", [REGION]) == []
    told = driver.leftovers("me", [REGION])
    assert f"disk {made['VolumeId']} in us-east-1" in told
    assert len(told) == 2 and any(text.startswith("security group sg-") for text in told)
    groups = {g["GroupName"] for g in ask.describe_security_groups()["SecurityGroups"]}
    assert groups == {"default", "jupyter-sky-alive"}
    sizes = {each["Size"] for each in ask.describe_volumes()["Volumes"]}
    assert sizes == {10, 50}, "what is not ours stays, and what a machine uses"
    driver.remove([alive.id])
    driver.leftovers("me", [REGION])  # the machine is ending: its group is still in use
    wait_until(lambda: described(alive.id)["State"]["Name"] == "terminated")
    driver.teardown(REGION)
    groups = {g["GroupName"] for g in ask.describe_security_groups()["SecurityGroups"]}
    assert groups == {"default"}


def test_the_group_of_a_launch_under_way_is_left_alone(ec2: Ec2, driver: AwsDriver) -> None:
    asked = order("young")
    aws_network.group(client(), asked, birth(asked))
    assert driver.leftovers("me", [REGION]) == []
    (group,) = (g for g in client().describe_security_groups()["SecurityGroups"] if g.get("Tags"))
    long_ago = {"Key": "jupyter-sky-made", "Value": str(int(time.time() - 3600))}
    client().create_tags(Resources=[group["GroupId"]], Tags=[long_ago])
    assert len(driver.leftovers("me", [REGION])) == 1


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
    driver: AwsDriver,
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
    found = aws_images.find(driver._client, offer)
    assert (found.id, found.root, max(found.gib, 50)) == (image, "/dev/sda1", gib)


def test_images_of_chips_that_need_no_driver_of_nvidia() -> None:
    assert "neuron" in aws_images.source("x86_64", "Trainium1").parameter
    plain = aws_images.source("x86_64").parameter
    assert plain == aws_images.source("x86_64", "RadeonProV520").parameter
    assert plain == aws_images.source("x86_64", "of-my-own").parameter


def test_a_gpu_machine_has_a_disk_that_its_image_fits_on(ec2: Ec2, driver: AwsDriver) -> None:
    asked = order(instance_type="g5.xlarge", gpu="A10G", gpu_count=1)
    (made,) = create(driver, asked, disk=50)
    id = described(made.id)["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    assert client().describe_volumes(VolumeIds=[id])["Volumes"][0]["Size"] == 75


# -- the end of the lease ----------------------------------------------------------------------

ROLE = "arn:aws:iam::123456789012:role/ends-machines"


def test_eventbridge_ends_machines_whose_lease_is_over(
    ec2: Ec2, driver: AwsDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SKY_AWS_SCHEDULER_ROLE", ROLE)
    Sky.clear_instance()
    asked = order(nodes=2)
    born = birth(asked)
    made = driver.create(asked, born, patient)
    driver.create(asked, born, patient)  # sent again: one schedule all the same
    (plan,) = client("scheduler").list_schedules()["Schedules"]
    assert not caplog.records
    plan = client("scheduler").get_schedule(Name=plan["Name"])
    assert plan["ActionAfterCompletion"] == "DELETE" and plan["Target"]["RoleArn"] == ROLE
    assert plan["Target"]["Arn"] == "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"
    ids = [machine.id.partition("/")[2] for machine in made]
    assert sorted(json.loads(plan["Target"]["Input"])["InstanceIds"]) == sorted(ids)
    ec2.expire(born.lease_end - 1)
    assert len(ec2.machines()) == 2
    ec2.expire(born.lease_end + 1)
    assert ec2.machines() == [] == client("scheduler").list_schedules()["Schedules"]


def test_schedules_are_carried_out_when_their_time_has_come(
    ec2: Ec2, driver: AwsDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKY_AWS_SCHEDULER_ROLE", ROLE)
    Sky.clear_instance()
    ec2.account.minute = 0.005  # so that the hour of the lease takes 0.3 s
    create(driver, order())
    assert len(ec2.machines()) == 1
    wait_until(lambda: ec2.machines() == [])


def test_schedules_go_with_what_is_left_over(
    ec2: Ec2, driver: AwsDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKY_AWS_SCHEDULER_ROLE", ROLE)
    Sky.clear_instance()
    (made,) = create(driver, order())
    driver.remove([made.id])
    wait_until(lambda: described(made.id)["State"]["Name"] == "terminated")
    assert len(client("scheduler").list_schedules()["Schedules"]) == 1
    driver.leftovers("me", [REGION])
    assert client("scheduler").list_schedules()["Schedules"] == []


def test_a_schedule_that_is_refused_is_told_and_stops_nothing(
    ec2: Ec2, driver: AwsDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create(driver, order("plain"))
    assert not any(call.startswith("CreateSchedule") for call in ec2.calls), "no role, none asked"
    monkeypatch.setenv("SKY_AWS_SCHEDULER_ROLE", ROLE)
    Sky.clear_instance()
    ec2.refuse("AccessDeniedException", action="schedule")
    assert len(create(driver, order())) == 1
    assert "EventBridge will not end it" in caplog.text


# -- credentials -------------------------------------------------------------------------------


def test_credentials_that_work(ec2: Ec2, driver: AwsDriver) -> None:
    assert driver.configured() == "environment variable AWS_ACCESS_KEY_ID"
    assert ec2.account.number in driver.identify()


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("none", "aws configure"),
        ("wrong", "sts get-caller-identity"),
        ("unknown", "sts get-caller-identity"),
        ("expired", "get new ones"),
    ],
)
def test_credentials_that_do_not_work(
    ec2: Ec2, driver: AwsDriver, monkeypatch: pytest.MonkeyPatch, kind: str, word: str
) -> None:
    use(monkeypatch, ec2.wrong_env(kind))
    assert bool(driver.configured()) == (kind != "none")
    for request in (driver.identify, lambda: driver.machines(regions=[REGION])):
        found = trouble(driver, request)
        assert found.cause == "permission" and word in found.fix, found
    found = trouble(driver, lambda: create(driver, order()))
    assert found.cause == "permission" and word in found.fix, found
    assert ec2.machines() == []
    use(monkeypatch, ec2.env())
    assert driver.identify(), "new keys are taken up at once"


@pytest.mark.parametrize(("skew", "word"), [(1200, "behind"), (-1200, "ahead")])
def test_a_clock_that_is_wrong(ec2: Ec2, driver: AwsDriver, skew: float, word: str) -> None:
    ec2.skew = skew
    for request in (driver.identify, lambda: driver.machines(regions=[REGION])):
        found = trouble(driver, request)
        assert found.cause == "permission" and "timedatectl" in found.fix
        assert f"20 minutes {word}" in found.message


@pytest.mark.parametrize(
    ("text", "file", "grants"),
    [
        ("[default]\naws_access_key_id = A\naws_secret_access_key = B\n", "credentials", True),
        ("[other]\naws_access_key_id = A\n", "credentials", False),
        ("[default]\nregion = eu-west-1\n", "config", False),
        ("[default]\nsso_session = me\n", "config", True),
        ("[default\nnonsense", "config", False),
    ],
)
def test_where_credentials_are_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, file: str, grants: bool
) -> None:
    use(monkeypatch, {})
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert aws_access.configured() == ""
    (tmp_path / file).write_text(text)
    assert (str(tmp_path / file) in aws_access.configured()) == grants
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert aws_access.configured() == "profile work"


@pytest.mark.parametrize(
    "name",
    [
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ],
)
def test_variables_that_lead_to_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    nowhere = str(tmp_path / "none")
    use(monkeypatch, {"AWS_SHARED_CREDENTIALS_FILE": nowhere, "AWS_CONFIG_FILE": nowhere})
    assert aws_access.configured() == ""
    monkeypatch.setenv(name, "something")
    assert aws_access.configured() == f"environment variable {name}"


def test_asking_whether_there_are_credentials_imports_no_sdk() -> None:
    code = (
        "import sys; from jupyter_sky.clouds.aws import AwsDriver; d = AwsDriver(); d.configured();"
        "d.explain(ValueError()); assert not {'boto3', 'botocore'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_profile_that_is_not_there(
    ec2: Ec2, driver: AwsDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "absent")
    found = trouble(driver, driver.identify)
    assert (found.cause, found.code) == ("permission", "ProfileNotFound")
    assert "list-profiles" in found.fix


def test_a_region_that_is_not_enabled(ec2: Ec2, driver: AwsDriver) -> None:
    found = trouble(driver, lambda: create(driver, order(region="ap-east-1")))
    assert (found.cause, found.code) == ("permission", "OptInRequired")
    assert "ap-east-1 is not enabled" in found.message and "enable-region" in found.fix


# -- what AWS refuses --------------------------------------------------------------------------

RAISED = [name for name in TABLE if hasattr(botocore.exceptions, name)]
"""What botocore raises before, or in place of, an answer of AWS."""


@pytest.mark.parametrize("name", RAISED)
def test_every_error_of_botocore_in_the_table(driver: AwsDriver, name: str) -> None:
    kind = getattr(botocore.exceptions, name)
    words = {field: "word" for _, field, _, _ in Formatter().parse(kind.fmt) if field}
    error = kind(
        **words | {"error": "it broke"} if "error" in words or name == "HTTPClientError" else words
    )
    found = driver.explain(error)
    assert found and (found.code, (found.cause, found.width, found.fix)) == (name, TABLE[name])
    assert found.message


@pytest.mark.parametrize("code", [code for code in TABLE if code not in RAISED])
def test_every_code_of_the_table(ec2: Ec2, driver: AwsDriver, code: str) -> None:
    ec2.refuse(code, action="DescribeInstances", times=9)
    cause, width, fix = TABLE[code]
    found = trouble(driver, lambda: describe_once(driver))
    assert (found.code, found.cause, found.width) == (code, cause, width)
    assert fix in found.fix and found.message and "Encoded" not in found.message


def describe_once(driver: AwsDriver) -> None:
    driver._access.client("ec2", REGION, once=True).describe_instances()


@pytest.mark.parametrize(
    ("code", "status", "cause"),
    [
        ("InsufficientUnobtainiumCapacity", 500, "capacity"),
        ("GoldenInstanceLimitExceeded", 400, "quota"),
        ("UnauthorizedSomething", 403, "permission"),
        ("InvalidSomething.Malformed", 400, "invalid"),
        ("SomethingElse", 503, "transient"),
        ("SomethingElse", 400, "unknown"),
    ],
)
def test_codes_that_are_not_in_the_table(
    ec2: Ec2, driver: AwsDriver, code: str, status: int, cause: str
) -> None:
    ec2.refuse(code, action="describe", status=status)
    found = trouble(driver, lambda: describe_once(driver))
    assert (found.code, found.cause) == (code, cause)


def test_errors_that_are_not_of_aws(driver: AwsDriver) -> None:
    assert driver.explain(ValueError("no")) is None
    assert driver.explain(KeyError("no")) is None


def test_what_cannot_be_had(ec2: Ec2, driver: AwsDriver) -> None:
    gone = trouble(driver, lambda: create(driver, order(instance_type="x0.huge")))
    assert gone.cause == "invalid" and "catalog refresh" in gone.fix and "x0.huge" in gone.message
    unknown = trouble(driver, lambda: create(driver, order(instance_type="x0.huge", arch="")))
    assert unknown.cause == "invalid" and "catalog refresh" in unknown.fix
    large = trouble(driver, lambda: create(driver, order("big"), disk=70000))
    assert large.cause == "invalid" and "--disk" in large.fix and "65536GiB" in large.message
    wordy = trouble(driver, lambda: create(driver, order("long"), user_data="x" * 20000))
    assert wordy.cause == "invalid" and "16384" in wordy.message
    elsewhere = trouble(
        driver,
        lambda: create(driver, order(instance_type="p3dn.24xlarge", zone="us-east-1f", gpu="V100")),
    )
    assert (elsewhere.cause, elsewhere.width) == ("capacity", "zone")
    assert ec2.machines() == []


@pytest.mark.parametrize(
    ("status", "code"), [(200, "ResponseParserError"), (502, "502"), (403, None)]
)
def test_a_proxy_in_between_that_answers_with_a_page(
    ec2: Ec2, driver: AwsDriver, status: int, code: str | None
) -> None:
    ec2.garble("create", status)
    found = trouble(driver, lambda: create(driver, order()))
    assert found.cause in ("transient", "unknown") and "HTTPS_PROXY" in found.fix
    assert code in (None, found.code) and ec2.machines() == []


def test_nobody_answers(
    ec2: Ec2, driver: AwsDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://localhost:9")
    found = trouble(driver, lambda: describe_once(driver))
    assert (found.cause, found.code) == ("transient", "EndpointConnectionError")
    monkeypatch.setenv("HTTPS_PROXY", "http://localhost:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://ec2.example")
    found = trouble(driver, lambda: describe_once(driver))
    assert (found.cause, found.code) == ("transient", "ProxyConnectionError")
    use(monkeypatch, ec2.env())
    monkeypatch.delenv("AWS_CA_BUNDLE")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    found = trouble(driver, lambda: describe_once(driver))
    assert found.code == "SSLError" and "AWS_CA_BUNDLE" in found.fix


def test_a_refusal_speaks_of_the_place_it_was_asked_for(ec2: Ec2, driver: AwsDriver) -> None:
    ec2.refuse("InsufficientInstanceCapacity", zone="us-east-1a", instance_type="m5.large", times=9)
    ec2.refuse("MaxSpotInstanceCountExceeded", spot=True, times=9)
    found = trouble(driver, lambda: create(driver, order(zone="us-east-1a")))
    assert found.cause == "capacity" and "us-east-1a" in found.message
    found = trouble(driver, lambda: create(driver, order(zone="us-east-1b", spot=True)))
    assert (found.cause, found.width) == ("quota", "market")
    assert len(create(driver, order(zone="us-east-1b"))) == 1
    ec2.throttle("create")
    assert trouble(driver, lambda: create(driver, order("b-1"))).cause == "throttled"


# -- real machines behind the account ----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_instances_are_machines_that_one_can_log_in_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = AwsDriver()
    with loopback("aws", minute=1.0) as cloud:
        use(monkeypatch, cloud.env)
        monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
        Sky.clear_instance()
        asked = order(nodes=2, spot=True)
        born = births.birth(asked, tmp_path, "", time.time())
        head, other = running(driver, driver.create(asked, born, patient))
        names = {}
        for machine in (head, other):
            where = births.address(tmp_path, machine.address)
            wait_until(lambda where=where: answers(where))
            names[machine.id] = ssh.run(where, "hostname").out.decode().strip()
        if cloud.fleet.isolated:
            assert names == {id: id.partition("/")[2] for id in (head.id, other.id)}
            between = f"exec 3<>/dev/tcp/{other.private}/22; head -c 7 <&3"
            where = births.address(tmp_path, head.address)
            assert ssh.run(where, f"timeout 5 bash -c '{between}'").out == b"SSH-2.0"
        public = (tmp_path / "host.pub").read_text().split()[1]
        assert public in driver.console(head.id), "the key that it shows is on its console"
        cloud.api.power_off(head.id)
        cloud.api.preempt(other.id, 1.0)
        wait_until(lambda: not cloud.machines(), 30)
        found = {m.id: m for m in driver.describe([head.id, other.id])}
        assert found[head.id].reason == "the machine powered itself off"
        assert found[other.id].preempted and cloud.fleet.hosts() == []
    Sky.clear_instance()


def answers(where: ssh.Address) -> bool:
    try:
        return ssh.run(where, "true", timeout=5).code == 0
    except SkyUnreachable:
        return False


# -- the emulator by itself --------------------------------------------------------------------


@pytest.mark.slow
def test_the_account_in_a_process_of_its_own() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.emulators.ec2", "--boot", "0.2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stdin is not None
        env = json.loads(process.stdout.readline())
        code = (
            "from tests.clouds.test_aws import *\n"
            "made = create(AwsDriver(), order(nodes=2))\n"
            "print(*(machine.id for machine in made))"
        )
        made = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=True,
        )
        trust = ssl.create_default_context(cafile=env["AWS_CA_BUNDLE"])

        def control(method: str, **words: Any) -> Any:
            address = f"{env['AWS_ENDPOINT_URL']}/_sky/{method}"
            asked = urllib.request.Request(address, json.dumps(words).encode())
            with urllib.request.urlopen(asked, context=trust) as answer:
                return json.load(answer)

        assert {m["id"] for m in control("machines")} == set(made.stdout.split())
        control("power_off", id=made.stdout.split()[0])
        assert len(control("machines")) == 1
        process.stdin.close()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    assert not Path(env["AWS_CA_BUNDLE"]).exists(), "nothing is left of it"


def test_threads_may_share_a_driver(ec2: Ec2, driver: AwsDriver) -> None:
    barrier = threading.Barrier(4)

    def one(number: int) -> list[Machine]:
        barrier.wait()
        return create(driver, order(f"t-{number}", region="us-west-2"))

    with ThreadPoolExecutor(4) as workers:
        made = [machine for machines in workers.map(one, range(4)) for machine in machines]
    assert len({machine.id for machine in made}) == 4 == len(ec2.machines())
