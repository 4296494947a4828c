"""Catalog figures: loading, filtering, the candidates of a graph, memory, size.

Cold is a fresh process, from its first statement to a loaded catalog, the import of the library
included; the very first load on a machine, which decodes the files, is printed beside it. Where
SkyPilot is installed, its candidate search runs over the same offers in the same run.

Each time is the best of several: what else a shared machine does can only add to it. The median of
the cold loads is a figure of its own.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

LOAD = """
import time
start = time.perf_counter()
from jupyter_sky import catalog
rows = len(catalog.load().offers)
print((time.perf_counter() - start) * 1e3)
"""

FILTERS = [
    {},
    {"spot": True},
    {"on_demand": True},
    {"cpus": "8+"},
    {"cpus": "8", "arch": "x86_64", "cpu_vendor": "Intel", "jurisdiction": "us"},
    {"memory": "64+", "cpus": "4+", "cloud": "aws,gcp"},
    {"gpus": "A100:8", "region": "eu", "spot": True},
    {"gpus": "V100:1+"},
    {"gpu_memory": "40+"},
    {"region": "eu"},
    {"country": "de", "arch": "arm64"},
    {"region": "us-east-1"},
    {"zone": "us-central1-a"},
    {"instance_type": "c6i.4xlarge"},
    {"intel_sgx": True},
    {"max_hourly_cost": "1"},
    {"cpus": "2+", "memory": "8+", "region": "us", "on_demand": True, "max_hourly_cost": "0.5"},
    {"service": "spark==3.5.*", "cpus": "16"},
    {"service": "emr"},
]

# A pipeline of forty tasks: many prepare data alike, some train, some serve.
TASKS = (
    [{"cpus": "8", "cpu_vendor": "Intel", "jurisdiction": "us"}] * 14
    + [{"cpus": "16+", "memory": "64+"}] * 6
    + [{"cpus": "4+", "arch": "arm64", "spot": True}] * 6
    + [{"gpus": "A100:8"}] * 3
    + [{"gpus": "V100:1"}] * 4
    + [{"gpus": "T4:1", "spot": True}] * 3
    + [{"gpus": "tpu-v3-8"}, {"gpus": "Inferentia:1"}, {"intel_sgx": True}, {"region": "eu"}]
)


def say(text: str) -> None:
    print(text, flush=True)


def milliseconds(work, times: int) -> float:
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds) * 1e3


def fresh(code: str, data_dir: str) -> str:
    """Return the output of a fresh process with a data directory of this benchmark."""
    environment = {**os.environ, "SKY_DATA_DIR": data_dir, "SKY_OFFERS": ""}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment, cwd=data_dir
    )
    return done.stdout


def loading(data_dir: str, quick: bool) -> dict:
    fresh(
        "import jupyter_sky.knowledge.catalog.loader", data_dir
    )  # compiles what was never imported
    first = float(fresh(LOAD, data_dir))
    cold = [float(fresh(LOAD, data_dir)) for _ in range(3 if quick else 15)]
    bare = "import time; s = time.perf_counter(); import {}; print((time.perf_counter() - s) * 1e3)"
    arrays = [float(fresh(bare.format("numpy"), data_dir)) for _ in cold]
    figures = {"load_cold_ms": min(cold), "load_cold_median_ms": median(cold)}
    say(
        f"cold load: best {min(cold):.0f} ms, median {median(cold):.0f} ms; to import numpy alone: "
        f"{min(arrays):.0f} ms, {median(arrays):.0f} ms; the first ever on a machine {first:.0f} ms"
    )
    from jupyter_sky import catalog

    catalog.load()
    warm = milliseconds(catalog.load, 20 if quick else 200)
    return figures | {"load_warm_ms": warm, "load_first_ms": first}


def filtering(quick: bool) -> dict:
    from jupyter_sky import catalog
    from jupyter_sky.base.requests.resources import Resources

    loaded, worst = catalog.load(), 0.0
    for labels in FILTERS:
        need = Resources.parse(**labels)

        def search(need=need) -> None:
            loaded._selections.clear()
            loaded.filter(need).head(20)

        search()
        taken = milliseconds(search, 3 if quick else 11)
        worst = max(worst, taken)
        say(f"{taken:6.2f} ms  {len(loaded.filter(need)):7,} offers  {need.command_line()}")
    everything = len(loaded.filter())
    say(f"{len(loaded.offers):,} rows, {everything:,} offers with both markets")
    return {"offers": len(loaded.offers), "filter_ms_max": worst}


def candidates(quick: bool) -> dict:
    from jupyter_sky import catalog
    from jupyter_sky.base.requests.resources import Resources

    loaded, found = catalog.load(), []
    needs = [Resources.parse(**labels) for labels in TASKS]

    def graph() -> None:
        loaded._selections.clear()
        found[:] = [loaded.filter(need).sorted() for need in needs]

    taken = milliseconds(graph, 3 if quick else 11)
    say(f"{len(needs)} tasks, {sum(map(len, found)):,} candidates in order: {taken:.1f} ms")
    return {"candidates_40_ms": taken}


MEMORY = """
import resource, sys
sys.path.insert(0, {folder!r})
import catalog as benchmark
from jupyter_sky import catalog
loaded = catalog.load()
for labels in (*benchmark.FILTERS, *benchmark.TASKS):
    loaded.filter(**labels).head(20).offers()
loaded.egress("aws/us-east-1", "gcp/us-central1", 1)
loaded.interruption("aws", "us-east-1", "m5.large")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def footprint(data_dir: str) -> dict:
    from jupyter_sky.knowledge.catalog.loader import shipped_directory

    memory = float(fresh(MEMORY.format(folder=str(Path(__file__).parent)), data_dir)) / 1e3
    size = sum(path.stat().st_size for path in shipped_directory().iterdir()) / 1e6
    say(f"peak of a process that does all of this: {memory:.0f} MB; files: {size:.2f} MB")
    return {"memory_mb": memory, "package_mb": size}


def beside_skypilot(ours_ms: float, quick: bool) -> dict:
    """CPU of SkyPilot's own search for the same tasks over the same offers, where it can run."""
    from importlib.util import find_spec

    python = os.environ.get("SKYPILOT_PYTHON") or (sys.executable if find_spec("sky") else "")
    if not python:
        say("SkyPilot is not installed (nor named by SKYPILOT_PYTHON): no comparison")
        return {}
    import skypilot_comparison  # beside this file

    with tempfile.TemporaryDirectory() as home:
        skypilot_comparison.write_catalogs(Path(home))
        tasks = TASKS[:20:5] if quick else TASKS
        theirs = skypilot_comparison.run(python, home, tasks)
    if "error" in theirs:
        say(f"SkyPilot could not search: {theirs['error']}")
        return {}
    per_task = theirs["seconds"] / theirs["tasks"]
    say(f"SkyPilot {theirs['version']}: {json.dumps(theirs)}")
    ratio = per_task * len(TASKS) * 1e3 / ours_ms
    return {"skypilot_40_ms": per_task * len(TASKS) * 1e3, "skypilot_over_ours": ratio}


def main(quick: bool = False) -> dict[str, float]:
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as data_dir:
        os.environ["SKY_DATA_DIR"] = data_dir
        figures |= loading(data_dir, quick)
        figures |= filtering(quick)
        figures |= candidates(quick)
        figures |= footprint(data_dir)
        figures |= beside_skypilot(figures["candidates_40_ms"], quick)
    return figures
