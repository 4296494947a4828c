"""GLPK for CVXPY, through swiglpk: `problem.solve(solver=glpk_solver(), tm_lim=5000)`.

CVXPY itself reaches GLPK only through cvxopt, without a time limit that leaves a plan, a bound or
a warm start. Here the loaded problem stays between solves of one CVXPY problem, so that after a
change of bounds or costs the dual simplex goes on from the last basis.

swiglpk is GPL-3: what imports it is under that licence as a whole. Without it HiGHS does all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from jupyter_sky.errors import SkyUsageError
from jupyter_sky.optimizer.solver.program import Program, ProgramResult, solve_program

_KEPT = "jupyter_sky.glpk"


def is_installed() -> bool:
    """Return whether swiglpk is there, without importing it."""
    from importlib.util import find_spec

    return find_spec("swiglpk") is not None


@lru_cache(maxsize=1)
def glpk_solver() -> Any:
    """Return the solver to hand to CVXPY as `solver=`.

    Raises
    ------
    SkyUsageError
        Without swiglpk.

    Examples
    --------
    >>> import cvxpy as cp  # doctest: +SKIP
    >>> cp.Problem(cp.Minimize(x), [x >= 1]).solve(solver=glpk_solver())  # doctest: +SKIP
    1.0
    """
    if not is_installed():
        raise SkyUsageError(
            "GLPK was asked for, but swiglpk is not installed",
            hint="pip install swiglpk (GPL-3), or leave the choice to solver='auto'",
        )
    return _solver_class()()


@lru_cache(maxsize=1)
def _solver_class() -> Any:
    import cvxpy.settings as s
    from cvxpy.reductions.solution import Solution, failure_solution
    from cvxpy.reductions.solvers import utilities
    from cvxpy.reductions.solvers.conic_solvers.conic_solver import ConicSolver

    class SwiGLPK(ConicSolver):
        """CVXPY's protocol of a conic solver; the work is in `solve_program`."""

        MIP_CAPABLE = True
        BOUNDED_VARIABLES = True
        SUPPORTED_CONSTRAINTS = ConicSolver.SUPPORTED_CONSTRAINTS
        MI_SUPPORTED_CONSTRAINTS = SUPPORTED_CONSTRAINTS

        def name(self) -> str:
            return "SWIGLPK"  # none of CVXPY's own names may be taken

        def import_solver(self) -> None:
            import swiglpk  # noqa: F401

        def cite(self, data: Any) -> str:
            return "GNU Linear Programming Kit, https://www.gnu.org/software/glpk/"

        def apply(self, problem: Any) -> tuple[Any, Any]:
            data, inverse = super().apply(problem)
            data[s.BOOL_IDX] = [int(index[0]) for index in problem.x.boolean_idx]
            data[s.INT_IDX] = [int(index[0]) for index in problem.x.integer_idx]
            inverse["columns"] = len(data[s.C])
            inverse["is_mip"] = bool(data[s.BOOL_IDX] or data[s.INT_IDX])
            return data, inverse

        def solve_via_data(
            self, data: Any, warm_start: bool, verbose: bool, solver_opts: Any, solver_cache=None
        ) -> ProgramResult:
            kept = solver_cache.get(_KEPT) if warm_start and solver_cache is not None else None
            answer, kept = solve_program(_program(data), dict(solver_opts), kept)
            if solver_cache is not None:
                solver_cache[_KEPT] = kept
            return answer

        def invert(self, solution: ProgramResult, inverse_data: Any) -> Any:
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

    return SwiGLPK


def _program(data: Any) -> Program:
    """Return CVXPY's data as a program."""
    import cvxpy.settings as s

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
