"""Values that providers exchange with the rest: launch requests, machines and classified errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources

MachineState = Literal["starting", "running", "ended"]
ErrorCause = Literal[
    "capacity", "quota", "permission", "invalid", "throttled", "transient", "unknown"
]
RefusalScope = Literal["zone", "region", "family", "market"]


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine that was launched.

    Attributes
    ----------
    id : str
        The cloud's own name for it.
    rank : int
        Its place in the cluster; rank 0 is the head node.
    ended : float or None
        Unix seconds at which it ended, where the cloud says so.
    reason : str
        Why it ended, in words for the user.
    preempted : bool
        Whether the cloud took it back.
    address, private : str
        Where it is reached from here, and from the other nodes; empty until known.
    token, owner : str
        Of the launch request that it was launched by, and of its user.
    lease_end : float or None
        Unix seconds at which it ends at the latest, whatever happens here.
    user : str
        Login name on it; empty for that of the settings.
    port : int
        Port of its SSH server as seen from here; 0 for that of the settings.
    through : tuple of str
        Command whose input and output are a connection to its SSH server (``sshd -i``), for a
        machine that has no address: a container or a pod. ``address`` is then any name for it.
    stopped : bool
        Whether it is off and kept: its disk costs, or all of it, and clouds whose `can_stop` is set
        can start it again.
    """

    id: str
    cloud: str
    cluster: str
    rank: int
    state: MachineState
    started: float
    ended: float | None = None
    reason: str = ""
    preempted: bool = False
    address: str = ""
    private: str = ""
    token: str = ""
    owner: str = ""
    lease_end: float | None = None
    user: str = ""
    port: int = 0
    through: tuple[str, ...] = ()
    stopped: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "through", tuple(self.through))  # JSON has lists


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Request for the machines of one cluster.

    Attributes
    ----------
    token : str
        The same request sent twice makes the machines once.
    idle : float
        Lease in seconds: the machines end by themselves when nobody has been heard of for so
        long.
    owner, notebook : str
        Written on the machines, so that what is left can be traced. The owner is one user of one
        installation: what another installation launched is not taken for an orphan.
    lease : float
        Seconds after which the machines end at the latest, in use or not.
    """

    token: str
    cluster: str
    offer: Offer
    resources: Resources
    idle: float
    owner: str
    notebook: str
    lease: float = 3 * 86400.0


@dataclass(frozen=True, slots=True)
class MachineConfig:
    """Initial configuration of the machines of a launch, the same on every cloud.

    Attributes
    ----------
    user : str
        Login name on them.
    public_key : str
        Lets us in, as ``ssh-ed25519 AAAA...``.
    user_data : str
        A document for cloud-init: user, host key, and what ends the machine by itself.
    script : str
        The same as a POSIX shell script, for machines without cloud-init: containers, and clouds
        with start-up scripts. It prints ``jupyter-sky-ready`` when the machine can be reached; it
        goes on until the machine ends where it is the first process, or is called with ``stay``.
        Where it is not run by root, all is below ``~/.cache/jupyter_sky/machine``.
        ``usr/local/sbin/jupyter-sky-sshd`` there serves one connection, for `Machine.through`.
    disk : float
        GiB of the boot disk.
    lease_end : float
        Unix seconds at which they end at the latest.
    tags : dict
        Written on all that is made; see `TAGS`. Clouds with a narrower alphabet make them fit.
    ssh_from : tuple of str
        Networks (CIDR) that may reach port 22.
    """

    user: str
    public_key: str
    user_data: str
    disk: float
    lease_end: float
    tags: Mapping[str, str] = field(hash=False)
    ssh_from: tuple[str, ...] = ("0.0.0.0/0",)
    script: str = field(default="", repr=False)


TAGS = (
    "jupyter-sky-owner",
    "jupyter-sky-cluster",
    "jupyter-sky-token",
    "jupyter-sky-notebook",
    "jupyter-sky-lease-end",
)
"""Names of the tags; the lease's end is in whole unix seconds."""


@dataclass(frozen=True, slots=True)
class CloudError:
    """Classified error of a cloud's SDK.

    Attributes
    ----------
    cause : str
        ``capacity`` and ``quota`` speak of the place and another is tried; ``permission`` and
        ``invalid`` of us and are told; ``throttled`` and ``transient`` pass and are tried again.
    code, message : str
        In the cloud's own words.
    scope : str
        Extent of the refusal around the place: the zone alone, the whole region, all types of
        the family, or everything of the market (spot, or on-demand) in the region.
    fix : str
        What to do about it, with the command where there is one.
    retry_after : float
        Seconds that the cloud asks us to wait before the next request; 0 where it names none.
    """

    cause: ErrorCause
    code: str
    message: str
    scope: RefusalScope = "zone"
    fix: str = ""
    retry_after: float = 0.0
