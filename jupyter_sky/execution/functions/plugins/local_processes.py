"""Several processes of PyTorch on one node, such as one for each of its GPUs."""

from __future__ import annotations

import contextlib
import datetime
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from jupyter_sky.base.translation import _

T = TypeVar("T")


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

    def run(self, call: Callable[[], T]) -> list[T]:
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
