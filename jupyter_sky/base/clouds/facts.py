"""Facts of the clouds that are built in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.clouds.on_premises_facts import (
    ContainerFacts,
    KubernetesFacts,
    LocalFacts,
    SlurmFacts,
    SshFacts,
)
from jupyter_sky.base.translation import N_


class AwsFacts(CloudFacts):
    """Facts of Amazon Web Services.

    Examples
    --------
    >>> [AwsFacts.quota_family(name) for name in ("g5.xlarge", "c7g.large", "trn1.2xlarge")]
    ['g', 'standard', 'trn']
    """

    driver = "jupyter_sky.clouds.aws.driver:Aws"
    name, title, short_title = "aws", "Amazon Web Services", "AWS"
    packages, install = ("boto3", "botocore"), "pip install 'jupyter_sky[aws]'"
    account = N_("an account, and in IAM a user with an access key: https://aws.amazon.com")
    permissions = N_(
        "for this user EC2: RunInstances, TerminateInstances, CreateTags, Describe*, "
        "GetConsoleOutput, CreateSecurityGroup, AuthorizeSecurityGroupIngress, "
        "DeleteSecurityGroup, DeleteVolume, DeleteNetworkInterface"
    )
    billing, launchable = (1.0, 60.0), True
    can_stop = True
    dedicated_host_prefix = "mac"
    pue, colour = 1.135, "#c77700"
    storage_region, storage_class, schemes = "us-east-1", "S3 Standard", ("s3",)
    has_flat_egress, price_source = True, "aws:AwsPrices"
    form_factors: ClassVar = {"^p3|^p4d": "SXM"}
    notice_service = "AwsNotices"
    console_page = "https://{region}.console.aws.amazon.com/ec2/home?region={region}#Instances:"
    quota_page = "https://{region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas"
    permission_page = "https://console.aws.amazon.com/iam/home#/users"
    clock = "https://sts.amazonaws.com"
    settings: ClassVar = {
        "scheduler_role": "ARN of a role with which EventBridge ends machines at the end of their "
        "lease; without one they end by themselves.",
        "emr_serverless_role": "ARN of the role that sessions of EMR Serverless run with; without "
        "one that of this account whose name is jupyter-sky-emr-serverless.",
        "emr_subnet": "Subnet of EMR's machines; without one the default VPC of the region.",
    }
    own_quota_series: ClassVar[tuple[str, ...]] = ("dl", "hpc", "inf", "mac", "trn")
    """Series that begin like a standard one and have a quota of their own."""

    @staticmethod
    def quota_family(instance_type: str) -> str:
        """Return the class of a type; A, C, D, H, I, M, R, T and Z share one, G and VT another."""
        letters = re.match(r"[a-z]+", instance_type)
        series = letters[0] if letters else instance_type
        standard = series.startswith(tuple("acdhimrtz"))
        if standard and series not in AwsFacts.own_quota_series:
            return "standard"
        return "g" if series == "vt" else series

    @staticmethod
    def product_family(instance_type: str) -> str:
        """Return the part of a type before its dot."""
        return instance_type.split(".")[0]


class AzureFacts(CloudFacts):
    """Facts of Microsoft Azure.

    Examples
    --------
    >>> AzureFacts.quota_family("Standard_NC24ads_A100_v4")
    'Standard_NCads_A100_v4'
    >>> AzureFacts.product_family("Standard_D8as_v5")
    'Das_v5'
    """

    driver = "jupyter_sky.clouds.azure.driver:Azure"
    name, title, short_title = "azure", "Microsoft Azure", "Azure"
    packages, install = ("azure",), "pip install 'jupyter_sky[azure]'"
    account = N_("a subscription: https://portal.azure.com")
    permissions = N_("the role Contributor in this subscription")
    billing, launchable = (1.0, 0.0), True
    can_stop, stop_extra_usd = True, 0.005  # its public address is kept, and billed
    pue, colour = 1.185, "#1f77c9"
    storage_region, storage_class = "eastus", "Blob Hot LRS"
    schemes, storage_hosts = ("az", "abfs", "abfss"), (".blob.core.windows.net",)
    price_source = "azure:AzurePrices"
    form_factors: ClassVar = {"_ND": "SXM", "_NC.*_(v2|v3|A100_v4)$": "PCIe"}
    notice_service = "AzureNotices"
    console_page = "https://portal.azure.com/#browse/Microsoft.Compute%2FVirtualMachines"
    quota_page = "https://portal.azure.com/#view/Microsoft_Azure_Capacity/QuotaMenuBlade/~/myQuotas"
    permission_page = "https://portal.azure.com/#view/Microsoft_Azure_Billing/SubscriptionsBladeV2"
    clock = "https://management.azure.com"
    sgx_types = r"Standard_DC\d+(s|s_v2|_v2|s_v3|ds_v3)"

    @staticmethod
    def quota_family(instance_type: str) -> str:
        """Return the series of a type without its size."""
        return re.sub(r"(?<=[A-Za-z])\d+(?:-\d+)?(?=[a-z]*(?:_|$))", "", instance_type, count=1)

    @staticmethod
    def product_family(instance_type: str) -> str:
        """Return the letters and the version of a type."""
        found = re.fullmatch(r"Standard_([A-Z]+)\d+(?:-\d+)?([a-z]*)(?:_(.+))?", instance_type)
        if found is None:
            return CloudFacts.product_family(instance_type)
        letters, features, version = found.groups()
        return f"{letters}{features}" + (f"_{version}" if version else "")


class GcpFacts(CloudFacts):
    """Facts of Google Cloud.

    Examples
    --------
    >>> GcpFacts.quota_family("n2-standard-8"), GcpFacts.quota_family("n1-standard-8+V100:1")
    ('n2', 'V100')
    """

    driver = "jupyter_sky.clouds.gcp.driver:Gcp"
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


class HyperstackFacts(CloudFacts):
    """Facts of Hyperstack."""

    driver = "jupyter_sky.clouds.hyperstack:Hyperstack"
    name, title, billing = "hyperstack", "Hyperstack", (60.0, 60.0)
    console_page = "https://console.hyperstack.cloud/virtual-machines"
    account = N_("an account with credit: https://console.hyperstack.cloud")
    permissions = N_("an API key, which may do all")
    launchable, has_live_offers, power_off_cost, colour = True, True, "full", "#2b8a3e"
    settings: ClassVar = {
        "endpoint": "Address of the API, where it is not that of Hyperstack.",
        "image": "Image of the machines; the newest Ubuntu, with CUDA where there are GPUs.",
        "launch_seconds": "Seconds from one launch to the next.",
    }


class LambdaFacts(CloudFacts):
    """Facts of Lambda."""

    driver = "jupyter_sky.clouds.lambdalabs:Lambda"
    name, title, billing = "lambda", "Lambda", (60.0, 60.0)
    console_page = "https://cloud.lambda.ai/instances"
    account = N_("an account with a payment method: https://lambda.ai")
    permissions = N_("an API key, which may do all")
    launchable, has_live_offers, power_off_cost, colour = True, True, "full", "#5f3dc4"
    price_source = "lambdalabs:LambdaPrices"
    form_factors: ClassVar = {"^gpu_8x_a100": "SXM", "^gpu_[124]x_a100$": "PCIe"}
    settings: ClassVar = {
        "endpoint": "Address of the API, where it is not that of Lambda.",
        "launch_seconds": "Seconds from one launch to the next; the API takes one in 12.",
    }


class NebiusFacts(CloudFacts):
    """Facts of Nebius."""

    driver = "jupyter_sky.clouds.nebius.driver:Nebius"
    name, title, billing = "nebius", "Nebius", (1.0, 0.0)
    packages, install = ("nebius",), "pip install 'jupyter_sky[nebius]'"
    console_page = "https://console.nebius.com"
    account = N_("a tenant with a project in each region to use: https://console.nebius.com")
    permissions = N_("a service account in the group editors, with an authorized key")
    launchable, has_live_offers, colour = True, True, "#c2255c"
    power_off_cost, deletes_itself = "disk", False
    settings: ClassVar = {
        "endpoint": "Host and port of all services, where they are not those of Nebius.",
        "image": "Image family of the boot disk.",
        "launch_seconds": "Seconds from one launch to the next.",
        "projects": "IDs of the projects to use, with commas; else the first of each region.",
        "tenant": "ID of the tenant, where the credentials reach several.",
    }


class RunPodFacts(CloudFacts):
    """Facts of RunPod."""

    driver = "jupyter_sky.clouds.runpod:RunPod"
    name, title, billing = "runpod", "RunPod", (1.0, 0.0)
    console_page = "https://console.runpod.io/pods"
    account = N_("an account with credit: https://console.runpod.io")
    permissions = N_("an API key that may read and write REST and GraphQL")
    launchable, has_live_offers, power_off_cost, colour = True, True, "disk", "#7048e8"
    runs_images = True
    settings: ClassVar = {
        "endpoint": "Address of the REST API, where it is not that of RunPod.",
        "graphql": "Address of the GraphQL API, where it is not that of RunPod.",
        "image": "Image of the pods, with a shell and either sshd or apt.",
        "launch_seconds": "Seconds from one launch to the next.",
    }


class VastFacts(CloudFacts):
    """Facts of Vast.ai."""

    driver = "jupyter_sky.clouds.vast:Vast"
    name, title, billing = "vast", "Vast.ai", (1.0, 0.0)
    console_page = "https://cloud.vast.ai/instances/"
    account = N_("an account with credit: https://cloud.vast.ai")
    permissions = N_("an API key that may search offers, and read and write instances")
    launchable, has_live_offers, power_off_cost, colour = True, True, "disk", "#1098ad"
    runs_images = True
    has_private_network = False
    settings: ClassVar = {
        "endpoint": "Address of the API, where it is not that of Vast.ai.",
        "image": "Image of the containers, with a shell and either sshd or apt.",
        "launch_seconds": "Seconds from one launch to the next.",
    }


class VerdaFacts(CloudFacts):
    """Facts of Verda."""

    driver = "jupyter_sky.clouds.verda:Verda"
    name, title, billing = "verda", "Verda", (600.0, 600.0)
    console_page = "https://console.verda.com"
    account = N_("an account with credit: https://console.verda.com")
    permissions = N_("credentials for the Cloud API, which may do all")
    launchable, has_live_offers, power_off_cost, colour = True, True, "full", "#0b7285"
    settings: ClassVar = {
        "endpoint": "Address of the API, where it is not that of Verda.",
        "image": "Image of the machines.",
        "launch_seconds": "Seconds from one launch to the next.",
    }


BUILT_IN: Mapping[str, type[CloudFacts]] = {
    facts.name: facts
    for facts in (
        AwsFacts,
        GcpFacts,
        AzureFacts,
        HyperstackFacts,
        LambdaFacts,
        NebiusFacts,
        RunPodFacts,
        VastFacts,
        VerdaFacts,
        LocalFacts,
        SshFacts,
        SlurmFacts,
        ContainerFacts,
        KubernetesFacts,
    )
}
"""Facts of the clouds of this package, by name."""
