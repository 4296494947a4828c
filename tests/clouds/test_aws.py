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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyUnreachable
from jupyter_sky.base.remote import ssh
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.aws.provider import Aws
from jupyter_sky.clouds.launches import cloud_init
from jupyter_sky.clouds.launches.launcher import launch_machines
from jupyter_sky.clouds.provider.values import TAGS, Machine
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
    running,
    trouble,
    use,
)
from tests.conftest import wait_until
from tests.emulators.ec2 import Ec2
from tests.emulators.ec2_account import REGIONS
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import loopback

# -- life of machines --------------------------------------------------------------------------


@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize("nodes", [1, 4])
def test_machines_are_made_together_described_and_removed(
    ec2: Ec2, provider: Aws, nodes: int, spot: bool
) -> None:
    asked = order(nodes=nodes, spot=spot, zone="us-east-1b")
    made = create(provider, asked)
    assert [machine.rank for machine in made] == list(range(nodes))
    assert {machine.state for machine in made} == {"starting"}
    assert not any(machine.address for machine in made), "an address comes when it runs"
    up = running(provider, made)
    assert len({machine.address for machine in up}) == nodes
    assert all(machine.private for machine in up)
    truth = ec2.machines()
    assert {m["id"] for m in truth} == {machine.id for machine in up}
    assert {(m["zone"], m["spot"]) for m in truth} == {("us-east-1b", spot)}
    assert ec2.calls.count("RunInstances us-east-1") == 1, "all or nothing is one request"
    ids = [machine.id for machine in up]
    provider.terminate(ids)
    ended = provider.describe(ids)
    assert {machine.state for machine in ended} == {"ended"}
    assert {machine.reason for machine in ended} == {"it was terminated on request"}
    assert all(abs(machine.ended - time.time()) < 60 for machine in ended if machine.ended)
    assert provider.machines(token=asked.token, regions=[REGION]) == [] == ec2.machines()
    provider.terminate(ids)  # once more is no error


def test_initial_configuration_of_machines(ec2: Ec2, provider: Aws) -> None:
    asked = order(spot=True)
    (made,) = create(provider, asked, disk=123.4)
    (up,) = running(provider, [made])
    found = described(up.id)
    assert found["MetadataOptions"]["HttpTokens"] == "required"
    sent = provider._run_instances_arguments(asked, machine_config(asked))
    assert sent["MaintenanceOptions"] == {"AutoRecovery": "disabled"}, "none is started again"
    assert found["InstanceLifecycle"] == "spot"
    assert "KeyName" not in found and "IamInstanceProfile" not in found
    assert found["ImageId"] == "ami-0a64", "the latest Ubuntu, not that of a month before"
    (disk,) = found["BlockDeviceMappings"]
    assert disk["DeviceName"] == found["RootDeviceName"] and disk["Ebs"]["DeleteOnTermination"]
    ask, name = client(), up.id.partition("/")[2]
    (volume,) = ask.describe_volumes(VolumeIds=[disk["Ebs"]["VolumeId"]])["Volumes"]
    assert volume["Size"] == 124 and volume["VolumeType"] == "gp3" and volume["Encrypted"]
    behaviour = ask.describe_instance_attribute(
        InstanceId=name, Attribute="instanceInitiatedShutdownBehavior"
    )
    assert behaviour["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
    words = machine_config(asked).tags
    for thing in (found, volume):
        tags = {tag["Key"]: tag["Value"] for tag in thing["Tags"]}
        assert tags.items() >= {k: v for k, v in words.items() if k != TAGS[4]}.items()
    provider.terminate([up.id])
    assert ask.describe_volumes()["Volumes"] == [], "the disk goes with the machine"


def test_tags_come_back_as_they_were(ec2: Ec2, provider: Aws) -> None:
    asked = dataclasses.replace(
        order("a.b-1_2"), owner="ann@host-1", notebook="Übung, №1 (neu) <x>.ipynb" + "y" * 300
    )
    made = machine_config(asked)
    launch_machines(provider, asked, made)
    (found,) = provider.machines(owner="ann@host-1", regions=[REGION])
    assert (found.owner, found.token, found.cluster) == ("ann@host-1", "a.b-1_2", "train")
    assert found.lease_end == made.lease_end and found.cloud == "aws"
    (truth,) = ec2.machines()
    notebook = truth["tags"][TAGS[3]]
    assert notebook.startswith("Übung_ _1 _neu_ _x_.ipynb") and len(notebook) == 256
    assert provider.machines(owner="bob", regions=[REGION]) == []
    assert provider.machines(token="a.b-1_3", regions=[REGION]) == []


def test_machines_are_found_over_many_regions_and_pages(ec2: Ec2, provider: Aws) -> None:
    ec2.account.page = 2
    ec2.account.closed |= {
        r for r in REGIONS if r.startswith(("ca", "sa", "us-w", "ap-n", "ap-southeast"))
    }
    made = [
        machine.id
        for region in (REGION, "eu-west-1", "ap-south-1")
        for number in range(3)
        for machine in create(provider, order(f"t-{region}-{number}", region=region))
    ]
    ec2.calls.clear()
    found = provider.machines(owner="me")
    assert sorted(machine.id for machine in found) == sorted(made)
    asked = {call.split()[1] for call in ec2.calls if call.startswith("DescribeInstances")}
    assert len(asked) == 8, "all regions of the account, and none that it has not enabled"
    assert ec2.calls.count("DescribeInstances eu-west-1") == 2, "two pages"
    assert {m.id for m in provider.describe(made)} == set(made)
    provider.terminate(made)
    assert ec2.machines() == []


def test_machines_that_are_not_known_are_left_out_and_keep_no_other_alive(
    ec2: Ec2, provider: Aws
) -> None:
    (made,) = create(provider, order())
    nobody = f"{REGION}/i-0123456789abcdef0"
    assert [m.id for m in provider.describe([nobody, made.id])] == [made.id]
    provider.terminate([nobody, made.id])
    assert ec2.machines() == []
    provider.terminate([nobody])


def test_ended_machines_say_why(ec2: Ec2, provider: Aws) -> None:
    taken, off = create(provider, order("a-1", nodes=2, spot=True))
    running(provider, [taken, off])
    ec2.preempt(taken.id)
    ec2.power_off(off.id)
    found = {m.id: m for m in provider.describe([taken.id, off.id])}
    assert found[taken.id].preempted and "spot" in found[taken.id].reason
    assert not found[off.id].preempted
    assert found[off.id].reason == "the machine powered itself off"
    assert ec2.machines() == [], "powering off ends it, disk and all"


def test_machines_that_are_stopped_have_not_ended(ec2: Ec2, provider: Aws) -> None:
    (made,) = create(provider, order())
    running(provider, [made])
    client().stop_instances(InstanceIds=[made.id.partition("/")[2]])
    (found,) = provider.machines(owner="me", regions=[REGION])
    assert found.state == "running" and "stopped" in found.reason


def test_the_console_is_read(ec2: Ec2, provider: Aws) -> None:
    (made,) = create(provider, order())
    assert "kernel" in provider.console(made.id) or provider.console(made.id)


# -- once only ---------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_lost_answer_never_makes_a_second_machine(ec2: Ec2, provider: Aws, nodes: int) -> None:
    asked = order(nodes=nodes)
    config = machine_config(asked)
    ec2.lose("create", 2)
    for _ in range(2):
        assert (
            trouble(provider, lambda: launch_machines(provider, asked, config)).cause == "transient"
        )
    made = launch_machines(provider, asked, config)
    assert {m["id"] for m in ec2.machines()} == {machine.id for machine in made}
    assert len(made) == nodes
    assert {m.id for m in launch_machines(provider, asked, config)} == {m.id for m in made}


def test_a_doubled_request_never_makes_a_second_machine(ec2: Ec2, provider: Aws) -> None:
    ec2.double("create")
    (made,) = create(provider, order())
    assert [m["id"] for m in ec2.machines()] == [made.id]
    ec2.double("remove")
    provider.terminate([made.id])
    assert ec2.machines() == []


def test_an_order_sent_again_with_another_lease_gives_the_same_machines(
    ec2: Ec2, provider: Aws
) -> None:
    asked = order(nodes=2)
    ec2.lose("create")
    with pytest.raises(Exception):  # noqa: B017 whatever botocore calls it
        create(provider, asked)
    again = create(provider, asked, user_data="#cloud-config\n{ }", disk=60)
    assert {m["id"] for m in ec2.machines()} == {machine.id for machine in again}
    assert [machine.rank for machine in again] == [0, 1]


def test_other_orders_and_other_places_make_machines_of_their_own(ec2: Ec2, provider: Aws) -> None:
    create(provider, order("a-1"))
    create(provider, order("a-2"))
    create(provider, order("a-1", zone="us-east-1c"))
    assert len(ec2.machines()) == 3


def test_a_request_that_makes_something_is_sent_once(ec2: Ec2, provider: Aws) -> None:
    ec2.refuse("InsufficientInstanceCapacity", times=9)
    assert trouble(provider, lambda: create(provider, order())).cause == "capacity"
    assert ec2.calls.count("RunInstances us-east-1") == 1
    (group,) = client().describe_security_groups()["SecurityGroups"]
    assert group["GroupName"] == "default", "nothing stays in a place that refuses"


def test_a_notebook_that_gives_up_while_aws_thinks_leaves_nothing(ec2: Ec2, provider: Aws) -> None:
    asked, ticks = order(), []

    def tick() -> None:
        ticks.append(time.monotonic())
        if len(ticks) == 3:
            raise KeyboardInterrupt

    create(provider, order("warm"))  # clients exist
    ec2.slow("create", 0.6)
    with pytest.raises(KeyboardInterrupt):
        launch_machines(provider, asked, machine_config(asked), tick)
    assert len(ticks) == 3 and not ec2.machines()[1:], "it did not wait for the answer"
    wait_until(lambda: any(c.startswith("TerminateInstances") for c in ec2.calls))
    assert [m["tags"][TAGS[2]] for m in ec2.machines()] == ["warm"]


def test_threads_may_share_a_driver(ec2: Ec2, provider: Aws) -> None:
    barrier = threading.Barrier(4)

    def one(number: int) -> list[Machine]:
        barrier.wait()
        return create(provider, order(f"t-{number}", region="us-west-2"))

    with ThreadPoolExecutor(4) as workers:
        made = [machine for machines in workers.map(one, range(4)) for machine in machines]
    assert len({machine.id for machine in made}) == 4 == len(ec2.machines())


# -- real machines behind the account ----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_instances_are_machines_that_one_can_log_in_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    provider = Aws()
    with loopback("aws", minute=1.0) as cloud:
        use(monkeypatch, cloud.env)
        monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
        Sky.clear_instance()
        asked = order(nodes=2, spot=True)
        config = cloud_init.create_machine_config(asked, tmp_path, "", time.time())
        head, other = running(provider, launch_machines(provider, asked, config))
        names = {}
        for machine in (head, other):
            where = cloud_init.pinned_address(tmp_path, machine.address)
            wait_until(lambda where=where: answers(where))
            names[machine.id] = ssh.run(where, "hostname").out.decode().strip()
        if cloud.fleet.isolated:
            assert names == {id: id.partition("/")[2] for id in (head.id, other.id)}
            between = f"exec 3<>/dev/tcp/{other.private}/22; head -c 7 <&3"
            where = cloud_init.pinned_address(tmp_path, head.address)
            assert ssh.run(where, f"timeout 5 bash -c '{between}'").out == b"SSH-2.0"
        public = (tmp_path / "host.pub").read_text().split()[1]
        assert public in provider.console(head.id), "the key that it shows is on its console"
        cloud.api.power_off(head.id)
        cloud.api.preempt(other.id, 1.0)
        wait_until(lambda: not cloud.machines())
        found = {m.id: m for m in provider.describe([head.id, other.id])}
        assert found[head.id].reason == "the machine powered itself off"
        assert found[other.id].preempted and cloud.fleet.hosts() == []
    Sky.clear_instance()


def answers(where: ssh.Address) -> bool:
    try:
        return ssh.run(where, "true", timeout=30).code == 0
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
            "from tests.clouds.aws_cases import *\n"
            "made = create(Aws(), order(nodes=2))\n"
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
        assert control("calls").count("RunInstances us-east-1") == 1
        process.stdin.close()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    assert not Path(env["AWS_CA_BUNDLE"]).exists(), "nothing is left of it"
