"""Process groups of PyTorch: one process a node, or several, with a store on the head node."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from jupyter_sky.base.errors import SkyError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.images.image import Image
from jupyter_sky.execution.functions.images.image_packages import PipIndex
from jupyter_sky.execution.functions.plugins.rendezvous import (
    broadcast_id,
    exchange,
    is_restarted,
    require_single_slot,
)
from jupyter_sky.machines.engines.node.instance import InstanceInfo, instance_info
from jupyter_sky.machines.engines.wire.agent_link import listen_address

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.group_restart import GroupKind
    from jupyter_sky.execution.functions.pools.pool import Pool


T = TypeVar("T")

INDEX = "https://download.pytorch.org/whl"
BACKENDS = ("gloo", "nccl", "mpi", "xccl")


@dataclass(frozen=True, slots=True)
class Torch:
    """Plug-in, see `plugins.torch`."""

    backend: str | None = None
    version: str | None = None
    timeout: float = 300.0
    cuda: str | None = None
    vision: str | None = None
    audio: str | None = None
    processes: int | Literal["gpu"] | None = None

    group: ClassVar[GroupKind] = "calls"
    """A process may leave a group and enter another."""
    groups: ClassVar[list[str]] = []
    """The group that this process is in, by the broadcast that made it."""

    def __post_init__(self) -> None:
        if self.backend is not None and self.backend not in BACKENDS:
            raise SkyUsageError(
                _("plugins.torch(backend={backend!r}): not a backend").format(backend=self.backend),
                hint=_("one of {backends}").format(backends=", ".join(BACKENDS)),
            )

        count = self.processes
        if not (count in (None, "gpu") or (type(count) is int and count > 0)):
            raise SkyUsageError(
                _("plugins.torch(processes={count!r}): not a number of processes").format(
                    count=count
                ),
                hint=_("a number, or 'gpu' for one for each GPU of the node"),
            )

    def image(self, image: Image | None) -> Image | None:
        """Add the packages of which a version is given to the image, and their index."""
        versions = {"torch": self.version, "torchvision": self.vision, "torchaudio": self.audio}
        if self.cuda is not None and self.version is None:
            versions["torch"] = "latest"
        packages = [
            name if version == "latest" else f"{name}=={version}"
            for name, version in versions.items()
            if version is not None
        ]
        if not packages:
            return image
        image = image or Image()
        indexes = [PipIndex(f"{INDEX}/{self.cuda}", [*versions])] if self.cuda else []
        return replace(
            image, pip=[*image.pip, *packages], pip_indexes=[*image.pip_indexes, *indexes]
        )

    def setup(self, pool: Pool) -> None:
        """Raise SkyUsageError for pools that are not supported; warn of GPUs that are not used."""
        require_single_slot(pool, "torch")
        count = max(cluster.row.offer.get("gpu_count") or 0 for cluster in pool.clusters)
        if count > 1 and self.processes is None:
            text = _(
                "plugins.torch() has one process on each node, which uses the first of {count:g} "
                'GPUs: plugins.torch(processes="gpu") has one for each'
            )
            warnings.warn(text.format(count=count), stacklevel=2)

    def around(self, call: Callable[[], T]) -> T:
        """Run a call in a process group of all nodes that were sent it."""
        if name := broadcast_id():
            if self.processes is not None:
                return self._run_processes(name, call)  # type: ignore[return-value]
            self._join(name)
        return call()

    def _run_processes(self, name: str, call: Callable[[], T]) -> list[T]:
        """Run a call in several processes of this node; return what each returns."""
        torch, info = _import_torch(), instance_info()
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        count = gpus if self.processes == "gpu" else int(self.processes or 1)
        if not count:
            raise SkyError(
                _("plugins.torch(processes='gpu'): node {node} has no GPU").format(node=info.node),
                hint=_("processes=2 has two processes without one"),
            )
        store = self._own_store(info)
        told = exchange("torch-processes", (info.node, count, store.port if store else 0))
        processes = LocalProcesses(
            name,
            count,
            sum(each for node, each, _port in told if node < info.node),
            sum(each for _node, each, _port in told),
            info.head_addr,
            max(port for _node, _count, port in told),
            self.backend or ("nccl" if gpus >= count else "gloo"),
            self.timeout,
        )
        _name_interface(info.head_addr)
        return processes.run(call)

    def _join(self, name: str) -> None:
        """Join the group of all nodes; a new one unless all are still in the last."""
        torch = _import_torch()
        import torch.distributed as group

        info = instance_info()
        place = (info.node, info.total_nodes)
        current = (group.get_rank(), group.get_world_size()) if group.is_initialized() else None
        name_here = self.groups[0] if self.groups and current == place else ""
        joined = {*exchange("torch", name_here)}
        if len(joined) == 1 and name_here and not is_restarted():
            return
        if group.is_initialized():
            group.destroy_process_group()
        backend = self.backend or ("nccl" if torch.cuda.is_available() else "gloo")
        _name_interface(info.head_addr)
        if backend == "nccl":
            torch.cuda.set_device(0)
        self._begin(name, backend)
        self.groups[:] = [name]

    def _begin(self, name: str, backend: str) -> None:
        import torch.distributed as group

        info, own_store = instance_info(), self._own_store(instance_info())
        # told, not agreed on before: one who comes early must not meet those of the group before
        ports = exchange("torch-port", own_store.port if own_store is not None else 0)
        store = own_store or group.TCPStore(info.head_addr, max(ports), timeout=self._limit)
        begin_group(backend, name, store, info.node, info.total_nodes, self._limit)

    @property
    def _limit(self) -> datetime.timedelta:
        return datetime.timedelta(seconds=self.timeout)

    def _own_store(self, info: InstanceInfo) -> Any:
        """Open the store of the group on the head node, on the announced port if it is free.

        It accepts pickled objects from any client, and by default listens on all addresses.
        """
        from torch.distributed import TCPStore

        if not info.is_head:
            return None
        listener = listen(info.head_addr, info.head_port)
        return TCPStore(
            info.head_addr,
            listener.getsockname()[1],
            is_master=True,
            timeout=self._limit,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )


def _name_interface(address: str) -> None:
    """Have gloo use the loopback interface where the head node is reached by it."""
    if address.startswith("127."):  # the name of this machine may lead elsewhere
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def _import_torch() -> Any:
    try:
        import torch
        import torch.distributed
    except ImportError:
        raise SkyError(
            _("plugins.torch(): there is no torch on the node"),
            hint=_('have it installed: Image(pip=["torch"])'),
        ) from None
    return torch


def listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens on one address, on a port or, where it is taken, on another."""
    host = listen_address(address)
    for candidate in (port, 0):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(socket.SOMAXCONN)
            return listener
        except OSError:
            listener.close()
            if not candidate:
                raise
    raise AssertionError


# -- Several processes of PyTorch on one node, such as one for each of its GPUs -------------------

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class LocalProcesses:
    """Processes of one node in a group of all nodes.

    Attributes
    ----------
    group
        Name of the group: a store has several, one after the other.
    count
        Number of processes on this node.
    first_rank, world_size
        Rank of the first of them in the group, and the number of all its processes.
    address, port
        Store of the group, which the head node holds.
    backend
        Of the collectives.
    timeout
        Seconds that one may take.
    """

    group: str
    count: int
    first_rank: int
    world_size: int
    address: str
    port: int
    backend: str
    timeout: float

    def variables(self, place: int) -> dict[str, str]:
        """Return the environment of a process, as ``torchrun`` names it.

        Examples
        --------
        >>> processes = LocalProcesses("a", 2, 4, 8, "10.0.0.1", 29500, "gloo", 300.0)
        >>> processes.variables(1)["RANK"], processes.variables(1)["LOCAL_RANK"]
        ('5', '1')
        """
        values = {
            "RANK": self.first_rank + place,
            "LOCAL_RANK": place,
            "WORLD_SIZE": self.world_size,
            "LOCAL_WORLD_SIZE": self.count,
            "MASTER_ADDR": self.address,
            "MASTER_PORT": self.port,
        }
        return {name: str(value) for name, value in values.items()}

    def run(self, call: Callable[[], Item]) -> list[Item]:
        """Run a call in each process; return what they return, by their ranks.

        Raises
        ------
        BaseException
            That of the process that was the first to fail; the others are stopped.
        """
        import cloudpickle
        from torch.multiprocessing import (
            ProcessExitedException,
            ProcessRaisedException,
            start_processes,
        )

        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "call").write_bytes(cloudpickle.dumps(call))
            # a fork would take over the threads' locks of this process, and CUDA forbids it
            context = start_processes(
                _run_one, (self, folder), nprocs=self.count, join=False, start_method="spawn"
            )
            assert context is not None
            try:
                while not context.join():
                    pass
            except (ProcessRaisedException, ProcessExitedException) as error:
                raise _error_of(Path(folder), error) from None
            finally:
                for process in context.processes:
                    process.kill()
                    process.join()
            values = [Path(folder, f"value-{place}") for place in range(self.count)]
            return [cloudpickle.loads(path.read_bytes()) for path in values]


def begin_group(
    backend: str,
    name: str,
    store: Any,
    rank: int,
    world_size: int,
    limit: datetime.timedelta,
) -> None:
    """Make this process a rank of a group, whose name parts it from others in the store."""
    import torch.distributed as group

    group.init_process_group(
        backend,
        store=group.PrefixStore(name, store),
        rank=rank,
        world_size=world_size,
        timeout=limit,
    )


def _run_one(place: int, processes: LocalProcesses, folder: str) -> None:
    """Run the call in this process, in the group."""
    import cloudpickle
    import torch
    import torch.distributed as group

    os.environ.update(processes.variables(place))
    limit, rank = datetime.timedelta(seconds=processes.timeout), processes.first_rank + place
    if processes.backend == "nccl":
        torch.cuda.set_device(place)
    store = group.TCPStore(processes.address, processes.port, timeout=limit)
    try:
        begin_group(processes.backend, processes.group, store, rank, processes.world_size, limit)
        value = cloudpickle.loads(Path(folder, "call").read_bytes())()
        Path(folder, f"value-{place}").write_bytes(cloudpickle.dumps(value))
        group.destroy_process_group()
    except BaseException as error:
        error.add_note(
            _("in process {place} of its node, rank {rank}").format(place=place, rank=rank)
        )
        with contextlib.suppress(Exception):  # else the text of it is all that is known
            Path(folder, f"error-{place}").write_bytes(cloudpickle.dumps(error))
        raise


def _error_of(folder: Path, failure: Any) -> BaseException:
    """Return the exception of the process that failed; what is known of it where it was killed."""
    import cloudpickle

    try:
        return cloudpickle.loads(Path(folder, f"error-{failure.error_index}").read_bytes())
    except Exception:
        return failure
