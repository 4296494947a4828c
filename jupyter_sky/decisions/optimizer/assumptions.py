"""Assumptions where nothing was measured: billing, spin-up, disks, power.

Each figure is a default that says where it comes from; plans name those that they rest on.
"""

from __future__ import annotations

import numpy as np

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.decisions.optimizer.solver.problem import Floats
from jupyter_sky.knowledge.ledger.billing import billing_rule

SPIN_UP_HOURS = 2 / 60
"""Assumed time from the order of a machine to its first work, where no launch has been timed."""

VCPU_WATTS, GIB_WATTS = 2.1, 0.392
"""Power of a half busy vCPU and of a GiB, W: coefficients of the Cloud Carbon Footprint project."""
ACCELERATOR_WATTS = {
    **{"A10": 150, "A10G": 150, "A100": 400, "A100-80GB": 400, "B200": 1000, "GH200": 700},
    **{"H100": 700, "H200": 700, "K80": 150, "L4": 72, "L40": 300, "L40S": 350, "M60": 150},
    **{"P100": 250, "P4": 75, "T4": 70, "V100": 300, "V100-32GB": 300, "Inferentia": 75},
}
DEFAULT_ACCELERATOR_WATTS = 300
"""Rated power of one accelerator, or of one chip of a TPU slice, where its maker's is not known."""


def billed_hours(cloud: str, hours: Floats) -> Floats:
    """Return hours that are paid for, rounded up to the billing unit.

    Examples
    --------
    >>> billed_hours("verda", np.array([0.01, 0.25])).round(4).tolist()
    [0.1667, 0.3333]
    """
    unit, least = billing_rule(cloud)
    if not unit:
        return hours
    # a run of exactly so many units must not be billed one more for the sake of rounding
    steps = np.ceil(hours * 3600 / unit - 1e-6)
    billed = np.maximum(steps * unit, least) / 3600
    return np.where(hours > 0, billed, 0.0)


def watts(offer: Offer) -> float:
    """Return power that one machine draws, data centre included, W.

    Examples
    --------
    >>> round(watts(Offer("gcp", "", "n1-standard-8+V100:1", 8, 30, gpu="V100", gpu_count=1)))
    361
    """
    power = offer.vcpus * VCPU_WATTS + offer.memory * GIB_WATTS
    if offer.gpu:
        chips = offer.gpu_count
        if offer.gpu in accelerators.names():
            chips *= accelerators.accelerator(offer.gpu).chips
        power += chips * ACCELERATOR_WATTS.get(offer.gpu, DEFAULT_ACCELERATOR_WATTS)
    return power * find_facts(offer.cloud).pue
