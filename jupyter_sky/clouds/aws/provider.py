"""Amazon Web Services: EC2 machines by boto3.

One call makes all machines of a request, in one zone, or none. Around them is a security group
of the request in the default VPC, nothing else. All that AWS charges for ends with the machine: it
terminates when it is powered off, and its disk goes with it.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Event
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyNoCapacity, SkyUsageError
from jupyter_sky.base.json_types import JsonMapping, JsonObject
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.aws import network, schedules
from jupyter_sky.clouds.aws.account import AwsAccount
from jupyter_sky.clouds.aws.clients import AwsClients
from jupyter_sky.clouds.aws.facts import AwsFacts
from jupyter_sky.clouds.aws.network import error_code, make_filter
from jupyter_sky.clouds.launches.catalog_provider import CatalogProvider
from jupyter_sky.clouds.provider.naming import group_ids, split_id, tagged_machine
from jupyter_sky.clouds.provider.parallel_requests import StopRequested, pause
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig, MachineState
from jupyter_sky.knowledge.tracker.quotas import AccountQuota

if TYPE_CHECKING:
    from botocore.client import BaseClient

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
        self._images: dict[tuple[str | None, ...], tuple[float, MachineImage]] = {}

    def identify(self) -> str:
        """Ask AWS who we are."""
        answer = self._client("sts", self._access.home_region()).get_caller_identity()
        return f"account {answer['Account']}, {answer['Arn']}"

    def quotas(self) -> list[AccountQuota]:
        """Return how many vCPUs of each series the account may run in its regions."""
        return read_quotas(self._access)

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

    def _run_instances_arguments(self, request: LaunchRequest, config: MachineConfig) -> JsonObject:
        """Return the arguments of RunInstances, but for the security group."""
        offer, nodes = request.offer, request.resources.nodes
        # drivers only where the request has GPUs
        image = self._find_image(offer if request.resources.gpu else replace(offer, gpu=None))
        size = max(math.ceil(config.disk), image.gib)
        disk = {"VolumeSize": size, "VolumeType": "gp3", "DeleteOnTermination": True}
        disk |= {"Encrypted": True}
        tags = network.format_tags(config.tags, Name=f"jupyter-sky {request.cluster}")
        tagged = (*_TAGGED_RESOURCES, "spot-instances-request") if offer.spot else _TAGGED_RESOURCES
        where = (offer.region, offer.zone, offer.instance_type, offer.spot)
        arguments = {
            "ImageId": image.id,
            "InstanceType": offer.instance_type,
            "MinCount": nodes,
            "MaxCount": nodes,
            "ClientToken": schedules.client_token(request.token, *where),
            "UserData": config.user_data,
            "InstanceInitiatedShutdownBehavior": "terminate",
            # a machine that AWS starts again elsewhere has lost its cluster, and would be billed
            "MaintenanceOptions": {"AutoRecovery": "disabled"},
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            "BlockDeviceMappings": [{"DeviceName": image.root, "Ebs": disk}],
            "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in tagged],
        }
        if offer.zone:
            arguments["Placement"] = {"AvailabilityZone": offer.zone}
        if offer.spot:
            terms = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
            arguments["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": terms}
        return arguments

    def _find_image(self, offer: Offer) -> MachineImage:
        """Return the image for an offer; it is looked up anew after a while."""
        key = (offer.region, offer.instance_type, offer.arch, offer.gpu)
        until, image = self._images.get(key, (0.0, None))
        if image is None or time.monotonic() > until:
            image = find_image(self._client, offer)
            self._images[key] = (time.monotonic() + IMAGE_CACHE_SECONDS, image)
        return image

    def _run_instances(
        self, request: LaunchRequest, arguments: JsonObject, stop: Event
    ) -> list[Machine]:
        """Send RunInstances; the first machines of a request are its only ones."""
        region, zone = request.offer.region, request.offer.zone
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
                    found = self.machines(token=request.token, regions=[region])
                    if len(found) == request.resources.nodes:
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
        self, request: LaunchRequest, config: MachineConfig, ids: Sequence[str]
    ) -> None:
        """Let EventBridge terminate the machines at the end of their lease."""
        action = {"InstanceIds": [each.split("/")[1] for each in ids]}
        schedules.schedule_end(self._access, request, config, "ec2:terminateInstances", action)

    # -- afterwards --------------------------------------------------------------------------

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List machines that have not ended, of an owner or a request, in all regions or some."""
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
        """List the ended machines of a request; EC2 forgets them about an hour after their end."""
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

    def _describe_instances(self, region: str, wanted: Sequence[JsonMapping]) -> list[Machine]:
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


def parse_machine(region: str, instance: JsonMapping) -> Machine:
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


# -- Machine images of AWS: the choice of an image and its lookup ---------------------------------

_UBUNTU = "099720109477"  # Canonical's account
_UBUNTU_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
_OPEN_DRIVER_SINCE = 7.5
"""CUDA compute capability from which NVIDIA's open driver works: not on V100 and before."""


@dataclass(frozen=True, slots=True)
class ImageSource:
    """Public parameter and name of an image.

    Attributes
    ----------
    parameter : str
        Public parameter of Systems Manager that holds the id of the latest.
    owner, name : str
        Account and name that publish it, for accounts that may not read parameters.
    """

    parameter: str
    owner: str
    name: str


@dataclass(frozen=True, slots=True)
class MachineImage:
    """An image in one region.

    Attributes
    ----------
    root : str
        Device of the boot disk.
    gib : int
        Least size of the boot disk, in GiB.
    """

    id: str
    root: str
    gib: int


def select_source(arch: str, gpu: str | None = None) -> ImageSource:
    """Select the image of a machine: the latest Ubuntu LTS, with drivers for its GPUs.

    Examples
    --------
    >>> select_source("arm64").parameter.split("/")[-4]
    'arm64'
    """
    vendor, cuda = "", 0.0
    if gpu:
        try:
            found = accelerators.accelerator(gpu)
            vendor, cuda = found.vendor, float(found.cuda or 0)
        except SkyUsageError:
            pass  # an own offer may name what nobody knows; then without providers
    if vendor == "NVIDIA":
        kind, release = "base-oss-nvidia-driver-gpu", "24.04"
        name = f"Deep Learning {'ARM64 ' * (arch == 'arm64')}Base OSS Nvidia Driver GPU AMI"
        if cuda < _OPEN_DRIVER_SINCE:
            kind, release = "base-proprietary-nvidia-driver-gpu", "22.04"
            name = "Deep Learning Base Proprietary Nvidia Driver GPU AMI"
        parameter = f"deeplearning/ami/{arch}/{kind}-ubuntu-{release}/latest/ami-id"
        return ImageSource(f"/aws/service/{parameter}", "amazon", f"{name} (Ubuntu {release}) *")
    if vendor == "AWS":  # Trainium and Inferentia
        parameter = "/aws/service/neuron/dlami/multi-framework/ubuntu-24.04/latest/image_id"
        return ImageSource(parameter, "amazon", "Deep Learning AMI Neuron (Ubuntu 24.04) *")
    word = _UBUNTU_ARCHITECTURES[arch]
    return ImageSource(
        f"/aws/service/canonical/ubuntu/server/24.04/stable/current/{word}/hvm/ebs-gp3/ami-id",
        _UBUNTU,
        f"ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-{word}-server-*",
    )


def find_image(client: Callable[[str, str], BaseClient], offer: Offer) -> MachineImage:
    """Look the image of an offer up in its region.

    Parameters
    ----------
    client
        Returns a client of boto3 for a service in a region.
    """
    ec2 = client("ec2", offer.region)
    arch = offer.arch or _arch(ec2, offer.instance_type)
    wanted = select_source(arch, offer.gpu)
    id = _latest(client("ssm", offer.region), wanted.parameter)
    if id:
        images = ec2.describe_images(ImageIds=[id])["Images"]
    else:
        filters = {"name": wanted.name, "architecture": arch, "state": "available"}
        images = ec2.describe_images(
            Owners=[wanted.owner],
            Filters=[{"Name": name, "Values": [value]} for name, value in filters.items()],
        )["Images"]
    if not images:
        missing = SkyNoCapacity(
            _("{place}: the region has no image {name}").format(place=offer.place, name=wanted.name)
        )
        missing.cause, missing.scope = "quota", "family"
        raise missing
    image = max(images, key=lambda each: each["CreationDate"])
    root = image["RootDeviceName"]
    disks = image.get("BlockDeviceMappings", [])
    sizes = [each["Ebs"].get("VolumeSize", 0) for each in disks if each.get("DeviceName") == root]
    return MachineImage(image["ImageId"], root, max(sizes, default=0))


def _latest(ssm: BaseClient, parameter: str) -> str:
    """Return the ID that a public parameter holds; empty where it is not to be had."""
    from botocore.exceptions import ClientError

    try:
        return ssm.get_parameter(Name=parameter)["Parameter"]["Value"]
    except ClientError as error:
        if error.response["Error"]["Code"] in ("ParameterNotFound", "AccessDeniedException"):
            return ""
        raise


def _arch(ec2: BaseClient, instance_type: str) -> str:
    """Return the architecture of a type, where the offer does not say it."""
    types = ec2.describe_instance_types(InstanceTypes=[instance_type])["InstanceTypes"]
    return "arm64" if "arm64" in types[0]["ProcessorInfo"]["SupportedArchitectures"] else "x86_64"


# -- Quotas of an AWS account by Service Quotas: vCPUs of running machines, by series and ---------

_ON_DEMAND = re.compile(r"Running On-Demand (.+) instances")
_SPOT = re.compile(r"All (.+) Spot Instance Requests")
_PAGE = "https://{region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{code}"


def read_quotas(access: AwsClients) -> list[AccountQuota]:
    """Return the quotas of all enabled regions."""
    return access.call_regions(lambda region: list(_read_region(access, region)))


def _read_region(access: AwsClients, region: str) -> Iterator[AccountQuota]:
    pages = access.client("service-quotas", region).get_paginator("list_service_quotas")
    for page in pages.paginate(ServiceCode="ec2", PaginationConfig={"PageSize": 100}):
        for quota in page["Quotas"]:
            name = quota["QuotaName"]
            spot = _SPOT.fullmatch(name)
            found = spot or _ON_DEMAND.fullmatch(name)
            if found is None or "Value" not in quota or not (series := parse_series(found[1])):
                continue
            yield AccountQuota(
                "aws",
                name,
                float(quota["Value"]),
                "vcpus",
                region,
                series,
                spot is not None,
                _PAGE.format(region=region, code=quota["QuotaCode"]),
            )


def parse_series(text: str) -> tuple[str, ...]:
    """Return the instance series in the name of a quota, as `AccountQuota` has them.

    Examples
    --------
    >>> parse_series("Standard (A, C, D, H, I, M, R, T, Z)"), parse_series("G and VT")
    (('standard',), ('g', 'vt'))
    >>> parse_series("P4, P3 and P2"), parse_series("High Memory")
    (('p4*', 'p3*', 'p2*'), ('u',))
    """
    if text.startswith("Standard"):
        return ("standard",)
    if text == "High Memory":
        return ("u",)
    words = [word.lower() for word in re.split(r",? and |, ?| ", text) if word]
    return tuple(f"{word}*" if word[-1].isdigit() else word for word in words)
