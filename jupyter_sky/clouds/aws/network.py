"""Networks of AWS machines: a default VPC, and one security group for each launch."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.json_types import JsonMapping, JsonObject
from jupyter_sky.clouds.provider.naming import OWNER, TOKEN
from jupyter_sky.clouds.provider.values import LaunchRequest, MachineConfig

if TYPE_CHECKING:
    from botocore.client import BaseClient

CREATED_TAG = "jupyter-sky-made"
"""Tag of a security group: unix seconds at which it was made; AWS does not note it."""
LAUNCH_GRACE_SECONDS = 900.0
"""A group that no machine uses may belong to a launch that is under way for so long."""

UnusedResource = tuple[str, str, str]
"""Kind and ID of what is deleted, and the token of its request."""


def ensure_security_group(ec2: BaseClient, request: LaunchRequest, config: MachineConfig) -> str:
    """Make the security group of a request, or find it; return its id."""
    from botocore.exceptions import ClientError

    name = f"jupyter-sky-{sanitize_name(request.token)}"[:255]
    labels = format_tags(config.tags, **{CREATED_TAG: str(int(time.time()))})
    wanted = {
        "GroupName": name,
        "Description": f"machines of {sanitize_name(request.cluster)}"[:255],
        "TagSpecifications": [{"ResourceType": "security-group", "Tags": labels}],
    }
    try:
        id = ec2.create_security_group(**wanted)["GroupId"]
    except ClientError as error:
        if error_code(error) == "VPCIdNotSpecified":
            _ignore_code("DefaultVpcAlreadyExists", ec2.create_default_vpc)
            id = ec2.create_security_group(**wanted)["GroupId"]
        elif error_code(error) == "InvalidGroup.Duplicate":
            asked = [make_filter("group-name", name), *owner_filters(token=request.token)]
            id = ec2.describe_security_groups(Filters=asked)["SecurityGroups"][0]["GroupId"]
        else:
            raise
    for rule in _ingress_rules(config.ssh_from, id if request.resources.nodes > 1 else ""):
        admit = ec2.authorize_security_group_ingress
        _ignore_code("InvalidPermission.Duplicate", admit, GroupId=id, IpPermissions=[rule])
    return id


def delete_security_group(ec2: BaseClient, group: str) -> bool:
    """Delete a security group; False if it is gone, or a machine that is ending still has it."""
    return _try_delete(ec2.delete_security_group, GroupId=group)


def ensure_default_subnet(ec2: BaseClient, zone: str) -> None:
    """Make the default subnet of a zone again, where it was deleted."""
    there = "DefaultSubnetAlreadyExistsInAvailabilityZone"
    _ignore_code(there, ec2.create_default_subnet, AvailabilityZone=zone)


def delete_unused(
    ec2: BaseClient, owner: str, alive: Collection[str], ended: Collection[str]
) -> Iterator[UnusedResource]:
    """Delete disks, interfaces and groups that no machine uses; yield them.

    Parameters
    ----------
    owner
        Of what is deleted; empty for anybody's.
    alive, ended
        Tokens of requests whose machines there are, and of those seen to have ended.
    """
    mine = owner_filters(owner)

    def listed(action: str, key: str, *more: JsonObject) -> Iterator[JsonObject]:
        for page in ec2.get_paginator(action).paginate(Filters=[*more, *mine]):
            yield from page[key]

    idle = make_filter("status", "available")
    for each in listed("describe_volumes", "Volumes", idle):
        if _try_delete(ec2.delete_volume, VolumeId=each["VolumeId"]):
            yield "disk", each["VolumeId"], parse_tags(each)[TOKEN]
    for each in listed("describe_network_interfaces", "NetworkInterfaces", idle):
        id = each["NetworkInterfaceId"]
        if _try_delete(ec2.delete_network_interface, NetworkInterfaceId=id):
            yield "interface", id, parse_tags(each)[TOKEN]
    for each in listed("describe_security_groups", "SecurityGroups"):
        words = parse_tags(each)
        young = time.time() - float(words.get(CREATED_TAG, 0)) < LAUNCH_GRACE_SECONDS
        if words[TOKEN] in alive or (young and words[TOKEN] not in ended):
            continue
        if delete_security_group(ec2, each["GroupId"]):
            yield "security group", each["GroupId"], words[TOKEN]


def _try_delete(delete: Callable[..., Any], **which: str) -> bool:
    """Delete something; False if it is gone already, or a machine that is ending still has it."""
    from botocore.exceptions import ClientError

    try:
        delete(**which)
    except ClientError as error:
        if re.search(r"NotFound$|InUse$|DependencyViolation|IncorrectState", error_code(error)):
            return False
        raise
    return True


def _ignore_code(allowed: str, request: Callable[..., Any], **words: Any) -> None:
    """Send a request that may be refused with one code: somebody else was faster."""
    from botocore.exceptions import ClientError

    try:
        request(**words)
    except ClientError as error:
        if error_code(error) != allowed:
            raise


def _ingress_rules(ssh_from: Collection[str], group: str) -> Iterator[JsonObject]:
    """Yield the rules of ingress: SSH, and everything from the machines of the same group."""
    for net in ssh_from:
        nets = (
            {"Ipv6Ranges": [{"CidrIpv6": net}]} if ":" in net else {"IpRanges": [{"CidrIp": net}]}
        )
        yield {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, **nets}
    if group:
        yield {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}


# -- words of EC2 ------------------------------------------------------------------------------


def make_filter(name: str, *values: str) -> JsonObject:
    """Return a filter of a listing."""
    return {"Name": name, "Values": list(values)}


def owner_filters(owner: str = "", token: str = "") -> list[JsonObject]:
    """Return filters for what was made by jupyter_sky, for an owner or a request."""
    pairs = [(OWNER, owner), (TOKEN, token)]
    found = [make_filter(f"tag:{name}", value) for name, value in pairs if value]
    return found or [make_filter("tag-key", TOKEN)]


def format_tags(words: Mapping[str, str], **more: str) -> list[dict[str, str]]:
    """Return tags as EC2 takes them; it knows letters, digits and a few signs, and 256 of them."""
    return [
        {"Key": name, "Value": re.sub(r"[^\w\s+\-=.:/@]", "_", value)[:256]}
        for name, value in {**words, **more}.items()
    ]


def parse_tags(thing: JsonMapping) -> dict[str, str]:
    """Return the tags of something listed."""
    return {each["Key"]: each["Value"] for each in thing.get("Tags", ())}


def sanitize_name(word: str) -> str:
    """Return a word in the alphabet of names of groups."""
    return re.sub(r"[^A-Za-z0-9 ._\-]", "_", word)


def error_code(error: Any) -> str:
    """Return AWS's code of a refusal."""
    return error.response["Error"]["Code"]
