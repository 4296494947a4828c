"""State of a cluster that a run has launched."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ClusterPhase(StrEnum):
    """Phase of a cluster that a run has launched."""

    LAUNCHING = "launching"
    UP = "up"
    DRAINING = "draining"
    """It is being released."""
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ClusterState:
    """State of a cluster.

    Attributes
    ----------
    phase
        What happens to it.
    token
        By which the cloud knows its launch, so that a launch is never made twice.
    launches
        Number of launches under its name.
    offer
        What is launched; values of JSON.
    since
        Unix time at which its last launch was wanted: from then on it is taken to cost money.
    """

    phase: ClusterPhase
    token: str
    launches: int = 1
    offer: Any = None
    since: float = 0.0

    @property
    def usd_h(self) -> float:
        """Price, USD/h; 0 where it is not known."""
        return (self.offer or {}).get("usd_h", 0.0)

    def cost(self, now: float) -> float:
        """Return USD that it has cost from when its launch was wanted until a Unix time."""
        return max(now - self.since, 0.0) / 3600 * self.usd_h
