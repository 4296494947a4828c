"""Prices, times and emissions of a task on every offer at once.

Offers of one kind of machine, market and lifetime differ in their price and place only. So hours,
billing and re-computation are worked out once for each such class, and then looked up: a task with
200,000 offers costs a millisecond or two.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.dag.dag import Constant, Data, TaskSpec
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer import assumptions, estimators
from jupyter_sky.decisions.optimizer.market import Market, OfferPool
from jupyter_sky.decisions.optimizer.solver.problem import Floats, Ints
from jupyter_sky.decisions.optimizer.transfers import TransferPrices, get_transfer_prices
from jupyter_sky.knowledge.ledger.billing import DISK_USD_PER_GIB_MONTH, disk_usd_h
from jupyter_sky.knowledge.lifetimes.recomputation import Recompute, expected_runs


@dataclass(frozen=True, eq=False)
class PricedTask:
    """A task on every offer of its pool; classes are looked up by `at`.

    Attributes
    ----------
    at : int array
        Class of each offer.
    run_hours, spin_hours, billed_hours, redone, nodes : float array
        Of each class: work with the expected re-computation, spin-up, what is paid for (h), how
        many times the work is done, machines.
    disk_usd, watts : float array
        Of each class: disks for the whole time, and what the machines draw together.
    store_usd, ready_hours, store_hours, carbon : float array
        Of each site: transfers from and to stores (USD), delay by inputs, time on top of the work
        (h), gCO2 per kWh.
    """

    spec: TaskSpec
    pool: OfferPool
    at: Ints
    run_hours: Floats
    spin_hours: Floats
    billed_hours: Floats
    redone: Floats
    nodes: Floats
    disk_usd: Floats
    watts: Floats
    store_usd: Floats
    ready_hours: Floats
    store_hours: Floats
    carbon: Floats

    def __len__(self) -> int:
        return len(self.pool)

    def machine_usd(self) -> Floats:
        """Return USD for the machines of each offer; inf where the task cannot run."""
        return self.pool.price * (self.nodes * self.billed_hours)[self.at]

    def usd(self) -> Floats:
        """Return USD of each offer by itself."""
        return self.own_usd() + self.store_usd[self.pool.site]

    def own_usd(self) -> Floats:
        """Return the same without transfers, which are equal for all offers of a site."""
        own = self.machine_usd()
        return own + self.disk_usd[self.at] if self.disk_usd.any() else own

    def own_hours(self) -> Floats:
        """Return spin-up and work."""
        return (self.spin_hours + self.run_hours)[self.at]

    def hours(self) -> Floats:
        """Return time on the longest path, without the delay of inputs."""
        return self.own_hours() + self.store_hours[self.pool.site]

    def grams(self) -> Floats:
        """Return gCO2 of each offer by itself."""
        kwh = self.watts / 1000 * (self.spin_hours + self.run_hours)
        return kwh[self.at] * self.carbon[self.pool.site]

    def take(self, which: np.ndarray) -> PricedTask:
        """Return some of the offers."""
        return replace(self, pool=self.pool.take(which), at=self.at[which])


@dataclass(eq=False)
class Pricer:
    """Prices tasks in one market; keeps estimates, so that a second plan costs less.

    Parameters
    ----------
    recompute
        How many times over work on a spot machine is paid for, see `expected_runs` of `preemption`.
    warm
        Own offers of the market that are up already, by their position: no spin-up.
    shared
        Tasks that run on a cluster which an earlier one has brought up.
    notes
        What is assumed, as it comes up.
    """

    market: Market
    recompute: Recompute = expected_runs
    warm: frozenset[int] = frozenset()
    shared: frozenset[str] = frozenset()
    notes: dict[str, None] = field(default_factory=dict)
    _kept: dict[tuple, PricedTask] = field(default_factory=dict)
    _hours: dict[tuple, Floats] = field(default_factory=dict)
    _watts: dict[int, Floats] = field(default_factory=dict)
    _carbon: Floats | None = None

    def __post_init__(self) -> None:
        self.moves: TransferPrices = get_transfer_prices(self.market.catalog, self.market.rates)
        sites = self.market.sites
        self.regions = np.array([self.moves.region(c, r) for c, r, __ in sites], np.int64)
        self.clouds = list(dict.fromkeys(cloud for cloud, __, __ in sites))
        number = {cloud: index for index, cloud in enumerate(self.clouds)}
        self.cloud_of = np.array([number[cloud] for cloud, __, __ in sites], np.int64)

    def price_task(self, spec: TaskSpec) -> PricedTask:
        """Return every offer of a task with all that it would cost."""
        key = (
            spec.needs,
            _estimator_key(spec),
            spec.inputs,
            spec.stored,
            spec.outputs,
            spec.spin_up,
        )
        key = (*key, spec.name in self.shared)
        if key in self._kept:
            return replace(self._kept[key], spec=spec)
        pool = self.market.pool(spec.needs)
        first, at = pool.classes
        if spec.each_offer:
            first = at = np.arange(len(pool))
        hours, spin = self._estimate_hours(spec, pool, first), self._spin_up(spec, pool, first)
        nodes = np.array([float(need.nodes) for need in spec.needs])[pool.need[first]]
        redone = np.ones(len(first))
        if len(where := np.flatnonzero(pool.spot[first])):
            lives = pool.lifetimes(first[where], nodes[where])
            redone[where] = self.recompute(hours[where], lives, spin[where])
        run = hours * redone
        billed = self._billed_hours(pool, first, spin + run)
        store, ready, after = self._stores(spec, pool)
        watts = self._power(pool, first, spec.each_offer) * nodes
        disk = self._disk(spec, pool, first) * nodes
        disk = disk * np.where(np.isfinite(billed), billed, 0.0)
        found = PricedTask(
            *(spec, pool, at, run, spin, billed, redone, nodes, disk, watts),
            *(store, ready, after, self._grid_carbon()),
        )
        self._kept[key] = found
        return found

    # -- classes -------------------------------------------------------------------------------

    def kind(self, pool: OfferPool, index: int) -> Offer:
        """Return the machine of an offer, with its service, without its place and price."""
        machine = self.market.machine(int(pool.machine[index]))
        if pool.service[index] < 0:
            return machine
        service = pool.services[int(pool.service[index])]
        return replace(machine, service=service.name, packages=service.packages)

    def _estimate_hours(self, spec: TaskSpec, pool: OfferPool, first: Ints) -> Floats:
        """Return hours without interruption."""
        estimator = spec.estimator
        if estimator is None:
            self.notes["run times of 1 h are assumed where no estimator is given"] = None
            return np.full(len(first), estimators.DEFAULT_HOURS)
        if isinstance(estimator, Constant):
            return np.full(len(first), estimator.hours)
        key = (_estimator_key(spec), spec.needs)
        if key not in self._hours:
            if spec.each_offer:
                offers = [self.market.offer(pool, index) for index in range(len(pool))]
                each = [estimators.estimate_hours(estimator, offer, spec.name) for offer in offers]
                self._hours[key] = np.array(each, np.float64)
            else:
                width = len(pool.services) + 1
                codes = pool.machine[first] * width + pool.service[first] + 1
                __, one, back = np.unique(codes, return_index=True, return_inverse=True)
                kinds = [self.kind(pool, index) for index in first[one].tolist()]
                each = [estimators.estimate_hours(estimator, kind, spec.name) for kind in kinds]
                self._hours[key] = np.array(each, np.float64)[back.reshape(-1)]
        return self._hours[key]

    def _spin_up(self, spec: TaskSpec, pool: OfferPool, first: Ints) -> Floats:
        if spec.name in self.shared:
            return np.zeros(len(first))
        if spec.spin_up is not None:
            hours = np.full(len(first), spec.spin_up)
        else:
            cloud = self.cloud_of[pool.site[first]]
            each = np.zeros(len(self.clouds))
            for number in np.unique(cloud).tolist():
                each[number] = self._launch_hours(self.clouds[number])
            hours = each[cloud]
        return np.where(np.isin(pool.row[first], [-1 - k for k in self.warm]), 0.0, hours)

    def _launch_hours(self, cloud: str) -> float:
        """Return hours to a machine of a cloud: as the tracker has timed, or assumed."""
        if find_facts(cloud).on_premises:
            return 0.0
        known = self.market.knowledge
        tallies = [] if known is None else [t for p, t in known.tallies.items() if p.cloud == cloud]
        timed = sum(tally.timed for tally in tallies)
        if timed > 0:
            return sum(tally.launch_seconds for tally in tallies) / timed / 3600
        self.notes["a spin-up of 2 min is assumed where no launch has been timed"] = None
        return assumptions.SPIN_UP_HOURS

    def _billed_hours(self, pool: OfferPool, first: Ints, hours: Floats) -> Floats:
        billed, cloud = hours.copy(), self.cloud_of[pool.site[first]]
        for number in np.unique(cloud).tolist():
            mine = cloud == number
            billed[mine] = assumptions.billed_hours(self.clouds[number], hours[mine])
        return billed

    def _disk(self, spec: TaskSpec, pool: OfferPool, first: Ints) -> Floats:
        """Return USD/h for the disk of one node."""
        sizes = np.array([need.disk.value if need.disk else 0.0 for need in spec.needs])
        if not sizes.any():
            return np.zeros(len(first))
        rate = DISK_USD_PER_GIB_MONTH
        self.notes[f"disks are assumed to cost ${rate:.2f} per GiB and month"] = None
        own = np.array([find_facts(cloud).on_premises for cloud in self.clouds], bool)
        usd = np.array([disk_usd_h(size) for size in sizes])[pool.need[first]]
        return np.where(own[self.cloud_of[pool.site[first]]], 0.0, usd)

    def _power(self, pool: OfferPool, first: Ints, each_offer: bool) -> Floats:
        """Return W of one node."""
        key = id(pool) * 2 + each_offer
        if key not in self._watts:
            kinds = pool.machine[first]
            known, back = np.unique(kinds, return_inverse=True)
            draw = np.array([assumptions.watts(self.market.machine(int(kind))) for kind in known])
            self._watts[key] = draw[back.reshape(-1)] if len(known) else np.zeros(0)
        return self._watts[key]

    def _grid_carbon(self) -> Floats:
        """Return gCO2 per kWh of each site."""
        if self._carbon is None:
            known, back = np.unique(self.regions, return_inverse=True)
            each = np.array([self.moves.carbon(int(region)) for region in known])
            self._carbon = each[back.reshape(-1)]
        return self._carbon

    # -- stores --------------------------------------------------------------------------------

    def _stores(self, spec: TaskSpec, pool: OfferPool) -> tuple[Floats, Floats, Floats]:
        """Return USD, hours of delay, and hours on top of the work, for each site."""
        count = len(self.market.sites)
        usd, ready, after = np.zeros(count), np.zeros(count), np.zeros(count)
        fixed = [
            (kind, data)
            for kind in ("inputs", "stored", "outputs")
            for data in getattr(spec, kind)
            if data.gb and not data.is_anywhere
        ]
        if not fixed or not len(pool):
            return usd, ready, after
        used = np.flatnonzero(np.bincount(pool.site, minlength=count))
        regions, back = np.unique(self.regions[used], return_inverse=True)
        back = back.reshape(-1)
        for kind, data in fixed:
            store = self.store(data)
            ends = (regions, store) if kind == "outputs" else (store, regions)
            usd[used] += self.moves.usd(*ends, data.gb).reshape(-1)[back]
            usd[used] += self.request_usd(data, kind)
            hours = self.moves.hours_per_gb(*ends).reshape(-1)[back] * data.gb
            if kind == "inputs":
                ready[used] = np.maximum(ready[used], hours)
            else:
                after[used] += hours
        return usd, ready, after

    def request_usd(self, data: Data, kind: str) -> float:
        """Return USD for the requests for the objects of a store."""
        verb = "write" if kind in ("output", "outputs") else "read"
        return self.moves.request_usd(int(self.store(data)[0]), data.objects, verb)

    def store(self, data: Data) -> Ints:
        """Return region of a store, as an array of one; checked, or assumed and noted."""
        region, known = data.region, self.market.catalog.regions
        names = [name for cloud, name in known if cloud == data.cloud]
        if region and names and region not in names:
            hint = suggest(region, names)
            hint = hint if hint.startswith("did") else f"such as {', '.join(names[:5])}"
            raise SkyUsageError(
                _("{uri}: {cloud} has no region {region!r}").format(
                    uri=data.uri, cloud=data.cloud, region=region
                ),
                hint=hint,
            )
        if not region and (region := find_facts(data.cloud).storage_region):
            note = f"{data.uri} is assumed to be in {region}: say where with region=..."
            self.notes[note] = None
        return np.array([self.moves.region(data.cloud, region)], np.int64)


def _estimator_key(spec: TaskSpec) -> object:
    """Return a key, equal for equal estimators: their values, or else themselves."""
    estimator = spec.estimator
    if isinstance(estimator, Constant):
        return estimator
    # the estimator itself stays alive in the graph, so that its id is not used anew
    return (id(estimator), spec.each_offer)
