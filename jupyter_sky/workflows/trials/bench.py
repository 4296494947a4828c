"""Benchmarks: one command on several candidates side by side, each on machines of its own."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyNoOffer, SkyPermission, SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.assumptions import SPIN_UP_HOURS
from jupyter_sky.decisions.search.measurement import Measurement, MeasurementWorkers, Trial
from jupyter_sky.decisions.search.space import Point
from jupyter_sky.execution.clusters.cluster_records import describe_place
from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.knowledge.ledger.billing import billed_seconds, cluster_price
from jupyter_sky.machines.provisioner.placement import decide_placement
from jupyter_sky.workflows.trials.cell_trials import CellTrials
from jupyter_sky.workflows.trials.workload import Workload

_ERROR_CLASS = re.compile(r"^Sky\w+: ")


@dataclass(frozen=True, slots=True)
class Candidate:
    """Machines on which a benchmark runs its command, and where they would be launched.

    Attributes
    ----------
    text
        As it was written, such as ``T4`` or ``--cpus 8``.
    need
        Request of its machines.
    offer
        Offer that a launch would take now; None where there is none.
    obstacle
        Reason why it cannot be launched; empty where it can.
    transfers
        USD of bringing the command's data to its place; None where that is not known, as with
        ``--out`` and ``--mount``, whose bytes nobody knows before.
    """

    text: str
    need: Resources
    offer: Offer | None = None
    obstacle: str = ""
    transfers: float | None = 0.0

    @property
    def price(self) -> float | None:
        """USD/h of all nodes without disks; None where it is not known."""
        if self.offer is None or self.offer.price is None:
            return None
        return self.offer.price * self.need.nodes

    @property
    def rate(self) -> float | None:
        """USD/h of all nodes with their disks, as the ledger bills them; None if not known."""
        if self.offer is None:
            return None
        disk = self.need.disk.value if self.need.disk else 0.0
        return cluster_price(self.offer.price, self.offer.cloud, self.need.nodes, disk)

    @property
    def place(self) -> str:
        """Place of its machines in words; empty where there is none."""
        return "" if self.offer is None else self.offer.place_of(self.need.nodes)

    def usd(self, seconds: float) -> float | None:
        """Return what a run of some seconds costs with boot, disks and transfers (USD)."""
        if self.offer is None or self.rate is None or self.transfers is None:
            return None
        boot = 0.0 if clouds.runs_here(self.offer.cloud) else SPIN_UP_HOURS * 3600
        hours = billed_seconds(self.offer.cloud, boot + seconds) / 3600
        return self.rate * hours + self.transfers


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """Outcome of a benchmark on one candidate.

    Attributes
    ----------
    candidate
        The candidate.
    run
        Its run; one that has failed says why.
    place
        Place at which it ran, in words; the planned one where it has reached none.
    """

    candidate: Candidate
    run: Measurement
    place: str = ""

    @property
    def failure(self) -> str:
        """Reason why the run has failed, in a line; empty where it has not."""
        first, *more = self.run.error.strip().splitlines() or [""]
        if first.endswith(":") and more:  # the reasons stand below
            first = f"{first} {more[0].strip()}"
        return _ERROR_CLASS.sub("", first)


def plan_candidate(text: str, need: Resources) -> Candidate:
    """Return a candidate with the place at which a launch would begin; nothing is launched."""
    try:
        offer = decide_placement(need).offer
    except (SkyNoOffer, SkyPermission) as error:
        return Candidate(text, need, None, error.message.partition("\n")[0])
    return Candidate(text, need, offer)


def cost_limit(
    candidates: Sequence[Candidate], seconds: float | None, budget: float | None
) -> float | None:
    """Return the most USD that all candidates together may cost; None where that is not known.

    Parameters
    ----------
    seconds
        Longest time of a run; None without a limit.
    budget
        USD of all of them; None without a limit.

    Examples
    --------
    >>> need = Resources()
    >>> free = Candidate("local", need, Offer("local", "", "", 1, 1, price=0.0))
    >>> rented = Candidate("m5.large", need, Offer("aws", "us-east-1", "m5.large", 2, 8, price=0.1))
    >>> cost_limit([free], None, None), cost_limit([free, rented], None, None)
    (0.0, None)
    >>> cost_limit([free, rented], 3480, None), cost_limit([rented], 3480, 0.05)
    (0.1, 0.05)
    """
    costs = [each.transfers if each.rate == 0 else _limited(each, seconds) for each in candidates]
    known = None if None in costs else sum(cost or 0.0 for cost in costs)
    return min((limit for limit in (known, budget) if limit is not None), default=None)


def _limited(candidate: Candidate, seconds: float | None) -> float | None:
    return None if seconds is None else candidate.usd(seconds)


def share_budget(candidates: Sequence[Candidate], budget: float | None) -> list[float | None]:
    """Return the part of a budget of each candidate: its data, and the same time as the others.

    Raises
    ------
    SkyUsageError
        A price is not known, or the budget does not pay for the boots and a minute.

    Examples
    --------
    >>> need = Resources()
    >>> dear = Candidate("a", need, Offer("aws", "us-east-1", "a", 2, 8, price=3.0))
    >>> cheap = Candidate("b", need, Offer("aws", "us-east-1", "b", 2, 8, price=1.0))
    >>> share_budget([dear, cheap], 2.0)
    [1.5, 0.5]
    >>> share_budget([replace(dear, transfers=0.4), cheap], 2.0)
    [1.6, 0.4]
    """
    if budget is None:
        return [None] * len(candidates)
    unknown = next((each for each in candidates if each.rate is None), None)
    if unknown is not None:
        raise SkyUsageError(
            _("{candidate} has no known price, so a budget cannot be kept").format(
                candidate=unknown.text
            ),
            hint=_("leave it out, or give no budget"),
        )
    data = [each.transfers or 0.0 for each in candidates]
    known = [replace(each, transfers=usd) for each, usd in zip(candidates, data, strict=True)]
    least = sum(each.usd(60.0) or 0.0 for each in known)
    if budget < least:
        raise SkyUsageError(
            _("a budget of ${usd:g}: a minute on each candidate costs ${least:.4f}").format(
                usd=budget, least=least
            ),
            hint=_("give more, or fewer candidates"),
        )
    rates = [each.rate or 0.0 for each in candidates]
    weights = [  # a machine that is free, with data of unknown cost, gets as much as the dearest
        rate or (max(rates) or 1.0 if each.transfers is None else 0.0)
        for each, rate in zip(candidates, rates, strict=True)
    ]
    runs = (budget - sum(data)) / (sum(weights) or 1.0)
    return [
        runs * weight + usd if weight or usd else None
        for weight, usd in zip(weights, data, strict=True)
    ]


def run_candidates(
    session: Session,
    workload: Workload,
    candidates: Sequence[Candidate],
    names: Sequence[str],
    budget: float | None = None,
    watch: Callable[[Candidate, str, str], None] = lambda candidate, stage, detail: None,
    done: Callable[[CandidateResult], None] = lambda result: None,
) -> list[CandidateResult]:
    """Run a workload on all candidates side by side; their machines end with it.

    The broker launches each, at no higher price than that of its plan. An interrupt ends all of
    them.

    Parameters
    ----------
    session
        Whose launches and ledger are used.
    workload
        Its only step is run.
    candidates
        Those that can be launched.
    names
        Names of the runs, one for each.
    budget
        Most USD of all of them.
    watch
        Called with each new stage of a launch.
    done
        Called with each outcome when it is there.
    """
    shares = share_budget(candidates, budget)
    points = [
        Point(str(number), {"nodes": each.need.nodes}, each.price, each.offer)
        for number, each in enumerate(candidates)
    ]
    runner = CellTrials(
        session,
        workload,
        Resources(),
        f"bench-{uuid.uuid4().hex[:6]}",
        request=lambda point: _launch_request(candidates[int(point.arm)]),
        names=dict(enumerate(names)),
        watch=lambda number, stage, detail: watch(candidates[number], stage, detail),
    )
    found: dict[int, CandidateResult] = {}
    workers = MeasurementWorkers(runner, parallel=len(candidates))
    try:
        for number, (point, usd) in enumerate(zip(points, shares, strict=True)):
            workers.start(Trial(number, point, usd=usd))
        while workers.is_busy:
            number, run = workers.next()
            rows = session.store.clusters(live_only=False)
            name = runner.cluster_name(number)
            place = next((describe_place(row) for row in rows if row.name == name), "")
            candidate = candidates[number]
            found[number] = CandidateResult(candidate, run, place or candidate.place)
            done(found[number])
    finally:
        workers.close()
    return [found[number] for number in sorted(found)]


def _launch_request(candidate: Candidate) -> Resources:
    """Return the request of a launch: at no higher price than was shown."""
    offer, need = candidate.offer, candidate.need
    assert offer is not None
    if offer.cloud in clouds.ON_PREMISES:
        return replace(need, clouds=(offer.cloud,))
    if candidate.price is None:
        return need
    return replace(need, max_hourly_cost=candidate.price)  # a limit that was asked for is above it
