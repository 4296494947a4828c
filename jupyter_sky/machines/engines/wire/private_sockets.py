# pyright: strict
"""Private Unix sockets for outputs, which are published without a key.

A port of the loopback interface is open to every user of the machine. A socket in the cluster's own
folder, which is its user's alone, is not.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path


class PrivateSockets:
    """Unix sockets in one private folder, for as long as this object is open.

    The path of a Unix socket may have 107 bytes, fewer than the paths of many folders; by way of an
    open descriptor it is short.

    Parameters
    ----------
    folder
        The folder with the connection files of a cluster; only its user may enter it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1
        if sys.platform == "linux":
            with suppress(OSError):
                self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    @property
    def is_usable(self) -> bool:
        """Whether this machine supports them."""
        return self._descriptor >= 0

    def url(self, name: str) -> str:
        """Return the address of a socket, for ZeroMQ in this process."""
        return f"ipc:///proc/self/fd/{self._descriptor}/{name}"

    def close(self) -> None:
        """Close the folder; connected sockets stay connected."""
        if self.is_usable:
            os.close(self._descriptor)
            self._descriptor = -1


def output_socket_name(port: int | str) -> str:
    """Return the name of the socket that stands for a controller's port of outputs.

    Examples
    --------
    >>> output_socket_name(40123)
    'outputs-40123'
    """
    return f"outputs-{port}"
