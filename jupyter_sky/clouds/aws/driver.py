"""Amazon Web Services: EC2 machines by boto3.

One request makes all machines of an order, in one zone, or none. Around them stands a security
group of the order in the default VPC, nothing else. What AWS charges for ends with the machine: it
terminates when it is powered off, and its disk goes with it.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from threading import Event
from typing import Any

from jupyter_sky.base.clouds.facts import AwsFacts
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.clouds.aws import images, network, quotas, schedules
from jupyter_sky.clouds.aws.account import AwsAccount
from jupyter_sky.clouds.aws.network import error_code, make_filter
from jupyter_sky.clouds.launches.catalog_provider import CatalogProvider
from jupyter_sky.clouds.provider.naming import group_ids, split_id, tagged_machine
from jupyter_sky.clouds.provider.parallel_requests import StopRequested, pause
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig, MachineState
from jupyter_sky.knowledge.tracker.quotas import AccountQuota

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


class Aws(AwsFacts, AwsAccount, CatalogProvider):
    """EC2 as a cloud that rents machines; an ID is ``region/instance``.

    Examples
    --------
    >>> Aws().name
    'aws'
    """

    def __init__(self) -> None:
        super().__init__()
        self._client = self._access.client
        self._images: dict[tuple[str | None, ...], tuple[float, images.MachineImage]] = {}

    def identify(self) -> str:
        """Ask AWS who we are."""
        answer = self._client("sts", self._access.home_region()).get_caller_identity()
        return f"account {answer['Account']}, {answer['Arn']}"

    def quotas(self) -> list[AccountQuota]:
        """Return how many vCPUs of each series the account may run in its regions."""
        return quotas.read_quotas(self._access)

    # -- launching ---------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Launch all machines by one request, which AWS carries out once."""
        with self._access.annotate_region_errors(request.offer.region):
            found = self._launch_in_group(request, config, stop)
        self._schedule_termination(request, config, [machine.id for machine in found])
        return sorted(found, key=lambda machine: machine.rank)

    def _launch_in_group(
        self, request: LaunchRequest, config: MachineConfig, stop: Event
    ) -> list[Machine]:
        """Launch the machines in a security group, which goes if there are none."""
        from botocore.exceptions import BotoCoreError, ClientError

        arguments = self._run_instances_arguments(request, config)
        ec2 = self._client("ec2", request.offer.region)
        group = network.ensure_security_group(ec2, request, config)
        try:
            return self._run_instances(request, {**arguments, "SecurityGroupIds": [group]}, stop)
        except (ClientError, StopRequested) as error:
            if isinstance(error, ClientError) and error_code(error).startswith("InvalidAMIID"):
                self._images.clear()  # it has been replaced since it was looked up
            with suppress(BotoCoreError, ClientError):  # nothing stays in a place that refuses
                network.delete_security_group(ec2, group)
            raise

    def _run_instances_arguments(
        self, order: LaunchRequest, config: MachineConfig
    ) -> dict[str, Any]:
        """Return the arguments of RunInstances, but for the security group."""
        offer, nodes = order.offer, order.resources.nodes
        # drivers are for those who have asked for what they drive
        image = self._find_image(offer if order.resources.gpu else replace(offer, gpu=None))
        size = max(math.ceil(config.disk), image.gib)
        disk = {"VolumeSize": size, "VolumeType": "gp3", "DeleteOnTermination": True}
        disk |= {"Encrypted": True}
        tags = network.format_tags(config.tags, Name=f"jupyter-sky {order.cluster}")
        tagged = (*_TAGGED_RESOURCES, "spot-instances-request") if offer.spot else _TAGGED_RESOURCES
        where = (offer.region, offer.zone, offer.instance_type, offer.spot)
        request = {
            "ImageId": image.id,
            "InstanceType": offer.instance_type,
            "MinCount": nodes,
            "MaxCount": nodes,
            "ClientToken": schedules.client_token(order.token, *where),
            "UserData": config.user_data,
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
        """Return the image for an offer; it is looked up anew after a while."""
        key = (offer.region, offer.instance_type, offer.arch, offer.gpu)
        until, image = self._images.get(key, (0.0, None))
        if image is None or time.monotonic() > until:
            image = images.find_image(self._client, offer)
            self._images[key] = (time.monotonic() + IMAGE_CACHE_SECONDS, image)
        return image

    def _run_instances(
        self, order: LaunchRequest, arguments: dict[str, Any], stop: Event
    ) -> list[Machine]:
        """Send RunInstances; the first machines of an order are its only ones."""
        region, zone = order.offer.region, order.offer.zone
        ec2 = self._client("ec2", region, once=True)
        pause(stop, 0.0)
        for delay in _CONSISTENCY_DELAYS:
            try:
                return [
                    parse_machine(region, m) for m in ec2.run_instances(**arguments)["Instances"]
                ]
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
                if not delay:
                    raise
            pause(stop, delay)
        raise AssertionError

    def _schedule_termination(
        self, order: LaunchRequest, config: MachineConfig, ids: Sequence[str]
    ) -> None:
        """Let EventBridge terminate the machines at the end of their lease."""
        action = {"InstanceIds": [each.split("/")[1] for each in ids]}
        schedules.schedule_end(self._access, order, config, "ec2:terminateInstances", action)

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
        for region, names in group_ids(ids).items():
            for start in range(0, len(names), 200):  # as many as a filter takes
                these = make_filter("instance-id", *names[start : start + 200])
                found += self._describe_instances(region, [these])
        return found

    def list_ended(self, token: str, region: str, sent: float) -> list[Machine] | None:
        """List the ended machines of an order; EC2 forgets them about an hour after their end."""
        seen = self._describe_instances(region, network.owner_filters(token=token))
        found = [machine for machine in seen if machine.state == "ended"]
        return found if found or time.time() - sent < HISTORY_SECONDS else None

    def terminate(self, ids: Sequence[str]) -> None:
        """Ask for the end of machines, and so of their disks and interfaces."""
        for region, names in group_ids(ids).items():
            ec2 = self._client("ec2", region)
            try:
                ec2.terminate_instances(InstanceIds=names)
            except ec2.exceptions.ClientError as error:
                if not error_code(error).startswith("InvalidInstanceID"):
                    raise
                if len(names) > 1:  # one that is not known saves the others: each by itself
                    for name in names:
                        self.terminate([f"{region}/{name}"])

    def stop(self, ids: Sequence[str]) -> None:
        """Ask machines to power off; their disks are kept."""
        for region, names in group_ids(ids).items():
            self._client("ec2", region).stop_instances(InstanceIds=names)

    def start(self, ids: Sequence[str]) -> None:
        """Ask for the start of machines that were stopped; each gets another address."""
        for region, names in group_ids(ids).items():
            self._client("ec2", region, once=True).start_instances(InstanceIds=names)

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete disks, interfaces and security groups that no machine uses; say what."""
        return self._access.call_regions(
            lambda region: self._sweep_region(region, owner, alive), regions
        )

    def console(self, id: str) -> str:
        """Return the end of what a machine has written to its console."""
        region, name = split_id(id)
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

    def _sweep_region(self, region: str, owner: str, alive: Collection[str]) -> list[str]:
        seen = self._describe_instances(region, network.owner_filters(owner))
        up = {each.token for each in seen if each.state != "ended"}.union(alive)
        ended = {each.token for each in seen} - up
        ec2, gone = self._client("ec2", region), []
        for kind, id, token in network.delete_unused(ec2, owner, up, ended):
            gone.append(f"{kind} {id} in {region}")
            if kind == "security group":
                schedules.remove_schedule(self._access, region, token)
        return gone


def parse_machine(region: str, instance: Mapping[str, Any]) -> Machine:
    """Return a machine as EC2 describes it."""
    words, why = network.parse_tags(instance), instance.get("StateReason", {})
    state = _STATES.get(instance["State"]["Name"], "running")
    told = instance.get("StateTransitionReason", "")
    reason = _REASONS.get(why.get("Code", "")) or why.get("Message") or told
    stopped = instance["State"]["Name"].startswith("stop")
    reason = "it is stopped, and its disk costs money" if stopped else reason
    return tagged_machine(
        words,
        id=f"{region}/{instance['InstanceId']}",
        cloud="aws",
        rank=instance.get("AmiLaunchIndex", 0),
        state=state,
        started=instance["LaunchTime"].timestamp(),
        ended=_parse_reason_time(told) if state == "ended" else None,
        reason=reason if stopped or state == "ended" else "",
        preempted=why.get("Code", "").startswith("Server.Spot"),
        address=instance.get("PublicIpAddress", ""),
        private=instance.get("PrivateIpAddress", ""),
        stopped=instance["State"]["Name"] == "stopped",
    )


def _parse_reason_time(reason: str) -> float | None:
    """Return the time in a reason: ``User initiated (2026-11-22 10:11:12 GMT)``."""
    found = re.search(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", reason)
    return datetime.fromisoformat(f"{found[1]}+00:00").timestamp() if found else None
