"""Server selection of SciSpot over offers of the catalog.

A job needs a total *R* of something, such as 64 vCPUs. A cluster shape is an offer with r_i of it
on each machine and the number n_i of machines, ``r_i n_i = R``. The base run time may differ by
shape. What it will cost, failures included, decides (section 4.1 of the paper).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from jupyter_sky.base.errors import SkyNoOffer, SkyUsageError, suggest
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes import validation
from jupyter_sky.knowledge.lifetimes.models import Model
from jupyter_sky.knowledge.lifetimes.renewals import (
    Turnaround,
    fresh_turnaround,
    paper_turnaround,
    preemption_chance_paper,
    turnaround,
)
from jupyter_sky.knowledge.lifetimes.scispot_model import Constrained

FORMULAS = ("replaced", "fresh", "paper", "paper-survival")
"""Formulas of the turnaround: only lost machines replaced, all of them replaced (exact),
equations (5)-(9), and the same with the chance from the survival in place of equation (9)."""

Hours = (
    float | Mapping[str, float] | Mapping[tuple[str, int], float] | Callable[[Offer, int], float]
)
"""Base run time: one for all shapes, measured by instance type or by (instance type, nodes), or
estimated by a function of offer and nodes."""
LifetimesBy = Mapping[str, Model] | Callable[[Offer], Model]
"""Lifetime of one machine, by instance type or by a function of the offer."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Machines of one offer.

    Attributes
    ----------
    offer : Offer
        Kind, place and price of each machine.
    nodes : int
        Number of machines.

    Examples
    --------
    >>> offer = Offer("gcp", "us-central1", "n1-highcpu-16", 16, 14.4, spot=True, price=0.12)
    >>> Shape(offer, 4).nodes
    4
    """

    offer: Offer
    nodes: int

    def __str__(self) -> str:
        return f"{self.nodes} x {self.offer.place}"


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expected duration and cost of a job on a cluster shape.

    Attributes
    ----------
    base_hours, hours : float
        Without failures and with them.
    usd : float
        Price of all machines for `hours`: equation (4).
    chance : float
        Probability that the first attempt is cut off.
    lifetime : float
        Expected hours of one machine, as the formula takes it.

    Examples
    --------
    >>> offer = Offer("gcp", "us-central1", "n1-highcpu-16", 16, 14.4, spot=True, price=0.12)
    >>> shape = Shape(offer, 4)
    >>> expectation = Expectation(shape, 1.0, 1.2, 0.58, 0.1, 20.0)
    >>> round(expectation.overhead, 2)
    0.2
    """

    shape: Shape
    base_hours: float
    hours: float
    usd: float
    chance: float
    lifetime: float

    @property
    def overhead(self) -> float:
        """Time lost to failures as a share of the base run time."""
        return self.hours / self.base_hours - 1


@dataclass(frozen=True, slots=True)
class Choice:
    """Cluster shapes, the best first, and what was left out with the reason.

    Its text explains the choice.

    Attributes
    ----------
    ranked : tuple of Expectation
        Shapes, the best first.
    skipped : tuple of (Offer, str)
        Offers that were left out, each with the reason.
    minimize, formula : str
        As in `select_server`.

    Examples
    --------
    >>> offer = Offer("gcp", "us-central1", "n1-highcpu-16", 16, 14.4, spot=True, price=0.12)
    >>> choice = select_server([offer], 64, 1.5)
    >>> choice.best.shape.nodes
    4
    """

    ranked: tuple[Expectation, ...]
    skipped: tuple[tuple[Offer, str], ...]
    minimize: str
    formula: str

    @property
    def best(self) -> Expectation:
        """The shape to take."""
        return self.ranked[0]

    def explain(self, rows: int = 10) -> str:
        """Why: the best, what the next kind of shape would cost more, and a table."""
        best = self.best
        lines = [
            f"{best.shape}: {best.hours:.2f} h and {best.usd:.2f} USD expected, "
            f"{best.base_hours:.2f} h of it work; the first attempt is cut off with "
            f"{100 * best.chance:.0f} % (least {self.minimize}, formula {self.formula})"
        ]
        other = next((one for one in self.ranked if _kind(one) != _kind(best)), None)
        if other is not None:
            lines.append(self._runner_up(other))
        width = max(len(str(one.shape)) for one in self.ranked[:rows])
        lines += ["", f"{'shape':<{width}}   work h  total h       USD   fails  lives h"]
        for one in self.ranked[:rows]:
            lines.append(
                f"{one.shape!s:<{width}} {one.base_hours:8.2f} {one.hours:8.2f} {one.usd:9.3f} "
                f"{100 * one.chance:5.0f} % {one.lifetime:7.1f}"
            )
        if len(self.ranked) > rows:
            lines.append(f"and {len(self.ranked) - rows} more")
        lines += [f"left out: {offer.place}, {why}" for offer, why in self.skipped[:rows]]
        if len(self.skipped) > rows:
            lines.append(f"left out: {len(self.skipped) - rows} more")
        return "\n".join(lines)

    def _runner_up(self, other: Expectation) -> str:
        usd, hours = other.usd - self.best.usd, other.hours - self.best.hours
        parts = [f"{abs(usd):.3f} USD {'more' if usd >= 0 else 'less'}"]
        parts.append(f"{abs(hours):.2f} h {'longer' if hours >= 0 else 'shorter'}")
        work = other.base_hours - self.best.base_hours
        lost = (other.hours - other.base_hours) - (self.best.hours - self.best.base_hours)
        return (
            f"next kind: {other.shape}, {' and '.join(parts)} "
            f"({work:+.2f} h of work, {lost:+.2f} h lost to failures)"
        )

    def __str__(self) -> str:
        return self.explain()


def _kind(one: Expectation) -> tuple[str, str, int]:
    return (one.shape.offer.cloud, one.shape.offer.instance_type, one.shape.nodes)


def cluster_shapes(offers: Iterable[Offer], total: float, resource: str = "vcpus") -> list[Shape]:
    """Return the shapes with exactly the total of a resource: ``r_i n_i = R``.

    Parameters
    ----------
    total
        vCPUs, GiB of memory or accelerators that the job needs in all.
    resource
        ``vcpus``, ``memory`` or ``gpu_count``.

    Returns
    -------
    list of Shape
        In the order of the offers.

    Examples
    --------
    >>> small = Offer("gcp", "us-central1", "n1-highcpu-16", 16, 14.4, spot=True, price=0.12)
    >>> [shape.nodes for shape in cluster_shapes([small], 64)]
    [4]
    """
    known = ("vcpus", "memory", "gpu_count")
    if resource not in known:
        raise SkyUsageError(
            _("no resource {resource!r}").format(resource=resource), hint=suggest(resource, known)
        )
    total = validation.check_number(total, f"total {resource}", above=0)
    shapes = []
    for offer in offers:
        size = float(getattr(offer, resource) or 0)
        nodes = round(total / size) if size > 0 else 0
        if nodes >= 1 and math.isclose(nodes * size, total, rel_tol=1e-9):
            shapes.append(Shape(offer, nodes))
    return shapes


def expected_cost(
    shape: Shape,
    base_hours: float,
    model: Model,
    formula: str = "replaced",
    age: float = 0.0,
    restart: float = 0.0,
) -> Expectation:
    """Return the expected cost of a job on a shape: equation (4), ``E[C] = n c E[T]``.

    Parameters
    ----------
    base_hours
        Run time on this shape without failures.
    model
        Lifetime of one machine.
    age, restart
        Hours that the machines have lived, and from a failure to the next attempt; the paper's
        formulas know neither.

    Returns
    -------
    Expectation
        Expected time and cost.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> offer = Offer("gcp", "us-central1", "n1-highcpu-16", 16, 14.4, spot=True, price=0.12)
    >>> shape = Shape(offer, 4)
    >>> round(expected_cost(shape, 2.0, Exponential(0.05)).usd, 3)
    1.18
    """
    price = validation.check_number(shape.offer.price, f"price of {shape.offer.place} (USD/h)")
    base_hours = validation.check_number(base_hours, f"run time on {shape} (hours)", above=0)
    took, lifetime = _expected(shape.nodes, base_hours, model, formula, age, restart)
    usd = shape.nodes * price * took.hours if price else 0.0
    return Expectation(shape, base_hours, took.hours, usd, took.chance, lifetime)


def _expected(
    nodes: int, work: float, model: Model, formula: str, age: float, restart: float
) -> tuple[Turnaround, float]:
    if formula in ("replaced", "fresh"):
        how = turnaround if formula == "replaced" else fresh_turnaround
        return how(model, work, nodes, age, restart), model.expected_lifetime(age=age)
    if formula == "paper":
        as_paper = isinstance(model, Constrained)
        lifetime = model.expected_lifetime_paper() if as_paper else model.expected_lifetime()
        chance = preemption_chance_paper(work, nodes, min(lifetime, 1e12))
        return Turnaround(paper_turnaround(work, nodes, min(lifetime, 1e12)), chance, chance), (
            lifetime
        )
    if formula == "paper-survival":
        chance = 1 - float(model.survival(work)) ** nodes
        return Turnaround(work + work / 2 * chance, chance, chance), model.expected_lifetime()
    raise SkyUsageError(
        _("no formula {formula!r}").format(formula=formula), hint=suggest(formula, FORMULAS)
    )


def select_server(
    offers: Iterable[Offer],
    total: float,
    run_hours: Hours,
    lifetimes: LifetimesBy | None = None,
    *,
    resource: str = "vcpus",
    minimize: str = "cost",
    formula: str = "replaced",
    restart: float = 0.0,
) -> Choice:
    """Return the cluster shape of least expected cost or duration of a job.

    Parameters
    ----------
    offers
        Offers of the catalog, such as ``sky.offers(...)``; spot and on-demand may be mixed.
    total
        Amount of `resource` that the job needs in all.
    run_hours
        Base run time in hours, see `Hours`.
    lifetimes
        See `LifetimesBy`; `knowledge.lifetimes.current()` has interruption bands and what the
        tracker has seen. Unless given, what is assumed where neither is known.
    minimize
        ``cost`` or ``time``; ties go to the other, then to fewer machines.
    formula
        One of `FORMULAS`.
    restart
        Hours from a failure to the next attempt.

    Returns
    -------
    Choice
        The shapes, the best first, with an explanation.

    Raises
    ------
    SkyNoOffer
        When no shape is left.
    SkyUsageError
        For figures that make no sense.

    Examples
    --------
    >>> sizes = [Offer("gcp", "r", f"n{n}", n, n, spot=True, price=n / 100) for n in (16, 64)]
    >>> select_server(sizes, 64, {"n16": 1.2, "n64": 1.0}).best.shape.nodes
    1
    """
    offers = list(offers)
    shapes = cluster_shapes(offers, total, resource)
    fitting = {id(shape.offer) for shape in shapes}
    skipped = [
        (offer, f"{getattr(offer, resource):g} {resource} do not divide {total:g}")
        for offer in offers
        if id(offer) not in fitting
    ]
    choice = rank_shapes(
        shapes, run_hours, lifetimes, minimize=minimize, formula=formula, restart=restart
    )
    skipped += choice.skipped
    if not choice.ranked:
        reasons = "; ".join(sorted({why for __, why in skipped})[:3]) or "no offers were given"
        raise SkyNoOffer(
            _("no cluster of exactly {total:g} {resource}: {reasons}").format(
                total=total, resource=resource, reasons=reasons
            ),
            hint=_("give other offers, run times for more of them, or another total"),
        )
    return replace(choice, skipped=tuple(skipped))


def rank_shapes(
    shapes: Iterable[Shape],
    run_hours: Hours,
    lifetimes: LifetimesBy | None = None,
    *,
    minimize: str = "cost",
    formula: str = "replaced",
    restart: float = 0.0,
) -> Choice:
    """Return shapes by expected cost or duration; all parameters as in `select_server`.

    Returns
    -------
    Choice
        The shapes, the best first; none where nothing is known of any.

    Examples
    --------
    >>> sizes = [Offer("gcp", "r", f"n{n}", n, n, spot=True, price=n / 100) for n in (16, 64)]
    >>> shapes = [Shape(sizes[0], 4), Shape(sizes[1], 1)]
    >>> [one.shape.nodes for one in rank_shapes(shapes, {"n16": 1.2}).ranked]
    [4]
    """
    if minimize not in ("cost", "time"):
        raise SkyUsageError(f"minimize={minimize!r}", hint=suggest(minimize, ("cost", "time")))
    ranked: list[Expectation] = []
    skipped: list[tuple[Offer, str]] = []
    for shape in shapes:
        expectation, why = _expectation(shape, run_hours, lifetimes, formula, restart)
        if expectation is None:
            skipped.append((shape.offer, why))
        else:
            ranked.append(expectation)
    return Choice(tuple(sorted(ranked, key=_order(minimize))), tuple(skipped), minimize, formula)


def _expectation(
    shape: Shape, run_hours: Hours, lifetimes: LifetimesBy | None, formula: str, restart: float
) -> tuple[Expectation | None, str]:
    """Return the expected cost of a shape, or None and the reason why there is none."""
    base, why = _base_hours(run_hours, shape)
    model = find_lifetime(lifetimes, shape.offer)
    if shape.offer.price is None:
        why = "its price is not known"
    elif model is None:
        why = "its lifetime is not known"
    if base is None or model is None or why:
        return None, why
    expectation = expected_cost(shape, base, model, formula, restart=restart)
    if expectation.hours < math.inf:
        return expectation, ""
    return None, f"{base:g} h of work never end there"


def _order(minimize: str) -> Callable[[Expectation], tuple]:
    def key(expected: Expectation) -> tuple:
        usd, hours, shape = expected.usd, expected.hours, expected.shape
        figures = (usd, hours) if minimize == "cost" else (hours, usd)
        return (*figures, shape.nodes, shape.offer.place)

    return key


def _base_hours(run_hours: Hours, shape: Shape) -> tuple[float | None, str]:
    """Return the hours, or None and the reason why there are none."""
    kind = shape.offer.instance_type
    if isinstance(run_hours, Mapping):
        table: Mapping = run_hours
        hours = table.get((kind, shape.nodes), table.get(kind))
        if hours is None:
            return None, "it was not measured"
    else:
        hours = run_hours(shape.offer, shape.nodes) if callable(run_hours) else run_hours
    return validation.check_number(hours, f"run time on {shape} (hours)", above=0), ""


def find_lifetime(lifetimes: LifetimesBy | None, offer: Offer) -> Model | None:
    """Return the lifetime of one machine of an offer; None where it is not among those given.

    Parameters
    ----------
    lifetimes
        See `LifetimesBy`. Unless given, what is assumed where nothing is known.
    offer
        The machine.

    Examples
    --------
    >>> offer = Offer("gcp", "us-central1", "n1-highcpu-16", 16, 14.4, spot=True, price=0.12)
    >>> find_lifetime({}, offer) is None
    True
    """
    from jupyter_sky.knowledge.lifetimes.priors import Beliefs

    if lifetimes is None:
        return Beliefs().posterior(offer).model
    if isinstance(lifetimes, Mapping):
        return lifetimes.get(offer.instance_type)
    return lifetimes(offer)
