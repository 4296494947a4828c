"""Service of clusters and runs of one Jupyter server, for all of its front ends."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.messages import Message, Request
from jupyter_sky.base.settings import project_file
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.interfaces.server.connections import ConnectionPool
from jupyter_sky.interfaces.server.poller import SCHEMA, ChangePoller
from jupyter_sky.interfaces.server.run_output import JournalCache
from jupyter_sky.interfaces.server.snapshot import (
    IdleReport,
    IdleReports,
    Snapshot,
    midnight,
)
from jupyter_sky.machines.engines.wire.controller_requests import Use, UseReply

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow, RunRow
    from jupyter_sky.execution.sessions.session import Session
    from jupyter_sky.interfaces.server.state import PanelState

ReplyT = TypeVar("ReplyT", bound=Message)
THREADS = 16
COST_UPDATE_SECONDS = 5.0
"""Period at which the state changes while a cluster is up: its cost grows."""


class NotFound(SkyError):
    """The requested object does not exist."""


class StateConflict(SkyError):
    """The request cannot be met in the present state."""


class SkyService:
    """State of one server: its session, its connections, its latest snapshot.

    The session is opened at the first question, and tried again at the next when the store cannot
    be used. It starts no clusters, and is nobody's notebook.

    Parameters
    ----------
    server_app
        The Jupyter server, whose configuration holds for `Sky` too.
    events
        Its event logger.
    """

    def __init__(self, server_app: Any, events: Any) -> None:
        self._app, self._events = server_app, events
        self._own_settings = contextlib.ExitStack()
        self._own_settings.enter_context(project_file.ignore_project_files())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="sky-server")
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._state: PanelState | None = None
        self.connections = ConnectionPool()
        self.journals = JournalCache()
        self.snapshot = Snapshot()
        self.idle_reports: IdleReports = {}
        self._instance_id, self._serial = uuid.uuid4().hex[:6], 0
        self._changes, self._signature = "", ()
        self._reading = threading.Lock()
        self.closed = threading.Event()
        self.poller = ChangePoller(
            change_marker=self.change_marker,
            notify=self._notify,
            reconcile=self.reconcile,
            check_runs=self.check_runs,
            on_tick=self.connections.close_unused,
        )

    # -- work --------------------------------------------------------------------------------

    async def run_in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        """Do some work in a thread."""
        self._loop = asyncio.get_running_loop()
        return await self._loop.run_in_executor(self._pool, work, *args)

    def begin(self, work: Callable[..., Any], *args: Any) -> None:
        """Begin some work in a thread that nobody waits for."""
        self._pool.submit(work, *args).add_done_callback(self._log_failure)

    def _log_failure(self, done: Future[Any]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self._app.log.error("jupyter_sky: %r", error, exc_info=error)

    @property
    def session(self) -> Session:
        """The session of this process.

        Raises
        ------
        SkyStoreError
            The store cannot be used, for one because a newer version wrote it.
        """
        with self._lock:
            if self._session is None:
                from pathlib import Path

                from jupyter_sky.execution.sessions import session as sessions

                self.configure()
                name = str(Path(self._app.root_dir) / _("Jupyter server"))
                self._session = sessions._session or sessions.open_session(
                    {}, name, lasting=True, everywhere=True
                )
            return self._session

    def configure(self) -> None:
        """Read the settings: environment and the server's own configuration, no project's file."""
        from jupyter_sky.base.settings.settings import Sky

        Sky.load(self._app)

    @property
    def state(self) -> PanelState:
        """State of the store and the snapshot, for the panel."""
        if self._state is None:
            from jupyter_sky.interfaces.server.state import PanelState

            self._state = PanelState(self.session.store)
        return self._state

    def close(self) -> None:
        """Close all connections; clusters and runs go on."""
        self.closed.set()
        self.poller.close()
        self._pool.shutdown(wait=False)
        self.connections.close_unused(0.0)
        with self._lock:
            if self._session is not None:
                from jupyter_sky.execution.sessions import session as sessions

                sessions.close()
                self._session = self._state = None
        self._own_settings.close()

    # -- what is new -------------------------------------------------------------------------

    def change_marker(self) -> str:
        """Return a marker that changes with clusters and runs."""
        store = self.session.store
        with self._reading:
            changes = store.change_marker()
            if changes != self._changes:
                from jupyter_sky.interfaces.server.state import signature

                found = signature(store.database)
                self._serial += found != self._signature
                self._changes, self._signature = changes, found
            return f"{self._instance_id}-{self._serial}"

    def cursor(self) -> str:
        """Return a marker that changes with the state, amounts included."""
        marker, now = self.change_marker(), time.time()
        # what a stopped cluster costs grows slowly: the panel adds it up itself
        up = bool(self._signature) and any(row[1] != "stopped" for row in self._signature[0])
        return f"{marker}-{int(now // COST_UPDATE_SECONDS if up else midnight(now))}"

    def update_snapshot(self, **changes: Any) -> None:
        """Update the snapshot."""
        with self._reading:
            after = replace(self.snapshot, **changes)
            if after != self.snapshot:
                self.snapshot = after
                self._serial += 1

    @contextlib.contextmanager
    def ending(self, name: str) -> Iterator[None]:
        """Show a cluster as one that is being ended.

        Raises
        ------
        StateConflict
            It is being ended or started already.
        """
        with self._reading:
            self._check_idle(name)
            self.snapshot = replace(self.snapshot, ending=self.snapshot.ending | {name})
            self._serial += 1
        try:
            yield
        finally:
            with self._reading:
                self.snapshot = replace(self.snapshot, ending=self.snapshot.ending - {name})
                self._serial += 1
            self.connections.close_cluster(name)

    def _check_idle(self, name: str) -> None:
        """Raise StateConflict for a cluster that is being ended or started here."""
        if name in self.snapshot.ending:
            raise StateConflict(_("cluster {name} is being ended already").format(name=name))
        if name in self.snapshot.starts:
            raise StateConflict(
                _("cluster {name} is being started").format(name=name),
                hint=_("wait until it is up"),
            )

    def begin_start(self, name: str) -> None:
        """Show a stopped cluster as one that is being started, until `end_start`.

        Raises
        ------
        StateConflict
            It is being ended or started already.
        """
        with self._reading:
            self._check_idle(name)
            self._update_starts(name, _("it is being started"))

    def note_start(self, name: str, stage: str) -> None:
        """Show the stage of a start."""
        with self._reading:
            if self.snapshot.starts.get(name) != stage:
                self._update_starts(name, stage)

    def end_start(self, name: str, failure: str = "") -> None:
        """Show a cluster as it is again, with the reason why it could not be started."""
        with self._reading:
            self._update_starts(name, "", failure)

    def _update_starts(self, name: str, stage: str, failure: str = "") -> None:
        starts, failed = dict(self.snapshot.starts), dict(self.snapshot.failed_starts)
        for texts, text in ((starts, stage), (failed, failure)):
            texts.pop(name, None)
            if text:
                texts[name] = text
        self.snapshot = replace(self.snapshot, starts=starts, failed_starts=failed)
        self._serial += 1

    def overview(self) -> dict[str, Any]:
        """Return the whole state."""
        cursor = self.cursor()
        return self.state.to_dict(self.snapshot, self.idle_reports) | {"cursor": cursor}

    def reconcile(self) -> None:
        """Ask clouds and clusters how they are."""
        from jupyter_sky.interfaces.server.reconciliation import reconcile

        self.update_snapshot(**reconcile(self.session, self.connections))
        for row in self.session.store.clusters():
            # a new connection to a machine elsewhere is for those who look at that cluster
            if runs_here(row.cloud) or self.connections.is_open(row):
                with contextlib.suppress(SkyError):
                    self.ask(row, Use())

    def check_runs(self) -> None:
        """Find out whether runs go on that no kernel watches."""
        from jupyter_sky.interfaces.server.reconciliation import check_unwatched_runs

        self.update_snapshot(**check_unwatched_runs(self.session, self.connections))

    def _notify(self) -> None:
        """Notify front ends of a change."""
        if self._loop is None or self._loop.is_closed():
            return
        with contextlib.suppress(RuntimeError):  # the server is ending
            self._loop.call_soon_threadsafe(self._emit, self.cursor())

    def _emit(self, cursor: str) -> None:
        self._events.emit(schema_id=SCHEMA["$id"], data={"cursor": cursor})

    # -- finding -----------------------------------------------------------------------------

    def cluster(self, name: str) -> ClusterRow:
        """Return a cluster that is known.

        Raises
        ------
        NotFound
            None of that name is.
        """
        row = self.session.store.cluster(name)
        if row is None:
            names = ", ".join(row.name for row in self.session.store.clusters()) or "none"
            raise NotFound(
                _("no cluster {name!r} is known").format(name=name),
                hint=_("up now: {names}").format(names=names),
            )
        return row

    def live_cluster(self, name: str) -> ClusterRow:
        """Return a cluster that is up.

        Raises
        ------
        StateConflict
            It is known and not up; says why.
        """
        row = self.cluster(name)
        if row.state == "starting":
            raise StateConflict(
                _("cluster {name} is still coming up").format(name=name),
                hint=_("wait until it is up"),
            )
        if row.state == "stopped":
            raise StateConflict(
                _("cluster {name} is stopped").format(name=name),
                hint=_("start it: jupyter sky start {name}").format(name=name),
            )
        if row.state != "up":
            why = f" ({row.note})" if row.note else ""
            raise StateConflict(
                _("cluster {name} has ended{why}").format(name=name, why=why),
                hint=_("a %%sky cell starts another"),
            )
        return row

    def run(self, run_id: str) -> RunRow:
        """Return a run that is known.

        Raises
        ------
        NotFound
            It is not.
        """
        row = self.session.store.run(run_id)
        if row is None:
            raise NotFound(
                _("no run {run_id!r} is known").format(run_id=run_id),
                hint=_("the state lists the latest runs"),
            )
        return row

    def describe(self, row: RunRow) -> dict[str, Any]:
        """Return a run as the state has it."""
        return self.state.run(row, self.snapshot)

    # -- asking ------------------------------------------------------------------------------

    def ask(self, row: ClusterRow, request: Request[ReplyT]) -> ReplyT:
        """Ask the controller of a cluster that is up, and note the time of its end."""
        try:
            answer = self.connections.ask(row, request)
        except SkyError:
            self.poller.reconcile_soon()  # it may be gone
            raise
        if isinstance(answer, UseReply):
            left, users = answer.idle_left, tuple(answer.users)
            self.idle_reports[row.name, row.created] = IdleReport(left, time.time(), users)
        return answer
