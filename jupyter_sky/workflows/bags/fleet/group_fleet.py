"""Machines of a bag in groups that are pools of their own.

For jobs that run on several machines, and for bags that measure types of machines first: each
group may be of another type. The loss of a machine takes the work of its group alone.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import (
    SkyClusterLost,
    SkyError,
    SkyNoCapacity,
    SkyNoOffer,
)
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes.servers import Shape
from jupyter_sky.workflows.bags.decisions.backlog import MachineKind
from jupyter_sky.workflows.bags.decisions.explorer import Explorer, find_shapes, narrow_to
from jupyter_sky.workflows.bags.decisions.fleet_plan import FIRST_GROUPS, machine_kind
from jupyter_sky.workflows.bags.decisions.job_forecast import DegradedOption
from jupyter_sky.workflows.bags.decisions.outlook import (
    BOOT_HOURS,
    MOST_GROUPS,
    FleetView,
    on_demand_option,
    view_groups,
)
from jupyter_sky.workflows.bags.fleet.fleet import fleet_options
from jupyter_sky.workflows.bags.fleet.machine_group import MachineGroup
from jupyter_sky.workflows.bags.queue.application import (
    App,
    BagSettings,
    JobOutcome,
    OpenJob,
)
from jupyter_sky.workflows.bags.queue.exploration import AppTimes, shape_key

if TYPE_CHECKING:
    from jupyter_sky.execution.sessions.session import Session


LOOK_SECONDS = 0.1
"""Time between two looks at the groups."""
RETRY_SECONDS = 30.0
"""Time until groups that could not be had are asked for again."""
SPENDING_SECONDS = 1.0
"""Age of the cost that is taken for the present one."""
_END_SECONDS = 120.0


class GroupFleet:
    """Groups of machines of one bag.

    Parameters
    ----------
    session, name, settings, around, known
        As `PoolFleet` has them.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        settings: BagSettings,
        around: Mapping[str, Any],
        known: Sequence[str] = (),
    ) -> None:
        self._session, self._settings, self._around = session, settings, around
        self._cluster, self._known = f"bag-{name}", dict.fromkeys(known)
        options = fleet_options(settings)
        self._resources = options.resources
        self._times = AppTimes()
        self._keep_times: Callable[[AppTimes], None] = lambda times: None
        self._explorer: Explorer | None = None
        self._measured: Shape | None = None
        self._types: dict[Shape, float] = {}  # those that run the app, with their mean hours
        self._groups: list[MachineGroup] = []
        self._ended: list[MachineGroup] = []
        self._error: SkyError | None = None
        self._jobs, self._wanted, self._serial, self._retry_at = 0, 0, 0, 0.0
        self._spending, self._spending_at = (0.0, 0.0), 0.0
        self._events: list[str] = []
        self._told: dict[int, str] = {}
        self._prices: dict[int, tuple[str, float]] = {}
        self._lock, self._stopped = threading.RLock(), threading.Event()
        self._thread: threading.Thread | None = None

    # -- begin and end -------------------------------------------------------------------------

    def begin(self, jobs: int) -> None:
        """Launch the first groups for so many jobs, in a thread; let them be more."""
        self._jobs = jobs
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._manage, name=f"sky-{self._cluster}", daemon=True
            )
            self._thread.start()
        elif self._explorer is None:
            self._wanted = max(self._wanted, self._first_count())

    def remember(self, times: AppTimes, keep: Callable[[AppTimes], None]) -> None:
        """Take run times that an earlier bag of the app has measured; keep those of this one."""
        self._times, self._keep_times = times, keep

    def _first_count(self) -> int:
        """Return the number of groups while next to nothing is known of run times."""
        machines = self._settings.machines
        groups = FIRST_GROUPS if machines is None else machines // self._resources.nodes
        return max(1, min(groups, self._jobs))

    def _manage(self) -> None:
        try:
            self._end_known()
            if self._settings.explore:
                shapes = find_shapes(self._resources)
                self._explorer = Explorer(shapes, self._times)
            else:
                self._wanted = self._first_count()
            while not self._stopped.is_set():
                self._look()
                self._stopped.wait(LOOK_SECONDS)
        except SkyError as error:
            self._error = error

    def _end_known(self) -> None:
        """End clusters of a controller that was killed."""
        for name in self._known:
            row = self._session.store.cluster(name)
            if row is not None and row.state in ("up", "starting"):
                with suppress(SkyError):
                    self._session.clusters.terminate(name)

    def end(self) -> None:
        """End all machines, also those that are being launched."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)
        with self._lock:
            for group in list(self._groups):
                self._end_group(group)
        until = time.monotonic() + _END_SECONDS
        for group in self._ended:
            group.await_end(max(0.0, until - time.monotonic()))

    # -- groups --------------------------------------------------------------------------------

    def _look(self) -> None:
        """Take in what has become of groups; launch those that are missing."""
        with self._lock:
            for group in list(self._groups):
                if group.is_gone:
                    self._note_gone(group)
                elif group.is_leaving and not group.messages:
                    self._end_group(group)
            if self._explorer is not None:
                self._explore(self._explorer)
            staying = [group for group in self._groups if not group.is_leaving]
            if len(staying) < self._wanted and time.monotonic() > self._retry_at:
                for _group in range(self._wanted - len(staying)):
                    self._launch(self._resources)

    def _launch(self, resources: Resources) -> MachineGroup:
        self._serial += 1
        name = f"{self._cluster}-{self._serial}"
        group = MachineGroup(
            self._session, self._serial, name, resources, self._around, self._settings.kind
        )
        self._groups.append(group)
        return group

    def _end_group(self, group: MachineGroup) -> None:
        self._groups.remove(group)
        self._ended.append(group)
        group.end()

    def _note_gone(self, group: MachineGroup) -> None:
        """Forget a group that could not be had, or was lost for good; others are asked for."""
        self._end_group(group)
        error = group.error
        if error is None:
            return
        self._retry_at = time.monotonic() + RETRY_SECONDS
        measured = self._measured
        if self._explorer is not None and measured is not None:
            if self._key_of(group) != shape_key(measured):
                return
            self._explorer.refused.add(shape_key(measured))
            self._events.append(
                _("{shape} cannot be had: {error}").format(shape=measured, error=error.message)
            )
            self._measured = None
        elif isinstance(error, SkyNoCapacity | SkyNoOffer) and self._take_on_demand(error):
            self._retry_at = 0.0
        elif not self._groups:
            self._error = error

    def _take_on_demand(self, error: SkyError) -> bool:
        """Ask for machines on demand from now on, where there is a deadline to be kept."""
        if self._settings.deadline is None or not self._resources.spot:
            return False
        self._resources = replace(self._resources, spot=False)
        self._events.append(
            _("machines on demand are taken, since no others can be had: {error}").format(
                error=error.message
            )
        )
        return True

    # -- exploration ---------------------------------------------------------------------------

    def _explore(self, explorer: Explorer) -> None:
        """Launch the shape that is measured next; when all is known, the best of them."""
        measured = self._measured or explorer.next_step(self._jobs).measure
        if measured is not None:
            self._measured = measured
            staying = [group for group in self._groups if not group.is_leaving]
            if not any(self._key_of(group) == shape_key(measured) for group in staying):
                self._launch(narrow_to(self._resources, measured))
            return
        best, text = explorer.choose()
        self._events.append(text)
        self._types = explorer.measured_hours()
        self._explorer = None
        self._resources = narrow_to(self._resources, best)
        self._keep_only(best)
        self._wanted = self._first_count()

    def _keep_only(self, shape: Shape) -> None:
        for group in self._groups:
            group.is_leaving = group.is_leaving or self._key_of(group) != shape_key(shape)

    def _is_to_measure(self, group: MachineGroup) -> bool:
        measured = self._measured
        is_type = measured is not None and self._key_of(group) == shape_key(measured)
        return is_type and not group.messages

    @staticmethod
    def _key_of(group: MachineGroup) -> tuple[str, int]:
        return group.resources.instance_type or "", group.resources.nodes

    def _note_outcomes(self, group: MachineGroup, jobs: Sequence[OpenJob], future: Any) -> None:
        """Take in the run times of jobs that have succeeded."""
        if future.cancelled() or future.exception() is not None:
            return
        sizes = {job.number: self._size_of(job) for job in jobs}
        with self._lock:
            explorer, measured = self._explorer, self._measured
            if explorer is None or measured is None or self._key_of(group) != shape_key(measured):
                return
            for outcome in future.result():
                if not outcome.error:
                    hours = max(outcome.seconds, 1e-3) / 3600 / sizes[outcome.number]
                    explorer.measure(shape_key(measured), hours)
                    self._measured = None
            if self._measured is None:
                self._keep_times(explorer.times)
                with suppress(SkyNoOffer):
                    self._keep_only(explorer.choose()[0])

    def _size_of(self, job: OpenJob) -> float:
        size = job.parameters.get(self._settings.size) if self._settings.size else None
        return float(size) if isinstance(size, int | float) and size > 0 else 1.0

    # -- jobs ----------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """Groups that are up."""
        return sum(group.is_ready for group in self._groups)

    @property
    def error(self) -> SkyError | None:
        """Why no machine can be had; None while one can."""
        return self._error

    def submit(
        self, app: App, jobs: Sequence[OpenJob], timeout: float | None
    ) -> Future[list[JobOutcome]]:
        """Send jobs to the group that is to be measured, else to the one that has the fewest."""
        with self._lock:
            ready = [group for group in self._groups if group.is_ready]
            if not ready:
                raise SkyClusterLost(_("the machines of the bag are gone"))
            group = min(ready, key=lambda group: (not self._is_to_measure(group), group.messages))
            self._jobs = max(0, self._jobs - len(jobs))
            future = group.submit(app, jobs, timeout, self._settings.recover)
        self._prices[group.number] = group.place, group.usd_h
        future.add_done_callback(lambda ended: self._note_outcomes(group, jobs, ended))
        return future

    def describe(self, rank: int) -> tuple[str, float]:
        """Return the place of a group, and its price (USD/h)."""
        return self._prices.get(rank, ("", 0.0))

    # -- number of groups ----------------------------------------------------------------------

    def view(self, now: float) -> FleetView:
        """Return the groups that are up, at a unix time."""
        with self._lock:
            rows = [group.rows[0] for group in self._groups if group.is_ready and group.rows]
            is_refused = time.monotonic() < self._retry_at
        found = view_groups(rows, now)
        return replace(found, most=len(found.ages)) if is_refused else found

    def alternatives(self) -> tuple[DegradedOption, ...]:
        """Return the other types that were measured, and machines on demand in place of spot."""
        asked = self._resources
        return (*self._other_types(), *on_demand_option(asked, asked.nodes))

    def _other_types(self) -> tuple[DegradedOption, ...]:
        """Return the measured types beside the one that machines are now added of."""
        asked = self._resources
        now = next((shape for shape in self._types if narrow_to(asked, shape) == asked), None)
        if now is None:
            return ()
        ratios = {shape: hours / self._types[now] for shape, hours in self._types.items()}
        return tuple(
            DegradedOption(
                machine_kind(shape.offer, shape.nodes, BOOT_HOURS, ratio=ratio), MOST_GROUPS
            )
            for shape, ratio in ratios.items()
            if shape != now
        )

    def grow(self, slots: int, kind: MachineKind | None = None) -> None:
        """Launch groups, so that there are so many; return at once."""
        with self._lock:
            if self._explorer is not None:
                return
            if kind is not None:
                self._take_kind(kind)
            self._wanted = max(self._wanted, slots)

    def _take_kind(self, kind: MachineKind) -> None:
        """Add machines of another kind from now on, where it is one of the alternatives."""
        shape = next((shape for shape in self._types if shape.offer.place == kind.name), None)
        if shape is not None:
            self._resources = narrow_to(self._resources, shape)
            self._events.append(
                _("machines of another type are added, to keep the deadline: {shape}").format(
                    shape=shape
                )
            )
        elif any(kind.name == each.kind.name for each in self.alternatives()):
            self._resources = replace(self._resources, spot=False)
            self._events.append(_("machines on demand are added, to keep the deadline"))

    def exchange(self, age: float) -> None:
        """Let groups end that have lived for so many hours; others take their place."""
        with self._lock:
            for group in self._groups:
                ages = [time.time() - row.created for row in group.rows]
                if group.is_ready and ages and max(ages) > age * 3600 < math.inf:
                    group.is_leaving = True
                    self._events.append(_("{name} is exchanged by its age").format(name=group.name))

    def give_back(self, jobs: int) -> None:
        """End groups that so few jobs do not need, once these are idle."""
        with self._lock:
            self._wanted = min(self._wanted, max(1, jobs))
            idle = [group for group in self._groups if group.is_ready and not group.messages]
            staying = [group for group in self._groups if not group.is_leaving]
            for group in idle[: max(0, len(staying) - self._wanted)]:
                group.is_leaving = True

    # -- money ---------------------------------------------------------------------------------

    def spending(self) -> tuple[float, float]:
        """Return the cost up to now (USD) and the price now (USD/h)."""
        now = time.monotonic()
        if now - self._spending_at > SPENDING_SECONDS:
            self._spending_at = now
            price = sum(group.usd_h for group in list(self._groups))
            usd = sum(self._session.ledger.cluster_usd(name) or 0.0 for name in list(self._known))
            self._spending = usd, price
        return self._spending

    def clusters(self) -> list[str]:
        """Return the names of the clusters that are up."""
        names = [row.name for group in list(self._groups) for row in group.rows]
        self._known |= dict.fromkeys(names)
        return names

    def take_events(self) -> list[str]:
        """Return what has happened to machines since it was asked last."""
        with self._lock:
            there = {group.number: group.place for group in self._groups if group.rows}
            found, self._events = self._events, []
        told, self._told = self._told, there
        came = [_("{place} is up").format(place=there[key]) for key in sorted({*there} - {*told})]
        left = [_("{place} is gone").format(place=told[key]) for key in sorted({*told} - {*there})]
        return [*found, *came, *left]


# -- Jobs that several machines run together, such as the ranks of an MPI program -----------------
#
# All nodes of a group are sent the job. Where a command is run, each of them finds the line of a
# process manager in its environment (PMI-1, as MPICH and Intel MPI speak it), so that the programs
# meet as one MPI world without ``mpiexec`` and without SSH between the nodes.
