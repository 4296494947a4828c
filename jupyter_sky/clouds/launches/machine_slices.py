"""Sizes that a machine is offered in where a part of it can be had: by containers and pods."""

from __future__ import annotations

import math

LEAST_GIB = 2


def slice_sizes(cpus: float, memory: float) -> list[tuple[int, int]]:
    """Return sizes of parts of a machine, up to all of it.

    Every number of vCPUs up to 8 is among them, then powers of two; of memory powers of two.

    Parameters
    ----------
    cpus
        vCPUs that are there.
    memory
        GiB that are there.

    Returns
    -------
    list of tuple of int
        vCPUs and GiB; empty for a machine that holds no engine.

    Examples
    --------
    >>> slice_sizes(2.5, 9.9)
    [(1, 2), (1, 4), (1, 8), (1, 9), (2, 2), (2, 4), (2, 8), (2, 9)]
    >>> slice_sizes(0.9, 64)
    []
    """
    whole, most = math.floor(cpus), math.floor(memory)
    counts = (
        {*range(1, min(whole, 8) + 1), *powers_of_two(8, whole), whole} if whole else set[int]()
    )
    sizes = {*powers_of_two(LEAST_GIB, most), most}
    return [(count, size) for count in sorted(counts) for size in sorted(sizes)]


def slice_name(cpus: int, memory: int, gpu: str = "", gpu_count: int = 0) -> str:
    """Return the instance type of a part of a machine.

    Examples
    --------
    >>> slice_name(2, 8), slice_name(8, 64, "A100", 2)
    ('2cpu-8gib', '8cpu-64gib-2x-A100')
    """
    return f"{cpus}cpu-{memory}gib" + (f"-{gpu_count}x-{gpu}" if gpu_count else "")


def powers_of_two(first: int, most: int) -> list[int]:
    """Return a number and its doubles up to a most.

    Examples
    --------
    >>> powers_of_two(1, 6)
    [1, 2, 4]
    """
    found = []
    while first <= most:
        found.append(first)
        first *= 2
    return found
