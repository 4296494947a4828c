"""Pool of connections to the controllers of clusters, closed when unused."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from jupyter_sky.base.errors import SkyClusterLost
from jupyter_sky.base.messages import Message, Request
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow
    from jupyter_sky.machines.engines.client.observer import Observer
    from jupyter_sky.machines.engines.client.tunnel import Tunnel

ReplyT = TypeVar("ReplyT", bound=Message)
IDLE_SECONDS = 60.0


@dataclass(slots=True)
class _Connection:
    """Slot of one connection, open or not."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    observer: Observer | None = None
    tunnel: Tunnel | None = None
    used: float = field(default_factory=time.monotonic)

    def close(self) -> None:
        observer, tunnel = self.observer, self.tunnel
        self.observer = self.tunnel = None
        if observer is not None:
            observer.close()
        if tunnel is not None:
            tunnel.close()


class ConnectionPool:
    """Connections of one server, by cluster. None of them keeps a cluster up."""

    def __init__(self) -> None:
        self._connections: dict[tuple[str, float], _Connection] = {}
        self._lock = threading.Lock()

    def ask(self, row: ClusterRow, request: Request[ReplyT]) -> ReplyT:
        """Ask the controller of a cluster that is up.

        Raises
        ------
        SkyClusterLost, SkyUnreachable
            It does not answer.
        """
        with self._lock:
            found = self._connections.setdefault((row.name, row.created), _Connection())
            found.used = time.monotonic()
        with found.lock:
            if found.tunnel is not None and (found.tunnel.lost_reason or not found.tunnel.is_up):
                found.close()
            if found.observer is None:
                _connect(found, row)
            observer = found.observer
        assert observer is not None
        try:
            return observer.ask(request)
        except SkyClusterLost:
            with found.lock:
                found.close()  # the next question tries it anew
            raise

    def is_open(self, row: ClusterRow) -> bool:
        """Return whether there is a connection to a cluster now."""
        found = self._connections.get((row.name, row.created))
        return found is not None and found.observer is not None

    def close_cluster(self, name: str) -> None:
        """Close the connection to a cluster that has ended."""
        for key in [key for key in self._connections if key[0] == name]:
            if found := self._connections.pop(key, None):
                with found.lock:
                    found.close()

    def close_unused(self, seconds: float = IDLE_SECONDS) -> None:
        """Close what has not been used for some seconds."""
        old = time.monotonic() - seconds
        with self._lock:
            unused = [key for key, found in self._connections.items() if found.used <= old]
            closing = [self._connections.pop(key) for key in unused]
        for found in closing:
            with found.lock:
                found.close()

    def __len__(self) -> int:
        return len(self._connections)


def _connect(found: _Connection, row: ClusterRow) -> None:
    from jupyter_sky.machines.engines.client.observer import Observer
    from jupyter_sky.machines.engines.wire import connection_file
    from jupyter_sky.machines.provisioner.ssh_launch import open_tunnel

    path = Path(row.connection["file"])
    try:
        found.tunnel = open_tunnel(path)
        tunnel = found.tunnel
        known = tunnel.connection if tunnel else connection_file.read(path, row.name)
    except (OSError, ValueError, TypeError, KeyError):
        raise SkyClusterLost(
            _("cluster {name} does not answer: what is noted of it cannot be read").format(
                name=row.name
            ),
            hint=_("end what is left of it: %sky down {name}").format(name=row.name),
        ) from None
    found.observer = Observer(row.name, known)
