"""Facts of managed services, which are launched as clouds are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.clouds.facts import AwsFacts, GcpFacts
from jupyter_sky.base.translation import N_


class EmrServerlessFacts(AwsFacts):
    """Facts of Amazon EMR Serverless, whose sessions are launched as machines are.

    Examples
    --------
    >>> EmrServerlessFacts.host, EmrServerlessFacts.billing
    ('aws', (1.0, 60.0))
    """

    driver = "jupyter_sky.clouds.aws.emr_serverless:EmrServerless"
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

    driver = "jupyter_sky.clouds.aws.emr:Emr"
    name, title, short_title = "emr", "Amazon EMR", "EMR"
    host, first_release = AwsFacts.name, (8, 0, 0)
    permissions = N_(
        "for this user elasticmapreduce:* and iam:PassRole on EMR_DefaultRole and "
        "EMR_EC2_DefaultRole, which aws emr create-default-roles makes"
    )
    price_source, notice_service, schemes = "", "", ()
    console_page = "https://{region}.console.aws.amazon.com/emr/home?region={region}"
    settings: ClassVar = {}


class DataprocServerlessFacts(GcpFacts):
    """Facts of Dataproc's serverless sessions.

    Examples
    --------
    >>> DataprocServerlessFacts.host, DataprocServerlessFacts.billing
    ('gcp', (1.0, 60.0))
    """

    driver = "jupyter_sky.clouds.gcp.dataproc:DataprocServerless"
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


MANAGED: Mapping[str, type[CloudFacts]] = {
    facts.name: facts for facts in (EmrServerlessFacts, EmrFacts, DataprocServerlessFacts)
}
"""Facts of managed services that can be launched, by name."""
