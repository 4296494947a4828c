"""Clouds that can be launched, their drivers, and the time of a command in a shell.

    python tests/benchmarks/run.py providers --launches 200

Clouds are found in the register, so that a driver that is added is counted.

* ``providers_launchable`` counts clouds with a driver, the kinds of machines of one's own, and TPU
  slices, which Google Cloud launches by an API of their own;
* ``conformance_failed`` counts checks of the conformance suite that fail, of all clouds that
  ``tests/clouds/conformance`` has, and launchable clouds that it does not have;
* ``lines_max`` is the number of lines of the longest driver that is one file; those that are
  folders are not counted, nor ``local`` and ``ssh``, which are no drivers of the public protocol;
* ``driver_import_ms`` is the CPU time that the slowest driver's import adds to that of what drives
  all, the least of three processes each;
* ``leaked`` and ``unexplained`` are those of the chaos of `chaos`, on all clouds that have an
  emulator, or run here themselves (podman, Slurm);
* ``command_ms`` is the median wall time of ``jupyter-sky status`` in a shell, of twenty commands;
  on a machine in use by others it is more than ``command_cpu_ms``, the CPU time of that command.
"""

import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))

ROOT = Path(__file__).parents[2]
OWN = ("local", "ssh")
CLOUDS = "jupyter_sky.clouds."
SLICES = f"{CLOUDS}gcp.tpu"
"""Module that launches TPU slices."""
HEAVY_US = 5000
"""Own time of imports that are named (microseconds)."""


def launchable() -> dict[str, str]:
    """Return the module of the driver of each launchable cloud, by name."""
    from jupyter_sky import clouds
    from jupyter_sky.base.clouds.index import BUILT_IN

    found = {}
    for name in clouds.launchable():
        facts = BUILT_IN[name]
        found[name] = facts.provider.partition(":")[0] or facts.__module__
    return found


def longest_driver(modules: dict[str, str]) -> int:
    """Return the most lines of a driver that is one file."""
    counts = {}
    for name, module in modules.items():
        spec = importlib.util.find_spec(module)
        if name not in OWN and module.count(".") == 2 and spec is not None and spec.origin:
            counts[name] = len(Path(spec.origin).read_text().splitlines())
    print(f"lines of drivers: {counts}", flush=True)
    return max(counts.values(), default=0)


def driver_import_ms(modules: dict[str, str]) -> float:
    """Return the CPU time of the slowest driver's import, in milliseconds."""
    slowest = 0.0
    for module in modules.values():
        code = (
            "import time, jupyter_sky.clouds.launches.launcher; before = time.process_time()\n"
            f"import {module}; print(time.process_time() - before)"
        )
        words = [sys.executable, "-c", code]
        told = (subprocess.run(words, cwd=ROOT, capture_output=True, check=True) for _ in range(3))
        slowest = max(slowest, min(float(each.stdout) for each in told) * 1e3)
    return slowest


def conformance(modules: dict[str, str]) -> int:
    """Return how many checks fail, and how many clouds have none."""
    folder = ROOT / "tests/clouds/conformance"
    source = "".join(path.read_text() for path in folder.glob("test_*.py"))
    names = {name: f'"{module.removeprefix(CLOUDS)}:' for name, module in modules.items()}
    unknown = [name for name in names if name not in OWN and names[name] not in source]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rf"]
    shown = subprocess.run([*command, str(folder)], cwd=ROOT, capture_output=True, text=True)
    failed = [line for line in shown.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    print(f"not in the suite: {unknown}; failed: {failed}", flush=True)
    return len(failed) + len(unknown)


def command_times(times: int) -> tuple[float, float]:
    """Return wall and CPU milliseconds of ``jupyter-sky status``, medians."""
    words = [sys.executable, "-m", "jupyter_sky.cli", "status"]
    walls, cpus = [], []
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "SKY_DATA_DIR": f"{folder}/data"}
        # as on a user's machine, modules are compiled once and not by each command
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        subprocess.run(words, env=env, cwd=folder, capture_output=True, check=True)
        for _ in range(times):
            before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(words, env=env, cwd=folder, capture_output=True, check=True)
            walls.append((time.perf_counter() - begun) * 1e3)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            cpus.append(used * 1e3)
        timed = [sys.executable, "-X", "importtime", "-m", "jupyter_sky.cli", "status"]
        told = subprocess.run(timed, env=env, cwd=folder, capture_output=True, text=True).stderr
    print("slowest imports (ms, own):", slowest_imports(told), flush=True)
    return median(walls), median(cpus)


def slowest_imports(text: str) -> list[tuple[str, float]]:
    """Return packages by the own time of their modules, of what ``-X importtime`` prints."""
    spent: Counter[str] = Counter()
    for line in text.splitlines():
        own, __, rest = line.removeprefix("import time:").partition("|")
        if own.strip().isdigit():
            spent[rest.partition("|")[2].strip().partition(".")[0]] += int(own)
    return [(name, us / 1e3) for name, us in spent.most_common(12) if us >= HEAVY_US]


def main(quick: bool, launches: int = 200, seed: int = 1) -> dict:
    modules = launchable()
    print(f"launchable: {', '.join(modules)}", flush=True)
    wall, cpu = command_times(3 if quick else 20)
    figures = {
        "providers_launchable": len(modules) + (importlib.util.find_spec(SLICES) is not None),
        "lines_max": longest_driver(modules),
        "driver_import_ms": driver_import_ms(modules),
        "command_ms": wall,
        "command_cpu_ms": cpu,
    }
    if quick:
        return figures
    from chaos import chaos
    from chaos_clouds import EVERYWHERE

    told = chaos(launches, seed, EVERYWHERE)
    figures["conformance_failed"] = conformance(modules)
    return figures | {name: told[f"chaos_{name}"] for name in ("leaked", "unexplained")}
