"""Copies of what a pool shares, in its notebook, for the machine that takes the head's place."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from jupyter_sky.base.errors import SkyError
from jupyter_sky.execution.functions.shared.shared_client import (
    STANDALONE,
    RemoteClient,
    SeenStates,
    notebook_endpoint,
)
from jupyter_sky.execution.functions.shared.state_copy import COPY_SECONDS, MAX_COPY_BYTES

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.functions.pools.pool import Pool

REPLY_SECONDS = 10.0


class StateReplica:
    """Replica of a pool's shared state.

    It asks while calls run, and nothing before the first of them shares something.

    Parameters
    ----------
    pool
        The pool.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._copy: list[bytes] = []
        self._revision = 0
        self._clients: WeakKeyDictionary[ClusterHandle, RemoteClient] = WeakKeyDictionary()
        self._lock, self._stopped = threading.Lock(), threading.Event()

    def begin(self) -> None:
        """Copy changes from now on, in a thread."""
        if not self._pool.facts.get(STANDALONE):
            threading.Thread(target=self._run, name="sky-shared-copy", daemon=True).start()

    def stop(self) -> None:
        """Copy no more."""
        self._stopped.set()

    def _run(self) -> None:
        was_used = True
        while not self._stopped.wait(COPY_SECONDS):
            if self._pool.closed:  # its cluster may have been ended by its name
                return
            is_used = bool(self._pool.use())
            if is_used or was_used:
                self.copy(self._pool.cluster)
            was_used = is_used

    def copy(self, cluster: ClusterHandle, move: bool = False) -> None:
        """Copy what has changed.

        Parameters
        ----------
        cluster
            Cluster whose head has the state.
        move
            Whether its server is to serve it no longer: another goes on from this copy.
        """
        with self._lock, suppress(SkyError, OSError):  # a lost one leaves the copy before
            if cluster.connection.is_lost:
                return
            answer = cluster.connection.ask_controller(
                "shared_state", timeout=REPLY_SECONDS, wait_reconnect=False
            )
            if not answer["is_used"]:
                return
            order = {"kind": "pool", "name": "", "op": "copy", "since": self._revision}
            __, frames = self._client(cluster).ask({**order, "move": move}, ())
            if frames and sum(map(len, frames)) <= MAX_COPY_BYTES:
                self._copy, self._revision = frames, json.loads(frames[0])["revision"]

    def move(self, old: ClusterHandle, new: ClusterHandle) -> None:
        """Let the server of another cluster go on with the state of the pool."""
        self.copy(old, move=True)
        with self._lock:
            if self._copy:
                self._client(new).ask({"kind": "pool", "name": "", "op": "load"}, self._copy)

    def _client(self, cluster: ClusterHandle) -> RemoteClient:
        if cluster not in self._clients:
            endpoint = notebook_endpoint(cluster)
            self._clients[cluster] = RemoteClient(endpoint, SeenStates(), REPLY_SECONDS)
        return self._clients[cluster]
