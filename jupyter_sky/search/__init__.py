"""Search for the best configuration: CloudBandit, models that know of providers, baselines.

Pure functions of what was tried and of a seed: nothing is launched here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bandit import CloudBandit, first_budget, round_arms, round_budgets, total_budget
    from .baselines import Independent, RisingBandits, SuccessiveHalving
    from .components import (
        COMPONENTS,
        RBF,
        BayesianForest,
        BayesianGP,
        Cheapest,
        Exhaustive,
        RandomSearch,
        RandomWithRepeats,
        component,
    )
    from .gaussian_process import FlatGP
    from .measurement import Measurement
    from .methods import METHODS, method
    from .offers import on_sale
    from .optimizer import STATISTICS, Optimizer, Remembering
    from .rbfopt import RBFOpt
    from .result import SearchResult, Try
    from .runner import Search, Stop
    from .smac import SMAC
    from .space import Point, Space
    from .tpe import TPE
    from .transfer import Transfer

_NAMES = {
    "bandit": "CloudBandit first_budget round_arms round_budgets total_budget",
    "baselines": "Independent RisingBandits SuccessiveHalving",
    "components": (
        "COMPONENTS RBF BayesianForest BayesianGP Cheapest Exhaustive RandomSearch "
        "RandomWithRepeats component"
    ),
    "gaussian_process": "FlatGP",
    "measurement": "Measurement",
    "methods": "METHODS method",
    "offers": "on_sale",
    "optimizer": "STATISTICS Optimizer Remembering",
    "result": "SearchResult Try",
    "rbfopt": "RBFOpt",
    "runner": "Search Stop",
    "smac": "SMAC",
    "space": "Point Space",
    "tpe": "TPE",
    "transfer": "Transfer",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [
    "COMPONENTS",
    "METHODS",
    "RBF",
    "SMAC",
    "STATISTICS",
    "TPE",
    "BayesianForest",
    "BayesianGP",
    "Cheapest",
    "CloudBandit",
    "Exhaustive",
    "FlatGP",
    "Independent",
    "Measurement",
    "Optimizer",
    "Point",
    "RBFOpt",
    "RandomSearch",
    "RandomWithRepeats",
    "Remembering",
    "RisingBandits",
    "Search",
    "SearchResult",
    "Space",
    "Stop",
    "SuccessiveHalving",
    "Transfer",
    "Try",
    "component",
    "first_budget",
    "method",
    "on_sale",
    "round_arms",
    "round_budgets",
    "total_budget",
]


def __getattr__(name: str) -> Any:
    # numpy is for those who search: loading the extension must not cost it
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
