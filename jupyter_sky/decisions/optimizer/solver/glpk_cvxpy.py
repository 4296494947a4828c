"""Protocol of CVXPY's conic solvers for GLPK; `glpk.glpk_solver` imports it when it is needed."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import cvxpy.settings as s
import numpy as np
from cvxpy.reductions.solution import Solution, failure_solution
from cvxpy.reductions.solvers import utilities
from cvxpy.reductions.solvers.conic_solvers.conic_solver import ConicSolver

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.solver.problem import Floats, Ints

_KEPT = "jupyter_sky.glpk"


class SwiGLPK(ConicSolver):
    """CVXPY's protocol of a conic solver; the work is in `solve_program`."""

    MIP_CAPABLE = True
    BOUNDED_VARIABLES = True
    SUPPORTED_CONSTRAINTS = ConicSolver.SUPPORTED_CONSTRAINTS
    MI_SUPPORTED_CONSTRAINTS = SUPPORTED_CONSTRAINTS

    def name(self) -> str:
        """Return a name that none of CVXPY's own solvers has."""
        return "SWIGLPK"

    def import_solver(self) -> None:
        """Import GLPK; an ImportError tells CVXPY that it is missing."""
        import swiglpk  # noqa: F401

    def cite(self, data: Any) -> str:
        """Return the reference to GLPK."""
        return "GNU Linear Programming Kit, https://www.gnu.org/software/glpk/"

    def apply(self, problem: Any) -> tuple[Any, Any]:
        """Return the matrices of a program, and the data to invert its solution."""
        data, inverse = super().apply(problem)
        data[s.BOOL_IDX] = [int(index[0]) for index in problem.x.boolean_idx]
        data[s.INT_IDX] = [int(index[0]) for index in problem.x.integer_idx]
        inverse["columns"] = len(data[s.C])
        inverse["is_mip"] = bool(data[s.BOOL_IDX] or data[s.INT_IDX])
        return data, inverse

    def solve_via_data(
        self, data: Any, warm_start: bool, verbose: bool, solver_opts: Any, solver_cache=None
    ) -> ProgramResult:
        """Solve a program, from its last basis with `warm_start`."""
        kept = solver_cache.get(_KEPT) if warm_start and solver_cache is not None else None
        answer, kept = solve_program(_program(data), dict(solver_opts), kept)
        if solver_cache is not None:
            solver_cache[_KEPT] = kept
        return answer

    def invert(self, solution: ProgramResult, inverse_data: Any) -> Any:
        """Return GLPK's answer as a solution of CVXPY."""
        extra = {"bound": solution.bound + inverse_data[s.OFFSET], "nodes": solution.nodes}
        attributes = {s.EXTRA_STATS: extra | {"proof": solution.proof}}
        if solution.x is None and solution.status == s.USER_LIMIT:
            # CVXPY takes this status for a point that exists: this one is plainly none.
            nowhere = np.full(inverse_data["columns"], np.nan)
            point = {inverse_data[self.VAR_ID]: nowhere}
            return Solution(s.USER_LIMIT, np.inf, point, None, attributes)
        if solution.x is None:
            return failure_solution(solution.status, attributes)
        duals = None
        if not inverse_data["is_mip"] and solution.duals is not None:
            duals = utilities.get_dual_values(
                -solution.duals,
                utilities.extract_dual_value,
                inverse_data[self.EQ_CONSTR] + inverse_data[self.NEQ_CONSTR],
            )
        value = solution.value + inverse_data[s.OFFSET]
        point = {inverse_data[self.VAR_ID]: solution.x}
        return Solution(solution.status, value, point, duals, attributes)


def _program(data: Any) -> Program:
    """Return CVXPY's data as a program."""
    matrix = data[s.A].tocsc()
    matrix.sum_duplicates()
    n = matrix.shape[1]
    lower, upper = data[s.LOWER_BOUNDS], data[s.UPPER_BOUNDS]
    lower = np.full(n, -np.inf) if lower is None else np.array(lower, float)
    upper = np.full(n, np.inf) if upper is None else np.array(upper, float)
    boolean = np.array(data[s.BOOL_IDX], np.int64)
    lower[boolean] = np.maximum(lower[boolean], 0)
    upper[boolean] = np.minimum(upper[boolean], 1)
    return Program(
        np.asarray(data[s.C], float).reshape(-1),
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int64),
        matrix.data,
        np.asarray(data[s.B], float).reshape(-1),
        int(data[s.DIMS].zero),
        lower,
        upper,
        np.union1d(boolean, np.array(data[s.INT_IDX], np.int64)).astype(np.int64),
    )


# -- Linear and integer programs on GLPK, checked first and silent; `glpk` has the side of --------
#
# GLPK ends the process on bad input, prints to the terminal and holds the interpreter's lock: so
# the input is checked first, nothing is printed, and Ctrl-C is looked for between slices of work.

_SLICE_MS = 200  # how long GLPK may run before Ctrl-C is looked at
_FIRST_MS = 3_000  # the same for its start with reductions, which would be lost
_INTEGRAL = 1e-7
_OPTIONS = ("tm_lim", "mip_gap", "tol_int", "tol_bnd", "tol_dj", "cuts", "presolve")
_CB_FUNC = 48  # offset of cb_func in glp_iocp, where pointers have 8 bytes


@dataclass
class Program:
    """min c x, rows A x <= b (the first `equal` of them =), lower <= x <= upper.

    Attributes
    ----------
    starts, rows, values : arrays
        A by columns (CSC).
    integer : int array
        Columns that must be whole.
    """

    c: Floats
    starts: Ints
    rows: Ints
    values: Floats
    b: Floats
    equal: int
    lower: Floats
    upper: Floats
    integer: Ints

    def check(self) -> None:
        """Raise SkyUsageError for what GLPK would end the process on, or silently take."""
        n, m = len(self.c), len(self.b)
        finite = (self.c, self.values, self.b)
        shapes = len(self.starts) == n + 1 and len(self.lower) == len(self.upper) == n
        if not shapes or not len(self.rows) == len(self.values) == self.starts[-1]:
            raise SkyUsageError(_("the arrays of the program do not fit each other"))
        if not all(np.isfinite(part).all() for part in finite):
            raise SkyUsageError(_("a cost, coefficient or right side is not a finite number"))
        if np.isnan(self.lower).any() or np.isnan(self.upper).any():
            raise SkyUsageError(_("a bound is not a number"))
        if len(self.rows) and not (self.rows.min() >= 0 and self.rows.max() < m):
            raise SkyUsageError(_("a coefficient is outside of the {m} rows").format(m=m))
        columns = np.repeat(np.arange(n), np.diff(self.starts))
        if len(np.unique(columns * max(m, 1) + self.rows)) < len(self.rows):
            raise SkyUsageError(_("two coefficients stand at one row and column"))
        if len(self.integer) and not (self.integer.min() >= 0 and self.integer.max() < n):
            raise SkyUsageError(
                _("a whole number is asked of a column outside of the {n}").format(n=n)
            )


@dataclass
class ProgramResult:
    """Answer of GLPK: status of CVXPY, point, duals of rows (LP only), bound, nodes searched."""

    status: str
    x: Floats | None = None
    value: float = float("nan")
    duals: Floats | None = None
    bound: float = float("-inf")
    nodes: int = 0
    proof: str = ""


@dataclass
class LoadedProgram:
    """A program inside GLPK, kept for the next solve."""

    handle: Any
    matrix: tuple[bytes, ...]
    solved: bool = False
    owner: Any = field(default=None, repr=False)

    def __del__(self) -> None:
        if self.owner is not None:
            self.owner.glp_delete_prob(self.handle)


def solve_program(
    program: Program, options: dict[str, Any], kept: LoadedProgram | None = None
) -> tuple[ProgramResult, LoadedProgram | None]:
    """Solve a program, from the last basis where the matrix is the same as before.

    Parameters
    ----------
    options : dict
        ``tm_lim`` (ms), ``mip_gap`` (relative), ``tol_int``, ``tol_bnd``, ``tol_dj``, ``cuts``
        (bool), ``presolve`` (bool, of the integer part).
    """
    import swiglpk as glpk

    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise SkyUsageError(
            _("GLPK has no option {unknown}").format(unknown=unknown[0]),
            hint=_("options: {options}").format(options=", ".join(_OPTIONS)),
        )
    program.check()
    if (program.lower > program.upper).any():
        return ProgramResult("infeasible", proof="bounds"), kept
    if not len(program.c):
        return _without_columns(program), kept
    glpk.glp_term_out(glpk.GLP_OFF)
    matrix = tuple(
        np.ascontiguousarray(part).tobytes()
        for part in (program.starts, program.rows, program.values, [len(program.b), program.equal])
    )
    if kept is None or kept.matrix != matrix:
        kept = LoadedProgram(_load(glpk, program), matrix, owner=glpk)
    _bound(glpk, kept.handle, program)
    end = time.monotonic() + options.get("tm_lim", 2**31 - 1) / 1000
    answer = _solve_relaxation(glpk, kept, program, options, end)
    if answer.status != "optimal" or not len(program.integer):
        return answer, kept
    assert answer.x is not None
    near = np.abs(answer.x[program.integer] - np.round(answer.x[program.integer]))
    if near.max(initial=0) <= _INTEGRAL:
        answer.proof = "lp"
        return answer, kept
    return _branch_and_cut(glpk, kept, program, options, end, answer), kept


def _without_columns(program: Program) -> ProgramResult:
    ok = (np.abs(program.b[: program.equal]) <= 1e-9).all() and (
        program.b[program.equal :] >= -1e-9
    ).all()
    return (
        ProgramResult("optimal", np.empty(0), 0.0, bound=0.0) if ok else ProgramResult("infeasible")
    )


def _load(glpk: Any, program: Program) -> Any:
    problem = glpk.glp_create_prob()
    n, m = len(program.c), len(program.b)
    if m:
        glpk.glp_add_rows(problem, m)
    glpk.glp_add_cols(problem, n)
    columns = np.repeat(np.arange(n), np.diff(program.starts))
    index = [_array(glpk.intArray, part + 1, np.int32) for part in (program.rows, columns)]
    values = _array(glpk.doubleArray, program.values, np.float64)
    glpk.glp_load_matrix(problem, len(program.values), *index, values)
    for j in program.integer.tolist():
        glpk.glp_set_col_kind(problem, j + 1, glpk.GLP_IV)
    return problem


def _array(kind: Any, values: Any, dtype: Any) -> Any:
    """Return an array of GLPK, which counts from 1; a block is copied 100x faster."""
    data = np.ascontiguousarray(values, dtype)
    made = kind(len(data) + 1)
    ctypes.memmove(int(made.this) + data.itemsize, data.ctypes.data, data.nbytes)
    return made


def _bound(glpk: Any, problem: Any, program: Program) -> None:
    for i, b in enumerate(program.b.tolist(), 1):
        kind = glpk.GLP_FX if i <= program.equal else glpk.GLP_UP
        glpk.glp_set_row_bnds(problem, i, kind, b, b)
    for j, (low, high, cost) in enumerate(
        zip(program.lower.tolist(), program.upper.tolist(), program.c.tolist(), strict=True), 1
    ):
        if low == high:
            kind = glpk.GLP_FX
        elif low == -np.inf:
            kind = glpk.GLP_FR if high == np.inf else glpk.GLP_UP
        else:
            kind = glpk.GLP_LO if high == np.inf else glpk.GLP_DB
        glpk.glp_set_col_bnds(problem, j, kind, low, high)
        glpk.glp_set_obj_coef(problem, j, cost)


def _solve_relaxation(
    glpk: Any, kept: LoadedProgram, program: Program, options: dict, end: float
) -> ProgramResult:
    """Solve the program without the demand for whole numbers."""
    problem, control = kept.handle, glpk.glp_smcp()
    glpk.glp_init_smcp(control)
    control.msg_lev = glpk.GLP_MSG_OFF
    control.tol_bnd = options.get("tol_bnd", 1e-7)
    control.tol_dj = options.get("tol_dj", 1e-7)
    code = (
        _solve_from_basis(glpk, problem, control, end)
        if kept.solved
        else _solve_from_scratch(glpk, problem, control, end)
    )
    if code not in (0, glpk.GLP_ETMLIM, glpk.GLP_ENOPFS, glpk.GLP_ENODFS):
        glpk.glp_std_basis(problem)  # a basis of before can be singular now
        code = _solve_from_basis(glpk, problem, control, end)
    if code in (glpk.GLP_ENOPFS, glpk.GLP_ENODFS):
        kept.solved = False
        return ProgramResult("infeasible" if code == glpk.GLP_ENOPFS else "unbounded", proof="lp")
    kept.solved = code == 0
    status = glpk.glp_get_status(problem)
    if code == glpk.GLP_ETMLIM:
        return ProgramResult("user_limit")
    if code == 0 and status == glpk.GLP_OPT:
        x = np.array([glpk.glp_get_col_prim(problem, j + 1) for j in range(len(program.c))])
        duals = np.array([glpk.glp_get_row_dual(problem, i + 1) for i in range(len(program.b))])
        value = float(program.c @ x)
        return ProgramResult("optimal", x, value, duals, bound=value, proof="lp")
    if code == 0 and status in (glpk.GLP_NOFEAS, glpk.GLP_INFEAS):
        return ProgramResult("infeasible", proof="lp")
    return ProgramResult("unbounded" if code == 0 and status == glpk.GLP_UNBND else "solver_error")


def _solve_from_scratch(glpk: Any, problem: Any, control: Any, end: float) -> int:
    """Solve from nothing: GLPK's own reductions and the primal simplex, by far the fastest."""
    glpk.glp_std_basis(problem)
    control.meth, control.presolve = glpk.GLP_PRIMAL, glpk.GLP_ON
    control.tm_lim = max(1, min(int((end - time.monotonic()) * 1000), _FIRST_MS))
    code = glpk.glp_simplex(problem, control)
    control.presolve = glpk.GLP_OFF
    if code != glpk.GLP_ETMLIM:
        return code
    glpk.glp_scale_prob(problem, glpk.GLP_SF_AUTO)
    return _run_in_slices(glpk, problem, control, end)


def _solve_from_basis(glpk: Any, problem: Any, control: Any, end: float) -> int:
    """Solve from the last basis: the dual simplex repairs what changed bounds have broken."""
    control.meth, control.presolve = glpk.GLP_DUALP, glpk.GLP_OFF
    return _run_in_slices(glpk, problem, control, end)


def _run_in_slices(glpk: Any, problem: Any, control: Any, end: float) -> int:
    """Run the simplex in slices: between two of them Python sees Ctrl-C."""
    while True:
        left = int((end - time.monotonic()) * 1000)
        if left <= 0:
            return glpk.GLP_ETMLIM
        control.tm_lim = min(left, _SLICE_MS)
        code = glpk.glp_simplex(problem, control)
        if code != glpk.GLP_ETMLIM:
            return code


def _branch_and_cut(
    glpk: Any, kept: LoadedProgram, program: Program, options: dict, end: float, root: ProgramResult
) -> ProgramResult:
    """Branch and cut from the solved relaxation."""
    problem, control = kept.handle, glpk.glp_iocp()
    glpk.glp_init_iocp(control)
    control.msg_lev = glpk.GLP_MSG_OFF
    control.tm_lim = max(1, int((end - time.monotonic()) * 1000))
    control.mip_gap = options.get("mip_gap", 0.0)
    control.tol_int = options.get("tol_int", 1e-6)
    control.br_tech, control.bt_tech = glpk.GLP_BR_PCH, glpk.GLP_BT_BLB
    cuts = glpk.GLP_ON if options.get("cuts", False) else glpk.GLP_OFF
    control.mir_cuts = control.gmi_cuts = cuts
    control.sr_heur = glpk.GLP_ON
    control.presolve = glpk.GLP_ON if options.get("presolve") else glpk.GLP_OFF
    watch = _BranchMonitor(control, root.value)
    code = glpk.glp_intopt(problem, control)
    watch.release()
    kept.solved = True
    if watch.interrupted:
        raise KeyboardInterrupt
    status = glpk.glp_mip_status(problem)
    if status == glpk.GLP_NOFEAS:
        return ProgramResult("infeasible", nodes=watch.nodes, proof="branch-and-bound")
    if status not in (glpk.GLP_OPT, glpk.GLP_FEAS):
        limits = (glpk.GLP_ETMLIM, glpk.GLP_ESTOP)
        named = "user_limit" if code in limits else "solver_error"
        return ProgramResult(named, bound=watch.bound, nodes=watch.nodes)
    x = np.array([glpk.glp_mip_col_val(problem, j + 1) for j in range(len(program.c))])
    value = float(program.c @ x)
    proven = code in (0, glpk.GLP_EMIPGAP) and status == glpk.GLP_OPT
    bound = value if code == 0 and proven and not control.mip_gap else min(watch.bound, value)
    named = "optimal" if code in (0, glpk.GLP_EMIPGAP) else "user_limit"
    return ProgramResult(named, x, value, None, bound, watch.nodes, "branch-and-bound")


class _BranchMonitor:
    """Reads the bound while GLPK branches, and stops it on Ctrl-C, where its library lets us in."""

    def __init__(self, control: Any, bound: float) -> None:
        self.bound, self.nodes, self.interrupted = bound, 0, False
        library = _library()
        self._callback = None
        if library is None:
            return

        def look(tree: int, __: Any) -> None:
            try:
                self.nodes += 1
                node = library.glp_ios_best_node(tree)
                if node:
                    self.bound = max(self.bound, library.glp_ios_node_bound(tree, node))
            except KeyboardInterrupt:
                self.interrupted = True
            if self.interrupted:
                library.glp_ios_terminate(tree)

        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        self._callback = kind(look)
        address = ctypes.cast(self._callback, ctypes.c_void_p).value
        ctypes.c_void_p.from_address(int(control.this) + _CB_FUNC).value = address

    def release(self) -> None:
        self._callback = None


@lru_cache(maxsize=1)
def _library() -> Any:
    """Return the library under swiglpk; None where its inside cannot be reached, as on Windows."""
    from swiglpk import _swiglpk  # pyright: ignore[reportAttributeAccessIssue]

    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        library = ctypes.CDLL(_swiglpk.__file__)  # type: ignore[attr-defined]
        library.glp_ios_best_node.argtypes = [ctypes.c_void_p]
        library.glp_ios_node_bound.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.glp_ios_node_bound.restype = ctypes.c_double
        library.glp_ios_terminate.argtypes = [ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return library
