"""Credentials and errors of all that is launched with an account of AWS."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.translation import N_
from jupyter_sky.clouds.aws import clients, errors, schedules
from jupyter_sky.clouds.provider.classification import ErrorTable, Meaning, ProviderError
from jupyter_sky.clouds.provider.naming import TOKEN
from jupyter_sky.clouds.provider.protocol import Provider


class AwsAccount(Provider):
    """Part of a provider that uses boto3."""

    login = "aws configure, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    policy_use = N_(
        "IAM > Policies > Create policy > JSON, then attach it to the user: "
        "https://console.aws.amazon.com/iam/home#/policies/create"
    )
    refinements = errors.REFINEMENTS
    errors: ClassVar[ErrorTable] = errors.TABLE

    def __init__(self) -> None:
        self._access = clients.AwsClients()

    def configured(self) -> str:
        """Return in words which credentials boto3 would take, empty without any; asks nobody."""
        return clients.configured()

    def policy(self) -> str:
        """Return the policy of an IAM user that launches machines, as JSON."""
        return json.dumps(policy_document(schedules.scheduler_role()), indent=2)

    def read_error(self, error: Exception) -> ProviderError | None:
        """Read code, HTTP status and message out of an error of boto3; None for any other."""
        return errors.read_error(error)

    @classmethod
    def find_meaning(cls, code: str, status: int) -> Meaning:
        """Return what a code means, or one that looks like it, else what an HTTP status means."""
        known = cls.errors.get(code) or errors.find_unknown_meaning(code, status)
        return known or super().find_meaning(code, status)


# -- Least rights of an IAM user that launches machines: what the provider asks, and no more ------
#
# What it has made carries a tag: other machines, disks and groups of the account are out of reach.

READ_ACTIONS = (
    "ec2:DescribeImages",
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeRegions",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeVolumes",
    "sts:GetCallerIdentity",
)
PRICE_ACTIONS = (
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeSpotPriceHistory",
    "pricing:GetProducts",
    "servicequotas:ListServiceQuotas",
)
"""For ``catalog refresh`` and quotas alone."""
OWN_ACTIONS = (
    "ec2:AuthorizeSecurityGroupIngress",
    "ec2:DeleteNetworkInterface",
    "ec2:DeleteSecurityGroup",
    "ec2:DeleteVolume",
    "ec2:GetConsoleOutput",
    "ec2:StartInstances",
    "ec2:StopInstances",
    "ec2:TerminateInstances",
)
"""On what carries our tag."""
_MADE = ("instance", "network-interface", "spot-instances-request", "volume")
_USED = ("key-pair", "security-group", "subnet")


def policy_document(scheduler_role: str = "") -> JsonObject:
    """Return the policy, as IAM takes it.

    Parameters
    ----------
    scheduler_role
        ARN of the role by which EventBridge ends machines; empty where there is none.

    Examples
    --------
    >>> [each["Sid"] for each in policy_document()["Statement"]][:2]
    ['Look', 'ReadImages']
    """
    tagged = {"Null": {f"aws:RequestTag/{TOKEN}": "false"}}
    ours = {"Null": {f"aws:ResourceTag/{TOKEN}": "false"}}
    made_with = {"StringEquals": {"ec2:CreateAction": ["RunInstances", "CreateSecurityGroup"]}}
    spot = {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}}
    statements = [
        _allow("Look", READ_ACTIONS),
        _allow("ReadImages", ["ssm:GetParameter"], ["arn:aws:ssm:*::parameter/aws/service/*"]),
        _allow("LaunchMachines", ["ec2:RunInstances"], map(_resource, _MADE), tagged),
        _allow(
            "UseImages", ["ec2:RunInstances"], ["arn:aws:ec2:*::image/*", *map(_resource, _USED)]
        ),
        _allow("MakeGroups", ["ec2:CreateSecurityGroup"], [_resource("security-group")], tagged),
        _allow("UseNetworks", ["ec2:CreateSecurityGroup"], [_resource("vpc")]),
        _allow("TagNew", ["ec2:CreateTags"], condition=made_with),
        _allow("ChangeOwn", OWN_ACTIONS, condition=ours),
        _allow("RestoreDefaults", ["ec2:CreateDefaultSubnet", "ec2:CreateDefaultVpc"]),
        _allow(
            "FirstSpotMachine",
            ["iam:CreateServiceLinkedRole"],
            ["arn:aws:iam::*:role/aws-service-role/spot.amazonaws.com/*"],
            spot,
        ),
        _allow("Prices", PRICE_ACTIONS),
    ]
    if scheduler_role:
        statements += [
            _allow("EndByClock", ["scheduler:CreateSchedule", "scheduler:DeleteSchedule"]),
            _allow("UseRole", ["iam:PassRole"], [scheduler_role]),
        ]
    return {"Version": "2012-10-17", "Statement": statements}


def policy_actions(document: JsonObject) -> set[str]:
    """Return all actions that a policy allows."""
    return {action for each in document["Statement"] for action in each["Action"]}


def _resource(kind: str) -> str:
    return f"arn:aws:ec2:*:*:{kind}/*"


def _allow(
    name: str, actions: Any, resources: Any = ("*",), condition: JsonObject | None = None
) -> JsonObject:
    statement = {"Sid": name, "Effect": "Allow", "Action": list(actions)}
    statement["Resource"] = list(resources)
    return statement | ({"Condition": condition} if condition else {})
