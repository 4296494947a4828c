"""Sizes of the processes of data engines, by the CPUs and the memory of a node."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _

CORES_OF_EXECUTOR = 5
"""Most cores of one executor: more of them wait for each other's garbage collection."""
PYTHON_SHARE = 0.3
"""Share of a node's memory for the engine and the Python processes of executors."""
DRIVER_SHARE = 0.25
MIN_HEAP_MB = 512
"""Least heap of a driver or an executor; Spark refuses less than 450 MiB."""
MAX_PARTITIONS = 2000
STORE_SHARE = 0.3
"""Share of a node's memory for the objects of Ray, as in its own default."""
MIN_DASK = 0.5
"""Least memory of a worker of Dask, GiB."""
MIN_RAY, RAY_WORKER = 0.5, 0.15
"""Least memory of Ray's own processes, and of the worker of a CPU, GiB."""


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

    Returns
    -------
    SparkSizes
        Cores and memory of the driver and of the executors.

    Raises
    ------
    SkyError
        The nodes are too small for a driver and an executor.

    Examples
    --------
    >>> size_spark(8, 32.0, 2).executors
    2
    """
    usable = usable_memory(memory) * 1024
    executors = math.ceil(cpus / CORES_OF_EXECUTOR)
    if nodes == 1:
        driver, executor = usable * (1 - PYTHON_SHARE), 0.0
    else:
        driver = usable * DRIVER_SHARE
        executor = usable * (1 - DRIVER_SHARE - PYTHON_SHARE) / executors
    if min(driver, executor or driver) < MIN_HEAP_MB:
        least = math.ceil(1 + MIN_HEAP_MB / 1024 / (DRIVER_SHARE if nodes > 1 else 0.7))
        _refuse("Spark", memory, max(least, 3))
    return SparkSizes(
        driver_mb=int(driver),
        executor_mb=int(executor),
        executors=executors,
        executor_cores=max(cpus // executors, 1),
        partitions=min(2 * cpus * nodes, MAX_PARTITIONS),
    )


def usable_memory(memory: float) -> float:
    """Return the memory of a node without that of the system: a tenth, or 1 GiB if that is more."""
    return memory - max(1.0, memory / 10)


def size_dask(memory: float) -> float:
    """Return the memory of a worker of Dask, in GiB, on a node with so much.

    Raises
    ------
    SkyError
        The node is too small.

    Examples
    --------
    >>> size_dask(16), size_dask(4)
    (14.4, 3.0)
    """
    usable = usable_memory(memory)
    if usable < MIN_DASK:
        _refuse("Dask", memory, math.ceil(1 + MIN_DASK))
    return usable


@dataclass(frozen=True, slots=True)
class RaySizes:
    """Memory of Ray on a node, in bytes: of its objects, and of its tasks."""

    objects: int
    tasks: int


def size_ray(cpus: int, memory: float) -> RaySizes:
    """Return the memory of Ray on a node.

    Parameters
    ----------
    cpus
        vCPUs of the node; each has a worker.
    memory
        Memory of the node in GiB.

    Raises
    ------
    SkyError
        The node is too small.

    Examples
    --------
    >>> sizes = size_ray(cpus=4, memory=16)
    >>> round(sizes.objects / 2**30, 2), round(sizes.tasks / 2**30, 2)
    (4.32, 10.08)
    """
    usable = usable_memory(memory)
    needed = MIN_RAY + RAY_WORKER * cpus
    if usable * (1 - STORE_SHARE) < needed:
        whole = needed / (1 - STORE_SHARE)
        _refuse("Ray", memory, math.ceil(max(whole + 1, whole / 0.9)))
    objects = usable * STORE_SHARE
    return RaySizes(int(objects * 2**30), int((usable - objects) * 2**30))


def _refuse(engine: str, memory: float, least: int) -> NoReturn:
    """Raise SkyError: a data engine needs `least` GiB of each node."""
    raise SkyError(
        _("{engine} does not fit into {memory:.3g} GiB of memory on each node").format(
            engine=engine, memory=memory
        ),
        hint=_("ask for more: --memory {least}+").format(least=least),
    )
