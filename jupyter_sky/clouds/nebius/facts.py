"""Facts of Nebius."""

from __future__ import annotations

from typing import ClassVar

from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.translation import N_


class NebiusFacts(CloudFacts):
    """Facts of Nebius."""

    provider = "jupyter_sky.clouds.nebius.provider:Nebius"
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
