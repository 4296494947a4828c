"""Seeded placement instances, written as files of the two schemas that `instances` reads.

The graphs of section 5.4 of the SkyPilot paper (NSDI 2023) on 55 places of three clouds, and
graphs of 1,000 tasks on 336 places and 20 machine types. All prices are drawn, none is real.
Six families differ in what decides a plan: run times that depend on the place (``het``), machine
types (``types``), spot prices (``spot``), and heavy, mid and light transfers along the edges.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Edges = list[tuple[int, int]]


def chain(n: int) -> Edges:
    return [(k, k + 1) for k in range(n - 1)]


def fork_join(branches: int, length: int) -> Edges:
    """A source, chains side by side, a sink."""
    edges, sink = [], branches * length + 1
    for b in range(branches):
        first = 1 + b * length
        edges.append((0, first))
        edges += [(first + k, first + k + 1) for k in range(length - 1)]
        edges.append((first + length - 1, sink))
    return edges


def map_reduce(maps: int, reduces: int) -> Edges:
    """A source, maps, reduces that each read every map, a sink."""
    edges = [(0, 1 + k) for k in range(maps)]
    edges += [(1 + k, 1 + maps + r) for k in range(maps) for r in range(reduces)]
    return edges + [(1 + maps + r, 1 + maps + reduces) for r in range(reduces)]


def layered(rng: np.random.Generator, layers: int, width: int) -> Edges:
    """Each task reads two of the layer before."""
    edges = []
    for layer in range(1, layers):
        for k in range(width):
            for parent in rng.choice(width, size=min(2, width), replace=False):
                edges.append(((layer - 1) * width + int(parent), layer * width + k))
    return sorted(set(edges))


def random_graph(rng: np.random.Generator, n: int, m: int) -> Edges:
    found = {(int(rng.integers(v)), v) for v in range(1, n)}
    while len(found) < m:
        u, v = sorted(rng.choice(n, 2, replace=False).tolist())
        found.add((u, v))
    return sorted(found)


def small(folder: Path, seed: int = 1) -> None:
    """Graphs of section 5.4 in four variants, schema sky-placement-bench/1."""
    rng = np.random.default_rng(seed)
    graphs = {
        "chain_20": chain(20),
        "forkjoin_42": fork_join(4, 10),
        "random_38": random_graph(rng, 38, 53),
        "pair_2": chain(2),
    }
    for name, edges in graphs.items():
        for variant in ("paper", "spot", "trade", "hard"):
            _write(folder / f"{name}__{variant}.json", _small(rng, name, edges, variant))


def _small(rng: np.random.Generator, name: str, edges: Edges, variant: str) -> dict:
    base = {"aws": 0.38, "gcp": 0.42, "azure": 0.45}
    offers = []
    for cloud, regions, zones in (("aws", 4, 4), ("gcp", 7, 4), ("azure", 11, 1)):
        for r in range(regions):
            for z in range(zones):
                share = 1.0 if variant == "paper" else rng.uniform(0.2, 0.6)
                zone = f"{cloud}-{r}-{z}" if zones > 1 else None
                price = round(base[cloud] * share, 6)
                offers.append(
                    {"cloud": cloud, "region": f"{cloud}-{r}", "zone": zone}
                    | {"instance_type": "vm8", "accelerators": None, "use_spot": variant != "paper"}
                    | {"price_per_hour": price}
                )
    largest = {"paper": 100, "spot": 100, "trade": 2, "hard": 5}[variant]
    count = max(v for _, v in edges) + 1
    tasks = [
        {"name": f"t{k}", "num_nodes": 1, "candidates": "all"}
        | {"hours": _small_hours(rng, offers, variant)}
        for k in range(count)
    ]
    return {
        "schema": "sky-placement-bench/1",
        "name": f"{name}__{variant}",
        "egress_model": "zone-aware" if variant == "hard" else "skypilot-cloud",
        "candidate_sets": {"all": offers},
        "tasks": tasks,
        "edges": [
            {"src": f"t{u}", "dst": f"t{v}", "gb": round(float(rng.uniform(0, largest)), 3)}
            for u, v in edges
        ],
        "inputs": [],
    }


def _small_hours(rng: np.random.Generator, offers: list[dict], variant: str) -> object:
    hours = float(rng.uniform(0, 1))
    if variant in ("paper", "spot"):
        return round(hours, 6)
    clouds = {one["cloud"]: rng.uniform(0.4, 1.6) for one in offers}
    factors = [
        clouds[one["cloud"]] if variant == "trade" else rng.uniform(0.4, 1.6) for one in offers
    ]
    return [round(hours * float(factor), 6) for factor in factors]


def large(folder: Path, seeds: Sequence[int] = (2,), tasks: int = 1000) -> None:
    """Write graphs of many tasks on a catalog of the world, schema jsky-opt/1.

    Each seed draws a catalog of its own; the weight of the transfers goes round with the seeds.
    """
    for seed in seeds:
        rng = np.random.default_rng(seed)
        catalog = f"catalog_world_{seed}.json"
        _write(folder / catalog, _world(rng))
        weight = ("heavy", "mid", "light")[seed % 3]
        side = max(tasks // 10, 2)
        graphs = {
            "chain": chain(tasks),
            "forkjoin": fork_join(tasks, 1),
            "mapreduce": map_reduce(tasks, 4),
            "layered": layered(rng, side, 10),
            "layered_tenth": layered(rng, max(side // 10, 2), 10),
        }
        for name, edges in graphs.items():
            name = f"world-{name}-{weight}-{seed}"
            data = _instance(rng, name, edges, catalog, 336, FAMILIES[weight])
            _write(folder / f"{name}.json", data)


def deadlines(folder: Path, seeds: Sequence[int] = (3,)) -> None:
    """Write graphs of section 5.4 on 55 places, to be kept under deadlines; the family goes round
    with the seeds."""
    for seed in seeds:
        rng = np.random.default_rng(1_000 + seed)
        catalog = f"catalog_part_{seed}.json"
        _write(folder / catalog, _world(rng, 55))
        kind = ("het", "types", "spot")[seed % 3]
        graphs = {
            "chain": chain(20),
            "forkjoin": fork_join(4, 10),
            "random": random_graph(rng, 38, 53),
        }
        for name, edges in graphs.items():
            name = f"{name}-{kind}-{seed}"
            data = _instance(rng, name, edges, catalog, 55, FAMILIES[kind])
            _write(folder / f"{name}.json", data)


@dataclass(frozen=True)
class Family:
    """A way to draw instances.

    Attributes
    ----------
    largest_gb : float
        Transfers are drawn from 0 to so many GB.
    hours : str
        What the run time of a task depends on: ``type``, ``location``, or nothing (``task``).
    spot : bool
        Whether prices are those of spot machines, which differ by a factor of three.
    """

    largest_gb: float
    hours: str = "type"
    spot: bool = False


FAMILIES = {
    "het": Family(100, "location"),
    "types": Family(20),
    "spot": Family(20, "task", spot=True),
    "heavy": Family(100),
    "mid": Family(10),
    "light": Family(1),
}


def _world(rng: np.random.Generator, places: int = 336) -> dict:
    """Places by cloud, continent, region and zone; prices depend on the source and the distance."""
    where = []
    while len(where) < places:
        cloud = ("aws", "gcp", "azure")[len(where) % 3]
        cont = ("na", "eu", "as", "sa")[int(rng.integers(4))]
        region = f"{cont}-{len(where)}"
        for zone in range(int(rng.integers(1, 4))):
            where.append(
                {"cloud": cloud, "cont": cont, "group": region, "region": region}
                | {"zone": f"{region}-{zone}"}
            )
    where = sorted(where[:places], key=lambda one: (one["cloud"], one["cont"], one["zone"]))
    far = {key: round(float(rng.uniform(0.05, 0.15)), 3) for key in ("na", "eu", "as", "sa")}
    usd, hours = np.zeros((2, places, places))
    speed = (16, 10, 5, 3, 1)  # Gbit/s by what differs
    for i, a in enumerate(where):
        for j, b in enumerate(where):
            keys = ("zone", "region", "cont", "cloud")
            apart = max((k + 1 for k, key in enumerate(keys) if a[key] != b[key]), default=0)
            usd[i, j] = (0.0, 0.01, 0.02, 0.8 * far[a["cont"]], far[a["cont"]])[apart]
            hours[i, j] = round(8 / speed[apart] / 3600, 9)
    return {
        "schema": "jsky-opt/1",
        "locations": where,
        "usd_per_gb": usd.tolist(),
        "hours_per_gb": hours.tolist(),
    }


def _instance(
    rng: np.random.Generator, name: str, edges: Edges, catalog: str, places: int, family: Family
) -> dict:
    count = max(v for _, v in edges) + 1
    types = _types(20 if family.hours == "type" else 1)
    stores = [
        [k, int(rng.integers(places)), float(rng.uniform(0, family.largest_gb)), "in"]
        for k in range(0, count, 10)
    ]
    return {
        "schema": "jsky-opt/1",
        "name": name,
        "catalog": catalog,
        "types": types,
        "price_per_hour": _prices(rng, types, places, family.spot),
        "tasks": [{"id": k} | _hours(rng, types, places, family.hours) for k in range(count)],
        "edges": [[u, v, float(rng.uniform(0, family.largest_gb))] for u, v in edges],
        "fixed": stores,
    }


def _types(count: int) -> list[list[float]]:
    """vCPUs and price factor of each machine type."""
    if count == 1:
        return [[8, 1.0]]
    sizes = [2, 4, 8, 16, 32, 48, 64, 96, 128, 192][: (count + 1) // 2] * 2
    return [[vcpus, 1.0 + 0.25 * (k % 2)] for k, vcpus in enumerate(sizes)][:count]


def _prices(rng: np.random.Generator, types: list, places: int, spot: bool) -> list:
    """USD/h of each type at each place; one in twenty is not on sale."""
    low, high = (0.3, 0.9) if spot else (0.9, 1.6)
    factor = rng.uniform(low, high, places)
    return [
        [None if rng.random() < 0.05 and len(types) > 1
         else round(v * f * 0.048 * float(factor[p]), 6) for v, f in types]
        for p in range(places)
    ]  # fmt: skip


def _hours(rng: np.random.Generator, types: list, places: int, kind: str) -> dict:
    if kind == "task":
        return {"hours_kind": "scalar", "hours": float(rng.uniform(0, 1))}
    if kind == "location":
        hours = rng.uniform(0, 1) * rng.uniform(0.4, 1.6, places)
        return {"hours_kind": "per_location", "hours": hours.tolist()}
    work, serial = rng.uniform(0.2, 4), rng.uniform(0.05, 0.4)
    hours = [float(work * (serial + (1 - serial) * 2 / v) / (f**0.5)) for v, f in types]
    clouds = {c: float(rng.uniform(0.9, 1.2)) for c in ("gcp", "azure")} | {"aws": 1.0}
    return {"hours_kind": "per_type_times_cloud_factor", "hours": hours, "cloud_factor": clouds}


def _write(path: Path, data: dict) -> None:
    path.write_text(json.dumps(data))
