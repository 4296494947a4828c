"""What all that is launched in a project of Google Cloud has in common: credentials, and errors."""

from __future__ import annotations

from typing import ClassVar

from ...provider.classification import ErrorTable, ProviderError
from ...provider.protocol import Provider
from . import clients, errors


class GcpAccount(Provider):
    """Part of a driver that uses Google's SDK."""

    login = "gcloud auth application-default login, and set GOOGLE_CLOUD_PROJECT"
    refinements = errors.REFINEMENTS
    errors: ClassVar[ErrorTable] = {**errors.TABLE, **errors.STATUSES}

    def configured(self) -> str:
        """Return in words which credentials would be used, empty without any; asks nobody."""
        return clients.configured()

    def read_error(self, error: Exception) -> ProviderError | None:
        """Read code, HTTP status and message out of an error of Google's SDK."""
        return errors.read_error(error)
