"""Amazon Web Services: EC2 machines by boto3.

One request makes all machines of an order, in one zone, or none. Around them stands a security
group of the order in the default VPC, nothing else. What AWS charges for ends with the machine: it
terminates when it is powered off, and its disk goes with it.
"""

from __future__ import annotations

import json
import logging
import math
import re
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ...concurrency import run_abandonable
from ...config.settings import Sky
from ...offers import Offer
from ...provider.facts import AwsFacts
from ..base import (
    CloudError,
    LaunchRequest,
    Machine,
    MachineConfig,
    MachineState,
    OnCreated,
    Tick,
    ignore,
)
from ..provider import CloudProvider
from . import clients, images, network
from .errors import explain
from .network import CLUSTER, LEASE_END, OWNER, TOKEN, error_code, make_filter

log = logging.getLogger(__name__)

SCHEDULER_RETRIES = 20
"""How often EventBridge tries to end machines; they may be gone long since."""
HISTORY_SECONDS = 3000.0
"""EC2 surely knows every machine, also ended ones, for so long after its launch."""
IMAGE_CACHE_SECONDS = 600.0
_BILLED_STATES = ("pending", "running", "stopping", "stopped")
_STATES: dict[str, MachineState] = {
    "pending": "starting",
    "shutting-down": "ended",
    "terminated": "ended",
}
_REASONS = {
    "Server.SpotInstanceTermination": "AWS took the spot machine back",
    "Server.SpotInstanceShutdown": "AWS took the spot machine back",
    "Client.InstanceInitiatedShutdown": "the machine powered itself off",
    "Client.UserInitiatedShutdown": "it was terminated on request",
}
_TAGGED_RESOURCES = ("instance", "volume", "network-interface")
_CONSISTENCY_DELAYS = (0.2, 0.4, 0.8, 1.6, 3.2, 0.0)
"""Seconds between tries where AWS does not know everywhere yet what was made a moment ago."""
_NAMESPACE = uuid.UUID("1c1a0a7e-52f6-4b8e-9d5b-6a3d2f0c9b11")


class AwsDriver:
    """EC2 as a cloud that rents machines.

    Examples
    --------
    >>> AwsDriver().name
    'aws'
    """

    name = "aws"
    login = "aws configure, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"

    def __init__(self) -> None:
        self._access = clients.AwsClients()
        self._client = self._access.client
        self._images: dict[tuple[str | None, ...], tuple[float, images.MachineImage]] = {}

    def configured(self) -> str:
        """Return in words which credentials boto3 would take, empty without any; asks nobody."""
        return clients.configured()

    def identify(self) -> str:
        """Ask AWS who we are."""
        answer = self._client("sts", self._access.home_region()).get_caller_identity()
        return f"account {answer['Account']}, {answer['Arn']}"

    def explain(self, error: Exception) -> CloudError | None:
        """Say what an error of boto3 means; None for any other."""
        return explain(error)

    def self_delete_script(self, order: LaunchRequest) -> str:
        """Powering a machine off is enough: that terminates it."""
        return ""

    # -- launching ---------------------------------------------------------------------------

    def create(
        self,
        order: LaunchRequest,
        machine_config: MachineConfig,
        tick: Tick,
        on_created: OnCreated = ignore,
    ) -> list[Machine]:
        """Launch all machines of an order by one request, which AWS carries out once.

        It is sent from a thread, so that `tick` can give up while AWS thinks about it; what comes
        of it after that is terminated.
        """
        return run_abandonable(
            partial(self._create, order, machine_config), tick, self._discard_late_machines
        )

    def _create(
        self, order: LaunchRequest, machine_config: MachineConfig, given_up: threading.Event
    ) -> list[Machine]:
        from botocore.exceptions import BotoCoreError, ClientError

        with self._access.annotate_region_errors(order.offer.region):
            request = self._run_instances_arguments(order, machine_config)
            ec2 = self._client("ec2", order.offer.region)
            request["SecurityGroupIds"] = [
                group := network.ensure_security_group(ec2, order, machine_config)
            ]
            try:
                found = self._run_instances(order, request, given_up)
            except ClientError as error:
                if error_code(error).startswith("InvalidAMIID"):
                    self._images.clear()  # it has been replaced since it was looked up
                with suppress(BotoCoreError, ClientError):
                    network.delete_security_group(
                        ec2, group
                    )  # nothing stays in a place that refuses
                raise
            if not found:
                network.delete_security_group(ec2, group)
        role = _scheduler_role()
        if role and found:
            self._schedule_termination(
                order, machine_config, [machine.id for machine in found], role
            )
        return sorted(found, key=lambda machine: machine.rank)

    def _discard_late_machines(self, machines: Sequence[Machine]) -> None:
        self.remove([machine.id for machine in machines])

    def _run_instances_arguments(
        self, order: LaunchRequest, machine_config: MachineConfig
    ) -> dict[str, Any]:
        """What is asked of RunInstances, but for the security group."""
        offer, nodes = order.offer, order.resources.nodes
        # drivers are for those who have asked for what they drive
        image = self._find_image(offer if order.resources.gpu else replace(offer, gpu=None))
        size = max(math.ceil(machine_config.disk), image.gib)
        disk = {"VolumeSize": size, "VolumeType": "gp3", "DeleteOnTermination": True}
        disk |= {"Encrypted": True}
        tags = network.format_tags(machine_config.tags, Name=f"jupyter-sky {order.cluster}")
        tagged = (*_TAGGED_RESOURCES, "spot-instances-request") if offer.spot else _TAGGED_RESOURCES
        where = (offer.region, offer.zone, offer.instance_type, offer.spot)
        request = {
            "ImageId": image.id,
            "InstanceType": offer.instance_type,
            "MinCount": nodes,
            "MaxCount": nodes,
            "ClientToken": client_token(order.token, *where),
            "UserData": machine_config.user_data,
            "InstanceInitiatedShutdownBehavior": "terminate",
            # a machine that AWS starts again elsewhere has lost its cluster, and would be billed
            "MaintenanceOptions": {"AutoRecovery": "disabled"},
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            "BlockDeviceMappings": [{"DeviceName": image.root, "Ebs": disk}],
            "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in tagged],
        }
        if offer.zone:
            request["Placement"] = {"AvailabilityZone": offer.zone}
        if offer.spot:
            terms = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
            request["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": terms}
        return request

    def _find_image(self, offer: Offer) -> images.MachineImage:
        """The image for an offer; looked up again after a while, since there are new ones."""
        key = (offer.region, offer.instance_type, offer.arch, offer.gpu)
        until, image = self._images.get(key, (0.0, None))
        if image is None or time.monotonic() > until:
            image = images.find_image(self._client, offer)
            self._images[key] = (time.monotonic() + IMAGE_CACHE_SECONDS, image)
        return image

    def _run_instances(
        self, order: LaunchRequest, request: dict[str, Any], given_up: threading.Event
    ) -> list[Machine]:
        """Send the request; the first machines of an order are its only ones."""
        region, zone = order.offer.region, order.offer.zone
        ec2 = self._client("ec2", region, once=True)
        for pause in _CONSISTENCY_DELAYS:
            if given_up.is_set():
                break
            try:
                return [parse_machine(region, m) for m in ec2.run_instances(**request)["Instances"]]
            except ec2.exceptions.ClientError as error:
                if error_code(error) == "IdempotentParameterMismatch":
                    # sent before with another lease or image, and carried out
                    found = self.machines(token=order.token, regions=[region])
                    if len(found) == order.resources.nodes:
                        return found
                elif error_code(error) == "MissingInput" and zone:
                    network.ensure_default_subnet(ec2, zone)
                elif not error_code(error).startswith("InvalidGroup"):
                    raise
                if not pause:
                    raise
            given_up.wait(pause)
        return []

    def _schedule_termination(
        self, order: LaunchRequest, machine_config: MachineConfig, ids: Sequence[str], role: str
    ) -> None:
        """Let EventBridge terminate the machines at the end of their lease.

        They end by themselves too, so that a refusal is told and no reason to launch nothing.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        region = order.offer.region
        when = datetime.fromtimestamp(math.ceil(machine_config.lease_end), UTC)
        client = self._client("scheduler", region)
        arn = f"arn:{self._access.partition(region)}:scheduler:::aws-sdk:ec2:terminateInstances"
        try:
            client.create_schedule(
                Name=_schedule_name(order.token),
                Description=f"ends the machines of {order.token}"[:512],
                ScheduleExpression=f"at({when:%Y-%m-%dT%H:%M:%S})",
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                ClientToken=client_token(order.token, "schedule"),
                Target={
                    "Arn": arn,
                    "RoleArn": role,
                    "Input": json.dumps({"InstanceIds": [each.split("/")[1] for each in ids]}),
                    "RetryPolicy": {"MaximumRetryAttempts": SCHEDULER_RETRIES},
                },
            )
        except client.exceptions.ConflictException:
            pass  # the order was sent before
        except (BotoCoreError, ClientError) as error:
            log.warning("%s: EventBridge will not end it at %s: %s", order.token, when, error)

    # -- afterwards --------------------------------------------------------------------------

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List machines that have not ended, of an owner or an order, in all regions or some."""
        wanted = [
            make_filter("instance-state-name", *_BILLED_STATES),
            *network.owner_filters(owner, token),
        ]
        return self._access.call_regions(
            lambda region: self._describe_instances(region, wanted), regions
        )

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Say how machines are; those that AWS no longer knows are left out."""
        found: list[Machine] = []
        for region, names in _group_by_region(ids):
            for start in range(0, len(names), 200):  # as many as a filter takes
                these = make_filter("instance-id", *names[start : start + 200])
                found += self._describe_instances(region, [these])
        return found

    def list_ended(self, token: str, region: str, sent: float) -> list[Machine] | None:
        """List the ended machines of an order; EC2 forgets them about an hour after their end."""
        seen = self._describe_instances(region, network.owner_filters(token=token))
        found = [machine for machine in seen if machine.state == "ended"]
        return found if found or time.time() - sent < HISTORY_SECONDS else None

    def remove(self, ids: Sequence[str]) -> None:
        """Ask for the end of machines, and so of their disks and interfaces."""
        for region, names in _group_by_region(ids):
            ec2 = self._client("ec2", region)
            try:
                ec2.terminate_instances(InstanceIds=names)
            except ec2.exceptions.ClientError as error:
                if not error_code(error).startswith("InvalidInstanceID"):
                    raise
                if len(names) > 1:  # one that is not known saves the others: each by itself
                    for name in names:
                        self.remove([f"{region}/{name}"])

    def delete_unused_resources(
        self, owner: str, regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete disks, interfaces and security groups that no machine uses; say what."""
        return self._access.call_regions(lambda region: self._sweep(region, owner), regions)

    def console(self, id: str) -> str:
        """Return the end of what a machine has written to its console."""
        region, name = id.split("/")
        ec2 = self._client("ec2", region)
        try:
            answer = ec2.get_console_output(InstanceId=name, Latest=True)
        except ec2.exceptions.ClientError as error:
            if error_code(error) != "UnsupportedOperation":
                raise
            answer = ec2.get_console_output(InstanceId=name)  # an old type: minutes late
        return answer.get("Output", "")

    def _describe_instances(
        self, region: str, wanted: Sequence[Mapping[str, Any]]
    ) -> list[Machine]:
        pages = self._client("ec2", region).get_paginator("describe_instances")
        return [
            parse_machine(region, instance)
            for page in pages.paginate(Filters=wanted, PaginationConfig={"PageSize": 1000})
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        ]

    def _sweep(self, region: str, owner: str) -> list[str]:
        seen = self._describe_instances(region, network.owner_filters(owner))
        alive = {each.token for each in seen if each.state != "ended"}
        ended = {each.token for each in seen} - alive
        ec2, gone = self._client("ec2", region), []
        for kind, id, token in network.delete_unused(ec2, owner, alive, ended):
            gone.append(f"{kind} {id} in {region}")
            if kind == "security group" and _scheduler_role():
                scheduler = self._client("scheduler", region)
                try:
                    scheduler.delete_schedule(Name=_schedule_name(token))
                except scheduler.exceptions.ResourceNotFoundException:
                    pass  # it has ended them, or there was no role then
        return gone


def parse_machine(region: str, instance: Mapping[str, Any]) -> Machine:
    """Read a machine as EC2 describes it."""
    words, why = network.parse_tags(instance), instance.get("StateReason", {})
    state = _STATES.get(instance["State"]["Name"], "running")
    told = instance.get("StateTransitionReason", "")
    reason = _REASONS.get(why.get("Code", "")) or why.get("Message") or told
    lease, stopped = words.get(LEASE_END, ""), instance["State"]["Name"].startswith("stop")
    reason = "it is stopped, and its disk costs money" if stopped else reason
    return Machine(
        id=f"{region}/{instance['InstanceId']}",
        cloud="aws",
        cluster=words.get(CLUSTER, ""),
        rank=instance.get("AmiLaunchIndex", 0),
        state=state,
        started=instance["LaunchTime"].timestamp(),
        ended=_parse_reason_time(told) if state == "ended" else None,
        reason=reason if stopped or state == "ended" else "",
        preempted=why.get("Code", "").startswith("Server.Spot"),
        address=instance.get("PublicIpAddress", ""),
        private=instance.get("PrivateIpAddress", ""),
        token=words.get(TOKEN, ""),
        owner=words.get(OWNER, ""),
        lease_end=float(lease) if lease.isdigit() else None,
    )


def client_token(token: str, *words: object) -> str:
    """Return the same name for the same things, in the few signs that AWS takes for tokens.

    Examples
    --------
    >>> client_token("train-1", "us-east-1") == client_token("train-1", "us-east-1")
    True
    """
    return str(uuid.uuid5(_NAMESPACE, json.dumps([token, *words])))


def _scheduler_role() -> str:
    return Sky.load().provider_setting(AwsFacts.name, "scheduler_role")


def _schedule_name(token: str) -> str:
    return f"jupyter-sky-{client_token(token)}"


def _parse_reason_time(reason: str) -> float | None:
    """The time that EC2 writes into a reason: ``User initiated (2026-11-22 10:11:12 GMT)``."""
    found = re.search(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", reason)
    return datetime.fromisoformat(f"{found[1]}+00:00").timestamp() if found else None


def _group_by_region(ids: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Names of machines by region, from ``us-east-1/i-0abc``."""
    regions: dict[str, list[str]] = {}
    for id in ids:
        region, _, name = id.partition("/")
        regions.setdefault(region, []).append(name)
    yield from regions.items()


cloud = CloudProvider(AwsDriver())
