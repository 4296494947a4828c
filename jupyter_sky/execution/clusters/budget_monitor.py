"""Budget monitor: enforces the day's budget in one process, also while no cell runs there.

Every session has one, that of the Jupyter server too, and all of them decide by
`knowledge.ledger.budget.assess`. When the budget is spent, run monitors stop cells that cost
something and waiting launches stop themselves; clusters are ended side by side by the first budget
monitor after the grace period. Cells and clusters without cost go on.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from jupyter_sky.base.errors import SkyBudget, SkyError, SkyStoreError
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import ClusterId, ClusterRow, Store
from jupyter_sky.base.translation import _
from jupyter_sky.execution.clusters.cluster import ENDED_BY_BUDGET
from jupyter_sky.execution.clusters.cluster_launch import cancel_launch
from jupyter_sky.execution.clusters.cluster_records import ClusterRecords
from jupyter_sky.knowledge.ledger import budget
from jupyter_sky.knowledge.ledger.budget import BudgetStatus, depletion_time
from jupyter_sky.machines.engines.wire.controller_requests import SetDeadline

_log = logging.getLogger(__name__)

CACHE_SECONDS = 1.0
"""Longest age of a verdict that is taken for the present one (s)."""
CHECK_SECONDS = 5.0
"""Longest time between two checks of the day while there is a budget."""
END_SECONDS = 60.0
"""Longest wait for clusters that end; those that take longer end meanwhile."""
LEAD_SECONDS = 5.0
"""The end of clusters begins so long before the grace is over: they are billed until they end."""
ROLLBACK_SECONDS = 120.0
"""A launch whose process lives has this long after the grace to give its machines back itself."""


class BudgetMonitor:
    """Enforces the day's budget: refuses, or ends, what would exceed it.

    Examples
    --------
    >>> session.clusters.budget_monitor.verdict().state  # doctest: +SKIP
    'ok'
    """

    def __init__(self, records: ClusterRecords) -> None:
        self._records, self._store = records, records.store
        self._verdict: BudgetStatus | None = None
        self._found = 0.0
        self._told: tuple[str, str] = ("", "")
        self._deadlines = DeadlineRenewal(records.store)
        self._ending: dict[ClusterId, threading.Thread] = {}
        self._closed = threading.Event()

    def start(self) -> None:
        """Check the day from time to time, in a thread of its own, until `close`."""
        threading.Thread(target=self._monitor, name="sky-guard", daemon=True).start()

    def close(self) -> None:
        """Stop checking."""
        self._closed.set()

    # -- decisions ---------------------------------------------------------------------------

    def verdict(self) -> BudgetStatus:
        """Return the state of the day, as of a second ago at most."""
        if self._verdict is None or time.monotonic() - self._found > CACHE_SECONDS:
            self._verdict, self._found = budget.assess(self._store), time.monotonic()
        return self._verdict

    def money_left(self) -> float | None:
        """Return for how many seconds the money lasts if all goes on that runs; None for ever."""
        until = budget.depletion_time(self.verdict())
        return None if until is None else max(0.0, until - time.time())

    def set_budget(self, usd: float | None, origin: str = "%config") -> None:
        """Set the budget of this user, for all notebooks."""
        budget.write_budget(self._store, usd, origin)
        Sky.load().adopt_budget(usd)
        self._verdict = None

    def check_start(self, price: float | None, what: str) -> str:
        """Let something of a price start or go on; return a note for its user.

        Raises
        ------
        SkyBudget
            It costs something, and the budget of the day is spent.
        """
        if price == 0:
            return ""
        if price is None:
            blind = budget.read_budget(self._store).usd is not None
            return _("the budget of the day cannot see it: its price is not known") if blind else ""
        verdict = self.verdict()
        if verdict.state == "over":
            raise budget.budget_error(verdict, what)
        return ""

    def stop_reason(self, price: float | None, what: str) -> SkyBudget | None:
        """Return the error of something that the day's budget ends; None while it may go on."""
        try:
            self.check_start(price, what)
        except SkyBudget as over:
            return over
        except SkyStoreError:
            pass  # the store is locked for a moment
        return None

    def pop_notice(self) -> list[str]:
        """Return the warning about the budget: once when it runs short, once when it is spent."""
        verdict = self._verdict  # no look into the store: a cell waits for this
        if verdict is None or verdict.state not in ("warn", "over"):
            return []
        told, self._told = self._told, (verdict.day, verdict.state)
        return [verdict.text] if self._told != told else []

    # -- watching ----------------------------------------------------------------------------

    def _monitor(self) -> None:
        wait = CACHE_SECONDS
        while not self._closed.wait(wait):
            try:
                wait = self.enforce()
            except SkyError:
                wait = CHECK_SECONDS  # a store that is locked for a moment
            except Exception:
                _log.warning("the budget could not be looked at", exc_info=True)
                wait = CHECK_SECONDS

    def enforce(self) -> float:
        """Check once, and end what must end; return the seconds until the next check."""
        shared = budget.read_budget(self._store).usd
        Sky.load().adopt_budget(shared)
        verdict = self._verdict = budget.assess(self._store)
        self._found = time.monotonic()
        self._deadlines.renew(verdict)
        if shared is None:
            return CHECK_SECONDS
        ends = budget.shutdown_time(self._store, verdict)
        if ends is None:
            return min(CHECK_SECONDS, max(CACHE_SECONDS, verdict.seconds_left))
        left = ends - LEAD_SECONDS - time.time()
        if left > 0:
            return min(CHECK_SECONDS, left)
        self.end_all(verdict)
        return CHECK_SECONDS

    def end_all(self, verdict: BudgetStatus) -> list[str]:
        """End every cluster that costs something, those that still start too.

        Stopped ones are kept: they cost their disks alone, whose files would be lost.

        They end side by side, each in a thread of its own: one that cannot be ended, or takes its
        time, keeps no other up. It is tried again at the next check.

        Returns
        -------
        list of str
            Names of those that have ended by now.
        """
        ended: list[str] = []
        why = f"{ENDED_BY_BUDGET}: {verdict.text}"
        for row in self._store.live_clusters():
            if not row.price or row.state == "stopped" or row.id in self._ending:
                continue
            if self._is_still_rolling_back(row, verdict):
                continue
            end = threading.Thread(
                target=self._end, args=(row, why, ended), name=f"sky-end-{row.name}", daemon=True
            )
            self._ending[row.id] = end
            end.start()
        deadline = time.monotonic() + END_SECONDS
        for end in list(self._ending.values()):
            end.join(max(0.0, deadline - time.monotonic()))
        return list(ended)

    def _end(self, row: ClusterRow, why: str, ended: list[str]) -> None:
        try:
            if row.state == "starting":
                cancel_launch(self._records, row, why)
            else:
                self._records.terminate_row(row, why)
            ended.append(row.name)
        except SkyError as error:  # its cloud refuses, or another guard was first
            _log.warning("%s could not be ended: %s", row.name, error)
        except Exception:
            _log.warning("%s could not be ended", row.name, exc_info=True)
        finally:
            del self._ending[row.id]

    @staticmethod
    def _is_still_rolling_back(row: ClusterRow, verdict: BudgetStatus) -> bool:
        """Whether the process that launches a cluster has time yet to give it back itself."""
        late = time.time() - (verdict.depleted_at or verdict.at) > ROLLBACK_SECONDS
        return row.is_being_launched() and not late


# -- Deadlines of clusters that no notebook is connected to: until when the day's money lasts -----
#
# A notebook that is connected sends it with every heartbeat. Where none is, any live budget monitor
# sends it, so that a budget that was raised lets what runs go on, and one that was lowered ends it.

_log = logging.getLogger(__name__)

UNHEARD_SECONDS = 10.0
"""Age of a cluster's last heartbeat after which other processes send it the deadline."""
MIN_CHANGE_SECONDS = 5.0
"""Least change of a deadline that is sent again."""


class DeadlineRenewal:
    """Deadlines that one process has sent to clusters that it is not connected to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._told: dict[ClusterId, float | None] = {}
        self._telling: set[ClusterId] = set()

    def renew(self, verdict: BudgetStatus) -> None:
        """Send a deadline that has changed to each cluster that costs money without a notebook."""
        until = depletion_time(verdict)
        if until is None and not any(self._told.values()):
            return  # there never was a deadline, as far as is known here
        going_on = self._store.intervals(since=verdict.at)
        heard = {one.cluster_id: one.last_beat for one in going_on}
        for row in self._store.clusters():
            silent = verdict.at - heard.get(row.id, 0.0) > UNHEARD_SECONDS
            if not row.price or not silent or row.id in self._telling:
                continue
            if row.id in self._told and _is_unchanged(self._told[row.id], until):
                continue
            self._telling.add(row.id)
            threading.Thread(
                target=self._send_deadline,
                args=(row, until),
                name=f"sky-deadline-{row.name}",
                daemon=True,
            ).start()

    def _send_deadline(self, row: ClusterRow, until: float | None) -> None:
        try:
            left = None if until is None else max(0.0, until - time.time())
            _send_once(row, left)
            self._told[row.id] = until
        except Exception:  # what is not reached keeps its old deadline; tried again soon
            _log.info("%s was not told its deadline", row.name, exc_info=True)
        finally:
            self._telling.discard(row.id)


def _is_unchanged(old: float | None, new: float | None) -> bool:
    if old is None or new is None:
        return old is new
    return abs(old - new) < MIN_CHANGE_SECONDS


def _send_once(row: ClusterRow, left: float | None) -> None:
    """Send a deadline to the controller of a cluster over a connection for this alone."""
    from jupyter_sky.machines.engines.client.observer import Observer
    from jupyter_sky.machines.engines.wire import connection_file
    from jupyter_sky.machines.provisioner.ssh_launch import open_tunnel

    path = Path(row.connection["file"])
    tunnel = open_tunnel(path)
    try:
        observer = Observer(
            row.name, tunnel.connection if tunnel else connection_file.read(path, row.name)
        )
        try:
            observer.ask(SetDeadline(left))
        finally:
            observer.close()
    finally:
        if tunnel:
            tunnel.close()
