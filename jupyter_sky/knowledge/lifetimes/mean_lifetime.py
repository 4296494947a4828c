"""Expected lifetime of a machine: the paper's equation (3), and the correct one."""

from __future__ import annotations

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes.models import Model
from jupyter_sky.knowledge.lifetimes.scispot_model import Constrained

_FORMULAS = ("exact", "paper")


def expected_lifetime(
    model: Model, upto: float | None = None, age: float = 0.0, formula: str = "exact"
) -> float:
    """Return the hours that a machine still lives on average.

    Parameters
    ----------
    model
        Lifetime of the machine.
    upto, age
        See `Model.expected_lifetime`.
    formula
        ``exact``: the integral of the survival, which counts machines that reach the cap with the
        cap. ``paper``: equation (3), for equation (1) as written and a new machine only; it leaves
        those out and comes out 2-3 times too short.

    Returns
    -------
    float
        Hours.

    Raises
    ------
    SkyUsageError
        When equation (3) is asked of another model, age or horizon.

    Examples
    --------
    >>> model = Constrained(0.42, 1.0, 0.8, 24.4)
    >>> [round(expected_lifetime(model, formula=which), 1) for which in ("paper", "exact")]
    [6.3, 14.1]
    """
    if formula not in _FORMULAS:
        raise SkyUsageError(f"formula={formula!r}", hint=suggest(formula, _FORMULAS))
    if formula == "exact":
        return model.expected_lifetime(upto, age)
    if not isinstance(model, Constrained) or age or upto not in (None, model.cap):
        raise SkyUsageError(
            _(
                "equation (3) holds for a new machine by equation (1) up to its cap, "
                "not for {name} at an age of {age:g} h"
            ).format(name=type(model).__name__, age=age),
            hint=_('take formula="exact"'),
        )
    return model.expected_lifetime_paper()
