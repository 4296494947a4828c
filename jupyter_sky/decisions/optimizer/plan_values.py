"""Parts of a plan as values: tasks, transfers, certificate, reasons and alternatives."""

from __future__ import annotations

from dataclasses import dataclass, field

from jupyter_sky.base.requests.offers import Offer


@dataclass(frozen=True)
class PlannedTask:
    """Offer, times and costs of one task.

    Attributes
    ----------
    offer : Offer
        The machine, its place, market and price, with source and date of the price.
    nodes : int
        Number of machines.
    hours, spin_up_hours, store_hours : float
        Work, with the expected repetitions on spot machines; time until a machine is ready; time
        of reading from and writing to stores.
    start_h, finish_h : float
        Hours from the start of the plan.
    usd, machine_usd, disk_usd : float
        All but transfers, and its parts.
    gco2 : float
        Grams of CO2.
    redone : float
        Expected number of times that the work is done.
    assumed : bool
        Whether the time is the default of an hour.
    """

    task: str
    offer: Offer
    nodes: int
    hours: float
    spin_up_hours: float
    store_hours: float
    start_h: float
    finish_h: float
    usd: float
    machine_usd: float
    disk_usd: float
    gco2: float
    redone: float = 1.0
    assumed: bool = False


@dataclass(frozen=True)
class PlannedTransfer:
    """Data that moves: from task to task, from a store to a task, or from a task to a store.

    Attributes
    ----------
    source, target : str
        Names of tasks, or the URI of a store.
    kind : str
        ``edge``, ``input`` or ``output``.
    gb, usd, hours : float
        Size, cost and duration.
    basis : str
        Basis of the price: ``listed``, ``estimate``, ``not known`` (then it is assumed), or
        ``free``.
    rate_basis : str
        Basis of the duration: ``observed`` by the tracker, or as the catalog says.
    objects : int
        Number of objects, whose requests are in the price; 0 where nobody has counted them.
    measured : float
        Unix time at which the size was measured; 0 for a size that somebody has said.
    """

    source: str
    target: str
    kind: str
    gb: float
    usd: float
    hours: float
    basis: str = "listed"
    rate_basis: str = ""
    objects: int = 0
    measured: float = 0.0


@dataclass(frozen=True)
class Certificate:
    """Proof of how good a plan is.

    Attributes
    ----------
    status : str
        ``optimal`` (proven) or ``feasible`` (the best found in the time given).
    value, bound, gap : float
        The objective, its lower bound, and their distance as a share of the value.
    proof, solver : str
        Names of the proof and the solver, see `problem.Solution`.
    offers, labels, labels_kept, tasks, edges, variables, rows : int
        Sizes before and after reduction.
    checked : bool
        Whether an evaluator that shares no code with the model came to the same cost and time.
    seconds : dict
        CPU s by stage.
    """

    status: str
    value: float
    bound: float
    gap: float
    proof: str
    solver: str
    offers: int
    labels: int
    labels_kept: int
    tasks: int
    edges: int
    variables: int
    rows: int
    checked: bool
    seconds: dict[str, float] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        by = {"none": "without a solver"}.get(self.solver, f"by {self.solver.upper()}")
        took = f"{sum(self.seconds.values()):.2f} CPU s"
        if self.status == "optimal":
            how = f"proven best of {self.offers:,} offers {by} ({self.proof}), {took}"
        else:
            how = f"the best found {by} in {took}: at most {100 * self.gap:.2g} % from the best"
        return how + ("; re-checked" if self.checked else "; THE RE-CHECK DISAGREES")


@dataclass(frozen=True)
class Reason:
    """Next best offer of a task, all other tasks as they are.

    Attributes
    ----------
    offer : Offer, optional
        The next best offer; None when there is no other.
    usd, hours, gco2 : float
        Differences of the whole plan with it.
    text : str
        The same in words.
    """

    task: str
    offer: Offer | None
    usd: float
    hours: float
    gco2: float
    text: str


@dataclass(frozen=True)
class Alternative:
    """Another offer for a task, all other tasks as they are.

    Attributes
    ----------
    kind : str
        ``next best``, ``other cloud``, ``spot`` or ``on demand``, or several of them; a market
        that the request rules out says so.
    usd, hours, gco2 : float
        Differences of the whole plan with it.
    """

    task: str
    kind: str
    offer: Offer
    nodes: int
    usd: float
    hours: float
    gco2: float


@dataclass(frozen=True)
class PlanComparison:
    """Totals of the plan under one more condition.

    Attributes
    ----------
    where : str
        Clouds that it would use.
    error : str
        Reason why there is none.
    """

    condition: str
    usd: float | None = None
    hours: float | None = None
    gco2: float | None = None
    error: str = ""
    where: str = ""
