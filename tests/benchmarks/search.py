"""Figures of configuration search in recorded measurements (MOCCA).

Regret in percent of the best recorded value, averaged over workloads and seeds, after 11, 22, 33
and 44 evaluations, and with fewer seeds up to 88; beside it what the search cost, in percent of
trying everything (`_search_`).
Every workload has seeds of its own. Failed runs are results in the paper's reading; in the strict
one they cost what they cost and yield nothing.

Keys without a prefix are the default method, ``sky.search(method="auto")`` without a history: one
Gaussian process over all providers, which uses prices when cost is the target. `gp_` is the same
without prices (for time there is no difference, and it is not run again). `cb_rs_` is CloudBandit
with random search that may repeat, the paper's, beside its exact mean; `cb_rs_once_` with one that
does not repeat; `cb_rbf_` with the radial basis functions. `transfer_` has learned from the
workloads of notebooks/data/mocca, all but the one it is asked about. `relevelled_`: the strict
reading of cost with prices changed so that every provider wins sometimes. Without --reading the
figures of the default method and of the transfer in the strict reading are added as `strict_`.

`cb_halving_`, `cb_two_out_`: successive halving, and CloudBandit that eliminates two providers at
once, with the radial basis functions. `recorded_`: searches from `search_tables`, which take hours
with RBFOpt, SMAC and others: of methods that have been run on every workload. `synthetic_`: mean
ranks of the paper's Table 6, see `search_synthetic`.

`live_`: trials of cells on machines of emulated clouds, see `search_live`.
"""

import os
import zlib
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices: threads only get in the way

import mocca
import numpy as np
import recorded_searches
import search_synthetic
from expected_regret import bandit_regret
from search_live import live_figures

from jupyter_sky.decisions.search import FlatGP, Transfer, method

SHIPPED = Path(__file__).parents[2] / "notebooks" / "data" / "mocca"
BUDGETS = (11, 22, 33, 44)
LATE = (55, 66, 77, 88)
EARLY = (3, 5, 8)
PAPER = {  # its Tables 1 and 2, CloudBandit with RBFOpt
    "cost": "48.01/18.11/6.99/0.53, search 7.8/14.7/20.4/27.1",
    "time": "35.05/19.00/12.83/10.12, search 11.9/22.8/32.7/43.0",
}
FACTORS = {"A": 1.0, "B": 1 / 8.5, "C": 1 / 2.5}


def say(text: str) -> None:
    print(text, flush=True)


class Table:
    """Regret and search cost by budget, gathered workload by workload."""

    def __init__(self, budgets) -> None:
        self.budgets, self.means, self.variances = budgets, [], []

    def add(self, runs) -> None:
        """Take in a workload's runs: for each seed, regret and spent at each budget."""
        runs = np.array(runs)
        self.means.append(runs.mean(0))
        self.variances.append(runs.var(0, ddof=1) / len(runs) if len(runs) > 1 else 0 * runs[0])

    @property
    def regret(self):
        return np.mean(self.means, axis=0)[0]

    @property
    def error(self):
        """Standard error of the mean regret, of seeds: the workloads are given."""
        return np.sqrt(np.sum(self.variances, axis=0)[0]) / len(self.means)

    def figures(self, prefix: str, target: str) -> dict[str, float]:
        spent = np.mean(self.means, axis=0)[1]
        say(
            f"{prefix + target:24} regret {'/'.join(f'{v:.2f}' for v in self.regret)} "
            f"(s.e. {'/'.join(f'{v:.2f}' for v in self.error)}), "
            f"search {'/'.join(f'{v:.1f}' for v in spent)} at {self.budgets}"
        )
        found = {}
        for budget, regret, cost in zip(self.budgets, self.regret, spent, strict=True):
            found[f"{prefix}{target}_regret_{budget}"] = float(regret)
            found[f"{prefix}{target}_search_{budget}"] = float(cost)
        return found


def seeds(*names: object) -> list[int]:
    """Return a seed of its own for each workload, method, budget and repetition."""
    return [zlib.crc32(repr(names).encode())]


def measure(workloads, target, reading, make, count, budgets=BUDGETS, whole=True, salt=""):
    """Run a method on every workload; one that plans with its budget runs anew for each."""
    table = Table(budgets)
    for workload in workloads:
        runs = []
        for number in range(count):
            if whole:
                seed = seeds(salt, workload.name, target, number)
                optimizer = make(workload, max(budgets), seed)
                pairs = np.array(mocca.replay(optimizer, workload, target, reading, max(budgets)))[
                    :, np.array(budgets) - 1
                ]
            else:
                pairs = []
                for budget in budgets:
                    optimizer = make(workload, budget, seeds(salt, workload.name, budget, number))
                    both = mocca.replay(optimizer, workload, target, reading, budget)
                    pairs.append([one[-1] for one in both])
                pairs = np.array(pairs).T
            runs.append(pairs)
        table.add(runs)
    return table


def bandits(workloads, target, reading, quick) -> dict[str, float]:
    figures = {}
    kinds = {  # seeds up to 44 evaluations, and beyond
        "cb_rs_": ("cloudbandit", {"component": "random-repeats"}, 200, 20),
        "cb_rs_once_": ("cloudbandit", {"component": "random"}, 40, 20),
        "cb_rbf_": ("cloudbandit", {"component": "rbf"}, 40, 4),
        "cb_halving_": ("successive-halving", {"component": "rbf"}, 8, 4),
        "cb_two_out_": ("cloudbandit", {"component": "rbf", "drop": 2}, 8, 4),
    }
    for prefix, (name, options, early, late) in kinds.items():

        def make(one, budget, seed, name=name, options=options):
            return method(name, one.space, budget, seed=seed, minimize=target, **options)

        for budgets, count in ((BUDGETS, early), (LATE, late)):
            table = measure(
                workloads, target, reading, make, 2 if quick else count, budgets, False, prefix
            )
            figures |= table.figures(prefix, target)
            if prefix == "cb_rs_" and reading == "paper" and budgets is BUDGETS:
                figures |= exactly(workloads, target, table)
    say(f"{'the paper, RBFOpt in CB':24} regret {PAPER[target]} (30 workloads)")
    return figures


def exactly(workloads, target, table) -> dict[str, float]:
    """Return the exact mean of CloudBandit with random search, and the sample's deviation."""
    try:
        means = [
            np.mean([bandit_regret(w.space, w.results(target, "paper"), b) for w in workloads])
            for b in range(1, 5)
        ]
    except ValueError as error:
        say(f"no exact mean: {error}")
        return {}
    far = np.abs(table.regret - means) / np.maximum(table.error, 1e-9)
    say(f"  exactly {'/'.join(f'{v:.2f}' for v in means)}; {far.max():.1f} s.e. away at most")
    figures = {f"cb_rs_{target}_exact_{b}": float(m) for b, m in zip(BUDGETS, means, strict=True)}
    errors = zip(BUDGETS, table.error.tolist(), strict=True)
    figures |= {f"cb_rs_{target}_se_{b}": error for b, error in errors}
    return figures | {f"cb_rs_{target}_off_by_se": float(far.max())}


def models(workloads, earlier, target, reading, quick, prefix="", blind=True) -> dict[str, float]:
    budgets, count = (*EARLY, *BUDGETS), 1 if quick else 8

    def default(workload, budget, seed):
        return method("auto", workload.space, budget, minimize=target, seed=seed)

    def without_prices(workload, budget, seed):
        return FlatGP(workload.space, seed=seed, minimize=target, prices=False)

    found = measure(workloads, target, reading, default, count, budgets, salt="gp")
    figures = found.figures(prefix, target)
    late = measure(workloads, target, reading, default, 1 if quick else 2, LATE, salt="gp")
    figures |= late.figures(prefix, target)
    if blind:
        if target == "cost":
            found = measure(workloads, target, reading, without_prices, count, budgets, salt="gp")
        figures |= found.figures(f"{prefix}gp_", target)

    histories = past(workloads, earlier, reading)

    def transfer(workload, budget, seed):
        history = histories[workload.name]
        return Transfer(workload.space, seed=seed, minimize=target, history=history)

    learned = measure(workloads, target, reading, transfer, 1, budgets, salt="transfer")
    return figures | learned.figures(f"{prefix}transfer_", target)


def past(workloads, earlier, reading) -> dict[str, list]:
    """For each workload the history of the others."""
    return {
        one.name: mocca.history((w for w in earlier if w.name != one.name), reading)
        for one in workloads
    }


def relevelled(workloads, earlier, quick) -> dict[str, float]:
    """Prices at which each provider is cheapest for some workloads, in ten scenarios."""
    budgets, tables = (
        (5, 8, 11, 22),
        {"": Table((5, 8, 11, 22)), "transfer_": Table((5, 8, 11, 22))},
    )
    histories, winners = past(workloads, earlier, "strict"), []
    for number in range(1 if quick else 10):
        random = np.random.default_rng([8, number])
        z = random.standard_normal(len(FACTORS))
        factors = {
            arm: level * float(np.exp(0.35 * shift))
            for (arm, level), shift in zip(FACTORS.items(), z, strict=True)
        }
        for workload in workloads:
            new = workload.repriced(factors)
            best = int(np.nanargmin(new.results("cost", "strict")))
            winners.append(new.space[best].arm)
            for prefix, table in tables.items():
                optimizer = method(
                    "auto",
                    new.space,
                    22,
                    seed=seeds("level", workload.name, number),
                    history=histories[workload.name] if prefix else (),
                )
                both = np.array(mocca.replay(optimizer, new, "cost", "strict", 22))
                table.add([both[:, np.array(budgets) - 1]])
    shares = {arm: winners.count(arm) / len(winners) for arm in FACTORS}
    say(f"re-levelled prices, who wins: {shares}")
    figures = {}
    for prefix, table in tables.items():
        figures |= table.figures(f"relevelled_{prefix}", "cost")
    return figures


def main(
    quick: bool = False, data: str | None = None, reading: str | None = None
) -> dict[str, float]:
    earlier = mocca.load(SHIPPED)
    workloads = mocca.load(data or SHIPPED)
    if quick:
        workloads = workloads[:3]
    good = [one for one in workloads if one.succeeds]
    say(f"{len(workloads)} workloads, {len(good)} with a success; {len(earlier)} to learn from")
    chosen = reading or "paper"
    judged = workloads if chosen == "paper" else good
    figures: dict[str, float] = {"workloads": len(judged)}
    for target in ("cost", "time"):
        figures |= models(judged, earlier, target, chosen, quick)
        figures |= bandits(judged, target, chosen, quick)
        if reading is None:
            figures |= models(good, earlier, target, "strict", quick, "strict_", blind=False)
    figures |= relevelled(good, earlier, quick)
    recorded = recorded_searches.figures(recorded_searches.read())
    figures |= {f"recorded_{key}": value for key, value in recorded.items()}
    for kind, rows in search_synthetic.table(200 if quick else 4000).items():
        values = getattr(search_synthetic, "DEVIATIONS" if kind == "deviation" else "PROVIDERS")
        for value, (alone, inside) in zip(values, rows, strict=True):
            figures[f"synthetic_{kind}_{value}_alone"] = alone
            figures[f"synthetic_{kind}_{value}_in_cb"] = inside
    return figures if quick else figures | live_figures()
