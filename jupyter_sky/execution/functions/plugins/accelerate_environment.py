"""Environment of Hugging Face Accelerate, in a process group of all nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.plugins.process_groups import Torch

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
