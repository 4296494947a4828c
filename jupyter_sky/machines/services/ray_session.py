"""Ray on the head node: ``ray`` in a cell, `sky.ray` in functions."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.services.cell_variable import CellVariable, describe_size, read_endpoint
from jupyter_sky.machines.services.error_frames import hide_frames

NAMESPACE = "jupyter_sky"
"""Namespace of named actors, the same for all drivers of a cluster."""
RECONNECT_SECONDS = 2_000_000
CANCEL_SECONDS = 2.0
"""Time after which a task that goes on is cancelled once more, and again until it is ended."""
_lock = threading.RLock()
_context = contextvars.Context()
"""Context of the last cell, by which ipykernel knows where output belongs."""


def ray() -> Any:
    """Return the module ``ray``, which is connected to this cluster's Ray at the first call.

    Cells have it as ``ray``. Calls of functions use it on the head node.

    Returns
    -------
    module
        ``ray``, after ``ray.init``; one driver for all cells and calls of this engine.

    Raises
    ------
    SkyError
        Ray does not run on this cluster, or this is not its head node.

    Examples
    --------
    >>> import jupyter_sky as sky
    >>> sky.ray().cluster_resources()["CPU"]  # doctest: +SKIP
    8.0
    """
    with _lock:
        endpoint = _prepare()
        module: Any = import_module("ray")
        if not _is_connected(module, endpoint):
            _connect(module, endpoint)
        return module


def _connect(module: Any, endpoint: dict[str, Any]) -> None:
    module.shutdown()  # of one that has been started anew since, with another token
    import_module("ray._raylet").AuthenticationTokenLoader.instance().reset_cache()
    hide_frames(module.exceptions.RayError, "ray")
    try:
        module.init(address=endpoint["address"], namespace=NAMESPACE, logging_level=logging.WARNING)
    except ConnectionError as error:
        raise SkyError(
            _("Ray does not answer: {error}").format(error=error),
            hint=_("run it again; when its processes have ended, --engine ray starts them anew"),
        ) from None
    _print_in_current_cell()


def _prepare() -> dict[str, Any]:
    """Have Ray find this cluster by its environment, also where a cell imports it by itself."""
    __, endpoint = read_endpoint("ray")
    os.environ |= {
        "RAY_ADDRESS": endpoint["address"],
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": endpoint["token"],
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns of what comes
        # a driver ends its process after so long without Ray, here that of all variables of cells
        "RAY_gcs_rpc_server_reconnect_timeout_s": str(RECONNECT_SECONDS),
    }
    return endpoint


def _is_connected(module: Any, endpoint: dict[str, Any]) -> bool:
    """Return whether this process is a driver of the Ray that an endpoint names, by its port."""
    if not module.is_initialized():
        return False
    address = module.get_runtime_context().gcs_address
    return address.rpartition(":")[2] == endpoint["address"].rpartition(":")[2]


def _print_in_current_cell() -> None:
    """Show what tasks print below the cell that runs, not below the one that has connected.

    Ray prints it in a thread of its own; there is no public way to change where that belongs.
    """
    dispatcher = import_module("ray._private.ray_logging").global_worker_stdstream_dispatcher
    dispatcher.handlers = [
        (name, lambda data, handler=handler: _context.copy().run(handler, data))
        for name, handler in dispatcher.handlers
    ]


class LazyRay(CellVariable):
    """Variable ``ray`` of a cell: the module, which connects when it is first used."""

    names = ("cluster_resources", "get", "get_actor", "nodes", "put", "remote", "wait")

    def begin(self) -> Any:
        """Return the module."""
        return ray()

    def has_begun(self) -> bool:
        """Return whether this process is a driver of this cluster's Ray."""
        try:
            __, endpoint = read_endpoint("ray")
            return _is_connected(import_module("ray"), endpoint)
        except (SkyError, ImportError):
            return False

    def describe(self) -> str:
        """Return the version and the nodes."""
        return describe_size(read_endpoint("ray")[1], "Ray")

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        """Be the module itself in a task that uses it."""
        return import_module, ("ray",)


def bind(namespace: dict[str, Any], page: str) -> None:
    """Bind ``ray``, unless a cell has bound that name to something of its own."""
    namespace.setdefault("ray", LazyRay())
    with contextlib.suppress(SkyError):  # its use will say so
        _prepare()


@dataclass(frozen=True, slots=True)
class CellTasks:
    """Tasks of the cell that runs now: all that were not submitted before."""

    known: Set[Any]

    def interrupt(self) -> None:
        """Cancel those that are not done, with those that they have submitted."""
        tasks = _pending_tasks() - self.known
        _cancel(tasks)
        if tasks:
            late = (_current_task(), tasks)
            threading.Thread(target=_end_late, args=late, name="sky-ray-end", daemon=True).start()


@contextlib.contextmanager
def cell_work(tag: str, report: Callable[[str], None]) -> Iterator[CellTasks]:
    """Tell the tasks of a cell from those of others."""
    global _context
    _context = contextvars.copy_context()
    yield CellTasks(_pending_tasks())


def _core_worker() -> Any:
    """Return what speaks for this driver; None before it is connected.

    The public interface cancels by references, which are wherever the cell has left them: in
    libraries, in frames that an interrupt has ended.
    """
    module = sys.modules.get("ray")
    is_connected = module is not None and module.is_initialized()
    return module._private.worker.global_worker if module is not None and is_connected else None


def _current_task() -> Any:
    """Return the identity of this thread's own task; None before this driver is connected."""
    worker = _core_worker()
    return None if worker is None else worker.current_task_id


def _pending_tasks(parent: Any = None) -> frozenset[Any]:
    """Return the identities of the tasks that a task has submitted, and that are not done.

    Parameters
    ----------
    parent
        Identity of that task; this thread's own unless given.
    """
    worker, parent = _core_worker(), parent or _current_task()
    if worker is None:
        return frozenset()
    return frozenset(worker.core_worker.get_pending_children_task_ids(parent))


def _cancel(tasks: Iterable[Any], force: bool = False) -> None:
    """Interrupt tasks; or end them with their workers, but for those of actors."""
    for task in tasks:
        result = sys.modules["ray"].ObjectRef(task.binary() + (1).to_bytes(4, "little"))
        with contextlib.suppress(Exception):  # it may have ended by itself
            _core_worker().core_worker.cancel_task(result, force, True)


def _end_late(parent: Any, tasks: Set[Any]) -> None:
    """Cancel tasks again that go on: they keep the processors from the cells that follow.

    The first request may come while a worker begins with its task; and tasks catch interrupts.
    """
    for force in (False, True, True):
        time.sleep(CANCEL_SECONDS)
        with contextlib.suppress(Exception):  # Ray has ended
            tasks &= _pending_tasks(parent)
            _cancel(tasks, force)
