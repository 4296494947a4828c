"""Ports of this machine for what is about to start and listen."""

from __future__ import annotations

import random
import socket

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _

PORTS = range(25_000, 32_000)
"""Below those that systems give to connections, above those of Ray's own workers."""


def free_port(address: str) -> int:
    """Return a port of this machine that is free now, and that no connection is given.

    What is to listen there takes a while to start: among those that the system chooses itself,
    another process could have it by then. Ray's workers have others, too.
    """
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
        return port
    raise SkyError(_("no port of {first} to {last} is free").format(first=PORTS[0], last=PORTS[-1]))
