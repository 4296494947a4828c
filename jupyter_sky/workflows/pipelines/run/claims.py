"""Claims of runs on results: of two at once one makes a result, the other waits for it."""

from __future__ import annotations

from jupyter_sky.base.remote.processes import is_alive
from jupyter_sky.workflows.pipelines.model.identity import TaskKey
from jupyter_sky.workflows.pipelines.model.kept_results import KeptResults
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.state import UNDER_WAY, RunState, fold


class Claims:
    """Results that runs are about to make, or make now.

    A claim holds as long as a process carries its run out and its task has not ended; that of a
    paused run only while the task runs.

    Parameters
    ----------
    kept
        Results of all runs, whose database has the claims.
    journal
        Of all runs.
    run
        Which makes claims.
    """

    def __init__(self, kept: KeptResults, journal: RunJournal, run: str) -> None:
        self._db, self._journal, self._run = kept.database, journal, run

    def claim(self, key: TaskKey, task: str) -> str:
        """Claim a result; return the name of the run that makes it already, empty without one."""
        return self._db.transact(lambda _db: self._claim(key, task), durable=False)

    def _claim(self, key: TaskKey, task: str) -> str:
        rows = self._db.read("SELECT run, task FROM claim WHERE key = ?", (key.digest,))
        if rows and rows[0]["run"] != self._run and self._holds(rows[0]["run"], rows[0]["task"]):
            return rows[0]["run"]
        row = (key.digest, self._run, task)
        self._db.write(("INSERT OR REPLACE INTO claim VALUES (?, ?, ?)", row))
        return ""

    def _holds(self, run: str, task: str) -> bool:
        if run not in self._journal.names():
            return False
        events = self._journal.events(run)
        if not is_alive(self._journal.owner(run), events[-1].at if events else 0.0):
            return False
        state = fold(RunState.begin(self._journal.read(run).graph), events)
        found = state.tasks.get(task)
        if found is None or found.phase.is_final:
            return False
        return found.phase in UNDER_WAY or not (state.paused or state.cancelled)

    def release(self) -> None:
        """Give up all claims of the run."""
        self._db.write(("DELETE FROM claim WHERE run = ?", (self._run,)))
