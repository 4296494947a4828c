"""Sizes of Spark's processes, by the CPUs and the memory of a node."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import SkyError
from ..translation import _

CORES_OF_EXECUTOR = 5
"""Most cores of one executor: more of them wait for each other's garbage collection."""
PYTHON_SHARE = 0.3
"""Share of a node's memory for the engine and the Python processes of executors."""
DRIVER_SHARE = 0.25
MIN_HEAP_MB = 512
"""Least heap of a driver or an executor; Spark refuses less than 450 MiB."""
MAX_PARTITIONS = 2000


@dataclass(frozen=True, slots=True)
class SparkSizes:
    """Sizes of Spark's processes on each node of a cluster.

    Attributes
    ----------
    driver_mb, executor_mb : int
        Heaps in MiB; a cluster of one node has no executor but its driver.
    executors, executor_cores : int
        Executors of a node, and cores of each.
    partitions : int
        Partitions of a shuffle.

    Examples
    --------
    >>> size_spark(cpus=4, memory=16, nodes=3)
    SparkSizes(driver_mb=3686, executor_mb=6635, executors=1, executor_cores=4, partitions=24)
    >>> size_spark(cpus=2, memory=4, nodes=1).driver_mb
    2150
    """

    driver_mb: int
    executor_mb: int
    executors: int
    executor_cores: int
    partitions: int


def size_spark(cpus: int, memory: float, nodes: int) -> SparkSizes:
    """Return the sizes of Spark's processes on nodes of one kind.

    Of the memory of a node a tenth, or 1 GiB if that is more, is the system's; of the rest a share
    is that of Python. Executors have one size, so each node leaves the room of the driver.

    Parameters
    ----------
    cpus
        vCPUs of a node.
    memory
        Memory of a node in GiB.

    Raises
    ------
    SkyError
        The nodes are too small for a driver and an executor.
    """
    usable = (memory - max(1.0, memory / 10)) * 1024
    executors = math.ceil(cpus / CORES_OF_EXECUTOR)
    if nodes == 1:
        driver, executor = usable * (1 - PYTHON_SHARE), 0.0
    else:
        driver = usable * DRIVER_SHARE
        executor = usable * (1 - DRIVER_SHARE - PYTHON_SHARE) / executors
    if min(driver, executor or driver) < MIN_HEAP_MB:
        least = math.ceil(1 + MIN_HEAP_MB / 1024 / (DRIVER_SHARE if nodes > 1 else 0.7))
        raise SkyError(
            _("Spark does not fit into {memory:.3g} GiB of memory on each node").format(
                memory=memory
            ),
            hint=_("ask for more: --memory {least}+").format(least=max(least, 3)),
        )
    return SparkSizes(
        driver_mb=int(driver),
        executor_mb=int(executor),
        executors=executors,
        executor_cores=max(cpus // executors, 1),
        partitions=min(2 * cpus * nodes, MAX_PARTITIONS),
    )
