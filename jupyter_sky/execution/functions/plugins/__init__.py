"""Plug-ins of pools: PyTorch, JAX, Keras, Hugging Face, cuML, MPI, joblib and scikit-learn.

A plug-in is any object with some of these methods: ``image(image)`` returns an image with what it
needs, ``setup(pool)`` what every new process of a node runs first, ``around(call)`` runs a call
on a node, ``client(pool)`` is a context on this side for the life of the pool. An attribute
``group`` says that the calls of an ``@`` wait for each other, and what begins again with all of
them when one is lost: the ``calls``, or their ``processes``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.plugins.joblib_backend import Joblib
    from jupyter_sky.execution.functions.plugins.mpi_world import Mpi
    from jupyter_sky.execution.functions.plugins.process_groups import Torch
    from jupyter_sky.execution.functions.plugins.process_setups import (
        Accelerate,
        Cuml,
        HuggingFace,
        Jax,
        Keras,
    )

__all__ = [
    "accelerate",
    "cuml",
    "huggingface",
    "jax",
    "joblib",
    "keras",
    "mig",
    "mpi",
    "mps",
    "sklearn",
    "torch",
]


def torch(
    backend: str | None = None,
    version: str | None = None,
    timeout: float = 300.0,
    *,
    cuda: str | None = None,
    vision: str | None = None,
    audio: str | None = None,
    processes: int | Literal["gpu"] | None = None,
) -> Torch:
    """Make the nodes a process group of PyTorch for each ``@``.

    Parameters
    ----------
    backend
        ``nccl``, ``gloo``; by what the nodes have unless given.
    version
        Install this version on the nodes; ``latest`` for the newest.
    timeout
        Seconds that a collective may take.
    cuda
        Install PyTorch from the index for this version of CUDA: ``cu128``.
    vision, audio
        Install these versions of torchvision and torchaudio.
    processes
        Processes on each node, all of one group: a number, or ``gpu`` for one for each GPU. They
        are new ones for each call, with the environment of ``torchrun`` (``LOCAL_RANK`` ...), and
        a node returns the list of what they return. Unless given a node is one process.

    Examples
    --------
    >>> with Compute(nodes=2, plugins=[torch()]) as compute:  # doctest: +SKIP
    ...     train() @ compute
    >>> with Compute(nodes=2, plugins=[torch(processes="gpu")]) as compute:  # doctest: +SKIP
    ...     [[first, *others], second_node] = train() @ compute
    """
    from jupyter_sky.execution.functions.plugins.process_groups import Torch

    return Torch(backend, version, timeout, cuda, vision, audio, processes)


def joblib(version: str | None = None) -> Joblib:
    """Let ``joblib.Parallel`` run on the pool, also by ``parallel_backend("sky")``.

    Parameters
    ----------
    version
        Install this version of joblib on the nodes.

    Examples
    --------
    >>> with Compute(nodes=2, plugins=[joblib()]):  # doctest: +SKIP
    ...     Parallel(n_jobs=-1)(delayed(fit)(fold) for fold in folds)
    """
    from jupyter_sky.execution.functions.plugins.joblib_backend import Joblib

    return Joblib(f"joblib=={version}" if version else None)


def sklearn(version: str | None = None) -> Joblib:
    """Let scikit-learn's ``n_jobs`` run on the pool, through joblib.

    Parameters
    ----------
    version
        Install this version of scikit-learn on the nodes.
    """
    from jupyter_sky.execution.functions.plugins.joblib_backend import Joblib

    return Joblib(f"scikit-learn=={version}" if version else None)


def jax(cuda: str | None = None) -> Jax:
    """Let JAX see the devices of all nodes in each ``@``.

    Parameters
    ----------
    cuda
        Install JAX for this version of CUDA: ``cu12``.
    """
    from jupyter_sky.execution.functions.plugins.process_setups import Jax

    return Jax(cuda)


def mpi() -> Mpi:
    """Make the nodes one MPI world, seen by ``mpi4py`` in each ``@``."""
    from jupyter_sky.execution.functions.plugins.mpi_world import Mpi

    return Mpi()


def keras(backend: str = "jax", version: str | None = None) -> Keras:
    """Let Keras use a backend on the nodes.

    For training over several nodes, beside the plug-in of the backend.

    Parameters
    ----------
    backend
        ``jax``, ``torch``, ``tensorflow``, ``numpy`` or ``openvino``.
    version
        Install this version on the nodes.

    Examples
    --------
    >>> with Compute(nodes=2, plugins=[jax(), keras("jax")]) as compute:  # doctest: +SKIP
    ...     train() @ compute
    """
    from jupyter_sky.execution.functions.plugins.process_setups import Keras

    return Keras(backend, version)


def huggingface(models: Sequence[str] = (), token: str | None = None) -> HuggingFace:
    """Give nodes a token and models of the Hugging Face hub.

    Parameters
    ----------
    models
        Repositories such as ``meta-llama/Llama-3.1-8B``, downloaded into the hub's cache of each
        node before its first call.
    token
        Token for private and gated repositories: ``HF_TOKEN`` on the nodes.
    """
    from jupyter_sky.execution.functions.plugins.process_setups import HuggingFace

    return HuggingFace(models, token)


def accelerate(
    config: Mapping[str, Any] | None = None, backend: str | None = None, timeout: float = 300.0
) -> Accelerate:
    """Make the nodes a process group for each ``@``, with settings for Hugging Face Accelerate.

    Each node is one process.

    Parameters
    ----------
    config
        As in a file of ``accelerate config``: ``{"mixed_precision": "bf16", "fsdp_config": ...}``.
        What it says of ranks and addresses is the pool's to decide, and is left out.
    backend, timeout
        As of `torch`.
    """
    from jupyter_sky.execution.functions.plugins.process_setups import (
        Accelerate,
        accelerate_variables,
    )

    config = config or {}
    backend = config.get("backend") if backend is None else backend
    return Accelerate(backend, timeout=timeout, variables=accelerate_variables(config))


def cuml(cuda: str = "cu12") -> Cuml:
    """Install RAPIDS cuML, and let scikit-learn's estimators run on the nodes' GPUs.

    Parameters
    ----------
    cuda
        Suffix of the package: ``cu12`` for ``cuml-cu12``.
    """
    from jupyter_sky.execution.functions.plugins.process_setups import Cuml

    return Cuml(cuda)


_SHARING = (
    "for several calls on one GPU: Worker(concurrency=2, executor='process'); for a part of a GPU "
    "where a machine sells one: sky.accelerators.L4(count=0.5)"
)


def mig(profile: str = "") -> NoReturn:
    """Raise SkyUsageError: GPUs are not cut into instances.

    That needs root, resets the GPU, and outlives the pool on machines of one's own.
    """
    raise SkyUsageError(
        _(
            "plugins.mig({profile!r}): a pool does not cut GPUs into instances; "
            "that needs root, resets the GPU and would outlive the pool"
        ).format(profile=profile),
        hint=_SHARING,
    )


def mps(active_thread_percentage: int | None = None, pinned_memory_limit: str = "") -> NoReturn:
    """Raise SkyUsageError: NVIDIA's Multi-Process Service is not started.

    Its daemon serves all processes of a user on a machine, and would outlive the pool.
    """
    raise SkyUsageError(
        _(
            "plugins.mps(): a pool does not start NVIDIA's Multi-Process Service, "
            "whose daemon serves other processes of the machine, too, and would "
            "outlive the pool"
        ),
        hint=_("start it on machines of your own: nvidia-cuda-mps-control -d; {sharing}").format(
            sharing=_SHARING
        ),
    )
