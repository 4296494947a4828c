"""Metrics of a node: CPU, memory and GPUs, sampled every few seconds, with a short history.

A sample takes a fraction of a millisecond. ``nvidia-smi`` takes longer: it runs as a child process
and is read when it has ended.

``nvidia-ml-py`` would replace the child process and 25 lines here. It is not used: its calls block
the controller's loop, for good where a driver hangs, while a child process can be killed; and it
would be one more package (58 kB) to install on every machine and on hosts of one's own.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.machines.engines.wire.messages import GpuSample, NodeSample

PERIOD_SECONDS = 5.0
FIRST_SECONDS = 1.0
"""Delay of the first measurement, so that it does not slow the start of the engine."""
MAX_SAMPLES = 60
"""Samples of a node, so that there are five minutes of them."""
GPU_SECONDS = 30.0
"""Time after which a query of the GPU tool counts as hung, and is the last."""
GPU_QUERY = (
    "--query-gpu=name,utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
)


class NodeMetrics:
    """Sampler of the metrics of the nodes on this machine.

    Parameters
    ----------
    nodes
        For each node the CPUs that its engine is held to; None for all of them.

    Examples
    --------
    >>> metrics = NodeMetrics([None], wait=0.0)
    >>> (sample,) = metrics.tick()
    >>> sorted(sample)
    ['cpu', 'gpus', 'host', 'memory', 'memory_total']
    """

    def __init__(self, nodes: Sequence[list[int] | None], wait: float = FIRST_SECONDS) -> None:
        self.nodes = nodes
        self._due = time.monotonic() + wait
        self._counted = False
        self._tool = shutil.which("nvidia-smi")
        self._query: subprocess.Popen[str] | None = None
        self._since = 0.0
        self._gpus: list[GpuSample] = []

    def tick(self) -> list[NodeSample]:
        """Take a sample if one is due; call it often.

        Returns
        -------
        list of dict
            Of each node ``host``, ``cpu`` (per cent of its CPUs; None in the first sample), and of
            its machine ``memory`` and ``memory_total`` (GiB), and of each GPU in ``gpus`` its
            ``name``, ``use`` (per cent), ``memory`` and ``memory_total`` (GiB).
        """
        now = time.monotonic()
        if now < self._due:
            return []
        self._due = now + PERIOD_SECONDS
        if self._tool:
            self._sample_gpus(now)
        import platform

        import psutil

        use_by_cpu = psutil.cpu_percent(percpu=True)
        counted, self._counted = self._counted, True
        memory = psutil.virtual_memory()
        # the first sample has no start to count from
        return [
            {
                "host": platform.node(),
                "cpu": _mean(use_by_cpu, node) if counted else None,
                "memory": round((memory.total - memory.available) / 2**30, 2),
                "memory_total": round(memory.total / 2**30, 2),
                "gpus": self._gpus,
            }
            for node in self.nodes
        ]

    def _sample_gpus(self, now: float) -> None:
        """Read the output of the last query of the GPU tool, and start the next."""
        if self._query is not None:
            if self._query.poll() is None:
                if now - self._since > GPU_SECONDS:
                    self._query.kill()
                    self._query, self._tool = None, None
                return
            assert self._query.stdout is not None
            with self._query.stdout as out:
                self._gpus = parse_gpu_table(out.read()) if self._query.returncode == 0 else []
            if self._query.returncode:  # the tool without a GPU
                self._tool = None
            self._query = None
        if not self._tool:
            return
        with suppress(OSError):
            quiet = subprocess.DEVNULL
            self._query = subprocess.Popen(
                [self._tool, *GPU_QUERY],
                stdin=quiet,
                stdout=subprocess.PIPE,
                stderr=quiet,
                text=True,
            )
            self._since = now


def _mean(use_by_cpu: list[float], cpus: list[int] | None) -> float | None:
    uses = [use_by_cpu[cpu] for cpu in cpus if cpu < len(use_by_cpu)] if cpus else use_by_cpu
    return round(sum(uses) / len(uses), 1) if uses else None


def parse_gpu_table(table: str) -> list[GpuSample]:
    r"""Parse a table of GPUs; unknown values are None.

    Examples
    --------
    >>> parse_gpu_table("NVIDIA A10G, 37, 2048, 23028\n")
    [{'name': 'NVIDIA A10G', 'use': 37.0, 'memory': 2.0, 'memory_total': 22.49}]
    """
    gpus: list[GpuSample] = []
    for line in table.splitlines():
        name, *cells = (cell.strip() for cell in line.rsplit(",", 3))
        if len(cells) == 3:
            use, used, total = map(_number, cells)
            gpus.append(
                {"name": name, "use": use, "memory": _gib(used), "memory_total": _gib(total)}
            )
    return gpus


def _gib(mebibytes: float | None) -> float | None:
    return None if mebibytes is None else round(mebibytes / 1024, 2)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:  # [N/A], [Not Supported]
        return None


class MetricsHistory:
    """Last samples of each node, by rank."""

    def __init__(self) -> None:
        self._kept: dict[int, deque[NodeSample]] = {}

    def add(self, rank: int, sample: NodeSample) -> None:
        """Add a sample of a node."""
        self._kept.setdefault(rank, deque(maxlen=MAX_SAMPLES)).append(sample)

    def nodes(self) -> list[JsonObject]:
        """Return each node with its samples as columns, the oldest first."""
        return [_columns(rank, list(kept)) for rank, kept in sorted(self._kept.items()) if kept]


def _columns(rank: int, samples: list[NodeSample]) -> JsonObject:
    last = samples[-1]
    gpus = []
    for number, gpu in enumerate(last["gpus"]):
        readings = [
            sample["gpus"][number] if number < len(sample["gpus"]) else {} for sample in samples
        ]
        gpus.append(
            {
                "name": gpu["name"],
                "use": [reading.get("use") for reading in readings],
                "memory": [reading.get("memory") for reading in readings],
                "memory_total": gpu["memory_total"],
            }
        )
    return {
        "rank": rank,
        "host": last["host"],
        "cpu": [sample["cpu"] for sample in samples],
        "memory": [sample["memory"] for sample in samples],
        "memory_total": last["memory_total"],
        "gpus": gpus,
    }
