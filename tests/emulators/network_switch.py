"""Network switch of the machines of a fleet."""

from __future__ import annotations

import contextlib
import subprocess

from .isolation import ip


class Switch:
    """Switch that connects the machines of a fleet, in a network of its own.

    It is there as long as the process that holds it, and that as long as ours: a fleet whose
    owner was killed leaves no links behind. This machine's own packet filter is not on the way
    between its machines.

    Parameters
    ----------
    name
        Of the link on this machine.
    gateway
        This machine's address on it.
    """

    def __init__(self, name: str, gateway: str) -> None:
        self._name = name
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._holder.stdout
        self._holder.stdout.readline()
        with contextlib.suppress(OSError):
            ip(f"link del {name}")  # of one that was killed a moment ago
        ip(
            f"link add {name} type veth peer name way netns {self._holder.pid}",
            f"addr add {gateway}/24 dev {name}",
            f"link set {name} up",
        )
        self._ip("link add hub type bridge", "link set way master hub", "link set way up")
        self._ip("link set hub up")

    def plug(self, number: int, process: int) -> None:
        """Give a process's network a link, ``eth0`` there."""
        with contextlib.suppress(OSError):
            self._ip(f"link del h{number}")  # of a machine that has just ended
        self._ip(
            f"link add h{number} type veth peer name eth0 netns {process}",
            f"link set h{number} master hub up",
        )

    def turn(self, number: int, on: bool) -> None:
        """Let a machine's link carry packets, or not."""
        self._ip(f"link set h{number} {'up' if on else 'down'}")

    def close(self) -> None:
        """Take it down."""
        with contextlib.suppress(OSError):
            ip(f"link del {self._name}")  # the kernel would take a moment
        self._holder.kill()
        self._holder.communicate()

    def _ip(self, *lines: str) -> None:
        ip(*lines, within=self._holder.pid)
