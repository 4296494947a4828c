"""Facts of Microsoft Azure."""

from __future__ import annotations

import re
from typing import ClassVar

from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.translation import N_


class AzureFacts(CloudFacts):
    """Facts of Microsoft Azure.

    Examples
    --------
    >>> AzureFacts.quota_family("Standard_NC24ads_A100_v4")
    'Standard_NCads_A100_v4'
    >>> AzureFacts.product_family("Standard_D8as_v5")
    'Das_v5'
    """

    provider = "jupyter_sky.clouds.azure.provider:Azure"
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
