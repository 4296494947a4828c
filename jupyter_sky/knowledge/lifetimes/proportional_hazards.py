"""Floor plus hyperbolic hazard with covariates: larger machines and busier zones fail more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from jupyter_sky.knowledge.lifetimes.lifetimes import Lifetimes
from jupyter_sky.knowledge.lifetimes.models import FloorHyperbolic, log_terms

VCPUS = 8.0
"""Size of the machine that the base hazard is of."""


@dataclass(frozen=True)
class Proportional:
    """Proportional hazards on `FloorHyperbolic`: size and zone multiply the hazard at every age.

    Attributes
    ----------
    base : FloorHyperbolic
        A machine of 8 vCPUs in an average zone.
    doubling : float
        Log of the hazard ratio for each doubling of vCPUs.
    zones : tuple of (str, float)
        Log of the hazard ratio of each zone against the average; a zone that is not there counts
        as average.

    Examples
    --------
    >>> model = Proportional(FloorHyperbolic(0.005, 0.4, 0.3, 24.0), 0.26, (("us-west1-a", -0.6),))
    >>> model.at(32, "us-west1-a").survival(1.0) > model.at(32).survival(1.0)
    np.True_
    """

    base: FloorHyperbolic
    doubling: float = 0.0
    zones: tuple[tuple[str, float], ...] = ()

    def ratio(self, vcpus: float = VCPUS, zone: str = "") -> float:
        """Return the ratio of a machine's hazard to the base's."""
        size = math.log2(vcpus / VCPUS) if vcpus > 0 else 0.0
        return math.exp(self.doubling * size + dict(self.zones).get(zone, 0.0))

    def ratios(self, seen: Lifetimes) -> np.ndarray:
        """Return the hazard ratio of each machine."""
        effects: Mapping[str, float] = dict(self.zones)
        zone = np.array([effects.get(name, 0.0) for name in seen.zone])
        return np.exp(self.doubling * np.log2(np.maximum(seen.vcpus, 1 / 16) / VCPUS) + zone)

    def at(self, vcpus: float = VCPUS, zone: str = "") -> FloorHyperbolic:
        """Return the lifetime model of a machine of this size in this zone."""
        return self.base.times(self.ratio(vcpus, zone))

    def log_likelihood(self, seen: Lifetimes) -> float:
        """As `Model.log_likelihood`, each machine by its own size and zone."""
        return float(np.sum(log_terms(self.base, seen, self.ratios(seen))))
