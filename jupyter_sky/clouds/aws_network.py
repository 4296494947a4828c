"""What machines of AWS stand in: a default VPC, and one security group for each order."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from .base import TAGS, Birth, Launch

OWNER, CLUSTER, TOKEN, _, LEASE_END = TAGS
MADE = "jupyter-sky-made"
"""Tag of a security group: unix seconds at which it was made; AWS does not note it."""
YOUNG_SECONDS = 900.0
"""A group that no machine uses may belong to a launch that is under way for so long."""


def group(ec2: Any, order: Launch, birth: Birth) -> str:
    """Make the security group of an order, or find it; return its id."""
    from botocore.exceptions import ClientError

    home, name = _vpc(ec2), f"jupyter-sky-{plain(order.token)}"[:255]
    labels = tags(birth.tags, **{MADE: str(int(time.time()))})
    try:
        id = ec2.create_security_group(
            GroupName=name,
            Description=f"machines of {plain(order.cluster)}"[:255],
            VpcId=home,
            TagSpecifications=[{"ResourceType": "security-group", "Tags": labels}],
        )["GroupId"]
    except ClientError as error:
        if code(error) != "InvalidGroup.Duplicate":
            raise
        asked = [filtered("group-name", name), filtered("vpc-id", home)]
        id = ec2.describe_security_groups(Filters=asked)["SecurityGroups"][0]["GroupId"]
    for rule in _rules(birth.ssh_from, id if order.resources.nodes > 1 else ""):
        try:
            ec2.authorize_security_group_ingress(GroupId=id, IpPermissions=[rule])
        except ClientError as error:
            if code(error) != "InvalidPermission.Duplicate":
                raise
    return id


def subnet(ec2: Any, zone: str) -> None:
    """Make the default subnet of a zone again, where it was deleted."""
    from botocore.exceptions import ClientError

    try:
        ec2.create_default_subnet(AvailabilityZone=zone)
    except ClientError as error:
        if code(error) != "DefaultSubnetAlreadyExistsInAvailabilityZone":
            raise


def sweep(ec2: Any, owner: str, alive: Collection[str], ended: Collection[str]) -> Iterator[tuple]:
    """Delete disks, interfaces and groups that no machine uses; yield kind, id and token of each.

    Parameters
    ----------
    owner
        Whose; empty for anybody's.
    alive, ended
        Tokens of orders whose machines there are, and of those seen to have ended.
    """
    mine = ours(owner)

    def listed(action: str, key: str, *more: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for page in ec2.get_paginator(action).paginate(Filters=[*more, *mine]):
            yield from page[key]

    idle = filtered("status", "available")
    for each in listed("describe_volumes", "Volumes", idle):
        if _gone(ec2.delete_volume, VolumeId=each["VolumeId"]):
            yield "disk", each["VolumeId"], read(each)[TOKEN]
    for each in listed("describe_network_interfaces", "NetworkInterfaces", idle):
        id = each["NetworkInterfaceId"]
        if _gone(ec2.delete_network_interface, NetworkInterfaceId=id):
            yield "interface", id, read(each)[TOKEN]
    for each in listed("describe_security_groups", "SecurityGroups"):
        words = read(each)
        young = time.time() - float(words.get(MADE, 0)) < YOUNG_SECONDS
        if words[TOKEN] in alive or (young and words[TOKEN] not in ended):
            continue
        if _gone(ec2.delete_security_group, GroupId=each["GroupId"]):
            yield "security group", each["GroupId"], words[TOKEN]


def _gone(delete: Callable[..., Any], **which: str) -> bool:
    """Delete something; False if it is gone already, or a machine that is ending still has it."""
    from botocore.exceptions import ClientError

    try:
        delete(**which)
    except ClientError as error:
        if re.search(r"NotFound$|InUse$|DependencyViolation|IncorrectState", code(error)):
            return False
        raise
    return True


def _vpc(ec2: Any) -> str:
    """The default VPC of a region; it is made again where it was deleted."""
    from botocore.exceptions import ClientError

    for last in (False, True):
        found = ec2.describe_vpcs(Filters=[filtered("is-default", "true")])["Vpcs"]
        if found:
            return found[0]["VpcId"]
        try:
            return ec2.create_default_vpc()["Vpc"]["VpcId"]
        except ClientError as error:
            if last or code(error) != "DefaultVpcAlreadyExists":
                raise
    raise AssertionError


def _rules(ssh_from: Collection[str], group: str) -> Iterator[dict[str, Any]]:
    """What may come in: SSH, and everything from the machines of the same group."""
    ranges = [{"CidrIp": net} for net in ssh_from if ":" not in net]
    ranges6 = [{"CidrIpv6": net} for net in ssh_from if ":" in net]
    for kind, nets in (("IpRanges", ranges), ("Ipv6Ranges", ranges6)):
        for net in nets:
            yield {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, kind: [net]}
    if group:
        yield {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}


# -- words of EC2 ------------------------------------------------------------------------------


def filtered(name: str, *values: str) -> dict[str, Any]:
    """A filter of a listing."""
    return {"Name": name, "Values": list(values)}


def ours(owner: str = "", token: str = "") -> list[dict[str, Any]]:
    """Filters for what was made by jupyter_sky, for an owner or an order."""
    pairs = [(OWNER, owner), (TOKEN, token)]
    found = [filtered(f"tag:{name}", value) for name, value in pairs if value]
    return found or [filtered("tag-key", TOKEN)]


def tags(words: Mapping[str, str], **more: str) -> list[dict[str, str]]:
    """Tags as EC2 takes them; it knows letters, digits and a few signs, and 256 of them."""
    return [
        {"Key": name, "Value": re.sub(r"[^\w\s+\-=.:/@]", "_", value)[:256]}
        for name, value in {**words, **more}.items()
    ]


def read(thing: Mapping[str, Any]) -> dict[str, str]:
    """Tags of something listed."""
    return {each["Key"]: each["Value"] for each in thing.get("Tags", ())}


def plain(word: str) -> str:
    """A word within what names of groups may have."""
    return re.sub(r"[^A-Za-z0-9 ._\-]", "_", word)


def code(error: Any) -> str:
    """AWS's code of a refusal."""
    return error.response["Error"]["Code"]
