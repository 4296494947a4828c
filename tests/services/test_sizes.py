"""Sizes of the processes of data engines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_sky.base.errors import SkyError
from jupyter_sky.machines.services.sizes import (
    CORES_OF_EXECUTOR,
    MIN_HEAP_MB,
    size_dask,
    size_ray,
    size_spark,
)


@given(st.integers(1, 128), st.floats(3, 2000), st.integers(1, 64))
def test_heaps_fit_into_a_node(cpus: int, memory: float, nodes: int) -> None:
    try:
        sizes = size_spark(cpus, memory, nodes)
    except SkyError:
        assert memory < 1.5 * cpus + 4
        return
    executors = sizes.executors * sizes.executor_mb if nodes > 1 else 0
    assert sizes.driver_mb + executors < memory * 1024 - 1024
    assert sizes.driver_mb >= MIN_HEAP_MB
    assert nodes == 1 or sizes.executor_mb >= MIN_HEAP_MB
    assert sizes.executor_cores <= CORES_OF_EXECUTOR
    assert sizes.executors * sizes.executor_cores <= cpus
    assert sizes.partitions >= 2


def test_a_machine_that_is_too_small_names_what_is_enough() -> None:
    for nodes in (1, 2):
        with pytest.raises(SkyError, match=r"does not fit into 1\.5 GiB") as caught:
            size_spark(2, 1.5, nodes)
        assert caught.value.hint is not None
        enough = float(caught.value.hint.partition("--memory ")[2].rstrip("+"))
        assert size_spark(1, enough, nodes).driver_mb >= MIN_HEAP_MB


@given(st.integers(1, 128), st.floats(0.5, 2000))
def test_ray_fits_into_a_node_or_names_one_that_it_fits_into(cpus: int, memory: float) -> None:
    try:
        sizes = size_ray(cpus, memory)
    except SkyError as error:
        sizes = size_ray(cpus, memory := _named_memory(error))
    assert 75 * 2**20 < sizes.objects < sizes.tasks, "Ray refuses stores of less than 75 MiB"
    assert (sizes.objects + sizes.tasks) / 2**30 <= memory - 1


@given(st.floats(0.5, 2000))
def test_dask_fits_into_a_node_or_names_one_that_it_fits_into(memory: float) -> None:
    try:
        usable = size_dask(memory)
    except SkyError as error:
        usable = size_dask(memory := _named_memory(error))
    assert 0.5 <= usable <= memory - 1


def _named_memory(error: SkyError) -> float:
    """Return the memory that an error tells to ask for."""
    assert error.hint is not None
    return float(error.hint.partition("--memory ")[2].rstrip("+"))
