"""Use that a notebook makes of a cluster: it keeps the cluster up for its idle limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from jupyter_sky.machines.engines.wire.messages import Content


class ClusterUse:
    """Uses of a cluster by one notebook: the latest, and those that go on.

    Attributes
    ----------
    used_at : float or None
        Time of the latest use, by the monotonic clock.
    pools : list of callable
        Functions that name the current use of a pool of nodes; empty when there is none.
    """

    def __init__(self) -> None:
        self.used_at: float | None = None
        self.pools: list[Callable[[], str]] = []
        self._label = ""
        self._requests: dict[Future, str] = {}

    def record(self, label: str) -> None:
        """Note a use, such as ``"a call"``."""
        self.used_at, self._label = time.monotonic(), label

    def record_until_done(self, label: str, request: Future) -> None:
        """Note a use that goes on until a request is answered."""

        def end(request: Future) -> None:
            self._requests.pop(request, None)
            self.record(label)

        self._requests[request] = label
        self.record(label)
        request.add_done_callback(end)

    @contextmanager
    def going_on(self, label: str) -> Iterator[None]:
        """Note a use that goes on inside, such as the preparation of a cell."""
        use: Future[None] = Future()
        self.record_until_done(label, use)
        try:
            yield
        finally:
            use.set_result(None)

    def describe(self) -> Content:
        """Return the use for the next heartbeat of the notebook."""
        going_on = [uses for pool in list(self.pools) if (uses := pool())]
        going_on += list(self._requests.values())
        ago = None if self.used_at is None else time.monotonic() - self.used_at
        return {"ago": ago, "what": self._label, "uses": ", ".join(dict.fromkeys(going_on))}
