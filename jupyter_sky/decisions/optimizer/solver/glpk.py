"""GLPK for CVXPY, through swiglpk: `problem.solve(solver=glpk_solver(), tm_lim=5000)`.

CVXPY itself reaches GLPK only through cvxopt, without a time limit that leaves a plan, a bound or
a warm start. Here the loaded problem stays between solves of one CVXPY problem, so that after a
change of bounds or costs the dual simplex goes on from the last basis.

swiglpk is GPL-3: what imports it is under that licence as a whole. Without it HiGHS does all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _


def is_installed() -> bool:
    """Return whether swiglpk is there, without importing it."""
    from importlib.util import find_spec

    return find_spec("swiglpk") is not None


def check_installed() -> None:
    """Raise SkyUsageError without swiglpk."""
    if not is_installed():
        raise SkyUsageError(
            _("GLPK was asked for, but swiglpk is not installed"),
            hint=_("pip install swiglpk (GPL-3), or leave the choice to solver='auto'"),
        )


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
    check_installed()
    from jupyter_sky.decisions.optimizer.solver.glpk_cvxpy import SwiGLPK

    return SwiGLPK()
