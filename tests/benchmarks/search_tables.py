"""Searches of the CloudBandit paper that take hours, run once and kept in a data file.

    python tests/benchmarks/run.py search_tables --minutes 60

goes on with `notebooks/data/mocca/searches.json` where it ended before, until the time is up:
another seed of each method on each workload, in both readings, and of each setting of appendix D;
searches run side by side, one on each processor.
`notebooks/search.ipynb` shows what the file holds, and on how many workloads. One seed of all
takes hours; `python tests/benchmarks/run.py search_tables` alone adds nothing, and prints the
figures and what is missing.

Quick methods come first, then the others on five workloads after five, so that methods can be
compared on the workloads which all of them have: `common`.

Figures, of methods that have been run on every workload: `<reading>_<target>_<method>_regret_<b>`
and `_search_<b>` after b evaluations, in percent, means over workloads; `_n` searches; `missing`
searches of the first seed. Methods: `x` alone over all providers, `x_cb` in CloudBandit that starts
anew in each round (the paper's main text), `x_cb_on` that goes on (its appendix B).
"""

from __future__ import annotations

import datetime
import json
import os
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices: threads only get in the way

import mocca
import numpy as np
from recorded_searches import (
    BUDGETS,
    FILE,
    FOLDER,
    READINGS,
    TARGETS,
    figures,
    means,
    read,
    split,
    write,
)

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.decisions.search import CloudBandit, Optimizer, method, total_budget

COMMAND = "python tests/benchmarks/run.py search_tables --minutes N"
TUNED_BUDGET = 33
SEEDS = 50
"""Of each method on each workload, as many as the paper has."""

Make = Callable[[mocca.Workload, int, list[int], mocca.Target], Optimizer]


def bandit(component: str, **options: Any) -> Make:
    """Return a maker of CloudBandits."""
    return lambda one, budget, seed, target: CloudBandit.for_budget(
        one.space, budget, component, seed=seed, **options
    )


def whole(name: str, **options: Any) -> Make:
    """Return a maker of a method of `jupyter_sky.decisions.search.METHODS`."""
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
"""Begins of the names of methods that take seconds for each search."""
FIRST = "rbfopt_cb rbfopt rf_rb smac rbfopt_rm rbfopt_two gp rf gp_cb rf_cb".split()
"""Slow methods that are run before the others."""
TABLES = {
    "1": "rbf rbf_cb_on rbfopt rbfopt_cb gp gp_cb rf rf_cb".split(),
    "2": (
        "rbfopt_cb smac rf_rb rbfopt_rm rbf_cb_on rbf_sh rbf_drop2 exhaustive ours once cheapest"
    ).split(),
    "4 and 5": "gp_cb gp_cb_on rf_cb rf_cb_on rbfopt_cb rbfopt_cb_on".split(),
    "10": "rbfopt_two rbfopt_cb".split(),
}
"""Methods that the paper's tables need, or that stand in them beside it."""
PARTS = (0, 3, 1, 2)
"""Parts of the workloads that slow methods go through one after another."""
TUNING = {"paper": "tuning", "strict": "strict-tuning"}
"""Names in the file of searches with the settings of appendix D, by reading."""
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
        ``paper`` or ``strict``, the reading, or one of `TUNING`.
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

    First the quick methods on all workloads. Then, part after part of the workloads, what the
    paper's Tables 1, 2 and 10 need, then the other methods. Last the settings of appendix D.
    """
    slow = [name for name in (*PLANNED, *NESTED) if name.startswith(SLOW)]
    first = [name for name in FIRST if name in slow]
    stages = [([name for name in (*NESTED, *PLANNED) if name not in slow], workloads)]
    parts = [workloads[start :: len(PARTS)] for start in PARTS]
    for part in parts:
        stages += [(first, part), ([name for name in slow if name not in first], part)]
    stages += [([], part) for part in parts]
    for names, over in stages:
        good = {"paper": over, "strict": [one for one in over if one.succeeds]}
        for name, reading in product(names, READINGS):
            for one, target in product(good[reading], TARGETS):
                yield Unit(reading, target, name, one.name, number)
        if not names:
            for reading in READINGS:
                yield from _tuning_units(reading, good[reading], number)


def _tuning_units(
    reading: mocca.Reading, over: list[mocca.Workload], number: int
) -> Iterator[Unit]:
    for name in CHOICES:
        for given, one, target in product(settings(name), over, TARGETS):
            words = f"{name} {json.dumps(given)}"
            yield Unit(TUNING[reading], target, words, one.name, number)


def measure(unit: Unit) -> list[list[float]]:
    """Run the searches of a unit; return for each budget regret, spent, and the two options."""
    workload = load_workloads()[unit.workload]
    reading: mocca.Reading = "strict" if unit.table.startswith("strict") else "paper"

    def seed(budget: int) -> list[int]:
        return [zlib.crc32(f"{unit.workload} {unit.target} {unit.method}".encode()), unit.number]

    if unit.table in TUNING.values():
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


def extend(minutes: float, path: Path = FILE) -> None:
    """Run searches that the file does not hold yet until the time is up, and write it."""
    by_name = load_workloads()
    kept, end = read(path), time.monotonic() + 60 * minutes
    saved, missing = time.monotonic(), set[str]()
    asked: deque[tuple[Unit, Future | None]] = deque()
    workers = os.cpu_count() or 1

    def settle(unit: Unit, future: Future | None) -> None:
        runs = kept["runs"].setdefault(unit.key, {}).setdefault(unit.workload, [])
        try:
            rows = future.result() if future else same_in_paper(unit, kept)
        except SkyUsageError as error:  # a library that is not installed
            print(f"{unit.key}: {error}", flush=True)
            missing.add(unit.key)
        else:
            if rows is not None and len(runs) == unit.number:
                runs.append([[round(value, 2) for value in row] for row in rows])

    with ProcessPoolExecutor(workers) as pool:
        every = (unit for n in range(SEEDS) for unit in units(list(by_name.values()), n))
        for unit in every:
            if time.monotonic() > end:
                break
            known = kept["runs"].get(unit.key, {}).get(unit.workload, ())
            if len(known) > unit.number or unit.key in missing:
                continue
            copied = is_same_in_paper(unit)
            asked.append((unit, None if copied else pool.submit(measure, unit)))
            while len(asked) > 2 * workers:  # settled in their order: seeds follow each other
                settle(*asked.popleft())
            if time.monotonic() - saved > 30:
                saved = time.monotonic()
                _save(kept, path)
                print(f"{unit}", flush=True)
        while asked:
            settle(*asked.popleft())
    _save(kept, path)


@cache
def load_workloads() -> dict[str, mocca.Workload]:
    """Return the workloads by name."""
    return {one.name: one for one in mocca.load(FOLDER)}


def is_same_in_paper(unit: Unit) -> bool:
    """Return whether a search is the same in the paper's reading: no run of its workload failed.

    It has the same seed there.
    """
    workload = load_workloads()[unit.workload]
    results = (workload.results(unit.target, reading) for reading in READINGS)
    return unit.table.startswith("strict") and np.array_equal(*results)


def same_in_paper(unit: Unit, kept: dict[str, Any]) -> list[list[float]] | None:
    """Return what such a search gave in the paper's reading; None where it is not kept."""
    table = TUNING["paper"] if unit.table == TUNING["strict"] else "paper"
    found = kept["runs"].get(replace(unit, table=table).key, {}).get(unit.workload, ())
    return found[unit.number] if len(found) > unit.number else None


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


def progress(
    kept: dict[str, Any], workloads: list[mocca.Workload]
) -> dict[tuple[str, str], dict[str, str]]:
    """Return how many workloads each method of each table has been run on, as ``5 of 20``."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for reading, target in product(READINGS, TARGETS):
        whole = sum(reading == "paper" or one.succeeds for one in workloads)
        for table, names in TABLES.items():
            for name in names:
                count = len(kept["runs"].get(f"{reading}/{target}/{name}", ()))
                row = found.setdefault((table, name), {})
                row[f"{target}, {reading}"] = f"{count} of {whole}"
        for name in CHOICES:
            row = found.setdefault(("7 to 9", name), {})
            chosen = [f"{TUNING[reading]}/{target}/{name} {json.dumps(g)}" for g in settings(name)]
            count = min(len(kept["runs"].get(key, ())) for key in chosen)
            row[f"{target}, {reading}"] = f"{count} of {whole}"
    return found


def count_missing(kept: dict[str, Any], workloads: list[mocca.Workload]) -> int:
    """Return the searches of the first seed that have not been run."""
    return sum(unit.workload not in kept["runs"].get(unit.key, ()) for unit in units(workloads, 0))


def tuning(
    kept: dict[str, Any], target: str, name: str, reading: str = "paper"
) -> dict[str, Any] | None:
    """Return Table 7's row of an algorithm: regret of its defaults and of its best setting.

    Only settings that were run on every workload are compared; None without the defaults.
    """
    by_setting: dict[str, dict[str, float]] = defaultdict(dict)
    for key in kept["runs"]:
        table, of, words = key.split("/", 2)
        if table == TUNING[reading] and of == target and words.startswith(f"{name} "):
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
        workload = next(iter(load_workloads().values()))
        chosen = [
            u for u in units([workload], 0) if u.method in ("rbf_cb", "once_sh", "exhaustive")
        ]
        runs: dict[str, Any] = defaultdict(dict)
        for unit in chosen:
            runs[unit.key][unit.workload] = [measure(unit)]
        return figures({"runs": runs})
    if minutes:
        extend(minutes)
    kept, workloads = read(), list(load_workloads().values())
    for (table, name), counts in progress(kept, workloads).items():
        print(f"table {table:8} {name:13} {counts}", flush=True)
    return figures(kept) | {"missing": float(count_missing(kept, workloads))}
