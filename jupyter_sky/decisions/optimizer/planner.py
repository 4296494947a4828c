"""`plan`, the function that decides where tasks run.

Costs are USD, times hours, emissions grams of CO2; all are estimates from list prices, tracked
prices and time estimators. What is made small:

* ``cost``: equation 1 of section 4.3 of the SkyPilot paper (NSDI 2023), with transfers from and to
  stores, spin-up, disks and billing units;
* ``time``: equations 2 and 3, the longest path through the graph, whatever it costs;
* ``time_then_cost``: the cheapest among the fastest;
* ``carbon``: grams of CO2;
* weights: ``{"usd": 1, "hours": 0.5, "grams": 0.001}``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jupyter_sky.base.errors import SkyError, SkyNoPlan, SkyTimeout, SkyUsageError
from jupyter_sky.base.requests.dag.dag import Data
from jupyter_sky.base.requests.resources import format_duration
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.constraints import Avoid, parse_scope
from jupyter_sky.decisions.optimizer.objectives import (
    OBJECTIVE_WEIGHTS,
    build_objective,
    describe_objective,
)
from jupyter_sky.decisions.optimizer.plan import (
    Alternative,
    Certificate,
    Plan,
    PlanComparison,
    PlannedTask,
    PlannedTransfer,
    PlanQuestions,
    Reason,
)
from jupyter_sky.decisions.optimizer.problem_builder import BuiltProblem, ProblemBuilder
from jupyter_sky.decisions.optimizer.quota_limits import quota_notes
from jupyter_sky.decisions.optimizer.solver.problem import (
    LabelMask,
    Objective,
    Problem,
    Solution,
    require_difference,
)
from jupyter_sky.decisions.optimizer.transfers import site_of
from jupyter_sky.knowledge.lifetimes.recomputation import expected_runs


@dataclass(eq=False)
class Planner:
    """Inputs and solution of a plan, kept for further questions."""

    builder: ProblemBuilder
    objective: Objective
    settings: dict[str, Any]
    tables: BuiltProblem | None = None
    solution: Solution | None = None
    _rows: tuple = field(default=(), repr=False)

    def plan(self) -> Plan:
        """Build the problem, solve it, and return the checked plan."""
        begun = time.process_time()
        self.tables = tables = self.builder.build(self.objective)
        if any(not len(one) for one in tables.labels):
            raise self._explain_infeasible()
        problem = replace(tables.problem, rows=(*tables.problem.rows, *self._rows))
        built = time.process_time() - begun
        self.solution = solution = self._solve(problem, self.objective)
        if solution.choice is None:
            raise self._explain_infeasible()
        return self._make_plan(problem, solution, built)

    def _solve(self, problem: Problem, objective: Objective, **other: Any) -> Solution:
        from jupyter_sky.decisions.optimizer.solver.solve import solve

        try:
            return solve(problem, objective, **(self.settings | other))
        except ModuleNotFoundError as error:
            raise SkyUsageError(
                _("this graph needs the model, and {name} is not installed").format(
                    name=error.name
                ),
                hint=_("pip install cvxpy highspy"),
            ) from None

    def _explain_infeasible(self) -> SkyError:
        from jupyter_sky.decisions.optimizer.explain.infeasibility import explain_infeasible

        if self.solution is not None and self.solution.status == "unknown":
            return SkyTimeout(
                _("no plan was found in {settings:g} s, and none is excluded").format(
                    settings=self.settings["time_limit"]
                ),
                hint=_("give it longer: time_limit=60"),
            )
        return explain_infeasible(self.builder, self.objective, self._solve)

    # -- further questions -----------------------------------------------------------------------

    def find_reasons(self, plan: Plan) -> tuple[Reason, ...]:
        """Return for each task the reason for its place."""
        from jupyter_sky.decisions.optimizer.explain.reasons import find_reasons

        return find_reasons(plan, self.builder, self.objective)

    def compare_conditions(self, plan: Plan) -> tuple[PlanComparison, ...]:
        """Return what the plan would come to under other conditions."""
        from jupyter_sky.decisions.optimizer.explain.reasons import compare_conditions

        assert self.tables is not None
        parts = (self.builder, self.objective, self.tables.labels, self.replan)
        return compare_conditions(plan, *parts, float(self.settings["time_limit"]))

    def find_alternatives(self, plan: Plan) -> tuple[Alternative, ...]:
        """Return what each task could take instead; a request by itself has room for more."""
        from jupyter_sky.decisions.optimizer.explain.reasons import find_alternatives

        count = 3 if len(plan) == 1 else 1
        return find_alternatives(plan, self.builder, self.objective, count)

    def replan_without(self, blocked: Sequence[Any], **settings: Any) -> Plan:
        """Return another plan that avoids places: offers, scopes of the tracker, or words."""
        scopes = tuple(parse_scope(where, self.builder.market) for where in blocked)
        avoid = Avoid(scopes, "what is blocked now")
        narrow = any(s.instance_type or s.family or s.spot is not None for s in scopes)
        if not settings and not narrow:
            return self.avoid_places(avoid)
        return self.replan(*([avoid] if scopes else []), **settings)

    def replan(self, *demands: Any, **settings: Any) -> Plan:
        """Return another plan of the same graph, under more demands or other settings."""
        asked = dict(settings)
        objective = self.objective
        if asked.keys() & {"minimize", "deadline", "budget", "carbon_cap"}:
            known = {
                "minimize": objective.kind,
                "deadline": objective.deadline_h,
                "budget": objective.budget_usd,
                "carbon_cap": objective.carbon_cap_g,
            }
            if objective.kind == "weighted" and "minimize" not in asked:
                known["minimize"] = {k: getattr(objective, f) for k, f in OBJECTIVE_WEIGHTS.items()}
            given = {key: asked.pop(key, value) for key, value in known.items()}
            objective = build_objective(**given)
        unknown = asked.keys() - self.settings.keys()
        if unknown:
            raise SkyUsageError(
                _("a plan has no setting {unknown}").format(unknown=", ".join(sorted(unknown)))
            )
        builder = self.builder.with_demands(*demands) if demands else self.builder
        return Planner(builder, objective, self.settings | asked).plan()

    def avoid_places(self, avoid: Avoid) -> Plan:
        """Return the plan without whole places: their labels go, the rest is known already."""
        assert self.tables is not None
        begun, problem = time.process_time(), self.tables.problem
        kept = [avoid.allowed(self.builder.market, one.pool) for one in self.tables.labels]
        masks = tuple(
            LabelMask(avoid.name, v, mask) for v, mask in enumerate(kept) if not mask.all()
        )
        other = Planner(self.builder.with_demands(avoid), self.objective, self.settings)
        problem = replace(problem, masks=(*problem.masks, *masks))
        other.tables = replace(self.tables, problem=problem)
        problem = replace(problem, rows=(*problem.rows, *self._rows))
        built = time.process_time() - begun
        solution = self._solve(problem, self.objective, warm=self.solution)
        other.solution = solution
        if solution.choice is None:
            raise other._explain_infeasible()
        return other._make_plan(problem, solution, built)

    def next_best(self, count: int, by: str, least: int) -> tuple[Plan, ...]:
        """Return the next best plans, each different from all before it."""
        if by not in ("region", "cloud", "place"):
            raise SkyUsageError(f"by={by!r}", hint=_("region, cloud or place"))
        assert self.tables is not None and self.solution is not None
        assert self.solution.choice is not None
        problem, rows, found = self.tables.problem, list(self._rows), []
        choice = self.solution.choice
        for __ in range(count):
            rows.append(require_difference(problem, choice, by, least))
            other = Planner(self.builder, self.objective, self.settings, _rows=tuple(rows))
            try:
                found.append(other.plan())
            except SkyNoPlan:
                break
            assert other.solution is not None and other.solution.choice is not None
            choice = other.solution.choice
        return tuple(found)

    def count_offers(self) -> tuple[int, ...]:
        """Return for each task the number of offers that it could take."""
        builder = self.builder
        return tuple(len(builder.pricer.price_task(spec)) for spec in builder.graph.tasks)

    def make_problem(self) -> Problem:
        """Return the problem of this plan as arrays."""
        return self.builder.build(self.objective).problem

    # -- the answer ------------------------------------------------------------------------------

    def _make_plan(self, problem: Problem, solution: Solution, built: float) -> Plan:
        from jupyter_sky.decisions.optimizer.solver.evaluator import evaluate

        assert self.tables is not None and solution.choice is not None
        outcome = evaluate(problem, solution.choice)
        finish = outcome.finish
        placed = tuple(
            self._make_planned_task(task, label, finish[task])
            for task, label in enumerate(solution.choice)
        )
        moves = self._list_transfers(placed)
        usd = math.fsum([one.usd for one in placed] + [move.usd for move in moves])
        checked = math.isclose(usd, solution.cost, rel_tol=1e-6, abs_tol=1e-6)
        checked &= math.isclose(outcome.hours, solution.hours, rel_tol=1e-6, abs_tol=1e-6)
        seconds = {"tables": built, **solution.seconds}
        return Plan(
            self.builder.graph.name,
            describe_objective(self.objective),
            placed,
            moves,
            solution.cost,
            solution.hours,
            solution.gco2,
            _certify(solution, problem, self.tables.offer_count, checked, seconds),
            self._notes(placed, moves),
            planner=PlanQuestions(
                *(self.find_reasons, self.compare_conditions, self.find_alternatives),
                *(self.replan, self.replan_without, self.next_best),
                *(self.count_offers, self.make_problem),
            ),
            deadline_h=self.objective.deadline_h,
        )

    def _make_planned_task(self, task: int, label: int, finish: float) -> PlannedTask:
        assert self.tables is not None
        one = self.tables.labels[task]
        kind, site = int(one.at[label]), int(one.pool.site[label])
        hours = float(one.hours()[label])
        return PlannedTask(
            task=one.spec.name,
            offer=self.tables.offer(task, label),
            nodes=int(one.nodes[kind]),
            hours=float(one.run_hours[kind]),
            spin_up_hours=float(one.spin_hours[kind]),
            store_hours=float(one.store_hours[site]),
            start_h=finish - hours,
            finish_h=finish,
            usd=float(one.own_usd()[label]),
            machine_usd=float(one.machine_usd()[label]),
            disk_usd=float(one.disk_usd[kind]),
            gco2=float(one.grams()[label]),
            redone=float(one.redone[kind]),
            assumed=one.spec.estimator is None,
        )

    def _list_transfers(self, placed: Sequence[PlannedTask]) -> tuple[PlannedTransfer, ...]:
        """Return every transfer with its price in the catalog, one by one: a second opinion."""
        graph, found = self.builder.graph, []
        for spec, one in zip(graph.tasks, placed, strict=True):
            for data in (*spec.inputs, *spec.stored):
                if not data.is_anywhere:
                    found.append(self._make_store_transfer(data, one, "input"))
            for data in spec.outputs:
                if not data.is_anywhere:
                    found.append(self._make_store_transfer(data, one, "output"))
        for edge in graph.edges:
            here, there = placed[edge.src], placed[edge.dst]
            sites = site_of(here.offer), site_of(there.offer)
            found.append(self._make_transfer(here.task, there.task, "edge", edge.gb, *sites))
        return tuple(found)

    def _make_store_transfer(self, data: Data, one: PlannedTask, kind: str) -> PlannedTransfer:
        pricer = self.builder.pricer
        place, gb = pricer.moves.place(int(pricer.store(data)[0])), data.gb or 0.0
        store, machine = (place.cloud, place.region, ""), (one.offer.cloud, one.offer.region, "")
        if kind == "output":
            move = self._make_transfer(one.task, data.uri, kind, gb, machine, store)
        else:
            move = self._make_transfer(data.uri, one.task, kind, gb, store, machine)
        requests = pricer.request_usd(data, kind) if gb else 0.0
        return replace(move, usd=move.usd + requests, objects=data.objects, measured=data.measured)

    def _make_transfer(
        self, source: str, target: str, kind: str, gb: float, here: tuple, there: tuple
    ) -> PlannedTransfer:
        from jupyter_sky.knowledge.catalog import Location

        catalog = self.builder.market.catalog
        ends = Location(*here), Location(*there)
        took = self.builder.pricer.moves.observed.duration(catalog, *ends, gb)
        if here == there and (kind == "edge" or here[0] not in ("internet",)):
            return PlannedTransfer(source, target, kind, gb, 0.0, took.hours, "free", took.basis)
        price = catalog.egress(Location(*here), Location(*there), gb)
        usd = gb * self.builder.pricer.moves.assumed_usd_per_gb if price.usd is None else price.usd
        return PlannedTransfer(source, target, kind, gb, usd, took.hours, price.basis, took.basis)

    def _notes(
        self, placed: Sequence[PlannedTask], moves: Sequence[PlannedTransfer]
    ) -> tuple[str, ...]:
        assert self.tables is not None
        notes = list(self.tables.notes)
        if any(one.assumed for one in placed):
            notes = [note for note in notes if not note.startswith("run times")]
            names = [one.task for one in placed if one.assumed]
            which = f"{', '.join(names[:3])}{'...' if len(names) > 3 else ''}"
            notes.insert(0, f"assumed: 1 h for {which} (no time estimator)")
        if any(move.basis == "not known" and move.usd for move in moves):
            rate = self.builder.pricer.moves.assumed_usd_per_gb
            notes.append(f"assumed: ${rate:.2f}/GB out of clouds whose price is not known")
        if any(move.basis == "estimate" and move.usd for move in moves):
            notes.append("some prices of transfers are estimates: see plan.moves")
        notes += describe_data(moves)
        if any(one.redone > 1.0005 for one in placed):
            plain = self.builder.recompute is expected_runs
            notes.append(
                "spot machines: the work lost to interruptions is counted, by the interruption "
                "bands, Google's machines of 2019 where there is none, and the tracker"
                + (", with nothing saved in between" if plain else "")
            )
        notes += sorted({one.offer.note for one in placed if one.offer.note})
        priced = [self.builder.pricer.price_task(spec) for spec in self.builder.graph.tasks]
        notes += quota_notes(self.builder, priced, [one.usd for one in placed])
        return tuple(dict.fromkeys(notes))


# -- Data of a request that a plan is made for, and sentences on the data of a plan ---------------


def describe_data(moves: Sequence[PlannedTransfer]) -> list[str]:
    """Return sentences on sizes and rates that were measured, in place of those assumed."""
    notes = []
    for move in moves:
        store = move.target if move.kind == "output" else move.source
        if move.measured:
            ago = format_duration(max(1.0, time.time() - move.measured))
            notes.append(
                f"measured: {move.gb:.3g} GB in {move.objects:,} objects of {store}, {ago} ago"
            )
        if move.rate_basis == "observed":
            notes.append(f"observed: {_rate(move):.2g} Gbit/s from {move.source} to {move.target}")
    return notes


def _rate(move: PlannedTransfer) -> float:
    return move.gb * 8 / (move.hours * 3600) if move.hours else 0.0


def _certify(
    solution: Solution, problem: Problem, offers: int, checked: bool, seconds: dict[str, float]
) -> Certificate:
    """Return what is proven about a solution; `checked` by the evaluator, seconds by step."""
    sizes = solution.sizes
    return Certificate(
        *(solution.status, solution.value, solution.bound, solution.gap),
        *(solution.proof, solution.solver, offers, sizes.labels),
        *(sizes.labels_kept, len(problem.tasks), len(problem.edges), sizes.variables, sizes.rows),
        *(checked, seconds),
    )
