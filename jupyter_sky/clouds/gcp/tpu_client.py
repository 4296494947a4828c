"""TPU API of Google Cloud: its requests, and the meaning of what it refuses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jupyter_sky.clouds.gcp.clients import GcpClients
from jupyter_sky.clouds.launches.rest import RestClient
from jupyter_sky.clouds.launches.self_delete import wrap_in_shell
from jupyter_sky.clouds.provider.classification import (
    ErrorTable,
    ProviderError,
    Refinement,
    group_codes,
)

ADDRESS = "https://tpu.googleapis.com"
ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"
PATH_KEY = "jupyter-sky-path"
"""Metadata with the path by which VMs of a slice delete it."""
_QUOTA = "ask for more: https://console.cloud.google.com/iam-admin/quotas (TPU API)"
_ROLE = (
    "ask for the role: gcloud projects add-iam-policy-binding PROJECT --member=user:YOU "
    "--role=roles/tpu.admin; and enable the API: gcloud services enable tpu.googleapis.com"
)

CODES: ErrorTable = group_codes(
    ("capacity", "zone", "", "tpu:OPERATION:8 tpu:QUEUE"),
    ("quota", "region", _QUOTA, "tpu:RESOURCE_EXHAUSTED"),
    ("permission", "region", _ROLE, "tpu:PERMISSION_DENIED tpu:OPERATION:7"),
    ("permission", "region", _ROLE, "tpu:UNAUTHENTICATED"),
    ("invalid", "zone", "", "tpu:INVALID_ARGUMENT tpu:NOT_FOUND tpu:FAILED_PRECONDITION"),
    ("invalid", "zone", "", "tpu:OPERATION:3 tpu:OPERATION:5 tpu:OPERATION:9"),
    ("transient", "zone", "", "tpu:UNAVAILABLE tpu:INTERNAL tpu:ABORTED tpu:ALREADY_EXISTS"),
    ("transient", "zone", "", "tpu:OPERATION:13 tpu:OPERATION:14 tpu:UNREACHABLE"),
)
"""Meaning of refusals; ``OPERATION`` is of one that was accepted and failed, with its status."""
REFINEMENTS = (
    Refinement("tpu:RESOURCE_EXHAUSTED", r"(?i)per minute|requests", cause="throttled", fix=""),
    Refinement("tpu:OPERATION:8", r"(?i)quota", cause="quota", scope="region", fix=_QUOTA),
)


def address() -> str:
    """Return the address of the API."""
    return os.environ.get(ENDPOINT, "").rstrip("/") or ADDRESS


class TpuClient:
    """TPU API of one project."""

    def __init__(self, access: GcpClients) -> None:
        self._access, self._project = access, f"/v2/projects/{access.project}"

    def parent(self, zone: str) -> str:
        """Return the name of a zone."""
        return f"{self._project.removeprefix('/v2/')}/locations/{zone}"

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """Send a request; ``path`` is below the project's locations, or the name of an operation.

        Raises
        ------
        ProviderError
            Refused; its code is the status with the prefix ``tpu:``.
        """
        base = address()
        headers = {"Authorization": f"Bearer {self._access.bearer_token()}"}
        place = path if path.startswith("/v2/") else f"{self._project}/locations/{path}"
        try:
            return RestClient(base, headers, "error.status").call(method, place, body, query)
        except ProviderError as error:
            error.code = f"tpu:{error.code or error.status}"
            raise

    def list_all(self, kind: str) -> Iterator[Any]:
        """Yield all nodes or queued resources of all zones.

        Raises
        ------
        ProviderError
            A zone does not answer: what it holds may not be taken for gone.
        """
        page = {"pageSize": "500"}
        while True:
            answer = self.call("GET", f"-/{kind}", **page) or {}
            if silent := answer.get("unreachable"):
                words = f"{', '.join(silent)} do not answer"
                raise ProviderError(words, code="tpu:UNREACHABLE")
            yield from answer.get(kind, ())
            if not answer.get("nextPageToken"):
                return
            page["pageToken"] = answer["nextPageToken"]

    def get(self, path: str) -> Any:
        """Return a node, a queued resource or an operation; None where there is none."""
        with ignore_missing():
            return self.call("GET", path)
        return None


@contextmanager
def ignore_missing() -> Iterator[None]:
    """Let the refusal pass that something is not there."""
    try:
        yield
    except ProviderError as error:
        if error.status != 404:
            raise


def self_delete_script() -> str:
    """Return shell commands by which a VM that has an account deletes its slice."""
    # a VM that is off goes on being billed
    return wrap_in_shell(_DELETE_REQUEST.format(tpu=address(), key=PATH_KEY), retry_forever=True)


_DELETE_REQUEST = """\
def read_instance(path):
    return read_metadata("computeMetadata/v1/" + path, {{"Metadata-Flavor": "Google"}})

def delete_request():
    token = json.loads(read_instance("instance/service-accounts/default/token"))["access_token"]
    url = "{tpu}/v2/projects/" + read_instance("project/project-id") + "/locations/"
    url += read_instance("instance/zone").rpartition("/")[2] + "/"
    return url + read_instance("instance/attributes/{key}"), token

"""
