"""Searches of the CloudBandit paper that take hours, run once and kept in a data file.

    python tests/benchmarks/run.py search_tables --minutes 60

goes on with `notebooks/data/mocca/searches.json` where it ended before, until the time is up:
another seed of each method on each workload, in both readings, and of each setting of appendix D.
`notebooks/search.ipynb` shows what the file holds, with the number of searches behind each figure.
`python tests/benchmarks/run.py search_tables` alone adds nothing and prints the figures.

Figures: `<reading>_<target>_<method>_regret_<budget>` and `_search_<budget>` in percent, means over
workloads; `_n` searches. Methods: `x` alone over all providers, `x_cb` in CloudBandit that starts
anew in each round (the paper's main text), `x_cb_on` that goes on (its appendix B).
"""

from __future__ import annotations

import datetime
import json
import os
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices: threads only get in the way

import mocca
import numpy as np

from jupyter_sky.errors import SkyUsageError
from jupyter_sky.search import CloudBandit, Optimizer, method, total_budget

FOLDER = Path(__file__).parents[2] / "notebooks" / "data" / "mocca"
FILE = FOLDER / "searches.json"
COMMAND = "python tests/benchmarks/run.py search_tables --minutes N"
BUDGETS = (11, 22, 33, 44, 55, 66, 77, 88)
TUNED_BUDGET = 33
SEEDS = 50
"""Of each method on each workload, as many as the paper has."""
TESTED = (  # of the paper's Table 8
    "buzz-polynomial_features buzz-spectral_clustering buzz-xgboost creditcard-naive_bayes "
    "creditcard-standard_scaler santander-kmeans santander-linear_regression "
    "santander-poisson_regression santander-quantile_transformer santander-xgboost"
).split()

BOTH: tuple[mocca.Target, ...] = ("cost", "time")

Make = Callable[[mocca.Workload, int, list[int], mocca.Target], Optimizer]


def bandit(component: str, **options: Any) -> Make:
    """Return a maker of CloudBandits."""
    return lambda one, budget, seed, target: CloudBandit.for_budget(
        one.space, budget, component, seed=seed, **options
    )


def whole(name: str, **options: Any) -> Make:
    """Return a maker of a method of `jupyter_sky.search.METHODS`."""
    return lambda one, budget, seed, target: method(
        name, one.space, budget, seed=seed, minimize=target, **options
    )


NESTED = {  # one search is read at all budgets: these do not plan with them
    "random": whole("random-repeats"),
    "once": whole("random"),
    "exhaustive": whole("exhaustive"),
    "cheapest": whole("cheapest"),
    "rbf": whole("rbf"),
    "ours": whole("auto"),
    "rbfopt": whole("rbfopt"),
    "gp": whole("bo-gp", starts=10),
    "rf": whole("bo-rf"),
    "smac": whole("smac"),
}
ANEW = {"mode": "intermittent"}
PLANNED = {
    "random_cb": bandit("random-repeats"),
    "once_cb": bandit("random"),
    "once_sh": whole("successive-halving", component="random"),
    "once_drop2": bandit("random", drop=2),
    "rbf_cb": bandit("rbf", **ANEW),
    "rbf_cb_on": bandit("rbf"),
    "rbf_sh": whole("successive-halving", component="rbf"),
    "rbf_drop2": bandit("rbf", drop=2),
    "rb": whole("rising-bandits", component="rbf"),
    "rm": whole("independent", component="rbf"),
    "rbfopt_cb": bandit("rbfopt", **ANEW),
    "rbfopt_cb_on": bandit("rbfopt"),
    "rbfopt_two": bandit("rbfopt", keep=2, eta=4, **ANEW),
    "rbfopt_rm": whole("independent", component="rbfopt"),
    "gp_cb": bandit("bo-gp", starts=10, **ANEW),
    "gp_cb_on": bandit("bo-gp", starts=10),
    "rf_cb": bandit("bo-rf", **ANEW),
    "rf_cb_on": bandit("bo-rf"),
    "rf_rb": whole("rising-bandits", component="bo-rf"),
}
SLOW = ("rbfopt", "rf", "gp", "smac")
"""Begins of the names of methods that take seconds for each search, the slowest last."""
CHOICES = {  # the paper's Table 9, in our words; 18 settings of each
    "CB": {
        "b1": [1, 2, 3],
        "rbf": ["cubic", "linear", "gaussian"],
        "algorithm": ["Gutmann", "MSRSM"],
    },
    "SMAC": {
        "facade": ["hpo", "ac"],
        "challengers": [50, 500, 5000],
        "random": [0.1, 0.5, 0.9],
    },
    "RB": {
        "component": ["bo-rf", "bo-gp"],
        "starts": [2, 5, 10],
        "acquisition": ["LCB", "PI", "EI"],
    },
}
DEFAULTS = {
    "CB": {"b1": 3, "rbf": "auto", "algorithm": "MSRSM"},
    "SMAC": {"facade": "hpo", "challengers": 5000, "random": 0.2},
    "RB": {"component": "bo-rf", "starts": 3, "acquisition": "EI"},
}


def tuned(name: str, given: dict[str, Any]) -> Make:
    """Return the maker of an algorithm of appendix D with some hyperparameters."""
    options = dict(given)
    if name == "CB":  # the growth follows from the budget: b1 (3 + 2 eta + eta²) = 33
        b1 = options.pop("b1")
        eta = float(np.sqrt(TUNED_BUDGET / b1 - 2)) - 1
        spare = TUNED_BUDGET - total_budget(3, b1, eta)
        return lambda one, budget, seed, target: CloudBandit(
            one.space, "rbfopt", b1=b1, eta=eta, spare=spare, seed=seed, **ANEW, **options
        )
    return whole("smac" if name == "SMAC" else "rising-bandits", **options)


def settings(name: str) -> list[dict[str, Any]]:
    """Return the settings of an algorithm: its defaults, then its grid."""
    choices = CHOICES[name]
    return [
        DEFAULTS[name],
        *(dict(zip(choices, each, strict=True)) for each in product(*choices.values())),
    ]


@dataclass(frozen=True, slots=True)
class Unit:
    """Searches that are run and kept together: of a method on a workload, with one seed.

    Attributes
    ----------
    table : str
        ``paper`` or ``strict``, the reading, or ``tuning``.
    target, method, workload : str
    number : int
        Of the seed.
    """

    table: str
    target: mocca.Target
    method: str
    workload: str
    number: int

    @property
    def key(self) -> str:
        """Name in the file, without workload and number."""
        return f"{self.table}/{self.target}/{self.method}"


def units(workloads: list[mocca.Workload], number: int) -> Iterator[Unit]:
    """Yield what is run with a seed, in the order of what it tells for its time.

    First the quick methods on all workloads; then RBFOpt; the others and the settings on every
    fifth workload, then on the next ones.
    """
    by_pace = [[n for n in (*NESTED, *PLANNED) if _slowness(n) == pace] for pace in range(5)]
    quick, rbfopt, slow = by_pace[0], by_pace[1], [*by_pace[2], *by_pace[3], *by_pace[4]]
    parts = [workloads[start::5] for start in range(5)]
    everything = [one for part in parts for one in part]
    stages = [("paper", quick, everything), ("strict", quick, everything)]
    stages += [("paper", rbfopt, part) for part in parts]
    for part in parts:
        stages += [("paper", slow, part), ("tuning", [], part), ("strict", rbfopt, part)]
    stages += [("strict", slow, part) for part in parts]
    for table, names, over in stages:
        if table == "tuning":
            yield from _tuning_units(over, number)
            continue
        for name, one, target in product(names, over, BOTH):
            if table == "paper" or one.succeeds:
                yield Unit(table, target, name, one.name, number)


def _tuning_units(workloads: list[mocca.Workload], number: int) -> Iterator[Unit]:
    for name in CHOICES:
        for given, one, target in product(settings(name), workloads, BOTH):
            yield Unit("tuning", target, f"{name} {json.dumps(given)}", one.name, number)


def _slowness(name: str) -> int:
    found = [place for place, begin in enumerate(SLOW, 1) if name.startswith(begin)]
    return found[0] if found else 0


def measure(unit: Unit, workload: mocca.Workload) -> list[list[float]]:
    """Run the searches of a unit; return for each budget regret, spent, and the two options."""
    reading: mocca.Reading = "strict" if unit.table == "strict" else "paper"

    def seed(budget: int) -> list[int]:
        return [zlib.crc32(f"{unit.workload} {unit.target} {unit.method}".encode()), unit.number]

    if unit.table == "tuning":
        name, __, given = unit.method.partition(" ")
        made = tuned(name, json.loads(given))(workload, TUNED_BUDGET, seed(0), unit.target)
        both = mocca.replay(made, workload, unit.target, reading, TUNED_BUDGET)
        return [[float(one[-1]) for one in both]]
    if unit.method in NESTED:
        made = NESTED[unit.method](workload, max(BUDGETS), seed(0), unit.target)
        both = mocca.replay(made, workload, unit.target, reading, max(BUDGETS))
        return [[float(one[budget - 1]) for one in both] for budget in BUDGETS]
    rows = []
    for budget in BUDGETS:
        made = PLANNED[unit.method](workload, budget, [*seed(budget), budget], unit.target)
        both = mocca.replay(made, workload, unit.target, reading, budget)
        row = [float(one[-1]) for one in both]
        if isinstance(made, CloudBandit):
            row += two_options(made, workload, workload.results(unit.target, reading))
        rows.append(row)
    return rows


def two_options(
    made: CloudBandit, workload: mocca.Workload, results: np.ndarray
) -> tuple[float, float]:
    """Return the regrets of the two candidates of appendix E; NaN where one has no success."""
    two = sorted(made.ranking[:2], key=lambda row: row[2])
    best = float(np.nanmin(results))
    winner = workload.space[int(np.nanargmin(results))].arm
    least = [
        float(np.nanmin(results[workload.space.members(arm)]))
        for arm in workload.space.arms
        if arm != winner and np.isfinite(results[workload.space.members(arm)]).any()
    ]
    second = 100 * max(0.0, two[1][2] / min(least) - 1) if least else np.nan
    found = 100 * (two[0][2] / best - 1), second
    return tuple(each if np.isfinite(each) else np.nan for each in found)  # type: ignore[return-value]


# -- the file -------------------------------------------------------------------------------------


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


def extend(minutes: float, path: Path = FILE) -> None:
    """Run searches that the file does not hold yet until the time is up, and write it."""
    workloads = mocca.load(FOLDER)
    by_name = {one.name: one for one in workloads}
    kept, end = read(path), time.monotonic() + 60 * minutes
    saved, missing = time.monotonic(), set[str]()
    for unit in (unit for number in range(SEEDS) for unit in units(workloads, number)):
        if time.monotonic() > end:
            break
        runs = kept["runs"].setdefault(unit.key, {}).setdefault(unit.workload, [])
        if len(runs) > unit.number or unit.key in missing:
            continue
        try:
            rows = measure(unit, by_name[unit.workload])
        except SkyUsageError as error:  # a library that is not installed
            print(f"{unit.key}: {error}", flush=True)
            missing.add(unit.key)
            continue
        runs.append([[round(value, 2) for value in row] for row in rows])
        if time.monotonic() - saved > 30:
            saved = time.monotonic()
            _save(kept, path)
            print(f"{unit}", flush=True)
    _save(kept, path)


def _save(kept: dict[str, Any], path: Path) -> None:
    kept["runs"] = {
        key: {name: runs for name, runs in found.items() if runs}
        for key, found in kept["runs"].items()
        if any(found.values())
    }
    kept |= {
        "command": COMMAND,
        "date": datetime.date.today().isoformat(),
        "budgets": list(BUDGETS),
        "columns": ["regret %", "search cost %", "option 1 %", "option 2 %"],
        "versions": {name: _version(name) for name in ("rbfopt", "smac", "scikit-learn")},
    }
    write(kept, path)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


# -- tables ---------------------------------------------------------------------------------------


def means(kept: dict[str, Any], key: str) -> dict[str, np.ndarray]:
    """Return by workload the mean rows over seeds: budgets by columns."""
    found = kept["runs"].get(key, {})
    return {name: np.nanmean(np.array(runs, float), axis=0) for name, runs in found.items()}


def column(kept: dict[str, Any], key: str, place: int = 0) -> tuple[np.ndarray, int]:
    """Return the mean over workloads at each budget, and the number of searches behind it."""
    by_workload = means(kept, key)
    if not by_workload:
        return np.full(len(BUDGETS), np.nan), 0
    count = sum(len(runs) for runs in kept["runs"][key].values())
    rows = [rows[:, place] for rows in by_workload.values() if rows.shape[1] > place]
    return (np.nanmean(rows, axis=0) if rows else np.full(len(BUDGETS), np.nan)), count


def figures(kept: dict[str, Any]) -> dict[str, float]:
    """Return the figures of all methods that have been run on every workload."""
    found: dict[str, float] = {}
    for key in kept["runs"]:
        if key.startswith("tuning/"):
            continue
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


def tuning(kept: dict[str, Any], target: str, name: str) -> dict[str, Any] | None:
    """Return Table 7's row of an algorithm: regret of its defaults and of its best setting.

    Only settings that were run on every workload are compared; None without the defaults.
    """
    by_setting: dict[str, dict[str, float]] = defaultdict(dict)
    for key in kept["runs"]:
        table, of, words = key.split("/", 2)
        if table == "tuning" and of == target and words.startswith(f"{name} "):
            by_setting[words.partition(" ")[2]] = {
                workload: float(rows[0, 0]) for workload, rows in means(kept, key).items()
            }
    default = by_setting.get(json.dumps(DEFAULTS[name]))
    if not default:
        return None
    whole_ones = {s: v for s, v in by_setting.items() if set(v) == set(default)}
    tune, test = split(sorted(default))

    def mean(values: dict[str, float], over: list[str]) -> float:
        return float(np.mean([values[each] for each in over])) if over else float("nan")

    best = min(whole_ones, key=lambda each: mean(whole_ones[each], tune))
    return {
        "best": json.loads(best),
        "settings": len(whole_ones),
        "workloads": (len(tune), len(test)),
        "val": (mean(whole_ones[best], tune), mean(default, tune)),
        "test": (mean(whole_ones[best], test), mean(default, test)),
        "by workload": {each: whole_ones[best][each] for each in test},
    }


def main(quick: bool = False, minutes: float = 0) -> dict[str, float]:
    if quick:
        workload = mocca.load(FOLDER)[0]
        chosen = [
            u for u in units([workload], 0) if u.method in ("rbf_cb", "once_sh", "exhaustive")
        ]
        runs: dict[str, Any] = defaultdict(dict)
        for unit in chosen:
            runs[unit.key][unit.workload] = [measure(unit, workload)]
        return figures({"runs": runs})
    if minutes:
        extend(minutes)
    return figures(read())
