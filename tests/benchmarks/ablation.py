"""Solver without one of its reductions, bounds or heuristics, to measure what each is worth.

Answers stay the same without any of them, only later: the model of record decides what is left.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np

SOLVER = "jupyter_sky.decisions.optimizer.solver"


def _nothing(*_args: Any, **_options: Any) -> None:
    return None


def _no_plans(*_args: Any, **_options: Any) -> tuple:
    return ()


def _all_places(problem: Any) -> Any:
    return np.arange(problem.unary.shape[1])


def _same_labels(_problem: Any, _objective: Any, kept: Any) -> list:
    return list(kept)


def _same_bound(_work: Any, _search: Any, rise: Any, low: float) -> tuple:
    return low, rise


def _always_pairs(*_args: Any) -> float:
    return float("inf")


def _tree_or_pairs(rows: Any, shape: Any, tails: Any, heads: Any) -> float:
    return rows._nodes(shape, tails, heads).size if hasattr(shape, "member") else float("inf")


def _no_order(_search: Any) -> Any:
    order = import_module(f"{SOLVER}.additive_solver").EliminationOrder
    return order((), float("inf"), float("inf"))


# name: module, attribute, and what stands in its place
PARTS: dict[str, tuple[str, str, Callable]] = {
    "dominance": ("additive_solver", "find_undominated", _all_places),
    "elimination": ("additive_solver", "AdditiveSearch.find_order", _no_order),
    "shrinking": ("additive_solver", "AdditiveSearch._shrink", _nothing),
    "descent": ("dual_bound", "DualBound.descend", _nothing),
    "pareto": ("bounds", "pareto_labels", _same_labels),
    "quick_plans": ("bounds", "DeadlineSearch._try_quick_plans", _no_plans),
    "sum_bound": ("bounds", "DeadlineSearch._bound_sum", _nothing),
    "place_plans": ("bounds", "DeadlineSearch._try_places", _nothing),
    "price_tree": ("model", "find_price_tree", _nothing),
    "price_levels": ("model", "TransferRows._size", _tree_or_pairs),
    "price_structure": ("model", "TransferRows._size", _always_pairs),
    "label_filter": ("bounds", "DeadlineSearch._filter_labels", _nothing),
    "lagrangian": ("bounds", "priced_plans", _no_plans),
    "time_expansion": ("solve", "bound_over_times", _same_bound),
    "fork_join": ("bounds", "DeadlineSearch.solve_branches", _nothing),
    "relaxation": ("solve", "solve_relaxation", _nothing),
    "neighbourhoods": ("solve", "_search_neighbourhoods", _nothing),
    "reduced_costs": ("bounds", "DeadlineSearch.drop_labels", _nothing),
}


@contextmanager
def without(name: str | None) -> Iterator[None]:
    """Take one part out of the solver; nothing for None.

    Parameters
    ----------
    name : str, optional
        A key of `PARTS`.
    """
    if name is None:
        yield
        return
    if name not in PARTS:
        raise SystemExit(f"no part {name!r}; known: {', '.join(PARTS)}")
    module, attribute, replacement = PARTS[name]
    target = import_module(f"{SOLVER}.{module}")
    *owner, last = attribute.split(".")
    for key in owner:
        target = getattr(target, key)
    with patch.object(target, last, replacement):
        yield
