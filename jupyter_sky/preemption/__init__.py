"""Lifetimes of spot machines, and decisions that follow from them.

Lifetimes that were observed become a model; a model says what a job will take and cost, on which
machines to run it and when to save its state::

    seen = preemption.google_2019()
    model = preemption.fit("floor-hyperbolic", seen)
    model.expected_lifetime(), model.survival(4.0)
    preemption.turnaround(model, work=4.0, nodes=2).hours
    preemption.next_checkpoint(remaining=3.2, age=5.0, cost=1 / 60, model=model)
    print(preemption.select_server(offers, 64, run_hours=1.5))

All times are hours, all prices USD. Everything is a pure function of its inputs and a seed, but
`current`, which reads the tracker and the catalog. The starting point is the paper *SciSpot:
Scientific Computing On Transient Cloud Servers*; where its formulas do not hold, both its form and
the right one are here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bags import Bag, Event, Fleet, Outcome, Policy, never
    from .checkpoints import best_interval, evaluate, next_checkpoint, plan_checkpoints, young_daly
    from .estimation import MODELS, Interval, bootstrap, fit, fit_least_squares, fit_proportional
    from .kaplan_meier import KaplanMeier
    from .lifetimes import Lifetimes, google_2019
    from .mean_lifetime import expected_lifetime
    from .models import Exponential, FloorHyperbolic, Model, Scaled, Weibull
    from .priors import Beliefs, Posterior, current, posterior
    from .proportional_hazards import Proportional
    from .recomputation import Lives, checkpointed, expected_runs
    from .reference_model import reference
    from .renewals import (
        Turnaround,
        fresh_turnaround,
        paper_turnaround,
        preemption_chance_paper,
        turnaround,
    )
    from .schedules import Schedule
    from .scispot_model import Constrained, NormalisedConstrained
    from .servers import (
        FORMULAS,
        Choice,
        Expectation,
        Shape,
        cluster_shapes,
        expected_cost,
        select_server,
    )
    from .simulator import average, simulate, simulate_turnaround

_NAMES = {
    "reference_model": "reference",
    "bags": "Bag Event Fleet Outcome Policy never",
    "checkpoints": "best_interval evaluate next_checkpoint plan_checkpoints young_daly",
    "scispot_model": "Constrained NormalisedConstrained",
    "kaplan_meier": "KaplanMeier",
    "mean_lifetime": "expected_lifetime",
    "estimation": "Interval MODELS bootstrap fit fit_least_squares fit_proportional",
    "lifetimes": "Lifetimes google_2019",
    "models": "Exponential FloorHyperbolic Model Scaled Weibull",
    "priors": "Beliefs Posterior current posterior",
    "proportional_hazards": "Proportional",
    "recomputation": "Lives checkpointed expected_runs",
    "renewals": "Turnaround fresh_turnaround paper_turnaround preemption_chance_paper turnaround",
    "schedules": "Schedule",
    "servers": "Choice Expectation FORMULAS Shape cluster_shapes expected_cost select_server",
    "simulator": "average simulate simulate_turnaround",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [
    "FORMULAS",
    "MODELS",
    "Bag",
    "Beliefs",
    "Choice",
    "Constrained",
    "Event",
    "Expectation",
    "Exponential",
    "Fleet",
    "FloorHyperbolic",
    "Interval",
    "KaplanMeier",
    "Lifetimes",
    "Lives",
    "Model",
    "NormalisedConstrained",
    "Outcome",
    "Policy",
    "Posterior",
    "Proportional",
    "Scaled",
    "Schedule",
    "Shape",
    "Turnaround",
    "Weibull",
    "average",
    "best_interval",
    "bootstrap",
    "checkpointed",
    "cluster_shapes",
    "current",
    "evaluate",
    "expected_cost",
    "expected_lifetime",
    "expected_runs",
    "fit",
    "fit_least_squares",
    "fit_proportional",
    "fresh_turnaround",
    "google_2019",
    "never",
    "next_checkpoint",
    "paper_turnaround",
    "plan_checkpoints",
    "posterior",
    "preemption_chance_paper",
    "reference",
    "select_server",
    "simulate",
    "simulate_turnaround",
    "turnaround",
    "young_daly",
]


def __getattr__(name: str) -> Any:
    # a plan needs priors alone
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
