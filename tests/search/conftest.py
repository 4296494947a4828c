"""Fixtures of the tests of searches."""

from __future__ import annotations

import numpy as np

from jupyter_sky.decisions.search import Optimizer


def trace(optimizer: Optimizer, values: np.ndarray, budget: int) -> list[int]:
    """Points that an optimizer asks for, one after the other; NaN is told as a failure."""
    asked = []
    for _ in range(budget):
        index = optimizer.ask()
        if index is None:
            break
        asked.append(index)
        optimizer.tell(index, None if np.isnan(values[index]) else float(values[index]))
    return asked
