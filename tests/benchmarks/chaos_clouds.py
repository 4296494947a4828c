"""Clouds of the chaos, and what can befall their machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

THREE = ("aws", "gcp", "azure")
VIRTUAL = ("hyperstack", "lambda", "nebius", "tpu", "verda")
"""Further clouds that rent virtual machines."""
CONTAINERS = ("runpod", "vast")
"""Clouds that rent containers with an SSH server."""
EMULATED = (*THREE, *VIRTUAL, *CONTAINERS)
"""Clouds whose machines are reached at an address."""
FLEETS = (*EMULATED, "kubernetes")
"""Clouds whose machines have file systems and networks of their own here."""
SPOT = tuple(name for name in FLEETS if name != "lambda")
"""Clouds with machines that are taken back at times."""
NETWORKED = (*THREE, "hyperstack", "lambda", "nebius")
"""Clouds whose machines see each other in a network that rules can cut."""
WATCHED = ("hyperstack", "lambda", "nebius", "tpu", "verda")
"""Clouds on which a machine that has powered itself off is there until a request ends it."""
SILENT = ("lambda", "tpu")
"""Clouds that do not tell whether a machine is off."""
WORLDS = (*VIRTUAL, *CONTAINERS, "container", "kubernetes", "slurm")


@dataclass(frozen=True, slots=True)
class Scene:
    """What a chaos has.

    Attributes
    ----------
    clouds : tuple of str
        Where users launch.
    options : mapping of str to str
        Words of a cell's line for a cloud; without them its name, and two CPUs on the big ones.
    alone : tuple of str
        Clouds on which a cluster has one node.
    misers : int
        Users whose money runs out.
    lease : float
        Seconds after which machines end at the latest.
    silence : float
        Seconds after which a cluster ends that nobody uses.
    patience : float
        Seconds in which a cell has its result or an error.
    returns : bool
        Whether the user comes back once when all leases are over.
    """

    clouds: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    alone: tuple[str, ...] = ()
    misers: int = 0
    lease: float = 90.0
    silence: float = 15.0
    patience: float = 150.0
    returns: bool = False

    def line(self, cloud: str) -> str:
        """Return the words of a cell's line that ask for a cloud."""
        size = " --cpus 2" if cloud in THREE else ""
        return self.options.get(cloud, f"--cloud {cloud}{size}")


BIG_CLOUDS = Scene(THREE, misers=2)
EVERYWHERE = Scene(
    (*THREE, *WORLDS),
    options={
        "container": "--cloud container --cpus 1",
        "kubernetes": "--cloud kubernetes --cpus 1",
        "tpu": "--cloud gcp --gpus tpu-v2-8 --cpus 4",
    },
    alone=("container", "tpu", "vast"),
    # clients of pods and containers, and these themselves, start slowly side by side
    lease=200.0,
    silence=40.0,
    patience=400.0,
    returns=True,
)
