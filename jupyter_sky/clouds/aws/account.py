"""Credentials and errors of all that is launched with an account of AWS."""

from __future__ import annotations

import json
from typing import ClassVar

from jupyter_sky.base.translation import N_
from jupyter_sky.clouds.aws import clients, errors, policy, schedules
from jupyter_sky.clouds.provider.classification import ErrorTable, Meaning, ProviderError
from jupyter_sky.clouds.provider.protocol import Provider


class AwsAccount(Provider):
    """Part of a driver that uses boto3."""

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
        return json.dumps(policy.policy_document(schedules.scheduler_role()), indent=2)

    def read_error(self, error: Exception) -> ProviderError | None:
        """Read code, HTTP status and message out of an error of boto3; None for any other."""
        return errors.read_error(error)

    @classmethod
    def find_meaning(cls, code: str, status: int) -> Meaning:
        """Return what a code means, or one that looks like it, else what an HTTP status means."""
        known = cls.errors.get(code) or errors.find_unknown_meaning(code, status)
        return known or super().find_meaning(code, status)
