"""Searches of the CloudBandit paper that were run once: their file, and means over workloads.

`search_tables` runs them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import mocca
import numpy as np

FOLDER = Path(__file__).parents[2] / "notebooks" / "data" / "mocca"
FILE = FOLDER / "searches.json"
BUDGETS = (11, 22, 33, 44, 55, 66, 77, 88)
READINGS: tuple[mocca.Reading, ...] = ("paper", "strict")
TARGETS: tuple[mocca.Target, ...] = ("cost", "time")
FEWEST = 5
"""Workloads that a method needs to be compared with others."""
TESTED = (  # of the paper's Table 8
    "buzz-polynomial_features buzz-spectral_clustering buzz-xgboost creditcard-naive_bayes "
    "creditcard-standard_scaler santander-kmeans santander-linear_regression "
    "santander-poisson_regression santander-quantile_transformer santander-xgboost"
).split()


def read(path: Path = FILE) -> dict[str, Any]:
    """Return what is kept: its date, command and versions, and the runs by method."""
    if not path.exists():
        return {"runs": {}}
    return json.loads(path.read_text(encoding="utf-8"))


def write(kept: dict[str, Any], path: Path = FILE) -> None:
    """Write the file, a line for each method."""
    head = {key: value for key, value in kept.items() if key != "runs"}
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(kept["runs"].items())]
    text = json.dumps(head)[:-1] + ', "runs": {\n' + ",\n".join(lines) + "\n}}\n"
    partial = path.with_suffix(".new")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def means(kept: dict[str, Any], key: str) -> dict[str, np.ndarray]:
    """Return by workload the mean rows over seeds: budgets by columns."""
    found = kept["runs"].get(key, {})
    return {name: _mean(np.array(runs, float)) for name, runs in found.items()}


def _mean(values: np.ndarray) -> np.ndarray:
    """Return the mean over the first axis of what is known; NaN where nothing is."""
    known = np.isfinite(values)
    total = np.where(known, values, 0.0).sum(axis=0)
    count = known.sum(axis=0)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def column(
    kept: dict[str, Any], key: str, place: int = 0, over: Collection[str] | None = None
) -> tuple[np.ndarray, int]:
    """Return the mean over workloads at each budget, and the number of searches behind it.

    Parameters
    ----------
    over
        Workloads; NaN unless all of them have been run. All that have been run unless given.
    """
    by_workload = means(kept, key)
    names = by_workload if over is None else over
    if not names or not set(names) <= set(by_workload):
        return np.full(len(BUDGETS), np.nan), 0
    count = sum(len(kept["runs"][key][name]) for name in names)
    rows = [by_workload[name] for name in names]
    if any(row.shape[1] <= place for row in rows):
        return np.full(len(BUDGETS), np.nan), count
    return _mean(np.array([row[:, place] for row in rows])), count


def common(kept: dict[str, Any], reading: str, target: str, names: Iterable[str]) -> list[str]:
    """Return the workloads that all of some methods have, but for those that have hardly begun."""
    by_method = [set(kept["runs"].get(f"{reading}/{target}/{name}", ())) for name in names]
    begun = [found for found in by_method if len(found) >= FEWEST]
    return sorted(set.intersection(*begun)) if begun else []


def figures(kept: dict[str, Any]) -> dict[str, float]:
    """Return the figures of all methods that have been run on every workload."""
    found: dict[str, float] = {}
    for reading in READINGS:
        keys = [key for key in kept["runs"] if key.startswith(f"{reading}/")]
        whole = max((len(kept["runs"][key]) for key in keys), default=0)
        for key in (key for key in keys if len(kept["runs"][key]) == whole):
            prefix = key.replace("/", "_")
            (regret, count), (spent, __) = column(kept, key), column(kept, key, 1)
            for budget, one, other in zip(BUDGETS, regret, spent, strict=True):
                found |= {
                    f"{prefix}_regret_{budget}": float(one),
                    f"{prefix}_search_{budget}": float(other),
                }
            found[f"{prefix}_n"] = float(count)
    return found


def split(names: list[str]) -> tuple[list[str], list[str]]:
    """Return workloads to tune on and to test on.

    The paper's ten are tested on where they are among the data; else every third.
    """
    test = [name for name in names if name in TESTED] or names[1::3]
    return [name for name in names if name not in test], test
