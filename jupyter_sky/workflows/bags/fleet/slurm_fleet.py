"""Machines of a bag that Slurm gives: each message is a batch job.

The folder of the messages has to be seen by the nodes, as home folders are. Batch jobs that a
controller has left behind are cancelled by the one that follows it.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from jupyter_sky.base.errors import SkyError, SkyNodeLost
from jupyter_sky.base.remote.slurm import SlurmClient, SlurmJob
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.translation import _
from jupyter_sky.workflows.bags.decisions.backlog import MachineKind
from jupyter_sky.workflows.bags.decisions.job_forecast import DegradedOption
from jupyter_sky.workflows.bags.decisions.outlook import FleetView
from jupyter_sky.workflows.bags.fleet.slurm_commands import batch_options, end_error
from jupyter_sky.workflows.bags.fleet.slurm_job import LOG, MESSAGE, RESULT, write_whole
from jupyter_sky.workflows.bags.queue.application import App, BagSettings, JobOutcome, OpenJob

AT_ONCE = 64
"""Batch jobs that wait or run at a time, unless `machines` says how many."""
LOOK_SECONDS = 0.25
"""Time between two looks for results."""
ASK_SECONDS = 2.0
"""Time between two questions to Slurm: its controller serves many users."""
MESSAGE_SECONDS = 5.0
"""Time after which a batch job begins no further job of its message."""


@dataclass(eq=False, slots=True)
class _Batch:
    """Batch job: its number in Slurm and that of its message, and what waits for it."""

    slurm: str
    number: int
    future: Future[list[JobOutcome]]
    gone: int = 0


class SlurmFleet:
    """Nodes of the Slurm of this machine.

    Parameters
    ----------
    name
        Of the bag.
    settings
        What was asked of it.
    folder
        Where messages and results go.
    """

    def __init__(self, name: str, settings: BagSettings, folder: Path) -> None:
        resources = parse_cell_line(settings.options).resources
        self._name, self._folder = f"sky-{name}", folder
        self._options = batch_options(resources, settings.timeout, settings.slurm or "")
        tasks = ("--nodes", "--ntasks", "-N", "-n")
        self._is_gang = any(option.startswith(tasks) for option in self._options)
        self._most = settings.machines or AT_ONCE
        self._error: SkyError | None = None
        self._batches: list[_Batch] = []
        self._nodes: list[str] = []
        self._events: list[str] = []
        self._slurm, self._states = SlurmClient(), dict[str, SlurmJob]()
        self._serial = 0
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    # -- begin and end -------------------------------------------------------------------------

    def begin(self, jobs: int) -> None:
        """Cancel what an earlier controller has left, and look for results from now on."""
        if self._thread is not None:
            return
        try:
            self._slurm.cancel(self._name)
        except SkyError as error:
            self._error = error
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700, parents=True)
        self._thread = threading.Thread(target=self._watch, name=self._name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Cancel all batch jobs."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(SkyError):
            self._slurm.cancel(self._name)
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- jobs ----------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """Batch jobs at a time; 0 where Slurm takes none."""
        return 0 if self._error else self._most

    @property
    def error(self) -> SkyError | None:
        """Why Slurm takes no job; None while it does."""
        return self._error

    def submit(
        self, app: App, jobs: Sequence[OpenJob], timeout: float | None
    ) -> Future[list[JobOutcome]]:
        """Submit jobs as one batch job."""
        import cloudpickle

        self._serial += 1
        number, future = self._serial, Future()
        calls = [(job.number, job.attempts, job.parameters) for job in jobs]
        seconds = 0.0 if self._is_gang else MESSAGE_SECONDS  # an MPI world has one job
        message = cloudpickle.dumps((app, calls, seconds))
        write_whole(self._folder / MESSAGE.format(number=number), message)
        try:
            slurm = self._submit(number)
        except SkyError as error:
            with self._lock:
                if not self._batches:
                    self._error = error
                # a limit of the account: others go on, and this one waits for them
                self._most = max(1, len(self._batches))
            future.set_exception(SkyNodeLost(error.message))
            return future
        with self._lock:
            self._batches.append(_Batch(slurm, number, future))
        return future

    def _submit(self, number: int) -> str:
        command = [
            sys.executable,
            "-m",
            "jupyter_sky.workflows.bags.fleet.slurm_job",
            self._folder,
            str(number),
        ]
        words = shlex.join(map(str, command))
        step = f"exec {words}\n"
        if self._is_gang:
            step = f'[ "${{SLURM_NTASKS:-1}}" = 1 ] || exec srun --mpi=pmi2 {words}\n{step}'
        log = str(self._folder / LOG.format(number=number))
        own = [f"--job-name={self._name}", f"--output={log}"]
        return self._slurm.submit([*own, *self._options], f"#!/bin/sh\n{step}")

    def describe(self, rank: int) -> tuple[str, float]:
        """Return the name of a node; it costs nothing."""
        return (f"slurm {self._nodes[rank]}" if rank < len(self._nodes) else "slurm"), 0.0

    # -- results -------------------------------------------------------------------------------

    def _watch(self) -> None:
        looks = 0
        while not self._stopped.wait(LOOK_SECONDS):
            looks += 1
            with self._lock:
                batches = list(self._batches)
            self._cancel([batch for batch in batches if batch.future.cancelled()])
            for batch in batches:
                self._take_result(batch)
            if batches and looks % round(ASK_SECONDS / LOOK_SECONDS) == 0:
                self._ask()

    def _cancel(self, batches: list[_Batch]) -> None:
        with suppress(SkyError):
            self._slurm.cancel(numbers=[batch.slurm for batch in batches])
        for batch in batches:
            self._forget(batch)

    def _take_result(self, batch: _Batch) -> None:
        """Hand on the outcomes of a batch job that has written them."""
        import cloudpickle

        try:
            data = (self._folder / RESULT.format(number=batch.number)).read_bytes()
        except FileNotFoundError:
            return
        outcomes, node = cloudpickle.loads(data)
        if node not in self._nodes:
            self._nodes.append(node)
            self._events.append(_("Slurm runs jobs on {node}").format(node=node))
        rank = self._nodes.index(node)
        self._forget(batch)
        with suppress(Exception):  # it was cancelled meanwhile
            batch.future.set_result([replace(each, rank=rank) for each in outcomes])

    def _ask(self) -> None:
        """Look for batch jobs that have ended without a result."""
        try:
            self._states = {job.number: job for job in self._slurm.list_jobs(self._name)}
        except SkyError:  # its controller is busy or restarted: it is asked again
            return
        with self._lock:
            batches = list(self._batches)
        for batch in batches:
            found = self._states.get(batch.slurm)
            if found is not None and found.is_open:
                batch.gone = 0
                continue
            batch.gone += 1
            if batch.gone < 2:  # files of other nodes are seen late
                continue
            self._forget(batch)
            with suppress(Exception):
                batch.future.set_exception(end_error(batch.slurm, found, self._last_line(batch)))

    def _last_line(self, batch: _Batch) -> str:
        try:
            text = (self._folder / LOG.format(number=batch.number)).read_text(errors="replace")
        except OSError:
            return ""
        return (text.strip().splitlines() or [""])[-1][-300:]

    def _forget(self, batch: _Batch) -> None:
        with self._lock:
            if batch in self._batches:
                self._batches.remove(batch)
        for name in (MESSAGE, RESULT):
            (self._folder / name.format(number=batch.number)).unlink(missing_ok=True)

    # -- what is known -------------------------------------------------------------------------

    def spending(self) -> tuple[float, float]:
        """Return no cost: nodes of Slurm are not billed here."""
        return 0.0, 0.0

    def clusters(self) -> list[str]:
        """Return no cluster: none is in the ledger."""
        return []

    def take_events(self) -> list[str]:
        """Return the nodes that were seen for the first time."""
        found, self._events = self._events, []
        return found

    def view(self, now: float) -> FleetView:
        """Return nothing: how many run at a time is for Slurm to decide."""
        return FleetView()

    def alternatives(self) -> tuple[DegradedOption, ...]:
        """Return none."""
        return ()

    def grow(self, slots: int, kind: MachineKind | None = None) -> None:
        """Do nothing: as many as may be wait in Slurm's queue."""

    def exchange(self, age: float) -> None:
        """Do nothing: batch jobs are not reused."""

    def give_back(self, jobs: int) -> None:
        """Do nothing: nodes are given back with each batch job."""
