"""What all that is launched with an account of AWS has in common: credentials, and errors."""

from __future__ import annotations

from typing import ClassVar

from ...provider.classification import ErrorTable, Meaning, ProviderError
from ...provider.protocol import Provider
from . import clients, errors


class AwsAccount(Provider):
    """Part of a driver that uses boto3."""

    login = "aws configure, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    refinements = errors.REFINEMENTS
    errors: ClassVar[ErrorTable] = errors.TABLE

    def __init__(self) -> None:
        self._access = clients.AwsClients()

    def configured(self) -> str:
        """Return in words which credentials boto3 would take, empty without any; asks nobody."""
        return clients.configured()

    def read_error(self, error: Exception) -> ProviderError | None:
        """Read code, HTTP status and message out of an error of boto3; None for any other."""
        return errors.read_error(error)

    @classmethod
    def find_meaning(cls, code: str, status: int) -> Meaning:
        """Return what a code means, or one that looks like it, else what an HTTP status means."""
        known = cls.errors.get(code) or errors.find_unknown_meaning(code, status)
        return known or super().find_meaning(code, status)
