"""Offers that can be launched with any account."""

from __future__ import annotations

from ..geography import ON_PREMISES
from ..offers import Offer
from ..resources import Resources

PROVIDERS = ("aws", "gcp", "azure")
"""Clouds whose machines are rented; those of `ON_PREMISES` have machines of one's own."""
TPU = "tpu-"
"""Prefix of accelerators that come as slices of a TPU pod, not as part of a machine."""
DEDICATED_HOST = {"aws": "mac"}
"""Prefixes of instance types that run on a Dedicated Host alone."""


def launchable() -> tuple[str, ...]:
    """Return the names of the clouds that can launch machines."""
    return ON_PREMISES + PROVIDERS


def launch_obstacle(offer: Offer) -> str:
    """Say why an offer cannot be launched from here; empty when it can be.

    Credentials are another matter: see `jupyter_sky.clouds.is_ready`.

    Examples
    --------
    >>> launch_obstacle(Offer("gcp", "us-central1", "tpu-v3-8", 0, 0, gpu="tpu-v3-8"))
    'slices of TPUs cannot be launched from here yet'
    """
    if offer.service:
        return "managed services can be planned and priced, not launched from here yet"
    if offer.cloud not in launchable():
        return f"machines of {offer.cloud} cannot be launched from here yet"
    if offer.cloud in ON_PREMISES:
        return ""
    if (offer.gpu or "").startswith(TPU) or offer.instance_type.startswith(TPU):
        return "slices of TPUs cannot be launched from here yet"
    prefix = DEDICATED_HOST.get(offer.cloud, "")
    if prefix and offer.instance_type.startswith(prefix):
        return (
            f"{offer.instance_type} runs on a Dedicated Host, billed for 24 h at least, "
            "which cannot be launched from here yet"
        )
    return ""


def permanent_obstacle(need: Resources) -> str:
    """Say why no offer that meets a request can be launched on any cloud; empty when some can be.

    Examples
    --------
    >>> permanent_obstacle(Resources.parse(service="emr"))
    'managed services can be planned and priced, not launched from here yet'
    """
    probe = Offer(
        cloud=next(iter(need.clouds), "") if len(need.clouds) == 1 else PROVIDERS[0],
        region="",
        instance_type=need.instance_type or "",
        vcpus=0,
        memory=0,
        gpu=need.gpu,
        service=next(iter(need.service), ""),
    )
    return launch_obstacle(probe)
