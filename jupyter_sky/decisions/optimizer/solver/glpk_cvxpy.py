"""Protocol of CVXPY's conic solvers for GLPK; `glpk.glpk_solver` imports it when it is needed."""

from __future__ import annotations

from typing import Any

import cvxpy.settings as s
import numpy as np
from cvxpy.reductions.solution import Solution, failure_solution
from cvxpy.reductions.solvers import utilities
from cvxpy.reductions.solvers.conic_solvers.conic_solver import ConicSolver

from jupyter_sky.decisions.optimizer.solver.program import Program, ProgramResult, solve_program

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
