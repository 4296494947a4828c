"""Methods of searching a whole space, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.bandit import CloudBandit
from jupyter_sky.decisions.search.baselines import Independent, RisingBandits, SuccessiveHalving
from jupyter_sky.decisions.search.components import COMPONENTS, component
from jupyter_sky.decisions.search.gaussian_process import FlatGP, Target
from jupyter_sky.decisions.search.optimizer import Optimizer, Seed, Statistic
from jupyter_sky.decisions.search.smac import SMAC
from jupyter_sky.decisions.search.space import Space
from jupyter_sky.decisions.search.transfer import Earlier, Transfer

_WHOLE_SPACE: dict[str, Callable[..., Optimizer]] = {
    "cloudbandit": CloudBandit.for_budget,
    "gp": lambda space, budget, **options: FlatGP(space, **options),
    "transfer": lambda space, budget, **options: Transfer(space, **options),
    "rising-bandits": RisingBandits,
    "successive-halving": SuccessiveHalving,
    "independent": Independent,
    "smac": lambda space, budget, **options: SMAC(space, budget=budget, **options),
}
_PRICED = ("gp", "transfer")

METHODS = ("auto", *_WHOLE_SPACE, *COMPONENTS)
"""Names that `method` knows: a component's name is that component over the whole space."""


def method(
    name: str,
    space: Space,
    budget: int,
    *,
    minimize: Target = "cost",
    history: Sequence[Earlier] = (),
    seed: Seed = 0,
    statistic: Statistic = "mean",
    **options: Any,
) -> Optimizer:
    """Make an optimizer over a space by its name.

    Parameters
    ----------
    name
        One of `METHODS`. ``auto`` is ``transfer`` when there is a history, and else ``gp``.
    budget
        Evaluations in all, for those that plan with it.
    minimize
        ``cost`` or ``time``, for those that know of prices.
    history
        Earlier workloads, see `Transfer`.
    **options
        Parameters of the method's class, as ``component="tpe"``, ``eta=4``.

    Returns
    -------
    Optimizer
        The optimizer of this method.

    Raises
    ------
    SkyUsageError
        For an unknown name or option, or a budget that is too small for the method.

    Examples
    --------
    >>> space = Space.of({"A": {"nodes": [1, 2]}, "B": {"nodes": [1, 2]}})
    >>> type(method("cloudbandit", space, 4, component="random")).__name__
    'CloudBandit'
    """
    if not isinstance(budget, int) or budget < 1:
        raise SkyUsageError(f"budget={budget!r}", hint=_("give a whole number, 1 or more"))
    if name not in METHODS:
        raise SkyUsageError(
            _("there is no method {name!r}").format(name=name), hint=suggest(name, METHODS)
        )
    if name == "auto":
        name = "transfer" if history else "gp"
    if history and name != "transfer":
        raise SkyUsageError(
            _("the method {name!r} learns nothing from a history").format(name=name),
            hint=_("leave the history out, or choose method='transfer'"),
        )
    options |= {"seed": seed, "statistic": statistic}
    if name not in _WHOLE_SPACE:
        return component(name, space, **options)
    if name in _PRICED:
        options["minimize"] = minimize
    if name == "transfer":
        options["history"] = history
    try:
        return _WHOLE_SPACE[name](space, budget, **options)
    except TypeError as error:
        raise SkyUsageError(
            _("method {name!r}: {error}").format(name=name, error=error),
            hint=_("see the parameters of its class"),
        ) from None
