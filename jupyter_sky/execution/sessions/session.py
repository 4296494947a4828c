"""Session of one notebook: its store, clusters, variables and runs."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import threading
from collections import deque
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.execution.cells.request import CellPosition, with_settings
from jupyter_sky.execution.cells.session_state import SessionState
from jupyter_sky.execution.display import Display, NoDisplay
from jupyter_sky.knowledge.ledger import budget
from jupyter_sky.machines.renewal.background import BackgroundRenewal

if TYPE_CHECKING:
    from jupyter_sky.execution.cells.earlier_run import EarlierRun
    from jupyter_sky.execution.cells.run import SkyRun

KEPT_RUNS = 10
"""Most named or background runs that are kept to be asked for by name."""


class Session(SessionState):
    """Session of one process: runs cells, finds the handles of runs, ends with the process."""

    def __init__(
        self,
        namespace: MutableMapping[str, Any],
        notebook: str,
        is_persistent: bool,
        everywhere: bool = False,
    ) -> None:
        super().__init__(namespace, notebook, is_persistent, everywhere)
        self._shown_notices = 0
        self._share_budget()
        self._renewal = BackgroundRenewal(self.store.notices.append)
        if self.store.durable:
            self._renewal.start()
        # a run holds its value: only the latest are kept of those that have no other reference
        self.named: WeakValueDictionary[str, SkyRun] = WeakValueDictionary()
        self._latest: deque[SkyRun] = deque(maxlen=KEPT_RUNS)
        atexit.register(self.close)

    def _share_budget(self) -> None:
        """Apply the budget that all notebooks of this user share, and start to enforce it."""
        guard = self.clusters.budget_monitor
        for usd in self.config.requested_budget:
            guard.set_budget(usd)
        self.config.on_budget, self.config.requested_budget = guard.set_budget, ()
        if notice := budget.apply_configured(self.store, self.config.budget_usd_day):
            self.store.notices.append(notice)
        self.config.adopt_budget(budget.read_budget(self.store).usd)
        guard.start()

    # -- running ---------------------------------------------------------------------------

    def run(
        self,
        code: str,
        options: CellOptions,
        display: Display | None = None,
        origin: CellPosition | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run code on a cluster; return its value, or with ``background`` the run itself.

        Inputs are looked up in `values` where given, else among the notebook's variables.
        """
        from jupyter_sky.execution.cells.run import SkyRun

        run = SkyRun(self, code, options, display or NoDisplay(), origin or CellPosition(0), values)
        run.status_line.notes += self._new_notices()
        if run.name:
            self.named[run.name] = run
        if run.name or options.background:
            self._latest.append(run)
        if options.background:
            self.named.setdefault(str(origin.number if origin else 0), run)
            run.start()
            return run
        return run.execute()

    def _new_notices(self) -> list[str]:
        """Return the notices of the store since the last time."""
        told, self._shown_notices = self._shown_notices, len(self.store.notices)
        return self.store.notices[told:] + self.clusters.budget_monitor.pop_notice()

    def will_spend(self, options: CellOptions) -> bool:
        """Return whether a cell would launch, send or install something before it runs."""
        options = with_settings(options, self.config)
        if options.inputs or options.pip or options.sync:
            return True
        return self.clusters.find_connected(options.resources, options.cluster) is None

    def find_handle(self, which: str) -> SkyRun | EarlierRun:
        """Return the handle of a run by name, cell number or id: of this session, or an earlier.

        Raises
        ------
        SkyUsageError
            There is none.
        """
        run = self.named.get(which)
        if run is None:
            from jupyter_sky.execution.cells.earlier_run import EarlierRun

            for candidate in self.live.values():
                if which in (candidate.name, str(candidate.origin.number), candidate.id):
                    return cast("SkyRun", candidate)
            return EarlierRun(self, self.history.find_run(which))
        return run

    def has_run(self, name: str) -> bool:
        """Return whether a run of this notebook has a name."""
        if name in self.named:
            return True
        return any(row.name == name for row in self.store.runs(notebook=self.notebook, limit=1000))

    # -- the end ---------------------------------------------------------------------------

    def close(self) -> None:
        """Close all connections; end the clusters that no later session would use."""
        self._renewal.close()
        self.clusters.budget_monitor.close()
        self.config.on_budget = self.config._ask
        keep = self.lasting or (self.config.keep_clusters and self.store.durable)
        for name in [] if keep else list(self.clusters.started):
            with contextlib.suppress(Exception):  # one that cannot be ended spares no other
                self.clusters.terminate(name)
        for run in list(self.live.values()):
            run.detach()
        for name in list(self.clusters.connected):
            with contextlib.suppress(Exception):
                self.clusters.disconnect(name)  # cells go on there, for the next kernel to find
        with contextlib.suppress(SkyError):
            self.store.clusters()  # reading writes what still waits in memory
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        atexit.unregister(self.close)


_session: Session | None = None
_lock = threading.Lock()


def current() -> Session:
    """Return this process's session, opened on first use.

    In a notebook the namespace is the notebook's own; elsewhere a session has a namespace of its
    own.
    """
    global _session
    with _lock:
        if _session is None:
            _session = _open()
        return _session


def is_open() -> bool:
    """Return whether this process has a session."""
    return _session is not None


def open_session(
    namespace: MutableMapping[str, Any], notebook: str, lasting: bool, everywhere: bool = False
) -> Session:
    """Open this process's session with other settings than a notebook's."""
    global _session
    with _lock:
        assert _session is None, "the session is open already"
        _session = Session(namespace, notebook, lasting, everywhere)
        return _session


def _disown() -> None:
    """Forget the session in a forked process: its connections and clusters are the parent's."""
    global _session, _lock
    _lock = threading.Lock()  # the parent may hold it
    if _session is not None:
        atexit.unregister(_session.close)
        _inherited.append(_session)
        _session = None


_inherited: list[Session] = []
"""Sessions of the processes that this one was forked from, kept from finalization."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)


def close() -> None:
    """Close this process's session if there is one."""
    global _session
    with _lock:
        if _session is not None:
            _session.close()
            _session = None


def _open() -> Session:
    from IPython import get_ipython  # type: ignore[attr-defined]

    shell = get_ipython()
    namespace = shell.user_ns if shell is not None else {}
    notebook = os.environ.get("JPY_SESSION_NAME") or namespace.get("__vsc_ipynb_file__")
    if notebook:
        return Session(namespace, str(notebook), is_persistent=True)
    # a headless run is not continued: each has an identity of its own
    path = os.environ.get("SKY_NOTEBOOK") or str(Path.cwd() / "session")
    return Session(namespace, f"{path}#{os.getpid()}", is_persistent=False)
