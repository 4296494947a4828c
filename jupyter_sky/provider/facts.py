"""Facts of a cloud as class attributes, and those of the clouds that are built in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

from ..translation import N_

API_VERSION = 1
"""Version of the protocol `Provider`; a driver names the one that it is written for."""
LONGEST_BILLING_UNIT = 86400.0
"""Longest step or minimum of billed time that a cloud may have, seconds."""
_SIZE_SUFFIX = re.compile(r"[-_.]\d+[a-z]*$")


@lru_cache(maxsize=4096)
def parse_release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version.

    Examples
    --------
    >>> parse_release("8.0.0") > parse_release("7.13.0")
    True
    """
    return tuple(map(int, re.findall(r"\d+", version)))


class CloudFacts:
    """Properties of a cloud that other rooms read; all have defaults but ``name``.

    Attributes
    ----------
    name : str
        As in ``%%sky --cloud``; of a managed service, as in ``%%sky --service``.
    host : str
        Cloud of a managed service; empty for a cloud itself.
    first_release : tuple of int
        First version of a managed service that can be launched; empty for any.
    title : str
        As its vendor writes it.
    short_title : str
        Title in a word, where the title is long.
    packages : tuple of str
        Top-level modules of its SDK.
    install : str
        Command that installs them.
    account, permissions : str
        What to get from the vendor before the first launch, and what its user has to be allowed.
    note : str
        A few words beside its name in lists, where no offers are counted.
    settings : mapping of str to str
        Settings of this cloud alone, each with its description: keys of ``Sky.providers[name]``,
        read by ``Sky.load().provider_setting(name, key)``.
    billing : tuple of float
        Step and minimum of billed time, seconds, at most a day; (0, 0) where it costs nothing.
    launchable : bool
        Whether machines can be launched; else its offers are planned and priced only.
    on_premises : bool
        Whether its machines are one's own, which no catalog lists.
    only_by_name : bool
        Whether it is asked only where a request names it: what it has costs nothing, and would
        else be taken before all others.
    runs_images : bool
        Whether its machines are containers, of an image that a request may name.
    dedicated_host_prefix : str
        Instance types beginning so run on a Dedicated Host alone; empty where none do.
    has_live_offers : bool
        Whether its stock and prices are asked just before a launch, which takes nothing else.
    has_private_network : bool
        Whether the machines of a launch reach each other; else each is launched alone.
    power_off_cost : str
        What a machine costs that has powered itself off: ``none``, as on clouds where it is then
        gone, its ``disk``, or ``full``: it ends only by a request from outside.
    deletes_itself : bool
        Whether one that is off is gone soon; else it stays until a process of this user ends it.
    pue : float
        Power usage effectiveness of its data centres.
    storage_region : str
        Region of objects whose address names none; empty where it stores none.
    storage_class : str
        Name of its standard storage class.
    schemes, storage_hosts : tuple of str
        URI schemes of its object store, and suffixes of host names in its ``https`` addresses.
    has_flat_egress : bool
        Whether data that leave a region cost the same to every other region.
    form_factors : mapping of str to str
        Form factor of accelerators that are sold in several, by a regular expression of instance
        types that do not name it; the first that is found counts.
    sgx_types : str
        Regular expression of the instance types with Intel SGX; empty where there are none.
    price_source : str
        Module and class in `jupyter_sky.catalog.refresh` that read its price list.
    notice_service : str
        Class in `jupyter_sky.engines.node.notices` that reads what the cloud tells a machine about
        its end; empty where it tells nothing.
    console_page, quota_page, permission_page : str
        Console pages of machines, quotas and permissions; ``{region}`` stands for a region.
    clock : str
        Address whose answers carry the time by which it judges signatures.
    colour : str
        In drawings of plans.
    driver : str
        Module and class of the driver of a cloud of this package, imported at its first use.
    api_version : int
        Version of the protocol that a driver is written for.

    Examples
    --------
    >>> class Nimbus(CloudFacts):
    ...     name, title, billing = "nimbus", "Nimbus Cloud", (60.0, 60.0)
    >>> Nimbus.quota_family("gpu-8"), Nimbus.product_family("gpu-8")
    ('gpu-8', 'gpu')
    """

    name: ClassVar[str]
    host: ClassVar[str] = ""
    first_release: ClassVar[tuple[int, ...]] = ()
    title: ClassVar[str] = ""
    short_title: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()
    install: ClassVar[str] = ""
    account: ClassVar[str] = ""
    permissions: ClassVar[str] = ""
    note: ClassVar[str] = ""
    settings: ClassVar[Mapping[str, str]] = {}
    billing: ClassVar[tuple[float, float]] = (0.0, 0.0)
    launchable: ClassVar[bool] = False
    on_premises: ClassVar[bool] = False
    only_by_name: ClassVar[bool] = False
    runs_images: ClassVar[bool] = False
    dedicated_host_prefix: ClassVar[str] = ""
    has_live_offers: ClassVar[bool] = False
    has_private_network: ClassVar[bool] = True
    power_off_cost: ClassVar[str] = "none"
    deletes_itself: ClassVar[bool] = True
    pue: ClassVar[float] = 1.2
    storage_region: ClassVar[str] = ""
    storage_class: ClassVar[str] = ""
    schemes: ClassVar[tuple[str, ...]] = ()
    storage_hosts: ClassVar[tuple[str, ...]] = ()
    has_flat_egress: ClassVar[bool] = False
    form_factors: ClassVar[Mapping[str, str]] = {}
    sgx_types: ClassVar[str] = ""
    price_source: ClassVar[str] = ""
    notice_service: ClassVar[str] = ""
    console_page: ClassVar[str] = ""
    quota_page: ClassVar[str] = ""
    permission_page: ClassVar[str] = ""
    clock: ClassVar[str] = ""
    colour: ClassVar[str] = "#8a63c9"
    driver: ClassVar[str] = ""
    api_version: ClassVar[int] = API_VERSION

    @staticmethod
    def quota_family(instance_type: str) -> str:
        """Return the name under which instance types share a quota, by default a type's own."""
        return instance_type

    @classmethod
    def form_factor(cls, instance_type: str) -> str:
        """Return the form factor of a machine's accelerators; empty where it is not known."""
        found = (form for key, form in cls.form_factors.items() if re.search(key, instance_type))
        return next(found, "")

    @staticmethod
    def product_family(instance_type: str) -> str:
        """Return the name of an instance type without its size."""
        return _SIZE_SUFFIX.sub("", instance_type) or instance_type


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
    billing, launchable = (1.0, 60.0), True
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
        "dataproc_subnetwork": "Subnetwork of Dataproc's sessions, with Private Google Access; "
        "without one the subnetwork of the region in the network called default.",
        "dataproc_service_account": "Service account that Dataproc's sessions run as, an e-mail "
        "address; without one that of the project's machines.",
    }

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


class LocalFacts(CloudFacts):
    """Facts of this machine as a cloud."""

    name, title, colour = "local", "This machine", "#808080"
    note = "this machine, free"
    launchable = on_premises = True


class SshFacts(CloudFacts):
    """Facts of a pool of machines of one's own."""

    name, title, note = "ssh", "Machines of one's own", "machines of your own"
    launchable = on_premises = True


class ContainerFacts(CloudFacts):
    """Facts of containers on this machine."""

    driver = "jupyter_sky.clouds.container:Container"
    name, title, short_title = "container", "Containers on this machine", "Containers"
    note, colour = "containers on this machine, free", "#495057"
    launchable = on_premises = has_live_offers = only_by_name = runs_images = True
    settings: ClassVar = {
        "image": "Image of containers, with a shell and either sshd, apt or apk.",
        "options": "Further options of 'podman run', such as -v /data:/data:ro.",
        "program": "podman or docker, or its path; the first that is installed.",
    }


class KubernetesFacts(CloudFacts):
    """Facts of Kubernetes clusters."""

    driver = "jupyter_sky.clouds.kubernetes.driver:Kubernetes"
    name, title = "kubernetes", "Kubernetes"
    packages, install = ("kubernetes",), "pip install 'jupyter_sky[kubernetes]'"
    account = N_("a cluster, and a kubeconfig with a context for it")
    permissions = N_(
        "in a namespace: create, get, list and delete pods, pods/exec, pods/log, list events; list "
        "nodes, and best all pods"
    )
    note, colour = "pods of clusters of your own", "#326ce5"
    launchable = on_premises = has_live_offers = only_by_name = runs_images = True
    settings: ClassVar = {
        "autoscaled": "Any text where clusters add nodes: all that a node can hold is offered.",
        "contexts": "Contexts of the kubeconfig to use, with commas; else all.",
        "image": "Image of pods, with a shell and either sshd, apt or apk.",
        "namespace": "Namespace of pods; else that of the context.",
        "node_selector": "Labels of nodes to use, such as pool=batch,disk=ssd.",
        "price": "USD/h of one vCPU with its memory; 0 where it costs nothing.",
        "schedule_seconds": "Seconds that pods may wait for a node that has room.",
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
        ContainerFacts,
        KubernetesFacts,
    )
}
"""Facts of the clouds of this package, by name."""
