"""Plug-ins of pools for PyTorch, JAX, MPI, joblib and scikit-learn.

A plug-in is any object with some of these methods: ``image(image)`` returns an image with what it
needs, ``setup(pool)`` what every new process of a node runs first, ``around(call)`` runs a call
on a node, ``client(pool)`` is a context on this side for the life of the pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .jax_processes import Jax
    from .joblib_backend import Joblib
    from .mpi_world import Mpi
    from .process_groups import Torch

__all__ = ["jax", "joblib", "mpi", "sklearn", "torch"]


def torch(backend: str | None = None, version: str | None = None, timeout: float = 300.0) -> Torch:
    """Make the nodes a process group of PyTorch for each ``@``.

    Parameters
    ----------
    backend
        ``nccl``, ``gloo``; by what the nodes have unless given.
    version
        Install this version on the nodes.
    timeout
        Seconds that a collective may take.

    Examples
    --------
    >>> with Compute(nodes=2, plugins=[torch()]) as compute:  # doctest: +SKIP
    ...     train() @ compute
    """
    from .process_groups import Torch

    return Torch(backend, version, timeout)


def joblib() -> Joblib:
    """Let ``joblib.Parallel`` run on the pool, also by ``parallel_backend("sky")``.

    Examples
    --------
    >>> with Compute(nodes=2, plugins=[joblib()]):  # doctest: +SKIP
    ...     Parallel(n_jobs=-1)(delayed(fit)(fold) for fold in folds)
    """
    from .joblib_backend import Joblib

    return Joblib()


def sklearn() -> Joblib:
    """Let scikit-learn's ``n_jobs`` run on the pool, through joblib."""
    return joblib()


def jax() -> Jax:
    """Let JAX see the devices of all nodes in each ``@``."""
    from .jax_processes import Jax

    return Jax()


def mpi() -> Mpi:
    """Make the nodes one MPI world, seen by ``mpi4py`` in each ``@``."""
    from .mpi_world import Mpi

    return Mpi()
