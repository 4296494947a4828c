"""Graph and objective of a call of `plan`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.dag.dag import Dag, Graph, Task, TaskSpec
from jupyter_sky.base.requests.quantities import format_duration, parse_duration, parse_usd
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.solver.problem import Objective

_KINDS = ("cost", "time", "time_then_cost", "carbon")
OBJECTIVE_WEIGHTS = {"usd": "usd_weight", "hours": "hour_weight", "grams": "gram_weight"}

OBJECTIVE_SETTINGS = frozenset(
    {"minimize", "deadline", "budget", "carbon_cap", "constraints", "recompute"}
)
"""Settings of `plan` that say which plan is the best one."""
MARKET_SETTINGS = frozenset({"catalog", "offers", "own", "warm"})
"""Settings of `plan` that say what can be had."""
SETTINGS = (
    OBJECTIVE_SETTINGS
    | MARKET_SETTINGS
    | {"solver", "presolve", "time_limit", "gap", "tracked", "inputs", "begun"}
)


def parse_request(
    what: Any, settings: Mapping[str, Any]
) -> tuple[Resources | None, dict[str, Any]]:
    """Return the single request given to `plan`, if it is one, and the settings without it.

    Examples
    --------
    >>> parse_request(None, {"cpus": "4", "deadline": "3h"})[1]
    {'deadline': '3h'}
    """
    limits = {key: value for key, value in settings.items() if key in SETTINGS}
    labels = {key: value for key, value in settings.items() if key not in SETTINGS}
    if isinstance(what, Mapping) and not labels:
        return Resources.parse(**what), limits
    if isinstance(what, Resources) and not labels:
        return what, limits
    if what is None and labels:
        return Resources.parse(**labels), limits
    return None, dict(settings)


def build_graph(what: Any, labels: Mapping[str, Any]) -> Graph:
    """Return the graph of what was given to `plan`."""
    if isinstance(what, Mapping):
        what = Resources.parse(**what)
    if what is None or (isinstance(what, Resources) and not labels):
        need = Resources.parse(**labels) if what is None else what
        if what is None and not labels:
            raise SkyUsageError(
                _("what is to be planned?"), hint=_('a Dag, or a request: sky.plan(gpus="A100:8")')
            )
        return Graph(need.command_line(), (TaskSpec("task", (need,)),))
    if labels:
        raise SkyUsageError(
            _("plan() has no {labels}").format(labels=", ".join(labels)),
            hint=_("labels belong to a task: set_resources(...)"),
        )
    if isinstance(what, Task):
        if what.dag is not None and len(what.dag) > 1:
            raise SkyUsageError(
                _("task {name!r} is one of {dag_count} in its Dag").format(
                    name=what.name, dag_count=len(what.dag)
                ),
                hint=_("plan the Dag"),
            )
        alone = what.dag or Dag(what.name)
        alone.add(what)
        what = alone
    if isinstance(what, Dag):
        return what.freeze()
    if isinstance(what, Graph):
        return what
    raise SkyUsageError(
        _("{what!r} cannot be planned").format(what=what), hint=_("give a Dag, a Task or Resources")
    )


def build_objective(
    minimize: Any, deadline: Any = None, budget: Any = None, carbon_cap: Any = None
) -> Objective:
    """Return the objective of what was asked, as numbers.

    Examples
    --------
    >>> build_objective("cost", deadline="90m").deadline_h
    1.5
    """
    weights: dict[str, float] = {}
    if isinstance(minimize, Mapping):
        for key, value in minimize.items():
            good = isinstance(value, int | float) and 0 <= value < math.inf
            if key not in OBJECTIVE_WEIGHTS or not good:
                raise SkyUsageError(
                    _("minimize={{{key!r}: {value!r}}} is not understood").format(
                        key=key, value=value
                    ),
                    hint=_('weights from 0: {"usd": 1, "hours": 0.5, "grams": 0}'),
                )
            weights[OBJECTIVE_WEIGHTS[key]] = float(value)
        weights = dict.fromkeys(OBJECTIVE_WEIGHTS.values(), 0.0) | weights
        if not any(weights.values()):
            raise SkyUsageError(_("all weights are 0"), hint=_('such as {"usd": 1, "hours": 0.5}'))
    kind: Any = "weighted" if weights else str(minimize)
    if not weights and kind not in _KINDS:
        raise SkyUsageError(
            _("minimize={minimize!r}: not known").format(minimize=minimize),
            hint=suggest(kind, _KINDS),
        )
    hours = parse_duration(deadline, "deadline") / 3600 if isinstance(deadline, str) else deadline
    usd = parse_usd(budget, "budget") if isinstance(budget, str) else budget
    for name, value in (("deadline", hours), ("budget", usd), ("carbon_cap", carbon_cap)):
        if value is not None and not (isinstance(value, int | float) and 0 <= value < math.inf):
            raise SkyUsageError(
                _("{name}={value!r}: not a limit").format(name=name, value=value),
                hint=_("a number from 0"),
            )
    return Objective(kind, **weights, deadline_h=hours, budget_usd=usd, carbon_cap_g=carbon_cap)


def describe_objective(objective: Objective) -> str:
    """Return an objective as a sentence shows it.

    Examples
    --------
    >>> describe_objective(Objective("cost", deadline_h=3.0))
    'least cost, within 3:00:00'
    """
    words = {
        "cost": "least cost",
        "time": "least time",
        "time_then_cost": "least time, then least cost",
        "carbon": "least carbon",
        "weighted": f"least {objective.usd_weight:g} x USD + {objective.hour_weight:g} x hours"
        f" + {objective.gram_weight:g} x grams of CO2",
    }[objective.kind]
    if objective.deadline_h is not None:
        words += f", within {format_duration(round(objective.deadline_h * 3600))}"
    if objective.budget_usd is not None:
        words += f", for ${objective.budget_usd:g} at most"
    if objective.carbon_cap_g is not None:
        words += f", with {objective.carbon_cap_g:g} g of CO2 at most"
    return words
