"""Placement instances: two file formats read into problems, and a seeded generator of both.

`sky-placement-bench/1` asks what SkyPilot's optimizer asks: candidates with prices, hours, GB
along edges and one of two tariffs. `jsky-opt/1` adds places of the whole world, many machine
types, and stores where inputs lie. Formats are told apart by their `schema`, not by their names.
"""

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jupyter_sky.decisions.optimizer.solver.problem import (
    Places,
    Problem,
    TransferTable,
    make_edges,
    make_task_labels,
)


@dataclass(frozen=True)
class Instance:
    """A problem, its name, and the optima that its folder states: kind to value (USD, h)."""

    name: str
    problem: Problem
    reference: dict = field(default_factory=dict)


def load(path: Path) -> dict:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as file:
        return json.load(file)


def instances(folder: Path) -> list[Path]:
    """The instance files of a folder, smallest first."""
    found = []
    for path in sorted(folder.glob("*.json*")):
        if path.name.startswith(("catalog", "optimal")):
            continue
        found.append(path)
    return sorted(found, key=lambda path: (path.stat().st_size, path.name))


def read(path: str | Path) -> Instance:
    """A file of either schema as an `Instance`."""
    path = Path(path)
    data = load(path)
    if data["schema"] == "sky-placement-bench/1":
        return _bench(data, path)
    if data["schema"] == "jsky-opt/1":
        return _opt(data, path)
    raise ValueError(f"{path}: unknown schema {data['schema']}")


# What leaves a cloud, USD per GB; the first GB is free for two of them in the first tariff.
INTERNET = {
    "skypilot-cloud": {"aws": 0.09, "azure": 0.0875, "gcp": 0.12},
    "zone-aware": {"aws": 0.09, "gcp": 0.12, "azure": 0.0875},
}
FREE_GB = {"aws": 1.0, "azure": 1.0, "gcp": 0.0}
OTHER_REGION = 0.02
OTHER_ZONE = {"aws": 0.02, "gcp": 0.01, "azure": 0.0}


def moving(model: str, a: tuple, b: tuple, gb: float) -> tuple[float, float]:
    """USD and seconds for gb GB from place a to place b: (cloud, region, zone) each."""
    if not gb:
        return 0.0, 0.0
    rate = INTERNET[model]
    if model == "skypilot-cloud":
        if a[0] == b[0]:
            return 0.0, 0.0
        return rate[a[0]] * max(0.0, gb - FREE_GB[a[0]]), gb * 8 / 10
    if a[0] != b[0]:
        return rate[a[0]] * gb, gb * 8 / 2
    if a[1] != b[1]:
        return OTHER_REGION * gb, gb * 8 / 5
    if a[2] != b[2]:
        return OTHER_ZONE[a[0]] * gb, gb * 8 / 25
    return 0.0, 0.0


def _codes(keys: list) -> np.ndarray:
    return np.array([{key: k for k, key in enumerate(dict.fromkeys(keys))}[key] for key in keys])


def _bench(data: dict, path: Path) -> Instance:
    lists = {task["name"]: _candidates(data, task) for task in data["tasks"]}
    keys = {_place(one) for found in lists.values() for one in found}
    where = sorted(keys, key=lambda key: tuple(part or "" for part in key))
    index = {key: k for k, key in enumerate(where)}
    places = Places(
        tuple("/".join(part or "" for part in key) for key in where),
        {"region": _codes([key[:2] for key in where]), "cloud": _codes([key[0] for key in where])},
    )
    number = {task["name"]: k for k, task in enumerate(data["tasks"])}
    stored = _stored(data, number)
    tasks = [
        _bench_task(data, task, lists[task["name"]], index, where, stored.get(k, []))
        for k, task in enumerate(data["tasks"])
    ]
    tables, edges = _bench_edges(data, where, number)
    reference = path.with_name("optimal.json")
    known = load(reference).get(data["name"], {}) if reference.exists() else {}
    problem = Problem(places, tuple(tasks), make_edges(edges), tuple(tables))
    return Instance(data["name"], problem, _bench_reference(known))


def _candidates(data: dict, task: dict) -> list[dict]:
    named = task["candidates"]
    return data["candidate_sets"][named] if isinstance(named, str) else named


def _place(candidate: dict) -> tuple:
    return candidate["cloud"], candidate["region"], candidate["zone"]


def _stored(data: dict, number: dict) -> dict[int, list[tuple[str, float]]]:
    found: dict[int, list] = {}
    for one in data.get("inputs", []):
        found.setdefault(number[one["dst"]], []).append((one["cloud"], one["gb"]))
    return found


def _bench_task(data, task, candidates, index, where, stored):
    hours = np.broadcast_to(np.asarray(task["hours"], float), len(candidates))
    prices = np.array([one["price_per_hour"] for one in candidates], float)
    nodes = task.get("num_nodes", 1)
    usd, ready = hours * prices * nodes, np.zeros(len(candidates))
    for k, one in enumerate(candidates):
        for cloud, gb in stored:
            price, seconds = moving(data["egress_model"], (cloud, None, None), _place(one), gb)
            usd[k] += price
            ready[k] = max(ready[k], seconds / 3600)
    place = [index[_place(one)] for one in candidates]
    return make_task_labels(
        task["name"], place, usd, hours, ready_hours=ready, hourly_usd=prices * nodes, nodes=nodes
    )


def _bench_edges(data, where, number):
    """One table where the tariff is by the GB, else one for each distinct size."""
    model, tables, rows, seen = data["egress_model"], [], [], {}
    linear, kinds = model == "zone-aware", _Kinds(where)
    for edge in data["edges"]:
        size = 1.0 if linear else edge["gb"]
        if size not in seen:
            seen[size] = len(tables)
            tables.append(kinds.table(model, size))
        scale = edge["gb"] if linear else float(edge["gb"] > 0)
        rows.append((number[edge["src"]], number[edge["dst"]], scale, seen[size]))
    return tables, rows


class _Kinds:
    """Return where two places differ: nowhere (0), the zone, the region, the cloud (3)."""

    def __init__(self, where: list) -> None:
        parts = [_codes([key[: k + 1] for key in where]) for k in (2, 1, 0)]
        self.differ = sum((ids[:, None] != ids[None, :]).astype(int) for ids in parts)
        self.cloud = parts[2]
        self.clouds = list(dict.fromkeys(key[0] for key in where))

    def table(self, model: str, gb: float) -> TransferTable:
        """The prices of a pair depend on the source's cloud and on what differs."""
        ends = (("", ""), ("", "#"), ("#", "#"))
        small = np.zeros((2, len(self.clouds), 4))
        for c, cloud in enumerate(self.clouds):
            there = [(cloud, *end) for end in ends] + [("#", "#", "#")]
            for k in range(1, 4):
                price, seconds = moving(model, (cloud, "", ""), there[k], gb)
                small[:, c, k] = price, seconds / 3600
        return TransferTable(*(part[self.cloud[:, None], self.differ] for part in small))


def _bench_reference(known: dict) -> dict:
    found = {}
    if "cost" in known:
        found["cost"] = known["cost"]["objective"]
    if "time" in known:
        found["time"] = known["time"]["objective_seconds"] / 3600
    if "time_then_cost" in known:
        found["time_then_cost"] = known["time_then_cost"]["cost"]
    return found


def _opt(data: dict, path: Path) -> Instance:
    catalog = _beside(path, data["catalog"])
    where = catalog["locations"]
    levels = {
        "zone": _codes([(one["cloud"], one["region"], one["zone"]) for one in where]),
        "region": _codes([(one["cloud"], one["region"]) for one in where]),
        "group": _codes([(one["cloud"], one["group"]) for one in where]),
        "continent": _codes([(one["cloud"], one["cont"]) for one in where]),
        "cloud": _codes([one["cloud"] for one in where]),
    }
    places = Places(tuple(f"{one['cloud']}/{one['zone']}" for one in where), levels)
    table = TransferTable(np.array(catalog["usd_per_gb"]), np.array(catalog["hours_per_gb"]))
    prices = np.array(
        [[np.nan if p is None else p for p in row] for row in data["price_per_hour"]], float
    )
    location, kind = np.nonzero(~np.isnan(prices))
    offers = (location, kind, prices[location, kind])
    fixed: dict[int, list] = {}
    for task, store, gb, direction in data.get("fixed", []):
        fixed.setdefault(task, []).append((store, gb, direction))
    clouds = np.array([one["cloud"] for one in where])
    tasks = tuple(
        _opt_task(task, offers, clouds, table, fixed.get(k, []))
        for k, task in enumerate(data["tasks"])
    )
    problem = Problem(places, tasks, make_edges(data["edges"]), (table,))
    return Instance(data["name"], problem, _opt_reference(data.get("optimal", {})))


def _beside(path: Path, name: str) -> dict:
    for option in (name, name + ".gz"):
        if path.with_name(option).exists():
            return load(path.with_name(option))
    raise FileNotFoundError(f"{path} needs {name} beside it")


def _opt_task(task, offers, clouds, table, fixed):
    location, kind, price = offers
    hours = np.asarray(task["hours"], float)
    if task["hours_kind"] == "scalar":
        hours = np.full(len(location), float(hours))
    elif task["hours_kind"] == "per_location":
        hours = hours[location]
    else:
        factor = np.array([task["cloud_factor"][cloud] for cloud in clouds])
        hours = hours[kind] * factor[location]
    usd, ready = hours * price, np.zeros(len(location))
    for store, gb, direction in fixed:
        if direction == "in":
            usd = usd + gb * table.usd[store, location]
            ready = np.maximum(ready, gb * table.hours[store, location])
        else:
            usd = usd + gb * table.usd[location, store]
    return make_task_labels(
        f"t{task['id']}", location, usd, hours, ready_hours=ready, hourly_usd=price, family=kind
    )


def _opt_reference(known: dict) -> dict:
    found = {}
    if "min_cost" in known:
        found["cost"] = known["min_cost"]["value"]
        found["cost_bound"] = known["min_cost"].get("lower_bound", known["min_cost"]["value"])
    if "min_makespan" in known:
        found["time"] = known["min_makespan"]["value"]
    found["deadlines"] = known.get("min_cost_deadline", [])
    return found
