"""Client of Dask whose workers have the local modules of this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

from jupyter_sky.execution.serialization.local_modules import Archives, LocalModules
from jupyter_sky.machines.engines.node.sent_modules import sent_modules
from jupyter_sky.machines.services.dask_client import LinkedClient

Contents = list[tuple[str, str, bytes]]
"""Modules as `SentModules.activate` takes them, in one piece."""


class LocalModulesPlugin(WorkerPlugin):
    """Modules on the import path of all workers, those that join later too."""

    name = "jupyter_sky.local_modules"

    def __init__(self, contents: Contents) -> None:
        self.contents = contents

    def setup(self, worker: Any) -> None:
        """Put the modules on the import path of a worker."""
        _activate(self.contents)


def _activate(contents: Contents) -> None:
    sent_modules.activate(contents)


class PoolClient(LinkedClient):
    """Client of the scheduler of a pool.

    Parameters
    ----------
    local_modules
        Returns the modules of this machine that tasks may need.
    dashboard
        Address of the dashboard that is reachable from this machine.
    """

    def __init__(
        self,
        address: str,
        local_modules: Callable[[], LocalModules],
        dashboard: str,
        **options: Any,
    ) -> None:
        self._local_modules = local_modules
        self._sent: Archives = ()
        super().__init__(address, dashboard, **options)

    def send_local_modules(self) -> None:
        """Bring local modules to the scheduler, which opens graphs, and to the workers.

        Tasks are pickled later, so all that are imported here count.
        """
        archives = self._local_modules().loaded()
        if archives == self._sent:
            return
        contents = [(each.name, each.tree, bytes(each.data)) for each in archives]
        self.run_on_scheduler(_activate, contents)
        self.register_plugin(LocalModulesPlugin(contents))
        self._sent = archives

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        """Submit a call; see `distributed.Client.submit`."""
        self.send_local_modules()
        return super().submit(*args, **kwargs)

    def map(self, *args: Any, **kwargs: Any) -> Any:
        """Submit a call for each item; see `distributed.Client.map`."""
        self.send_local_modules()
        return super().map(*args, **kwargs)

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        """Compute collections; see `distributed.Client.compute`."""
        self.send_local_modules()
        return super().compute(*args, **kwargs)

    def persist(self, *args: Any, **kwargs: Any) -> Any:
        """Compute collections and keep them on the workers; see `distributed.Client.persist`."""
        self.send_local_modules()
        return super().persist(*args, **kwargs)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Compute a graph; see `distributed.Client.get`."""
        self.send_local_modules()
        return super().get(*args, **kwargs)
