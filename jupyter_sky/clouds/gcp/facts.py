"""Facts of Google Cloud and its managed service."""

from __future__ import annotations

import re
from typing import ClassVar

from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.translation import N_


class GcpFacts(CloudFacts):
    """Facts of Google Cloud.

    Examples
    --------
    >>> GcpFacts.quota_family("n2-standard-8"), GcpFacts.quota_family("n1-standard-8+V100:1")
    ('n2', 'V100')
    """

    provider = "jupyter_sky.clouds.gcp.provider:Gcp"
    name, title = "gcp", "Google Cloud"
    packages, install = ("google",), "pip install 'jupyter_sky[gcp]'"
    account = N_(
        "a project with billing and the Compute Engine API: https://console.cloud.google.com"
    )
    permissions = N_("the roles compute.instanceAdmin.v1 and compute.networkAdmin in this project")
    billing, launchable, can_stop = (1.0, 60.0), True, True
    pue, colour = 1.10, "#2e8b57"
    storage_region, storage_class, schemes = "us-central1", "GCS Standard", ("gs",)
    price_source = "gcp:GcpPrices"
    form_factors: ClassVar = {"^a2-|V100": "SXM", "P100": "PCIe"}
    notice_service = "GoogleNotices"
    console_page = "https://console.cloud.google.com/compute/instances"
    quota_page = "https://console.cloud.google.com/iam-admin/quotas"
    permission_page = "https://console.cloud.google.com/iam-admin/iam"
    clock = "https://compute.googleapis.com"
    settings: ClassVar = {
        "service_account": "Service account with which machines delete themselves, an e-mail "
        "address or 'default'; without one they power off, and their disk is billed until "
        "%sky reap.",
        "tpu_queue": "Time that requests for TPU slices wait in Google's queue, such as 2h; else "
        "they are refused at once where there is no capacity.",
        "dataproc_subnetwork": "Subnetwork of Dataproc's sessions, with Private Google Access; "
        "without one the subnetwork of the region in the network called default.",
        "dataproc_service_account": "Service account that Dataproc's sessions run as, an e-mail "
        "address; without one that of the project's machines.",
    }

    @classmethod
    def is_billed_when_off(cls, instance_type: str) -> bool:
        """Whether a machine goes on being billed; a VM of a TPU slice does."""
        return instance_type.startswith("tpu-")

    @staticmethod
    def quota_family(instance_type: str) -> str:
        """Return the GPU attached to a type, else its series."""
        attached = re.search(r"(?:\+|n1-attach/)([^:]+)", instance_type)
        parts = instance_type.split("-")
        series = "-".join(parts[:2]) if parts[0] == "tpu" else parts[0]
        return attached[1] if attached else series


class DataprocServerlessFacts(GcpFacts):
    """Facts of Dataproc's serverless sessions.

    Examples
    --------
    >>> DataprocServerlessFacts.host, DataprocServerlessFacts.billing
    ('gcp', (1.0, 60.0))
    """

    provider = "jupyter_sky.clouds.gcp.dataproc:DataprocServerless"
    name, title, short_title = (
        "dataproc-serverless",
        "Google Cloud Dataproc, serverless",
        "Dataproc serverless",
    )
    host = GcpFacts.name
    account = N_("a project with billing and the Dataproc API: https://console.cloud.google.com")
    permissions = N_("the roles dataproc.editor and iam.serviceAccountUser in this project")
    price_source, notice_service, schemes = "", "", ()
    console_page = "https://console.cloud.google.com/dataproc/interactive"
    settings: ClassVar = {}
