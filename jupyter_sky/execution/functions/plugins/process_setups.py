"""Plug-ins that prepare processes before their first call: JAX, Keras, Hugging Face, cuML."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from jupyter_sky.base.errors import SkyError, SkyUsageError, SkyWorldChanged, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.images.image import Image
from jupyter_sky.execution.functions.images.image_packages import PipIndex
from jupyter_sky.execution.functions.plugins.process_groups import Torch
from jupyter_sky.execution.functions.plugins.rendezvous import (
    SINGLE_NODE,
    broadcast_id,
    must_create,
    require_single_slot,
)
from jupyter_sky.machines.engines.node.instance import instance_info

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.pools.pool import Pool

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.group_restart import GroupKind
    from jupyter_sky.execution.functions.pools.pool import Pool


KERAS_BACKENDS = ("jax", "torch", "tensorflow", "numpy", "openvino")
NVIDIA_INDEX = "https://pypi.nvidia.com"


@dataclass(frozen=True, slots=True)
class Keras:
    """Plug-in, see `plugins.keras`."""

    backend: str = "jax"
    version: str | None = None

    def __post_init__(self) -> None:
        if self.backend not in KERAS_BACKENDS:
            raise SkyUsageError(
                _("plugins.keras(backend={backend!r}): not a backend").format(backend=self.backend),
                hint=suggest(self.backend, KERAS_BACKENDS),
            )

    def image(self, image: Image | None) -> Image:
        """Set the backend, which Keras reads when it is imported; add Keras for a version."""
        image = image or Image()
        pip = [*image.pip, *([f"keras=={self.version}"] if self.version else [])]
        return replace(image, pip=pip, env={**image.env, "KERAS_BACKEND": self.backend})


@dataclass(frozen=True, slots=True)
class HuggingFace:
    """Plug-in, see `plugins.huggingface`."""

    models: Sequence[str] = ()
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.models, str):
            raise SkyUsageError(
                _("plugins.huggingface(models={models!r}): not a list").format(models=self.models),
                hint=f"models=[{self.models!r}]",
            )

    def setup(self, pool: Pool) -> Callable[[], None]:
        """Return what every new process of a node runs before its first call."""
        return HubSetup(tuple(self.models), self.token)


@dataclass(frozen=True, slots=True)
class HubSetup:
    """Token and models of the Hugging Face hub in a process of a node."""

    models: tuple[str, ...]
    token: str | None = field(default=None, repr=False)

    def __call__(self) -> None:
        """Set the token, and download the models that this machine has not in its cache."""
        if self.token is not None:
            os.environ["HF_TOKEN"] = self.token
        if not self.models:
            return
        try:
            from huggingface_hub import snapshot_download  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise SkyError(
                _("plugins.huggingface(): there is no huggingface_hub on the node"),
                hint=_('have it installed: Image(pip=["huggingface_hub"])'),
            ) from None
        for model in self.models:
            snapshot_download(model)


@dataclass(frozen=True, slots=True)
class Cuml:
    """Plug-in, see `plugins.cuml`."""

    cuda: str = "cu12"

    def image(self, image: Image | None) -> Image:
        """Add cuML, and the index that has it."""
        image, package = image or Image(), f"cuml-{self.cuda}"
        indexes = [*image.pip_indexes, PipIndex(NVIDIA_INDEX, [package])]
        return replace(image, pip=[*image.pip, package], pip_indexes=indexes)

    def setup(self, pool: Pool) -> Callable[[], None]:
        """Return what every new process of a node runs before its first call."""
        return accelerate_sklearn


def accelerate_sklearn() -> None:
    """Let scikit-learn's estimators of this process run on its GPU."""
    try:
        import cuml.accel  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise SkyError(
            _("plugins.cuml(): cuML cannot be imported on the node: {error}").format(error=error),
            hint=_("it needs an NVIDIA GPU: sky.Compute(accelerator=...)"),
        ) from None
    cuml.accel.install()


# -- Environment of Hugging Face Accelerate, in a process group of all nodes ----------------------

T = TypeVar("T")

_GROUPS = {"fsdp": "FSDP", "deepspeed": "DEEPSPEED"}
_OF_THE_POOL = {
    *("compute_environment", "debug", "distributed_type", "downcast_bf16", "enable_cpu_affinity"),
    *("machine_rank", "main_process_ip", "main_process_port", "main_training_function"),
    *("num_machines", "num_processes", "rdzv_backend", "same_network", "use_cpu"),
}
"""Settings in files of ``accelerate config`` that the pool decides."""
_KNOWN = {"backend", "gradient_accumulation_steps", "mixed_precision"}
_KNOWN |= {*_GROUPS, *(f"{name}_config" for name in _GROUPS)}


def accelerate_variables(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables that Accelerate reads, from its settings.

    Parameters
    ----------
    config
        As in a file of ``accelerate config``.

    Raises
    ------
    SkyUsageError
        A setting is not known.

    Examples
    --------
    >>> accelerate_variables({"mixed_precision": "bf16", "fsdp": {"offload_params": True}})
    {'ACCELERATE_MIXED_PRECISION': 'bf16', 'ACCELERATE_USE_FSDP': 'true', 'FSDP_OFFLOAD_PARAMS': \
'true'}
    """
    variables: dict[str, str] = {}
    for name, value in config.items():
        if name not in _KNOWN | _OF_THE_POOL:
            raise SkyUsageError(
                _("plugins.accelerate(): {name!r} is not a setting").format(name=name),
                hint=suggest(name, _KNOWN),
            )
        group = name.removesuffix("_config")
        if group in _GROUPS:
            variables |= _group_variables(group, value)
        elif name in ("mixed_precision", "gradient_accumulation_steps"):
            variables[f"ACCELERATE_{name.upper()}"] = _text(value)
    return variables


def _group_variables(group: str, settings: Mapping[str, Any]) -> dict[str, str]:
    if not settings:  # files of `accelerate config` have empty groups
        return {}
    variables = {f"ACCELERATE_USE_{_GROUPS[group]}": "true"}
    for name, value in settings.items():
        plain = name.removeprefix(f"{group}_").upper()
        if group == "fsdp":
            variables[f"FSDP_{plain}"] = _text(value)
        elif plain.startswith("GRADIENT_"):
            variables[f"ACCELERATE_{plain}"] = _text(value)
        else:
            variables[f"ACCELERATE_DEEPSPEED_{plain}"] = _text(value)
    return variables


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Accelerate(Torch):
    """Plug-in, see `plugins.accelerate`."""

    variables: dict[str, str] = field(default_factory=dict, hash=False)

    def around(self, call: Callable[[], T]) -> T:
        """Run a call in a process group of all nodes, with Accelerate's settings."""
        os.environ.update(self.variables)  # first: its state is made at first use, and stays
        return Torch.around(self, call)


# -- JAX over a pool: one process a node, each seeing the devices of all --------------------------


@dataclass(frozen=True, slots=True)
class Jax:
    """Plug-in, see `plugins.jax`."""

    cuda: str | None = None

    group: ClassVar[GroupKind] = "processes"
    """JAX knows the other processes for the life of this one."""
    world: ClassVar[list[str]] = []
    """The set of processes that this one is in, by the broadcast that made it."""

    def __post_init__(self) -> None:
        if self.cuda is not None and not re.fullmatch(r"cu\d{2,3}", self.cuda):
            raise SkyUsageError(
                _("plugins.jax(cuda={cuda!r}): not a version of CUDA").format(cuda=self.cuda),
                hint=_("such as 'cu12'"),
            )

    def image(self, image: Image | None) -> Image | None:
        """Add JAX for a version of CUDA to the image if one is given."""
        if self.cuda is None:
            return image
        image = image or Image()
        return replace(image, pip=[*image.pip, f"jax[cuda{self.cuda[2:4]}]"])

    def setup(self, pool: Pool) -> None:
        """Raise SkyUsageError for pools that are not supported."""
        require_single_slot(pool, "jax")

    def around(self, call: Callable[[], T]) -> T:
        """Run a call in one set of processes with all nodes that were sent it."""
        if (name := broadcast_id()) and name != SINGLE_NODE:
            self._join(name)
        return call()

    def _join(self, name: str) -> None:
        if must_create("JAX", "".join(self.world)):
            self._enter()
            self.world[:] = [name]
        import jax

        info = instance_info()
        if jax.process_count() != info.total_nodes:
            raise SkyWorldChanged(
                _("JAX has {process_count} processes, the pool {total_nodes} nodes").format(
                    process_count=jax.process_count(), total_nodes=info.total_nodes
                )
            )

    @staticmethod
    def _enter() -> None:
        if find_spec("jax") is None:
            raise SkyError(
                _("plugins.jax(): there is no jax on the node"),
                hint=_('have it installed: Image(pip=["jax"])'),
            )
        import jax

        info = instance_info()
        # for nodes that have processors only; devices with a network of their own do not use it
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        try:
            jax.distributed.initialize(
                f"{info.head_addr}:{info.head_port}", info.total_nodes, info.node
            )
        except RuntimeError as error:
            raise SkyError(
                _("JAX cannot join the other nodes: {error}").format(error=error),
                hint=_("it must not have computed anything here before: send the first call by @"),
            ) from error
