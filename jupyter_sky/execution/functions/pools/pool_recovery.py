"""Recovery of a pool: machines that are lost, or about to be, are replaced by others.

A machine in place of another takes its rank. Its calls that have not begun go elsewhere, calls that
ran are sent again where they may be, and calls for its rank wait.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyCancelled, SkyError
from jupyter_sky.base.requests.offers import Offer, Place
from jupyter_sky.base.translation import _
from jupyter_sky.clouds import is_rented
from jupyter_sky.execution.cells.recovery_places import (
    BOOT_HOURS,
    LOSS_HOURS,
    price_places,
    seen_events,
)
from jupyter_sky.execution.clusters.lost_machines import (
    give_up_ended,
    give_up_machine,
    keep_without_losses,
)
from jupyter_sky.execution.clusters.machine_notices import Notices, leaving_ranks
from jupyter_sky.execution.functions.calls.nodes import PoolNode
from jupyter_sky.execution.functions.pools.replacement import (
    is_replaceable,
    ranks_to_replace,
    retry_delay,
)
from jupyter_sky.execution.functions.shared.messages import CopyState, LoadState
from jupyter_sky.execution.functions.shared.shared_client import (
    STANDALONE,
    RemoteClient,
    SeenStates,
    notebook_endpoint,
    shared_state_endpoint,
)
from jupyter_sky.execution.functions.shared.state_copy import COPY_SECONDS, MAX_COPY_BYTES
from jupyter_sky.knowledge import tracker
from jupyter_sky.knowledge.lifetimes.observations import Happening, find_latest
from jupyter_sky.knowledge.lifetimes.recovery import IndexStrategy, Situation
from jupyter_sky.knowledge.tracker.blocks import blocked
from jupyter_sky.knowledge.tracker.observations import Observation
from jupyter_sky.machines.engines.wire.controller_requests import FindSharedState

if TYPE_CHECKING:
    from jupyter_sky.base.store.rows import ClusterId
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.functions.pools.launch import ClusterLauncher
    from jupyter_sky.execution.functions.pools.pool import Pool


DRAIN_TICK_SECONDS = 0.05
JOIN_SECONDS = 30.0
ASK_SECONDS = 1.0
"""Time between two questions to a cloud about machines that are silent."""
LOOK_SECONDS = 1.0
"""Period at which nodes are looked at: the loss of an idle one is told by no call."""


_REPLACED = "another machine has taken its place"


@dataclass(eq=False, slots=True)
class Vacancy:
    """Ranks of one cluster that get other machines.

    Attributes
    ----------
    ranks
        Ranks in the pool.
    is_whole
        Whether they are all nodes of the cluster, which ends.
    target
        Spot machines to go to from machines on demand, which stay if those cannot be had.
    withdrawn
        Set when the machines stay after all.
    """

    cluster: ClusterHandle
    nodes: Sequence[PoolNode]
    ranks: tuple[int, ...]
    is_whole: bool
    target: Offer | None = None
    withdrawn: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise SkyCancelled once no other machines are wanted."""
        if self.withdrawn.is_set():
            raise SkyCancelled(_("the machines stay, or the pool has ended"))


class PoolRecovery:
    """Replacement of the machines of one pool.

    Parameters
    ----------
    prepare
        Makes nodes ready, before calls go there.
    """

    def __init__(
        self,
        pool: Pool,
        launcher: ClusterLauncher,
        prepare: Callable[[Pool, Sequence[int]], None],
    ) -> None:
        self._pool, self._launcher, self._prepare = pool, launcher, prepare
        self._vacancies: list[Vacancy] = []
        self._threads: list[threading.Thread] = []
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._serial = 0
        self._silent: dict[str, Sequence[int]] = {}
        """Nodes that are not heard of, by the name of their cluster."""
        self._shared = StateReplica(pool)
        self._spot = SpotWatch(pool, launcher, self.return_to_spot)

    def begin(self) -> None:
        """Replace machines from now on, until the pool ends."""
        members = self._pool.members
        members.on_notices, members.on_node_lost = self.handle_notices, self.handle_lost_node
        members.on_silence, members.on_joined = self.handle_silence, keep_without_losses
        self._pool.replace_cluster = self.handle_lost_cluster
        members.expect_replacement(self._is_replaceable)
        for cluster in self._pool.clusters:
            members.on_joined(cluster)
        self._shared.begin()
        self._spot.begin()
        threading.Thread(target=self._look, name="sky-recovery", daemon=True).start()
        self._pool.defer(self._stop)

    def _look(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS) and not self._pool.closed:
            self._pool.check_nodes()

    def _is_replaceable(self, error: BaseException) -> bool:
        return not self._stopped.is_set() and is_replaceable(error)

    def _stop(self) -> None:
        self._stopped.set()
        self._shared.stop()
        self._spot.stop()
        for vacancy in self._vacancies:
            vacancy.withdrawn.set()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)

    # -- losses ------------------------------------------------------------------------------------

    def handle_notices(self, cluster: ClusterHandle, notices: Notices) -> None:
        """Replace machines of which the cloud says that it takes them away."""
        nodes = {n.cluster_rank: n for n in self._pool.members.nodes_of(cluster) if not n.replaced}
        wanted = set(ranks_to_replace(nodes, leaving_ranks(notices)))
        for vacancy in list(self._vacancies):
            is_kept = not wanted & {node.cluster_rank for node in vacancy.nodes}
            is_other = vacancy.cluster is not cluster or vacancy.target is not None
            if not is_other and is_kept and all(node.is_alive for node in vacancy.nodes):
                vacancy.withdrawn.set()
        if wanted:
            self._fill(cluster, [nodes[rank] for rank in sorted(wanted)], len(wanted) == len(nodes))

    def handle_silence(self, cluster: ClusterHandle, ranks: Sequence[int]) -> None:
        """Ask the cloud about machines that are silent, for as long as they are.

        Silence alone says nothing for 10 s, in which a network may break and mend; where a machine
        has ended, its cloud knows at once.
        """
        if not is_rented(cluster.row.cloud):
            return
        with self._lock:
            is_asked, self._silent[cluster.row.name] = cluster.row.name in self._silent, ranks
        if not is_asked:
            ask = threading.Thread(
                target=self._ask_cloud, args=(cluster,), name="sky-ask", daemon=True
            )
            ask.start()

    def _ask_cloud(self, cluster: ClusterHandle) -> None:
        while not self._stopped.is_set():
            with self._lock:
                ranks = self._silent[cluster.row.name]
                if not ranks or cluster.connection.is_lost:
                    del self._silent[cluster.row.name]
                    return
            with contextlib.suppress(SkyError):
                give_up_ended(cluster, ranks)
            self._stopped.wait(ASK_SECONDS)

    def handle_lost_node(self, cluster: ClusterHandle, node: PoolNode, why: str) -> None:
        """Replace the machine of a node that is lost while its cluster goes on."""
        cluster.record_event(why)
        if node.replaced:
            self._pool.members.remove(node)
            give_up_machine(cluster, node.cluster_rank, _REPLACED)
            return
        self._fill(cluster, [node], is_whole=False)

    def handle_lost_cluster(self, cluster: ClusterHandle, error: SkyError) -> bool:
        """Replace all machines of a cluster that is lost; return whether that is possible."""
        if not self._is_replaceable(error):
            return False
        nodes = [node for node in self._pool.members.nodes_of(cluster) if not node.replaced]
        if not nodes:
            return cluster not in self._pool.clusters
        cluster.record_event(error.message)
        self._fill(cluster, nodes, is_whole=True)
        return True

    def return_to_spot(self, cluster: ClusterHandle, target: Offer) -> bool:
        """Ask for spot machines in place of those of a cluster; return whether it has got them."""
        with self._lock:
            busy = any(v.cluster is cluster for v in self._vacancies)
            nodes = [node for node in self._pool.members.nodes_of(cluster) if not node.replaced]
            if busy or not nodes or self._stopped.is_set():
                return False
            ranks = tuple(node.rank for node in nodes)
            vacancy = Vacancy(cluster, nodes, ranks, is_whole=True, target=target)
            self._vacancies.append(vacancy)
        try:
            self._bring_up(vacancy)
        except SkyError as error:
            note = _("no spot machine yet: {text}").format(text=error.message.splitlines()[0])
            cluster.record_event(note)
            return False
        else:
            for node in nodes:
                node.recalls_saved = True
            self._retire(vacancy)
            return True
        finally:
            with self._lock:
                self._vacancies.remove(vacancy)

    def _fill(self, cluster: ClusterHandle, nodes: Sequence[PoolNode], is_whole: bool) -> None:
        """Ask for machines in place of those of nodes, in a thread, unless that is under way."""
        with self._lock:
            under_way = {
                id(node) for v in self._vacancies if not v.withdrawn.is_set() for node in v.nodes
            }
            nodes = [node for node in nodes if id(node) not in under_way]
            if not nodes or self._stopped.is_set():
                return
            ranks = tuple(node.rank for node in nodes)
            vacancy = Vacancy(cluster, nodes, ranks, is_whole)
            self._vacancies.append(vacancy)
            thread = threading.Thread(
                target=self._run, args=(vacancy,), name="sky-replace", daemon=True
            )
            self._threads.append(thread)
        thread.start()

    # -- replacement -------------------------------------------------------------------------------

    def _run(self, vacancy: Vacancy) -> None:
        try:
            self._replace(vacancy)
        finally:
            with self._lock:
                self._vacancies.remove(vacancy)

    def _replace(self, vacancy: Vacancy) -> None:
        refusals = in_vain = 0
        while not vacancy.withdrawn.is_set():
            try:
                self._bring_up(vacancy)
            except SkyCancelled:
                return
            except SkyError as error:
                refusals, in_vain = refusals + 1, in_vain + error.machines_came_up
                delay = retry_delay(refusals, in_vain, error)
                self._report_failure(vacancy, error, delay)
                if math.isinf(delay):
                    self._abandon(vacancy, error)
                    return
                vacancy.withdrawn.wait(delay)
            else:
                self._retire(vacancy)
                return

    def _bring_up(self, vacancy: Vacancy) -> None:
        """Launch machines in place of those of a vacancy, and let them take their ranks."""

        def prepare(ranks: Sequence[int]) -> None:
            self._prepare(pool, ranks)
            if old is pool.cluster and vacancy.is_whole:  # before the first call goes there
                self._shared.move(old, cluster)
                pool.use_controller(cluster)

        pool, old = self._pool, vacancy.cluster
        if vacancy.is_whole and old.connection.is_lost:
            self._launcher.discard(old)
        if not vacancy.is_whole and find_facts(old.row.cloud).on_premises:
            self._give_up(vacancy)  # now: there may be no other slot
        names = ", ".join(map(str, vacancy.ranks))
        note = _("another machine is asked for, for node {names}")
        if vacancy.target is not None:
            note = _("a spot machine is asked for, for node {names}")
        old.record_event(note.format(names=names))
        cluster = self._launch(vacancy)
        try:
            vacancy.check()
            shared_state_endpoint(cluster)  # now: nodes are told of it when they take their ranks
            pool.members.join(cluster, prepare, vacancy.nodes)
        except BaseException as error:
            self._launcher.end(cluster)  # it costs, and is of no use
            if isinstance(error, SkyError) and not isinstance(error, SkyCancelled):
                error.machines_came_up = True
            raise
        pool.note_replacement(old, cluster)
        cluster.record_event(_("node {names} is back, on another machine").format(names=names))

    def _launch(self, vacancy: Vacancy) -> ClusterHandle:
        """Launch machines for a vacancy, and others elsewhere where that takes long."""
        launcher, old = self._launcher, vacancy.cluster
        name = self._name(vacancy)

        def launch(name: str, watch: Watch, **where: Any) -> ClusterHandle:
            def check(stage: str) -> None:
                vacancy.check()
                watch(stage)

            return launcher.replace(name, len(vacancy.ranks), old.row, check, **where)

        def first(watch: Watch) -> ClusterHandle:
            return launch(name, watch, target=vacancy.target)

        def twin(watch: Watch) -> ClusterHandle:
            note = _("no machine after {delay:.0f} s: another one is asked for elsewhere, too")
            old.record_event(note.format(delay=delay))
            slow = launcher.registry.store.cluster(name)
            if slow is not None and slow.state != "starting":  # it has been refused just now
                slow = None
            return launch(self._next_name(), watch, slow=slow)

        is_rented = not find_facts(old.row.cloud).on_premises
        delay = slow_after_at(old.row.cloud) if is_rented and not vacancy.target else math.inf
        return launch_with_twin(first, twin, delay, launcher.end)

    def _name(self, vacancy: Vacancy) -> str:
        """Return the name of a cluster that takes the place of another, or of some of its nodes."""
        if vacancy.is_whole and vacancy.cluster.connection.is_lost:
            return vacancy.cluster.row.name
        return self._next_name()

    def _next_name(self) -> str:
        with self._lock:
            self._serial += 1
            return f"{self._pool.name}-r{self._serial}"

    def _retire(self, vacancy: Vacancy) -> None:
        """Wait until the replaced nodes have ended their calls, and give their machines back."""
        members, cluster = self._pool.members, vacancy.cluster
        while any(node.batches and node.engine for node in vacancy.nodes):
            if cluster.connection.is_lost or self._stopped.wait(DRAIN_TICK_SECONDS):
                break
        for node in vacancy.nodes:
            members.remove(node)
        if not vacancy.is_whole:
            self._give_up(vacancy)
            return
        members.leave(cluster)
        with contextlib.suppress(SkyError):
            self._launcher.discard(cluster)

    @staticmethod
    def _give_up(vacancy: Vacancy) -> None:
        for node in vacancy.nodes:
            give_up_machine(vacancy.cluster, node.cluster_rank, _REPLACED)

    def _report_failure(self, vacancy: Vacancy, error: SkyError, delay: float) -> None:
        names, text = ", ".join(map(str, vacancy.ranks)), error.message.splitlines()[0]
        when = (
            _("no other is asked for")
            if math.isinf(delay)
            else _("asked again in {delay:.0f} s").format(delay=delay)
        )
        note = _("no machine for node {names}: {text}; {when}").format(
            names=names, text=text, when=when
        )
        vacancy.cluster.record_event(note)
        warnings.warn(_("pool {name}: ").format(name=self._pool.name) + note, stacklevel=2)

    def _abandon(self, vacancy: Vacancy, error: SkyError) -> None:
        """Let the pool go on without some ranks, or close it where none are left."""
        if vacancy.is_whole:
            self._pool.drop(vacancy.cluster, error)
            return
        for node in vacancy.nodes:
            self._pool.members.remove(node)


# -- Watch over a pool's machines on demand, which give way to spot machines; see -----------------

ALLOCATION = "spot-if-available"


class SpotWatch:
    """Watch over one pool.

    Parameters
    ----------
    move
        Asks for spot machines, of an offer, in place of those of a cluster; returns whether they
        could be had.
    """

    def __init__(
        self, pool: Pool, launcher: ClusterLauncher, move: Callable[[ClusterHandle, Offer], bool]
    ) -> None:
        self._pool, self._launcher, self._move = pool, launcher, move
        self._stays: dict[ClusterId, OnDemandStay] = {}
        self._stopped = threading.Event()

    def begin(self) -> None:
        """Watch from now on, in a thread, if the pool is to be on spot machines."""
        if self._launcher.allocation == ALLOCATION:
            threading.Thread(target=self._run, name="sky-spot", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            if self._pool.closed:
                return
            for cluster in self._pool.clusters:
                with suppress(SkyError):  # of the store or the catalog: next time, then
                    self.look(cluster, time.time())

    def look(self, cluster: ClusterHandle, now: float) -> None:
        """Move a cluster to spot machines if it is time, and they can be had.

        Parameters
        ----------
        now
            Unix seconds.
        """
        offer = Offer(**cluster.row.offer)
        if offer.spot or find_facts(offer.cloud).on_premises:
            return
        stay = self._stays.setdefault(cluster.row.id, OnDemandStay(cluster.row.created))
        if not stay.is_due(now) or self._is_bound(cluster):
            return
        from jupyter_sky.knowledge import tracker

        observed = tracker.current().observations()
        target = choose_spot(self._launcher.spot_offers(offer), observed, offer.price or 0.0, now)
        if target is not None and not self._move(cluster, target):
            self._stays[cluster.row.id] = stay.refused(now)

    def _is_bound(self, cluster: ClusterHandle) -> bool:
        """Return whether what a cluster has or runs would be lost: it is in no checkpoint."""
        if self._pool.named_uses() or self._has_variables(cluster):
            return True
        return any(not task.is_saved for task in self._pool.members.calls_of(cluster))

    @staticmethod
    def _has_variables(cluster: ClusterHandle) -> bool:
        """Return whether cells have run there."""
        row = cluster.row
        return bool(cluster.store.runs(cluster=row.name, since=row.created, limit=1))


# -- Return of a pool from machines on demand to spot machines, once they can be had again --------
#
# With ``spot-if-available``, machines on demand stand in where spot machines were refused. A way
# back costs a launch and the time to make a node ready, so there is hysteresis in time and in
# price: a machine on demand is kept for a while, a place counts only if none was refused or taken
# away there lately, a refusal doubles the wait for the next request, and the spot machine must cost
# clearly less, with what its losses cost. Calls that run stay where they are until they end.

KEPT_SECONDS = 600.0
"""Time for which a machine on demand is kept at least."""
QUIET_HOURS = 0.5
"""Hours after a refusal or a loss for which a place is not asked."""
PRICE_SHARE = 0.8
"""Most that an hour on a spot machine may cost, over an hour on demand."""
MAX_WAIT_SECONDS = 4 * 3600.0
TICK_SECONDS = 15.0
_AHEAD_HOURS = 4.0
"""Hours of work that a way back is weighed for: how long the pool will be up is not known."""


@dataclass(frozen=True, slots=True)
class OnDemandStay:
    """Time that a cluster of a pool has spent on demand.

    Attributes
    ----------
    since : float
        Time of its start (s).
    tried : float
        Time of the last request for spot machines in its place (s).
    refusals : int
        Number of such requests that were refused.
    """

    since: float
    tried: float = -math.inf
    refusals: int = 0

    def is_due(self, now: float) -> bool:
        """Return whether spot machines may be asked for.

        Examples
        --------
        >>> stay = OnDemandStay(since=0.0)
        >>> stay.is_due(599.0), stay.is_due(600.0)
        (False, True)
        >>> [stay.refused(600.0).is_due(now) for now in (1799.0, 1800.0)]
        [False, True]
        """
        wait = min(MAX_WAIT_SECONDS, KEPT_SECONDS * 2**self.refusals)
        return now - self.since >= KEPT_SECONDS and now - self.tried >= wait

    def refused(self, now: float) -> OnDemandStay:
        """Return it after a request that was refused."""
        return replace(self, tried=now, refusals=self.refusals + 1)


def choose_spot(
    offers: Iterable[Offer], observed: Sequence[Observation], price: float, now: float
) -> Offer | None:
    """Return the spot machine to go to from one on demand; None to stay.

    Parameters
    ----------
    offers
        Spot machines that meet the request.
    observed
        Observations of the tracker.
    price
        USD/h of the machine on demand.
    now
        Unix seconds.

    Examples
    --------
    >>> spot = Offer("aws", "us-east-1", "c5.large", 2, 4, zone="us-east-1a", spot=True, price=1.0)
    >>> choose_spot([spot], [], 3.0, 0.0) is spot, choose_spot([spot], [], 1.2, 0.0)
    (True, None)
    """
    blocks = blocked(observed, now)
    open_ = [o for o in offers if not any(b.scope.covers(Place.of(o)) for b in blocks)]
    priced = {place: offer for place, offer in price_places(open_).items() if place.is_spot}
    seen, hours = seen_events(observed, {place.zone for place in priced}), now / 3600
    troubled = find_latest(seen, {Happening.REFUSED, Happening.LOST})
    quiet = {
        place: offer
        for place, offer in priced.items()
        if hours - troubled.get(place.zone, -math.inf) >= QUIET_HOURS
    }
    situation = Situation(
        hours, _AHEAD_HOURS, tuple(quiet), seen, restart=BOOT_HOURS, loss=LOSS_HOURS
    )
    indices = IndexStrategy(patience=0.0).indices(situation)
    best = min(quiet, key=lambda place: indices[place.zone], default=None)
    if best is None or indices[best.zone] > PRICE_SHARE * price:
        return None
    return quiet[best]


# -- Copies of what a pool shares, in its notebook, for the machine that takes the head's ---------

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
                FindSharedState(), REPLY_SECONDS, wait_reconnect=False
            )
            if not answer.is_used:
                return
            order = CopyState("pool", "", self._revision, move)
            __, frames = self._client(cluster).ask(order, ())
            if frames and sum(map(len, frames)) <= MAX_COPY_BYTES:
                self._copy, self._revision = frames, json.loads(frames[0])["revision"]

    def move(self, old: ClusterHandle, new: ClusterHandle) -> None:
        """Let the server of another cluster go on with the state of the pool."""
        self.copy(old, move=True)
        with self._lock:
            if self._copy:
                self._client(new).ask(LoadState("pool", ""), self._copy)

    def _client(self, cluster: ClusterHandle) -> RemoteClient:
        if cluster not in self._clients:
            endpoint = notebook_endpoint(cluster)
            self._clients[cluster] = RemoteClient(endpoint, SeenStates(), REPLY_SECONDS)
        return self._clients[cluster]


# -- Twins of slow launches: another machine is asked for elsewhere, and the later one is ---------
#
# A launch is slow when it takes longer than twice the 90th percentile of earlier launches at its
# cloud.

Watch = Callable[[str], None]
"""Function that is called with each stage of a launch; raises when it is no longer wanted."""
Launch = Callable[[Watch], "ClusterHandle"]
PLACING = "placing"
"""Stage before a cloud is asked, which does not count as time of a launch."""

LEAST_LAUNCHES = 5
"""Launches that have to be known before one can be called slow."""
LATEST_LAUNCHES = 50
SLOW_FACTOR, PERCENTILE = 2.0, 0.9


def slow_after(seconds: Sequence[float]) -> float:
    """Return the seconds after which a launch is slow, by those that others took.

    Parameters
    ----------
    seconds
        Of earlier launches, the latest last; infinity is returned where they are too few.

    Examples
    --------
    >>> slow_after([40, 30, 50, 45, 35]), slow_after([40])
    (100.0, inf)
    """
    latest = sorted(seconds[-LATEST_LAUNCHES:])
    if len(latest) < LEAST_LAUNCHES:
        return math.inf
    return SLOW_FACTOR * latest[math.ceil(PERCENTILE * len(latest)) - 1]


def slow_after_at(cloud: str) -> float:
    """Return the seconds after which a launch at a cloud is slow; infinity if not known."""
    seen = tracker.current().observations()
    launches = (each for each in seen if each.kind == "launched" and each.place.cloud == cloud)
    return slow_after([each.seconds for each in launches if each.seconds is not None])


def launch_with_twin(
    first: Launch, twin: Launch, delay: float, end: Callable[[ClusterHandle], object]
) -> ClusterHandle:
    """Return the cluster of a launch, or of its twin where that is up sooner.

    Parameters
    ----------
    delay
        Seconds after a cloud has been asked at which the twin begins, if the first is not up.
    end
        Gives back a cluster that has come up too late.

    Raises
    ------
    SkyError
        Neither can be had: the error of the first.
    """
    if math.isinf(delay):
        return first(lambda stage: None)
    begun, decided = Event(), Event()

    def watch(stage: str) -> None:
        if stage != PLACING:
            begun.set()
        if decided.is_set():
            raise SkyCancelled(_("another machine was up sooner"))

    pool = ThreadPoolExecutor(2, "sky-twin")
    launches = [pool.submit(first, watch)]
    launches[0].add_done_callback(lambda launch: begun.set())
    winner: Future[ClusterHandle] | None = None
    try:
        begun.wait()
        if not wait(launches, delay).done:
            launches.append(pool.submit(twin, watch))
        winner = _first_success(launches)
    finally:
        decided.set()
        for launch in launches:
            if launch is not winner:
                launch.add_done_callback(partial(_end_late, end))
        pool.shutdown(wait=False)
    return (winner or launches[0]).result()


def _first_success(launches: Iterable[Future[ClusterHandle]]) -> Future[ClusterHandle] | None:
    """Wait for the first launch that succeeds; None where none does."""
    running = set(launches)
    while running:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for launch in done:
            if launch.exception() is None:
                return launch
    return None


def _end_late(end: Callable[[ClusterHandle], object], launch: Future[ClusterHandle]) -> None:
    if launch.exception() is None:
        end(launch.result())
