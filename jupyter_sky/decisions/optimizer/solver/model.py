"""The model of record: a mixed-integer program in CVXPY, small because places have structure.

Equations 1 to 3 of the SkyPilot paper (NSDI 2023) over the labels that reductions left, with
transfers as `TransferRows` writes them, and every side constraint as rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from jupyter_sky.decisions.optimizer.solver.additive_problem import reachable_pairs
from jupyter_sky.decisions.optimizer.solver.context import SolverResult
from jupyter_sky.decisions.optimizer.solver.hierarchy import Hierarchy, find_hierarchy
from jupyter_sky.decisions.optimizer.solver.problem import (
    Flags,
    Floats,
    Ints,
    ModelVariables,
    Objective,
    Problem,
)

_GLPK_ROWS = 3_000  # beyond so many rows HiGHS is the faster one
_UNIT = 1_000.0  # what the objective is scaled to, so that solvers' tolerances are small in it


@dataclass(eq=False)
class CompiledModel:
    """A compiled program and how to read it.

    Attributes
    ----------
    program : cvxpy.Problem
    chosen : cvxpy.Variable
        One 0-1 variable for each label kept, task after task.
    kept : list of int array
        Labels of each task.
    scale : float
        What the objective was multiplied by.
    open : cvxpy.Parameter or None
        Upper bounds of `chosen`, where the model is to be solved again: 0 blocks a label without
        compiling anew, because rows (unlike bounds) may hold parameters.
    floor : cvxpy constraint or None
        ``chosen >= 0`` of a relaxed model; its dual values are the reduced costs.
    clock : tuple of cvxpy constraints
        Where time matters: tasks end after their start, the plan after its tasks, tasks after
        those they wait for.
    """

    program: Any
    chosen: Any
    kept: list[Ints]
    scale: float
    rows: int
    variables: int
    open: Any = None
    floor: Any = None
    clock: tuple[Any, ...] = ()


@dataclass(eq=False)
class TableStructure:
    """Transfer tables of a problem by kind, and their structure, a tree if they have one."""

    found: PriceTree | Hierarchy | None
    which: dict[str, list[int]]


def find_structure(problem: Problem, kinds: Sequence[str]) -> TableStructure:
    """Return the structure that all tables of these kinds (``usd``, ``hours``, ``gco2``) share."""
    stack, which = [], {}
    for kind in kinds:
        which[kind] = list(range(len(stack), len(stack) + len(problem.tables)))
        stack += [transfer_amounts(problem, k, kind) for k in range(len(problem.tables))]
    if not stack:
        return TableStructure(None, which)
    capped = [np.where(np.isfinite(part), part, 0.0) for part in stack]
    levels = find_hierarchy(capped, problem.places.levels)
    return TableStructure(find_price_tree(levels) or levels, which)


def transfer_amounts(problem: Problem, table: int, kind: str) -> Floats:
    """Return one kind of table; zeros without it, ``inf`` where nothing can move."""
    one = problem.tables[table]
    found = getattr(one, kind)
    found = np.zeros_like(one.usd) if found is None else found
    can = reachable_pairs(one)
    return found if can.all() else np.where(can, found, np.inf)


class ModelBuilder:
    """Writes a problem over the kept labels as matrices, then as a CVXPY problem."""

    def __init__(self, problem: Problem, objective: Objective, kept: Sequence[Ints]) -> None:
        self.problem, self.objective, self.kept = problem, objective, list(kept)
        sizes = [len(labels) for labels in kept]
        self.ends = np.r_[0, np.cumsum(sizes)].astype(np.int64)
        self.total = int(self.ends[-1])
        self.owner = np.repeat(np.arange(len(sizes)), sizes)
        self.clock: tuple[Any, ...] = ()
        self.kinds = ["usd"]
        if objective.is_timed:
            self.kinds.append("hours")
        if (
            objective.kind in ("carbon", "weighted")
            or objective.carbon_cap_g is not None
            or problem.hook is not None
        ):
            self.kinds.append("gco2")

    def gather(self, name: str) -> Floats:
        """Return one array of the labels, task after task."""
        parts = [
            getattr(task, name)[labels]
            for task, labels in zip(self.problem.tasks, self.kept, strict=True)
        ]
        return np.concatenate(parts) if parts else np.empty(0)

    def columns(self, task: int) -> Ints:
        """Return the columns of the labels of a task."""
        return np.arange(self.ends[task], self.ends[task + 1])

    def links(self, shape: TableStructure) -> TransferRows:
        """Return the rows and terms of all edges."""
        made, edges, place = TransferRows(len(self.kinds)), self.problem.edges, self.gather("place")
        tables: dict[int, list[Floats]] = {}
        for e in range(len(edges)):
            scale, k = float(edges.scale[e]), int(edges.table[e])
            if not scale:
                continue
            both = [self.columns(int(end[e])) for end in (edges.src, edges.dst)]
            tail, head = ((columns, place[columns].astype(np.int64)) for columns in both)
            ends = (tail, head)
            if k not in tables:
                tables[k] = [transfer_amounts(self.problem, k, kind) for kind in self.kinds]
            which = [shape.which[kind][k] for kind in self.kinds]
            made.add(e, ends, tables[k], scale, (shape.found, which) if shape.found else None)
        return made

    def side_rows(self) -> tuple[TripletMatrix, list[float], TripletMatrix, int]:
        """Return rows of limits (with their right sides) and of sameness, over s."""
        limits, right = TripletMatrix(), []
        for row in self.problem.rows:
            for task, values in row.terms.items():
                limits.add(len(right), self.columns(task), values[self.kept[task]])
            right.append(row.limit)
        equal, count = TripletMatrix(), 0
        for same in self.problem.same:
            first, *others = same.tasks
            tags = {v: self.problem.tag(v, same.by)[self.kept[v]] for v in same.tasks}
            for tag in sorted({int(t) for v in same.tasks for t in tags[v]}):
                for other in others:
                    for task, sign in ((first, 1.0), (other, -1.0)):
                        equal.add(count, self.columns(task)[tags[task] == tag], sign)
                    count += 1
        return limits, right, equal, count

    def build(
        self,
        shape: TableStructure | None = None,
        unit: float = 1.0,
        relaxed: bool = False,
        parametric: bool = False,
    ) -> CompiledModel:
        """Return the model as a CVXPY problem.

        Parameters
        ----------
        shape : TableStructure, optional
            Of the same tables.
        unit : float
            A typical value of the objective, which is scaled by it.
        relaxed : bool
            Without the demand for whole numbers.
        parametric : bool
            To be solved again with labels blocked.
        """
        import cvxpy as cp

        links = self.links(shape or find_structure(self.problem, self.kinds))
        n, m = len(self.kept), len(self.problem.edges)
        s = cp.Variable(self.total, boolean=not relaxed, name="chosen")
        ones = TripletMatrix()
        ones.add(self.owner, np.arange(self.total), 1.0)
        rules: list[Any] = [ones.matrix(n, self.total) @ s == 1]
        upper = floor = None
        if parametric:
            upper = cp.Parameter(self.total, nonneg=True, name="open", value=np.ones(self.total))
            rules.append(s <= upper)
        if relaxed:
            floor = s >= 0
            rules.append(floor)
        moved = self._write_transfers(cp, s, links, rules)
        side_count = self._write_side_rows(s, rules)
        aim, finish = self._build_objective(cp, s, moved, rules)
        if self.problem.hook is not None:
            rules += list(self.problem.hook(self._variables(cp, s, moved, finish)))
        factor = _UNIT / max(abs(unit), 1e-9)
        program = cp.Problem(cp.Minimize(factor * aim), rules)  # type: ignore[arg-type]
        rows = n + links.less_rows + links.equal_rows + side_count
        rows += (2 * n + m) * self.objective.is_timed
        variables = self.total + links.variables + n * self.objective.is_timed
        return CompiledModel(
            program, s, self.kept, factor, rows, variables, upper, floor, self.clock
        )

    def _write_transfers(
        self, cp: Any, s: Any, links: TransferRows, rules: list[Any]
    ) -> dict[str, Any]:
        """Append the rows of transfers; return the amounts of each kind on all edges."""
        m, count = len(self.problem.edges), links.variables
        w: Any = cp.Variable(count, nonneg=True, name="links") if count else None
        if links.less_rows:
            less = links.less.matrix(links.less_rows, self.total)
            rules.append(less @ s <= links.less_w.matrix(links.less_rows, count) @ w)
        if links.equal_rows:
            equal = links.equal.matrix(links.equal_rows, self.total)
            rules.append(equal @ s == links.equal_w.matrix(links.equal_rows, count) @ w)
        if w is not None and links.forbidden:
            rules.append(w[np.array(links.forbidden)] == 0)
        moved = {}
        for kind, (over_s, over_w) in zip(self.kinds, links.terms, strict=True):
            moved[kind] = over_s.matrix(m, self.total) @ s if over_s.rows else 0
            if over_w.rows and w is not None:
                moved[kind] = moved[kind] + over_w.matrix(m, count) @ w
        return moved

    def _write_side_rows(self, s: Any, rules: list[Any]) -> int:
        """Append the rows of limits and of sameness; return their number."""
        limits, right, same, same_count = self.side_rows()
        if right:
            rules.append(limits.matrix(len(right), self.total) @ s <= np.array(right))
        if same_count:
            rules.append(same.matrix(same_count, self.total) @ s == 0)
        return len(right) + same_count

    def _sum(self, cp: Any, kind: str, s: Any, moved: dict) -> Any:
        total = self.gather(kind) @ s
        edges = moved.get(kind, 0)
        return total + cp.sum(edges) if not isinstance(edges, int) else total

    def _build_objective(self, cp: Any, s: Any, moved: dict, rules: list) -> tuple[Any, Any]:
        """Return the expression to make small; append the rows of time and the limits."""
        objective = self.objective
        usd = self._sum(cp, "usd", s, moved)
        grams: Any = self._sum(cp, "gco2", s, moved) if "gco2" in self.kinds else None
        finish: Any = None
        end: Any = None
        if objective.is_timed:
            finish = cp.Variable(len(self.kept), name="finish")
            end = cp.Variable(name="makespan")
            self.clock = tuple(self._time_rows(s, finish, end, moved["hours"]))
            rules += self.clock
        for value, limit in ((end, objective.deadline_h), (usd, objective.budget_usd)):
            if limit is not None:
                rules.append(value <= limit)
        if objective.carbon_cap_g is not None:
            rules.append(grams <= objective.carbon_cap_g)
        if objective.kind == "weighted":
            aim = objective.usd_weight * usd
            if objective.hour_weight:
                aim = aim + objective.hour_weight * end
            return aim + objective.gram_weight * grams, finish
        return {"time": end, "carbon": grams}.get(objective.kind, usd), finish

    def _time_rows(self, s: Any, finish: Any, end: Any, moved: Any) -> list[Any]:
        """Return equation 3: a task ends after its inputs came and its work is done."""
        n, edges = len(self.kept), self.problem.edges
        hours, start = TripletMatrix(), TripletMatrix()
        every = np.arange(self.total)
        hours.add(self.owner, every, self.gather("hours"))
        start.add(self.owner, every, self.gather("hours") + self.gather("ready_hours"))
        rules = [finish >= start.matrix(n, self.total) @ s, end >= finish]
        if len(edges):
            ends = TripletMatrix()
            index = np.arange(len(edges))
            ends.add(index, edges.dst, 1.0)
            ends.add(index, edges.src, -1.0)
            work = hours.matrix(n, self.total)[edges.dst] @ s
            rules.append(ends.matrix(len(edges), n) @ finish >= work + moved)
        return rules

    def _variables(self, cp: Any, s: Any, moved: dict, finish: Any) -> ModelVariables:
        chosen = []
        for v, task in enumerate(self.problem.tasks):
            spread = TripletMatrix()
            spread.add(self.kept[v], self.columns(v), 1.0)
            chosen.append(spread.matrix(len(task), self.total) @ s)
        usd = self._sum(cp, "usd", s, moved)
        grams = self._sum(cp, "gco2", s, moved)
        return ModelVariables(tuple(chosen), usd, grams, finish)


def pick_solver(asked: str, rows: int, hard: bool) -> str:
    """Pick GLPK or HiGHS: by what is installed and, with ``auto``, by which was measured faster.

    GLPK starts in no time and keeps its basis; HiGHS wins where rows are many, and where the
    relaxation is loose (deadlines, budgets, quotas).
    """
    from jupyter_sky.decisions.optimizer.solver.glpk import is_installed

    if asked != "auto":
        return asked
    return "highs" if hard or rows > _GLPK_ROWS or not is_installed() else "glpk"


def solve_model(
    model: CompiledModel, solver: str, seconds: float, gap: float = 0.0, warm: bool = True
) -> SolverResult:
    """Solve a model with ``glpk`` or ``highs`` for at most so many seconds."""
    import warnings

    from cvxpy.error import SolverError

    if solver == "glpk":
        from jupyter_sky.decisions.optimizer.solver.glpk import glpk_solver

        options = {"solver": glpk_solver(), "tm_lim": max(1, int(seconds * 1000)), "mip_gap": gap}
    else:
        options = {
            "solver": "HIGHS",
            "time_limit": max(seconds, 0.01),
            "mip_rel_gap": max(gap, 1e-9),
            "mip_abs_gap": 1e-9,
            "threads": 1,
            "random_seed": 1,
        } | _highs_options()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CVXPY warns of limits that we report ourselves
            model.program.solve(warm_start=warm, **options)
    except SolverError:
        return SolverResult("solver_error", None, -np.inf, "limit")
    return _read_result(model, solver)


@lru_cache(maxsize=1)
def _highs_options() -> dict[str, bool]:
    """Return options of HiGHS that skip what our reductions have done already, where it knows them.

    The plans it would search for by smaller programs are at hand, and a fresh start after the
    root, with its presolve and cuts anew, finds nothing more to remove: measured 2 to 13 times
    faster without.
    """
    import highspy

    names = ("allow_restart", "heuristic_run_root_reduced_cost", "heuristic_run_rens")
    options = {f"mip_{name}": False for name in (*names, "heuristic_run_rins")}
    probe = highspy.Highs()
    probe.setOptionValue("output_flag", False)
    good = highspy.HighsStatus.kOk
    return {
        name: value for name, value in options.items() if probe.setOptionValue(name, value) == good
    }


def _read_result(model: CompiledModel, solver: str) -> SolverResult:
    status = model.program.status or "solver_error"
    stats = getattr(model.program.solver_stats, "extra_stats", None)
    bound, proof = float("-inf"), "branch-and-bound"
    if solver == "glpk" and isinstance(stats, dict):
        bound, proof = stats["bound"], stats["proof"] or proof
    elif stats is not None:
        nodes = getattr(stats, "mip_node_count", -1)
        bound = getattr(stats, "mip_dual_bound", -np.inf) if nodes >= 0 else model.program.value
    bound = float(bound if bound is not None and np.isfinite(bound) else -np.inf) / model.scale
    values, choice = model.chosen.value, None
    if values is not None and np.isfinite(values).all():
        choice = decode_choice(model.kept, values)
    return SolverResult(status, choice, bound, proof)


def decode_choice(kept: Sequence[Ints], values: Floats) -> tuple[int, ...]:
    """Return each task's label of the largest value, not of value 1, which may be 1 - 1e-7."""
    choice, start = [], 0
    for labels in kept:
        choice.append(int(labels[int(np.argmax(values[start : start + len(labels)]))]))
        start += len(labels)
    return tuple(choice)


# -- Transfers as linear terms: what an edge costs and lasts, in variables linear in places -------
#
# The product of two choices is made linear with one variable for each node of a tree of places
# rather than one for each pair of candidates; `TransferRows` says how, and why nothing is lost.

_NOISE = 1e-12


@dataclass(frozen=True, eq=False)
class PriceTree:
    """Tables of transfer prices as prices to leave the nodes of a tree.

    M[k][i, j] = base[k, i] + the sum of `weight[k, a]` over nodes a that i is in and j is not.

    Attributes
    ----------
    member : bool array, A x P
    weight : float array, K x A
    base : float array, K x P
    """

    member: Flags
    weight: Floats
    base: Floats


def find_price_tree(hier: Hierarchy) -> PriceTree | None:
    """Return the tables as a tree with a price to leave each node; None where they are no tree.

    Examples
    --------
    >>> from jupyter_sky.decisions.optimizer.solver.hierarchy import find_hierarchy
    >>> price = np.array([[0, 1, 5.0], [1, 0, 5], [7, 7, 0]])
    >>> find_price_tree(find_hierarchy([price], {"cloud": np.array([0, 0, 1])})).weight
    array([[1., 1., 4., 7.]])
    """
    inside, top = hier.inside, len(hier.nodes) - 1
    steps = [inside[:, level + 1] - inside[:, level] for level in range(top)]
    if hier.nodes[top].max():
        out = _leaving_top(hier)
        if out is None:
            return None
        steps.append(out - inside[:, top])
    members, weights = [], []
    for level, step in enumerate(steps):
        for node in range(hier.nodes[level].max() + 1):
            here = hier.nodes[level] == node
            if not here.any():
                continue
            part = step[:, here]
            noise = _NOISE * (1 + np.abs(inside[:, 0, here]).max() + np.abs(part).max())
            if np.ptp(part, axis=1).max() > noise or part.min() < -noise:
                return None
            members.append(here)
            weights.append(np.maximum(part[:, 0], 0))
    if not members:
        return PriceTree(np.zeros((0, hier.places), bool), np.zeros((len(inside), 0)), inside[:, 0])
    weight = np.stack(weights, axis=1)
    used = weight.any(0)
    return PriceTree(np.stack(members)[used], weight[:, used], inside[:, 0])


def _leaving_top(hier: Hierarchy) -> Floats | None:
    """Return what each place pays to leave its coarsest node; None if that varies."""
    across = hier.across
    low = np.where(np.isfinite(across), across, np.inf).min(2)
    high = np.where(np.isfinite(across), across, -np.inf).max(2)
    if (high - low > _NOISE * (1 + np.abs(high))).any():
        return None
    return low[:, hier.row_class]


@dataclass
class TripletMatrix:
    """A sparse matrix in the making."""

    rows: list[Ints] = field(default_factory=list)
    columns: list[Ints] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)

    def add(self, row: int | Ints, columns: Ints, values: float | Floats) -> None:
        """Put values at one row, or at a row each."""
        size = len(columns)
        self.rows.append(np.broadcast_to(np.asarray(row, np.int64), size))
        self.columns.append(np.asarray(columns, np.int64))
        self.values.append(np.broadcast_to(np.asarray(values, np.float64), size))

    def matrix(self, rows: int, columns: int):
        """Return a CSR array of SciPy; equal positions are added."""
        from scipy.sparse import csr_array

        if not self.rows:
            return csr_array((rows, columns))
        data = np.concatenate(self.values)
        where = (np.concatenate(self.rows), np.concatenate(self.columns))
        return csr_array((data, where), shape=(rows, columns))


class TransferRows:
    """Rows and terms of all edges, over label variables s and link variables w >= 0.

    Where one end of an edge has one place left, its terms are linear in s alone. Else either

    * one w for each node a of the tree, w_a >= X_u(a) - X_v(a), with X(a) the sum of s over labels
      in a. With 0-1 values the least w_a is 1 exactly when the data leave a, so weight times w is
      the price. *The relaxation is as tight as the one with a variable for each pair:* any way
      to couple the two distributions moves at least X_u(a) - X_v(a) out of each a, and matching
      within the leaves first, then within their parents, and so on, attains all of these at once;
    * or, where what a place pays to leave a node depends on the place, one w for each node and
      price in it; of what reaches a node from below at one price, no more can leave it at that
      price. Where the way out of the coarsest node also depends on where it leads, one w for each
      pair of such classes takes over;
    * or one w for each pair of places left, with both distributions as its sums, where that is
      fewer.

    Attributes
    ----------
    less, less_w : TripletMatrix
        Rows ``less @ s - less_w @ w <= 0``.
    equal, equal_w : TripletMatrix
        Rows ``equal @ s - equal_w @ w == 0``.
    terms : list of (TripletMatrix, TripletMatrix)
        For each kind of amount (USD, h, g): a row for each edge, over s and over w.
    """

    def __init__(self, kinds: int) -> None:
        self.less, self.less_w = TripletMatrix(), TripletMatrix()
        self.equal, self.equal_w = TripletMatrix(), TripletMatrix()
        self.terms = [(TripletMatrix(), TripletMatrix()) for _ in range(kinds)]
        self.less_rows = self.equal_rows = self.variables = 0
        self.forbidden: list[int] = []

    def add(
        self,
        edge: int,
        ends: tuple[tuple[Ints, Ints], tuple[Ints, Ints]],
        tables: list[Floats],
        scale: float,
        shape: tuple[PriceTree | Hierarchy, list[int]] | None,
    ) -> None:
        """Write one edge.

        Parameters
        ----------
        edge : int
            Its row in `terms`.
        ends : two pairs of int array
            For tail and head: columns of their labels in s, and where each lies.
        tables : list of float array
            For each kind, amounts between any two places; ``inf`` for what cannot be.
        scale : float
            What to multiply them by.
        shape : (PriceTree or Hierarchy, list of int), optional
            The structure of the tables, and which of them stands for each kind.
        """
        (left, from_), (right, to) = ends
        a, at_a = np.unique(from_, return_inverse=True)
        b, at_b = np.unique(to, return_inverse=True)
        small = [scale * table[np.ix_(a, b)] for table in tables]
        if not all(np.isfinite(part).all() for part in small):
            self._pairs(edge, (left, at_a), (right, at_b), small)
        elif len(b) == 1:
            self._linear(edge, left, [part[at_a, 0] for part in small])
        elif len(a) == 1:
            self._linear(edge, right, [part[0, at_b] for part in small])
        elif shape is None or len(a) * len(b) <= self._size(shape[0], a, b):
            self._pairs(edge, (left, at_a), (right, at_b), small)
        elif isinstance(shape[0], PriceTree):
            self._tree(edge, ends, (a, b), scale, shape)
        else:
            self._levels(edge, ends, a, scale, shape)

    def _size(self, shape: PriceTree | Hierarchy, a: Ints, b: Ints) -> int:
        """Return about how many variables the structure would take."""
        if isinstance(shape, PriceTree):
            return self._nodes(shape, a, b).size
        rows, columns = (np.unique(part).size for part in (shape.row_class[a], shape.column_class))
        return len(a) * 2 + (0 if _is_flat(shape) else rows * columns)

    def _linear(self, edge: int, columns: Ints, amounts: list[Floats]) -> None:
        for (over_s, _), values in zip(self.terms, amounts, strict=True):
            over_s.add(edge, columns, values)

    def _pairs(
        self, edge: int, tail: tuple[Ints, Ints], head: tuple[Ints, Ints], small: list[Floats]
    ) -> None:
        size = small[0].shape
        w = self.variables + np.arange(size[0] * size[1]).reshape(size)
        self.variables += w.size
        for columns, at, grid in ((*tail, w), (*head, w.T)):
            rows = self.equal_rows + np.arange(len(grid))
            self.equal.add(rows[at], columns, 1.0)
            self.equal_w.add(np.repeat(rows, grid.shape[1]), grid.reshape(-1), 1.0)
            self.equal_rows += len(grid)
        bad = ~np.all([np.isfinite(part) for part in small], axis=0)
        self.forbidden += w[bad].tolist()
        for (_, over_w), part in zip(self.terms, small, strict=True):
            over_w.add(edge, w.reshape(-1), np.where(bad, 0.0, part).reshape(-1))

    @staticmethod
    def _nodes(shape: PriceTree, a: Ints, b: Ints) -> Ints:
        """Return nodes that data may leave, with a tail inside and a head outside."""
        return np.flatnonzero(shape.member[:, a].any(1) & ~shape.member[:, b].all(1))

    def _tree(self, edge: int, ends, used: tuple[Ints, Ints], scale: float, shape) -> None:
        whole, which = shape
        (left, from_), (right, to) = ends
        nodes = self._nodes(whole, *used)
        w = self.variables + np.arange(len(nodes))
        rows = self.less_rows + np.arange(len(nodes))
        self.variables += len(nodes)
        self.less_rows += len(nodes)
        for columns, at, sign in ((left, from_, 1.0), (right, to, -1.0)):
            row, label = np.nonzero(whole.member[np.ix_(nodes, at)])
            self.less.add(rows[row], columns[label], sign)
        self.less_w.add(rows, w, 1.0)
        for (over_s, over_w), k in zip(self.terms, which, strict=True):
            over_s.add(edge, left, scale * whole.base[k, from_])
            over_w.add(edge, w, scale * whole.weight[k, nodes])

    def _levels(self, edge: int, ends, a: Ints, scale: float, shape) -> None:
        """Write an edge whose prices differ within a node: what leaves keeps its price."""
        hier, which = shape
        (left, from_), (right, to) = ends
        for (over_s, _), k in zip(self.terms, which, strict=True):
            over_s.add(edge, left, scale * hier.inside[k, 0, from_])
        below = self._leave_places(edge, ends, a, scale, shape)
        top = len(hier.nodes) - 1
        for level in range(1, top + (hier.nodes[top].max() > 0)):
            now = np.empty_like(below)
            for node in np.unique(hier.nodes[level][a]):
                here = np.flatnonzero(hier.nodes[level][a] == node)
                row = self.less_rows
                self.less_rows += 1
                for columns, at, sign in ((left, from_, 1.0), (right, to, -1.0)):
                    self.less.add(row, columns[hier.nodes[level][at] == node], sign)
                classes = hier.price_class[level][a[here]]
                for one in np.unique(classes):
                    members = here[classes == one]
                    now[members] = self._leave(row, np.unique(below[members]))
            self._price(edge, level, now, a, scale, shape)
            below = now
        if hier.nodes[top].max() and not _is_flat(hier):
            self._across(edge, (a, below), (right, to), scale, shape)

    def _leave_places(self, edge: int, ends, a: Ints, scale: float, shape) -> Ints:
        """Add a variable for what leaves each place: no less than needed, no more than is there."""
        (left, from_), (right, to) = ends
        count = len(a)
        w = self.variables + np.arange(count)
        least = self.less_rows + np.arange(count)
        most = least + count
        self.variables += count
        self.less_rows += 2 * count
        at = np.searchsorted(a, from_)
        self.less.add(least[at], left, 1.0)
        self.less.add(most[at], left, -1.0)
        shared = np.isin(to, a)
        self.less.add(least[np.searchsorted(a, to[shared])], right[shared], -1.0)
        self.less_w.add(least, w, 1.0)
        self.less_w.add(most, w, -1.0)
        self._price(edge, 0, w, a, scale, shape)
        return w

    def _leave(self, row: int, came: Ints) -> int:
        """Add a variable for what leaves a node at one price; no more than came there at it."""
        w, bound = np.array([self.variables]), self.less_rows
        self.variables += 1
        self.less_rows += 1
        self.less_w.add(row, w, 1.0)
        self.less_w.add(bound, w, -1.0)
        self.less_w.add(bound, came, 1.0)
        return int(w[0])

    def _price(self, edge: int, level: int, w: Ints, a: Ints, scale: float, shape) -> None:
        """Add to each variable what it costs more than was paid for the levels below."""
        hier, which = shape
        w, first = np.unique(w, return_index=True)
        places = a[first]
        for (_, over_w), k in zip(self.terms, which, strict=True):
            if level < len(hier.nodes) - 1:
                out = hier.inside[k, level + 1, places]
            elif _is_flat(hier):
                out = hier.across[k].min(1)[hier.row_class[places]]
            else:
                out = 0.0
            over_w.add(edge, w, scale * (out - hier.inside[k, level, places]))

    def _across(self, edge: int, tail, head: tuple[Ints, Ints], scale: float, shape) -> None:
        """Price the way from the classes that left the coarsest nodes to those that they go to."""
        hier, which = shape
        right, to = head
        targets = np.unique(hier.column_class[to])
        into = {int(c): self.less_rows + k for k, c in enumerate(targets)}
        self.less_rows += len(targets)
        for c, row in into.items():
            self.less.add(row, right[hier.column_class[to] == c], -1.0)
        places, below = tail
        for w, first in zip(*np.unique(below, return_index=True), strict=True):
            place = places[first]
            finite = np.isfinite(hier.across[:, hier.row_class[place]]).all(0)
            self.equal_w.add(self.equal_rows, np.array([w]), -1.0)
            for c in targets[finite[targets]]:
                y = np.array([self.variables])
                self.variables += 1
                self.equal_w.add(self.equal_rows, y, 1.0)
                self.less_w.add(into[int(c)], y, -1.0)
                for (_, over_w), k in zip(self.terms, which, strict=True):
                    over_w.add(edge, y, scale * hier.across[k, hier.row_class[place], c])
            self.equal_rows += 1


def _is_flat(hier: Hierarchy) -> bool:
    """Return whether leaving the coarsest node costs the same everywhere, and the most."""
    out = _leaving_top(hier)
    return out is not None and bool((out >= hier.inside[:, -1]).all())
