"""Recorded measurements to search in: the benchmark MOCCA, and others written as it is.

MOCCA (Lazuka, Parnell, Anghel, Pozidis, "Search-based Methods for Multi-Cloud Configuration",
IEEE CLOUD 2022) has run times and costs of Dask workloads on 88 configurations of three providers.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.decisions.search.optimizer import Optimizer
from jupyter_sky.decisions.search.space import Point, Space, Value

Target = Literal["cost", "time"]
Reading = Literal["paper", "strict"]

FILE = "multi-cloud-configuration.csv"
_DECODED = {"family": "family", "type": "type", "vcpu": "size"}


@dataclass(frozen=True)
class Workload:
    """Measurements of one workload, over the configurations it was measured on.

    Attributes
    ----------
    name : str
        ``<data set>-<task>``.
    space : Space
        Its configurations, the providers as arms, priced in USD/h.
    seconds, usd : numpy.ndarray
        Mean over the runs of each configuration, of failed ones up to their failure.
    ok_seconds, ok_usd : numpy.ndarray
        The same of successful runs alone; NaN where there is none.
    """

    name: str
    space: Space
    seconds: np.ndarray
    usd: np.ndarray
    ok_seconds: np.ndarray
    ok_usd: np.ndarray

    def spent(self, target: Target) -> np.ndarray:
        """Return the cost of trying each configuration: USD, or seconds if the target is time."""
        return self.usd if target == "cost" else self.seconds

    def results(self, target: Target, reading: Reading) -> np.ndarray:
        """Return the value of each configuration; NaN is a failure.

        In the paper's reading the numbers of failed runs are results as any others. Only so do
        its tables come out.
        """
        if reading == "paper":
            return self.spent(target)
        return self.ok_usd if target == "cost" else self.ok_seconds

    def repriced(self, factors: dict[str, float]) -> Workload:
        """Return the workload as if each provider's prices were multiplied by a factor."""
        by = np.array([factors[point.arm] for point in self.space.points])
        points = tuple(
            Point(p.arm, p.values, None if p.price is None else p.price * factor)
            for p, factor in zip(self.space.points, by.tolist(), strict=True)
        )
        return Workload(
            self.name, Space(points), self.seconds, self.usd * by, self.ok_seconds, self.ok_usd * by
        )

    @cached_property
    def succeeds(self) -> bool:
        """Whether any run succeeded."""
        return bool(np.isfinite(self.ok_seconds).any())


def load(directory: str | Path) -> list[Workload]:
    """Read the workloads of a directory, in the order of their names.

    Parameters
    ----------
    directory
        Has ``multi-cloud-configuration.csv``, with columns ``provider``, ``workload``, ``nodes``,
        ``target_runtime`` (s), ``target_cost`` (USD), ``status`` (``ok`` or the error) and, for
        each provider, columns ``<provider>_family``, ``_type``, ``_vcpu``.

    Raises
    ------
    SkyUsageError
        When the file is missing or is not such a table.
    """
    path = Path(directory) / FILE
    if not path.is_file():
        raise SkyUsageError(f"{directory}: there is no {FILE}", hint="give the folder that has it")
    runs: dict[str, dict[tuple, list[tuple[float, float, bool]]]] = defaultdict(dict)
    with path.open(newline="", encoding="utf-8") as file:
        for line, row in enumerate(csv.DictReader(file), start=2):
            try:
                key = _configuration(row)
                run = (float(row["target_runtime"]), float(row["target_cost"]))
                runs[row["workload"]].setdefault(key, []).append((*run, row["status"] == "ok"))
            except (KeyError, TypeError, ValueError) as error:
                raise SkyUsageError(
                    f"{path}, line {line}: {error!r}", hint=f"columns are as {FILE} of MOCCA has"
                ) from None
    return [_workload(name, found) for name, found in sorted(runs.items())]


def _configuration(row: dict[str, str]) -> tuple[str, tuple[tuple[str, Value], ...]]:
    """Decode provider and values; vCPU code 0 or 1 becomes the relative size 1 or 2."""
    provider, values = row["provider"], []
    for column, name in _DECODED.items():
        text = row.get(f"{provider}_{column}")
        if text:
            code = int(float(text))
            values.append((name, 2**code if name == "size" else f"{column}{code}"))
    return provider, (*values, ("nodes", int(float(row["nodes"]))))


def _workload(name: str, found: dict[tuple, list[tuple[float, float, bool]]]) -> Workload:
    points, means = [], []
    for (provider, values), runs in sorted(found.items(), key=lambda item: repr(item[0])):
        seconds = np.array([run[0] for run in runs])
        usd = np.array([run[1] for run in runs])
        ok = np.array([run[2] for run in runs])
        price = round(float(usd.sum() / seconds.sum() * 3600), 9)  # USD/h of all nodes together
        points.append(Point(provider, dict(values), price))
        good = (seconds[ok].mean(), usd[ok].mean()) if ok.any() else (np.nan, np.nan)
        means.append((seconds.mean(), usd.mean(), *good))
    return Workload(name, Space(tuple(points)), *np.array(means).T)


def replay(
    optimizer: Optimizer, workload: Workload, target: Target, reading: Reading, budget: int
) -> tuple[np.ndarray, np.ndarray]:
    """Search in what was recorded.

    Returns
    -------
    regret, spent : numpy.ndarray
        After each evaluation up to the budget, in percent: regret of the best so far, and what the
        evaluations cost together, of what trying every configuration once costs. When the
        optimizer ends earlier its last figures are repeated.
    """
    results, costs = workload.results(target, reading), workload.spent(target)
    found, spent, best, total = [], [], np.inf, 0.0
    for _ in range(budget):
        index = optimizer.ask()
        if index is None:
            break
        value = float(results[index])
        optimizer.tell(index, None if np.isnan(value) else value)
        best, total = np.fmin(best, value), total + costs[index]
        found.append(regret(results, best))
        spent.append(100 * total / costs.sum())
    short = budget - len(found)
    return np.pad(found, (0, short), "edge"), np.pad(spent, (0, short), "edge")


def history(workloads: Iterable[Workload], reading: Reading) -> list[dict[str, float | None]]:
    """Run times of other workloads, as `jupyter_sky.decisions.search.Transfer` takes them."""
    return [
        {
            str(point): None if np.isnan(seconds) else float(seconds)
            for point, seconds in zip(
                one.space.points, one.results("time", reading).tolist(), strict=True
            )
        }
        for one in workloads
    ]


def regret(results: np.ndarray, found: float) -> float:
    """Return the excess of a value found over the best of all, in percent of the best.

    A search that found nothing is charged the worst result.
    """
    best, worst = float(np.nanmin(results)), float(np.nanmax(results))
    return 100 * ((found if found < np.inf else worst) - best) / best
