"""Handle of a run that this kernel has not started, or does not hold any more: found by name."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyCancelled, SkyError, SkyTimeout
from jupyter_sky.base.requests.quantities import format_run_time
from jupyter_sky.base.store.store import RunRow
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.live_run import UnbegunRun, stop_run
from jupyter_sky.execution.cells.run_monitor import ANSWER_SECONDS, describe_loss
from jupyter_sky.machines.engines.wire.controller_requests import ListEngines, ReadJournal

if TYPE_CHECKING:
    from jupyter_sky.execution.cells.session_state import SessionState
    from jupyter_sky.execution.clusters.cluster import ClusterHandle

POLL_SECONDS = 0.2
_END_OF_JOURNAL = 10**9
"""Number after that of any entry: only the state of the run is asked for."""
_STATUS = {"ok": "done", "error": "failed"}


class EarlierRun:
    """Run of a cell that another kernel of this notebook has started.

    Its values are those that ``-o`` named: they are still on the cluster.

    Examples
    --------
    >>> run = sky.run("train")  # doctest: +SKIP
    >>> run.result()  # doctest: +SKIP
    0.93
    """

    def __init__(self, session: SessionState, row: RunRow) -> None:
        self.session, self.id, self.name = session, row.run_id, row.name
        self.label = row.label
        self._row = row
        self._unbegun = UnbegunRun()
        self._stopped_at = 0.0

    @property
    def status(self) -> str:
        """State, as that of a `SkyRun`: ``running``, ``done``, ``failed``, ``lost`` and so on."""
        row = self._row = self.session.store.run(self.id) or self._row
        if row.ended is not None or not row.nodes:
            return _STATUS.get(row.status, row.status)
        if row.session == self.session.id or row.is_monitored():
            return row.stage
        link = self._cluster().connection
        answer = link.ask_controller(ReadJournal(self.id, _END_OF_JOURNAL))
        found = str(answer.status)
        if found == "unknown":
            return "lost" if self._unbegun.is_lost(link) else "queued"
        return _STATUS.get(found, found)

    def done(self) -> bool:
        """Return whether the run has ended, with or without success."""
        ended = ("done", "failed", "interrupted", "cancelled", "lost")
        return self.status in ended

    def logs(self) -> str:
        """Return everything that it has printed so far."""
        return self.session.history.log_text(self.id)

    def cancel(self) -> None:
        """Interrupt it on its cluster; once `warning` has been shown, restart its engines."""
        if self.done():
            return
        cluster, by_force = self._cluster(), bool(self.warning)
        self._stopped_at = self._stopped_at or time.monotonic()
        stop_run(cluster, self.id, by_force)

    @property
    def warning(self) -> str:
        """Why it does not stop, and what another `cancel` would lose; empty while it may stop."""
        row = self._row = self.session.store.run(self.id) or self._row
        late = self._stopped_at and time.monotonic() - self._stopped_at > ANSWER_SECONDS
        if row.warning or not late or self.done():
            return row.warning
        engines = self._cluster().connection.ask_controller(ListEngines()).engines
        warning = describe_loss([one["rank"] for one in engines if one["running"] == self.id])
        self.session.store.warn_run(self.id, warning)
        return warning

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end, bring what ``-o`` named, and return the last of these values.

        Parameters
        ----------
        timeout
            Seconds to wait.

        Raises
        ------
        SkyTimeout
            It has not ended by then; it goes on.
        SkyError
            It has ended otherwise than well.
        """
        begun = time.monotonic()
        while not self.done():
            if timeout is not None and time.monotonic() - begun > timeout:
                raise SkyTimeout(
                    _("{label} is still {status} after {timeout:g} s").format(
                        label=self.label, status=self.status, timeout=timeout
                    )
                )
            time.sleep(POLL_SECONDS)
        how = self.status
        if how in ("cancelled", "interrupted"):
            raise SkyCancelled(_("{label} was {how}").format(label=self.label, how=how))
        if how != "done":
            hint = _("what it printed, with its error: %sky logs {name}").format(
                name=self.name or self._row.cell
            )
            raise SkyError(_("{label} has {how}").format(label=self.label, how=how), hint=hint)
        return self._fetch_outputs()

    def _fetch_outputs(self) -> Any:
        from jupyter_sky.execution.cells.fetching import FetchRequest, fetch

        names = tuple(name for name in self._row.outputs.split(",") if name)
        if not names:
            return None
        request = FetchRequest(names, cluster=self._cluster().row.name)
        return fetch(self.session, request)[-1].value

    def _cluster(self) -> ClusterHandle:
        return self.session.clusters.find(self._row.cluster)

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        return asyncio.to_thread(self.result).__await__()

    def __repr__(self) -> str:
        row = self._row
        status = self.status
        spent = format_run_time((row.ended or time.time()) - row.started, row.waited)
        left = describe_outputs(row) if status == "done" else ""
        return f"<{self.label}: {status} {spent} on {row.cluster}{f'; {left}' if left else ''}>"


def describe_outputs(row: RunRow) -> str:
    """Return how the values of a run come home, if they are still on its cluster.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> describe_outputs(SimpleNamespace(outputs="acc,out/model.pt"))
    'result on the cluster: %sky get acc,out/model.pt'
    """
    return (
        _("result on the cluster: %sky get {outputs}").format(outputs=row.outputs)
        if row.outputs
        else ""
    )
