"""Run notebook cells on the clouds: ``%%sky`` above a cell says what the cell needs.

Nothing heavy is imported here: ``%load_ext jupyter_sky`` starts nothing and costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import accelerators, catalog, preemption, tracker
    from .api.cells import cancel, handle, logs, run, wait
    from .api.clusters import check, down, extend, setup, status, up
    from .api.costs import cost, meter
    from .api.doctor import doctor
    from .api.examples import examples
    from .api.failures import failures
    from .api.help import help
    from .api.jobs import bag, sweep
    from .api.measurements import measurements
    from .api.pipelines import pipeline, read_dag, resume, write_dag
    from .api.planning import form, offers, plan, search
    from .api.settings import alias, config
    from .api.stopped_clusters import start, stop
    from .api.storage import copy, scratch
    from .api.variables import get, put, vars
    from .checkpoints import callbacks
    from .checkpoints.leaving import leaving
    from .checkpoints.resumable import resumable
    from .checkpoints.state import checkpoint, checkpointed
    from .dag.analytics import AnalyticsService
    from .dag.dag import Dag
    from .dag.task import Task
    from .engines.node.instance import InstanceInfo, instance_info, is_head
    from .errors import SkyError
    from .functions import plugins
    from .functions.active_pools import sky as sky
    from .functions.compute import Compute
    from .functions.gathers import gather
    from .functions.image import DEFAULT_IMAGE as DEFAULT_IMAGE
    from .functions.image import Image
    from .functions.image_packages import PipIndex
    from .functions.lazy_calls import PendingFunction, PendingFunctionGroup, function
    from .functions.output import CallbackWriter, redirect_output, silent, stderr, stdout
    from .functions.pool import Pool
    from .functions.providers import (
        AWS,
        GCP,
        SSH,
        Azure,
        Container,
        Hyperstack,
        Kubernetes,
        Lambda,
        Local,
        Nebius,
        RunPod,
        Slurm,
        VastAI,
        Verda,
    )
    from .functions.shard import shard
    from .functions.shared.collections import Consistency as Consistency
    from .functions.specs import AllocationStrategy as AllocationStrategy
    from .functions.specs import Nodes, Options, Spec, Worker
    from .functions.specs import NodeSpec as NodeSpec
    from .functions.specs import SelectionStrategy as SelectionStrategy
    from .functions.specs import WorkerExecutor as WorkerExecutor
    from .functions.volumes import Volume
    from .offers import InstanceType, Offer
    from .quantities import GB
    from .resources import Resources
    from .services.dask_session import dask
    from .services.ray_session import ray
    from .services.spark_session import spark
    from .storage.data import Storage

_VERBS = {
    **dict.fromkeys("cancel handle logs run wait".split(), "api.cells"),
    **dict.fromkeys("check down extend setup status up".split(), "api.clusters"),
    **dict.fromkeys("cost meter".split(), "api.costs"),
    "doctor": "api.doctor",
    "failures": "api.failures",
    "help": "api.help",
    "measurements": "api.measurements",
    **dict.fromkeys("get put vars".split(), "api.variables"),
    **dict.fromkeys("form offers plan search".split(), "api.planning"),
    **dict.fromkeys("alias config".split(), "api.settings"),
    **dict.fromkeys("bag sweep".split(), "api.jobs"),
    "examples": "api.examples",
    **dict.fromkeys("copy scratch".split(), "api.storage"),
    **dict.fromkeys("start stop".split(), "api.stopped_clusters"),
    **dict.fromkeys("pipeline read_dag resume write_dag".split(), "api.pipelines"),
}
_ROOMS = ("accelerators", "catalog", "preemption", "tracker")
_PROVIDERS = (
    "AWS Azure Container GCP Hyperstack Kubernetes Lambda Local Nebius RunPod SSH Slurm VastAI "
    "Verda"
).split()
_NAMES = {
    "AnalyticsService": "dag.analytics",
    "Dag": "dag.dag",
    "Resources": "resources",
    "Storage": "storage.data",
    "Task": "dag.task",
    "Compute": "functions.compute",
    "Consistency": "functions.shared.collections",
    "DEFAULT_IMAGE": "functions.image",
    "Image": "functions.image",
    "GB": "quantities",
    "InstanceType": "offers",
    "InstanceInfo": "engines.node.instance",
    "Offer": "offers",
    "PendingFunction": "functions.lazy_calls",
    "PendingFunctionGroup": "functions.lazy_calls",
    "PipIndex": "functions.image_packages",
    "Pool": "functions.pool",
    **dict.fromkeys("Nodes NodeSpec Options Spec Worker".split(), "functions.specs"),
    "Volume": "functions.volumes",
    **dict.fromkeys(
        "AllocationStrategy SelectionStrategy WorkerExecutor".split(), "functions.specs"
    ),
    **dict.fromkeys(_PROVIDERS, "functions.providers"),
    "CallbackWriter": "functions.output",
    **dict.fromkeys("checkpoint checkpointed".split(), "checkpoints.state"),
    "leaving": "checkpoints.leaving",
    "resumable": "checkpoints.resumable",
    "barrier": "functions.shared.collections",
    "counter": "functions.shared.collections",
    "dict": "functions.shared.collections",
    "function": "functions.lazy_calls",
    "gather": "functions.gathers",
    "instance_info": "engines.node.instance",
    "is_head": "engines.node.instance",
    "lock": "functions.shared.collections",
    "queue": "functions.shared.collections",
    "redirect_output": "functions.output",
    "set": "functions.shared.collections",
    "shard": "functions.shard",
    "silent": "functions.output",
    "sky": "functions.active_pools",
    **{name: f"services.{name}_session" for name in ("dask", "ray", "spark")},
    "stderr": "functions.output",
    "stdout": "functions.output",
}
"""Modules of the other names, imported on first use.

`lazy_loader` would do the same by a stub: 1 ms more at each import and one package more on every
engine, for three lists of names that become two.
"""

__all__ = [
    "AWS",
    "GB",
    "GCP",
    "SSH",
    "AnalyticsService",
    "Azure",
    "CallbackWriter",
    "Compute",
    "Container",
    "Dag",
    "Hyperstack",
    "Image",
    "InstanceInfo",
    "InstanceType",
    "Kubernetes",
    "Lambda",
    "Local",
    "Nebius",
    "Nodes",
    "Offer",
    "Options",
    "PendingFunction",
    "PendingFunctionGroup",
    "PipIndex",
    "Pool",
    "Resources",
    "RunPod",
    "SkyError",
    "Slurm",
    "Spec",
    "Storage",
    "Task",
    "VastAI",
    "Verda",
    "Volume",
    "Worker",
    "__version__",
    "accelerators",
    "alias",
    "bag",
    "callbacks",
    "cancel",
    "catalog",
    "check",
    "checkpoint",
    "checkpointed",
    "config",
    "copy",
    "cost",
    "dask",
    "doctor",
    "down",
    "examples",
    "extend",
    "failures",
    "form",
    "function",
    "gather",
    "get",
    "handle",
    "help",
    "instance_info",
    "is_head",
    "leaving",
    "logs",
    "measurements",
    "meter",
    "offers",
    "pipeline",
    "plan",
    "plugins",
    "preemption",
    "put",
    "ray",
    "read_dag",
    "redirect_output",
    "resumable",
    "resume",
    "run",
    "scratch",
    "search",
    "setup",
    "shard",
    "silent",
    "spark",
    "start",
    "status",
    "stderr",
    "stdout",
    "stop",
    "sweep",
    "tracker",
    "up",
    "vars",
    "wait",
    "write_dag",
]


def __getattr__(name: str) -> Any:
    if name in _VERBS:
        return getattr(import_module(f".{_VERBS[name]}", __name__), name)
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name == "plugins":  # of functions, and not at the top: the name says what it is here
        return import_module(".functions.plugins", __name__)
    if name == "callbacks":
        return import_module(".checkpoints.callbacks", __name__)
    if name in _NAMES:
        return getattr(import_module(f".{_NAMES[name]}", __name__), name)
    if name.startswith("Sky"):
        return getattr(import_module(".errors", __name__), name)
    if not name.startswith("_"):
        absent_names = import_module(".functions.absent_names", __name__)
        if name in absent_names.REASONS:
            raise absent_names.absent_name(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Package(ModuleType):
    """Package whose module ``config`` or ``offers`` does not hide the verb of that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _VERBS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as a name to import, as every module: functions that use it are sent to nodes."""
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted({*globals(), *_VERBS, *_ROOMS, *_NAMES, "callbacks", "plugins"})


def load_ipython_extension(shell: Any) -> None:
    """Register ``%%sky``, ``%sky`` and their completion with IPython."""
    from .magics.magic import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Unregister them, and close this process's session."""
    from .magics.magic import unload

    unload(shell)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Return the place of a developer's build of the panel for JupyterLab."""
    return [{"src": "labextension", "dest": "jupyter-sky"}]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "jupyter_sky"}]


def _load_jupyter_server_extension(server_app: Any) -> None:
    """Register the routes that the panel of JupyterLab asks."""
    from .server import load

    load(server_app)
