"""Facts of Amazon Web Services and its managed services."""

from __future__ import annotations

import re
from typing import ClassVar

from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.translation import N_


class AwsFacts(CloudFacts):
    """Facts of Amazon Web Services.

    Examples
    --------
    >>> [AwsFacts.quota_family(name) for name in ("g5.xlarge", "c7g.large", "trn1.2xlarge")]
    ['g', 'standard', 'trn']
    """

    provider = "jupyter_sky.clouds.aws.provider:Aws"
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


class EmrServerlessFacts(AwsFacts):
    """Facts of Amazon EMR Serverless, whose sessions are launched as machines are.

    Examples
    --------
    >>> EmrServerlessFacts.host, EmrServerlessFacts.billing
    ('aws', (1.0, 60.0))
    """

    provider = "jupyter_sky.clouds.aws.emr_serverless:EmrServerless"
    name, title, short_title = "emr-serverless", "Amazon EMR Serverless", "EMR Serverless"
    host = AwsFacts.name
    permissions = N_(
        "for this user emr-serverless:* and, for the role that sessions run with, iam:PassRole"
    )
    price_source, notice_service, schemes = "", "", ()
    console_page = "https://{region}.console.aws.amazon.com/emr/home?region={region}"
    quota_page = (
        "https://{region}.console.aws.amazon.com/servicequotas/home/services/emr-serverless/quotas"
    )
    settings: ClassVar = {}


class EmrFacts(AwsFacts):
    """Facts of Amazon EMR on machines of EC2, whose clusters are launched as machines are.

    Examples
    --------
    >>> EmrFacts.host, EmrFacts.first_release
    ('aws', (8, 0, 0))
    """

    provider = "jupyter_sky.clouds.aws.emr:Emr"
    name, title, short_title = "emr", "Amazon EMR", "EMR"
    host, first_release = AwsFacts.name, (8, 0, 0)
    permissions = N_(
        "for this user elasticmapreduce:* and iam:PassRole on EMR_DefaultRole and "
        "EMR_EC2_DefaultRole, which aws emr create-default-roles makes"
    )
    price_source, notice_service, schemes = "", "", ()
    console_page = "https://{region}.console.aws.amazon.com/emr/home?region={region}"
    settings: ClassVar = {}
