"""Machines that a cloud's emulator rents out: real ones to whoever reaches them by SSH.

Each is born as a cloud's machine is: from a document for cloud-init, with an address of its own, a
firewall, a console and a metadata service. Two ways to have one, behind one interface:

- isolated (root on Linux): namespaces of its own for processes, mounts, network and name; its files
  are a layer in memory over this machine's programs; port 22 of a private and a public address;
- beside us (anybody): processes of the present user behind an sshd on an address of the loopback
  network, in a folder of their own; no firewall.

Machines end with the process that made them, however that ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Rule = tuple[str, int]
"""Who may reach what: a network (CIDR) and a TCP port, 0 for every port and protocol."""


class Fleet:
    """Machines of one test or one emulator; several fleets do not meet.

    Parameters
    ----------
    isolated
        Which kind: None takes the best there is, True insists, False takes the one for anybody.
    minute
        Seconds that a minute of ``shutdown -P +N`` takes on machines launched from now on.

    Attributes
    ----------
    network : str
        The private network of all its machines (CIDR), for rules between nodes.
    gateway : str
        The address of this machine as its machines reach it: an emulator that listens there can
        be reached by them (Azure machines that delete their own group).

    Examples
    --------
    >>> with Fleet() as fleet:
    ...     host = fleet.launch("node-0", user_data, ingress=[("0.0.0.0/0", 22)])
    ...     host.ready(10)
    True
    """

    network: str
    gateway: str

    def __init__(self, *, isolated: bool | None = None, minute: float = 60.0) -> None:
        self.minute = minute
        raise NotImplementedError("comes within the hour")

    def launch(
        self,
        name: str,
        user_data: str = "",
        *,
        ingress: Sequence[Rule] = (),
        spot: bool = False,
        metadata: Mapping[str, Any] | None = None,
        on_end: Callable[[str], None] | None = None,
        public_key: str = "",
        user: str = "",
        names: Mapping[str, str] | None = None,
        authority: str = "",
    ) -> Host:
        """Start a machine; returns at once, while it boots.

        Parameters
        ----------
        name
            Its host name.
        user_data
            As cloud-init takes it, decoded: JSON after ``#cloud-config``, or a script (``#!``).
        ingress
            Who may reach it; nobody else can, if it is isolated. See `Host.admit`.
        spot
            Whether its metadata service calls it a spot machine.
        metadata
            What its metadata service tells: ``cloud`` (``aws``, ``gcp`` or ``azure``: which
            service is there), ``id``, ``type``, ``region``, ``zone``, ``image``, ``account`` (project,
            subscription), ``group`` (Azure), ``tags`` (dict), ``attributes`` (GCP's own metadata,
            a dict), ``identity_token`` (Azure and GCP: the token of the machine's own identity;
            without it the machine has no identity). Addresses are filled in.
        on_end
            Called once, from a thread of its own, when the machine ends without `Host.kill` and
            `close`: with ``shutdown`` (it powered itself off), ``preempted`` (after a notice)
            or ``crashed`` (it could not boot, say; see its console).
        public_key, user
            Whom the cloud itself lets in (an AWS key pair, GCP's ``ssh-keys``, Azure's osProfile),
            besides whom `user_data` names. The user alone is who ``default`` means there.
        names
            Further host names that it resolves, such as ``management.azure.com`` to `gateway`.
        authority
            A certificate authority (PEM) that it trusts besides its own.
        """
        raise NotImplementedError

    def hosts(self) -> list[Host]:
        """List the machines that have not ended."""
        raise NotImplementedError

    def close(self) -> None:
        """End all machines and leave nothing of them; calls no `on_end`."""
        raise NotImplementedError

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Host:
    """One machine of a fleet.

    Attributes
    ----------
    name : str
    address, private : str
        Where it is reached from here, and by the other machines of the fleet. Known at once.
    port : int
        Of its SSH server; 22 where that is possible.
    """

    name: str
    address: str
    private: str
    port: int

    @property
    def running(self) -> bool:
        """Whether it has not ended; it may still boot."""
        raise NotImplementedError

    def ready(self, timeout: float = 0.0) -> bool:
        """Say whether its SSH server answers, waiting at most so many seconds for it."""
        raise NotImplementedError

    def booted(self, timeout: float = 0.0) -> bool:
        """Say whether cloud-init has done all, ``runcmd`` too; as on real machines, that is later."""
        raise NotImplementedError

    def console(self) -> str:
        """Return what it has written to its console; kept after its end."""
        raise NotImplementedError

    def kill(self) -> None:
        """Cut its power; when this returns, its processes and connections are gone."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """Press its power button: it powers itself off, and `on_end` is called."""
        raise NotImplementedError

    def notice(self, seconds: float) -> None:
        """Announce by its metadata service that the cloud takes it back, and do so then."""
        raise NotImplementedError

    def describe(self, **metadata: Any) -> None:
        """Change what its metadata service tells."""
        raise NotImplementedError

    def admit(self, ingress: Sequence[Rule]) -> None:
        """Change who may reach it; connections that are open and no longer allowed fall silent."""
        raise NotImplementedError

    def unplug(self, silent: bool = True) -> None:
        """Let its network fall silent, or come back (False)."""
        raise NotImplementedError
