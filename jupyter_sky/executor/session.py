"""One notebook's session: its store, its clusters, its runs. The Python API under the magics."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ..cell_options.values import CellOptions
from ..config.settings import Sky
from ..engines.controller.journal import Journal
from ..errors import SkyClusterLost, SkyError, SkyUsageError, suggest
from ..ledger import budget
from ..ledger.ledger import Ledger
from ..offers import Offer
from ..resources import Resources
from ..store.store import ClusterRow, RunRow, Store
from . import transfer
from .clusters import ClusterHandle, ClusterRegistry
from .display import Display, NoDisplay
from .inputs import assigned_names
from .reaper import ReapFinding, reap_machines
from .relay import Relay
from .request import CellPosition, with_settings
from .run import SkyRun
from .termination import EndCandidate, EndResult, end_clusters, list_candidates
from .untrusted_output import InertDisplay, is_untrusted

USD_SECONDS = 1.0
KEPT_RUNS = 10
"""Most named or background runs that are kept to be asked for by name."""
FOLLOW_SECONDS = 10**9
"""How much of a run is shown once a page shows all of it below the run's own cell."""


class Session:
    """Everything that `jupyter_sky` knows in one process.

    Parameters
    ----------
    namespace
        The notebook's variables, where inputs come from and outputs go.
    notebook
        Its path; clusters and costs belong to it.
    lasting
        Whether the notebook outlives this process (a notebook of a Jupyter server does; a
        headless run does not, and its clusters end with it).
    everywhere
        Whether runs of all notebooks are looked up, not of this one alone.
    """

    def __init__(
        self,
        namespace: MutableMapping[str, Any],
        notebook: str,
        is_persistent: bool,
        everywhere: bool = False,
    ) -> None:
        self.namespace, self.notebook = namespace, notebook
        self.everywhere = everywhere
        self.config = Sky.load()
        self.id = uuid.uuid4().hex[:12]
        self.folder = Path.cwd()
        self.store = Store.open(Path(self.config.data_dir))
        # nobody could find again what is in no file
        self.lasting = is_persistent and self.store.durable
        self._shown_notices = 0
        self._scratch = None if self.store.durable else _use_temporary_folder(self.config)
        self.ledger = Ledger(self.store)
        self.clusters = ClusterRegistry(self.store, notebook, self.id)
        self._share_budget()
        self.live: dict[str, SkyRun] = {}
        # a run holds its value: of those that nobody else holds only the latest are kept
        self.named: WeakValueDictionary[str, SkyRun] = WeakValueDictionary()
        self._latest: deque[SkyRun] = deque(maxlen=KEPT_RUNS)
        self.codes: deque[str] = deque(maxlen=100)
        self._journals: dict[Path, Journal] = {}
        self._usd: tuple[float, float | None] = (0.0, 0.0)
        atexit.register(self.close)

    def _share_budget(self) -> None:
        """Let one budget hold for all notebooks of this user, and watch it."""
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
        run = SkyRun(self, code, options, display or NoDisplay(), origin or CellPosition(0), values)
        run.notes += self._new_notices()
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
        """Return what the store has had to say since the last time."""
        told, self._shown_notices = self._shown_notices, len(self.store.notices)
        return self.store.notices[told:] + self.clusters.budget_monitor.pop_notice()

    def will_spend(self, options: CellOptions) -> bool:
        """Whether a cell would launch, send or install something before it runs."""
        options = with_settings(options, self.config)
        if options.inputs or options.pip or options.sync:
            return True
        return self.clusters.find_connected(options.resources, options.cluster) is None

    def replay_runs(self, cluster: ClusterHandle, notes: list[str], display: Display) -> None:
        """Replay what cells of this notebook printed on a cluster while no kernel listened."""
        if not any(note.startswith("reconnected") for note in notes):
            return
        for row in self.clusters.find_unfinished(cluster.row.name):
            notes.append(self._replay(cluster, row, display))

    def _replay(self, cluster: ClusterHandle, row: RunRow, display: Display) -> str:
        """Show the rest of a run, following it while it goes on; say how it ended.

        An interrupt is for the run that is followed, as it was for the cell that started it.
        """
        cap, ranks = int(self.config.max_output_mb * 1e6), range(cluster.row.nodes)
        if not self.config.trust or is_untrusted(self.store, row.run_id):
            display = InertDisplay(display, row.run_id)
        relay = Relay(display, ranks, cap, f"%sky logs {row.name or row.cell}")
        start, presses = row.shown, 0
        while True:
            try:
                answer = cluster.connection.ask_controller("journal", run=row.run_id, start=start)
                relay.replay(answer["entries"])
                if answer["entries"]:
                    start = answer["next"]
                    self.store.record_run_heartbeat(row.run_id, time.time(), start)
                elif answer["status"] != "running":
                    break
                else:
                    time.sleep(0.1)
            except KeyboardInterrupt:
                presses += 1
                op = "interrupt" if presses == 1 else "kill"
                why = "it was interrupted twice"
                cluster.connection.ask_controller(op, run=row.run_id, ranks=list(ranks), why=why)
        relay.finish()
        if answer["status"] == "unknown":  # it never reached the cluster
            self.store.close_run_at_heartbeat(row.run_id)
        else:
            ended = answer["ended"] or time.time()
            self.store.end_run(row.run_id, answer["status"], ended)
        if presses:
            raise KeyboardInterrupt
        what, how = row.name or f"cell {row.cell}", answer["status"].replace("unknown", "lost")
        if start >= FOLLOW_SECONDS:
            return f"{what} went on while no kernel listened, shown at its own place; ended: {how}"
        return f"shown again: what {what} printed while no notebook was listening; it ended: {how}"

    # -- clusters --------------------------------------------------------------------------

    def up(
        self, resources: Resources, name: str | None = None, idle: float | None = None
    ) -> ClusterHandle:
        """Bring a cluster up (or find it up) and return it."""
        cluster, _ = self.clusters.obtain(resources, name, idle, lambda stage, detail: None)
        return cluster

    def down(
        self,
        name: str | None = None,
        everything: bool = False,
        confirm: Callable[[list[EndCandidate]], None] = lambda others: None,
    ) -> EndResult:
        """End a cluster, those of this notebook, or all clusters of this user.

        Each is gone when this returns: its cloud has said so.

        Parameters
        ----------
        name
            The cluster; without one, those that this notebook started and nobody else uses.
        everything
            End all clusters, and machines that no cluster has.
        confirm
            Called with the clusters that others started or use, if there are any, before all are
            ended; raises to end none.

        Returns
        -------
        Outcome
            What ended and what did not; its ``check`` raises when a cluster could not be ended.
        """
        if name is not None:
            row = self.clusters.terminate(name)
            return EndResult(ended=((name, self.describe_place(row)),))
        found = list_candidates(self)
        if everything:
            if others := [one for one in found if one.affects_others]:
                confirm(others)
            return end_clusters(self, found, orphans=True)
        own = [one for one in found if one.is_own]
        used = [(one.row.name, f"used by {', '.join(one.users)}") for one in own if one.users]
        outcome = end_clusters(self, [one for one in own if not one.users], orphans=False)
        return replace(outcome, spared=(*outcome.spared, *used))

    def reap(self, everywhere: bool = True) -> list[ReapFinding]:
        """End machines that nobody needs: see `jupyter_sky.executor.reaper`."""
        return reap_machines(self.clusters, everywhere)

    def status(self) -> list[tuple[ClusterRow, int]]:
        """Return the clusters that are up, each with how many of its cells are running."""
        rows = self.clusters.reconcile()
        running = self.store.runs(status="running")
        return [(row, sum(run.cluster == row.name for run in running)) for row in rows]

    def read_activity(self, row: ClusterRow) -> dict[str, Any] | None:
        """Return what `engines.controller.activity` says of the use of a cluster.

        Returns
        -------
        dict or None
            None where it does not answer, or where to ask would take a new connection to another
            machine.
        """
        live = self.clusters.connected.get(row.name)
        with contextlib.suppress(SkyError, OSError, ValueError, KeyError):
            if live is not None and not live.connection.is_lost:
                return live.connection.ask_controller("use", timeout=2.0, wait_reconnect=False)
            if row.cloud == "local":
                return _ask_controller(row, "use")
        return None

    def cluster(self, name: str | None = None) -> ClusterHandle:
        """Return a live cluster by name, or the only one of this notebook.

        Raises
        ------
        SkyUsageError
            There is none, or several and none was named.
        """
        name = name or self.config.cluster or None
        rows = self.clusters.reconcile()
        if name is None:
            mine = [row for row in rows if row.notebook == self.notebook] or rows
            if len(mine) != 1:
                names = ", ".join(row.name for row in mine)
                raise SkyUsageError(
                    f"several clusters are up ({names}): say which"
                    if mine
                    else "no cluster is up: run a %%sky cell, or %sky up"
                )
            name = mine[0].name
        row = next((row for row in rows if row.name == name), None)
        if row is None:
            raise SkyUsageError(
                f"no cluster {name!r} is up", hint=suggest(name, [row.name for row in rows])
            )
        live, note = self.clusters._connect(row)
        if live is None:
            raise SkyClusterLost(note)
        return live

    def find_cluster_row(self, name: str | None) -> ClusterRow:
        """Return what is remembered of a cluster, up or not; without a name the only one.

        Raises
        ------
        SkyUsageError
            None of that name is remembered.
        """
        if name is None:
            return self.cluster().row
        row = self.store.cluster(name)
        if row is None:
            names = [row.name for row in self.store.clusters()]
            raise SkyUsageError(f"no cluster {name!r} is known", hint=suggest(name, names))
        return row

    def describe_place(self, row: ClusterRow) -> str:
        """Say where a cluster is, in a few words."""
        nodes = f"{row.nodes} x " if row.nodes > 1 else ""
        return nodes + Offer(**row.offer).place

    # -- values ----------------------------------------------------------------------------

    def put(self, names: list[str], cluster: str | None = None) -> None:
        """Send local variables to every engine of a cluster."""
        live = self.cluster(cluster)
        for name in names:
            if name not in self.namespace:
                raise SkyUsageError(
                    f"put: there is no variable {name!r} here", hint=suggest(name, self.namespace)
                )
            parcel = transfer.Parcel.of(self.namespace[name], name)
            transfer.send_value(
                live, live.connection.ranks(), name, parcel, lambda done, total: None
            )

    def get(self, names: list[str], cluster: str | None = None, rank: int = 0) -> Any:
        """Bring remote variables here under the same names; return the last one's value."""
        live, value = self.cluster(cluster), None
        for name in names:
            described = live.connection.ask_engine(
                rank, "pack", name=name, as_data=not self.config.trust
            )
            if described.get("missing"):
                known = [entry[0] for entry in live.connection.ask_engine(rank, "names")["names"]]
                raise SkyUsageError(
                    f"get: there is no variable {name!r} on {live.row.name}",
                    hint=suggest(name, known) if known else "it has none",
                )
            value = transfer.receive_value(live, rank, name, described, trusted=self.config.trust)
            self.namespace[name] = value
        return value

    @property
    def remote_names(self) -> list[str]:
        """Names that recent cells have made on clusters, for completion: nothing is asked."""
        return sorted({name for code in self.codes for name in assigned_names(code)})

    def vars(self, cluster: str | None = None, rank: int = 0) -> list[list]:
        """List the variables of a cluster: name, type, bytes, repr."""
        return self.cluster(cluster).connection.ask_engine(rank, "names")["names"]

    # -- runs ------------------------------------------------------------------------------

    def find_run(self, which: str | None = None) -> RunRow:
        """Return a run of this notebook by name, id or cell number; without, the last one.

        Raises
        ------
        SkyUsageError
            There is none.
        """
        notebook = None if self.everywhere else self.notebook
        rows = self.store.runs(notebook=notebook, limit=1000)
        rows = sorted(rows, key=lambda row: row.started, reverse=True)
        if which is None:
            matching = rows
        else:
            matching = [r for r in rows if which in (r.name, str(r.cell), r.run_id)]
        if not matching:
            known = [r.name or str(r.cell) for r in rows[:20]]
            raise SkyUsageError(
                f"no cell {which!r} has run on a cluster" if which else "no cell has run yet",
                hint=f"known: {', '.join(dict.fromkeys(known))}" if known else None,
            )
        return matching[0]

    def find_handle(self, which: str) -> SkyRun:
        """Return the live handle of a run of this session, by name or cell number."""
        run = self.named.get(which)
        if run is None:
            for candidate in self.live.values():
                if which in (candidate.name, str(candidate.origin.number), candidate.id):
                    return candidate
            raise SkyUsageError(
                f"no run {which!r} in this session", hint=suggest(which, self.named)
            )
        return run

    def journal(self, run_id: str, start: int = 0) -> tuple[list[dict[str, Any]], int]:
        """Return some entries of a run's journal from a number on, and the number of the next.

        They come from the cluster or, when it has ended, from its remains.
        """
        row = self.store.run(run_id)
        cluster = self.clusters.connected.get(row.cluster) if row else None
        if cluster is not None and not cluster.connection.is_lost:
            answer = cluster.connection.ask_controller("journal", run=run_id, start=start)
            return answer["entries"], answer["next"] if answer["entries"] else start
        file = self._journal_file(run_id)
        if file is None and row is not None and row.ended is None:
            return [], start  # it has not come as far as to print
        if file is None:
            raise SkyUsageError(f"the journal of run {run_id} is no longer kept")
        journal = self._journals.setdefault(file.parent, Journal(file.parent))
        entries, following = journal.read(run_id, start)
        if not entries:  # the file may have grown since it was looked at
            journal.forget(run_id)
            entries, following = journal.read(run_id, start)
        return entries, following

    def log_entries(self, run_id: str) -> list[dict[str, Any]]:
        """Return the journal of a run."""
        entries, following = self.journal(run_id)
        found = entries
        while entries:
            entries, following = self.journal(run_id, following)
            found += entries
        return found

    def _journal_file(self, run_id: str) -> Path | None:
        root = Path(self.config.data_dir)
        return next(root.glob(f"*/*/journal/{run_id}.jsonl"), None)

    def log_text(self, run_id: str) -> str:
        """Return everything that a run has printed, as text."""
        return "".join(map(_entry_text, self.log_entries(run_id)))

    # -- account ---------------------------------------------------------------------------

    def notebook_usd(self) -> float | None:
        """Return what this notebook has cost so far in USD (read at most once a second)."""
        now = time.monotonic()
        if now - self._usd[0] > USD_SECONDS:
            self._usd = (now, self.ledger.notebook_usd(self.notebook))
        return self._usd[1]

    # -- the end ---------------------------------------------------------------------------

    def close(self) -> None:
        """Close all connections; end the clusters that nobody would come back to."""
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
                self.clusters.disconnect(
                    name
                )  # what runs there goes on, for the next kernel to find
        with contextlib.suppress(SkyError):
            self.store.clusters()  # reading writes what still waits in memory
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        atexit.unregister(self.close)


def _ask_controller(row: ClusterRow, op: str) -> dict[str, Any]:
    """Ask the controller of a cluster on this machine, without a notebook's connection to it."""
    from ..engines.client.observer import Observer

    observer = Observer(row.name, json.loads(Path(row.connection["file"]).read_text()))
    try:
        return observer.ask(op, timeout=2.0)
    finally:
        observer.close()


def _entry_text(entry: dict[str, Any]) -> str:
    content = entry["content"]
    if entry["type"] == "stream":
        return content["text"]
    if entry["type"] == "error":
        return "\n".join(content.get("traceback", [])) + "\n"
    text = content.get("data", {}).get("text/plain")
    return f"{text}\n" if text else ""


def _use_temporary_folder(config: Sky) -> Path:
    """Let clusters live in a temporary directory: the data directory cannot be written."""
    config.data_dir = tempfile.mkdtemp(prefix="jupyter-sky-")
    config.origins["data_dir"] = "a temporary folder, because the other cannot be used"
    return Path(config.data_dir)


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


def open_session(
    namespace: MutableMapping[str, Any], notebook: str, lasting: bool, everywhere: bool = False
) -> Session:
    """Open this process's session with other settings than a notebook's."""
    global _session
    with _lock:
        assert _session is None, "the session is open already"
        _session = Session(namespace, notebook, lasting, everywhere)
        return _session


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
    # nobody comes back to a headless run: each has an identity of its own
    path = os.environ.get("SKY_NOTEBOOK") or str(Path.cwd() / "session")
    return Session(namespace, f"{path}#{os.getpid()}", is_persistent=False)
