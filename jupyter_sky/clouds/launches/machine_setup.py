"""Values that a rented machine is set up with, whether by cloud-init or by a script."""

from __future__ import annotations

from dataclasses import dataclass, field

POWER_OFF = "shutdown -P now"
"""Last command on a machine of a cloud, unless its provider names another."""


@dataclass(frozen=True, slots=True)
class MachineSetup:
    """User, keys and lease of a machine.

    Attributes
    ----------
    user : str
        Login name, which runs the cluster and renews the lease; made if it is not there, where
        root runs the script.
    public_key : str
        Lets us in, as ``ssh-ed25519 AAAA...``.
    host_private, host_public : str
        The machine's own keys.
    lease : float
        Seconds that the machine lives at most.
    heartbeat_timeout : float
        Seconds after which it ends when nobody renews its lease.
    ending : str
        Shell commands by which it ends itself, run before it is powered off.
    power_off : str
        Shell command that powers it off: of a container ``kill 1``, of a job ``scancel``.
    """

    user: str
    public_key: str
    host_private: str = field(repr=False)
    host_public: str
    lease: float
    heartbeat_timeout: float
    ending: str = ""
    power_off: str = POWER_OFF
