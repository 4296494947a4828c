"""Data engines in the cells of an engine: their variables, and the end of work by an interrupt."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Protocol

from jupyter_sky.base.requests.cell_options.data_engines import split_engine
from jupyter_sky.machines.engines.node.extensions import EngineExtension
from jupyter_sky.machines.engines.wire.messages import PROGRESS_MESSAGE

MODULES = {"spark": "spark_session", "dask": "dask_session", "ray": "ray_session"}
"""Modules of data engines. Each has ``bind(namespace, page)``, which binds its variable unless a
cell has bound that name to something else (`page` is the address of its web page, or empty), and
``cell_work(tag, report)``, a context manager that yields the `CellWork` of a cell such as
``cell-7`` and reports its progress as text."""


class CellWork(Protocol):
    """Work that a cell has on a data engine."""

    def interrupt(self) -> None:
        """End it, since the cell has been interrupted."""


class CellEngines(EngineExtension):
    """Data engines for the cells of one kernel, each from the first cell on that names it."""

    def __init__(self, kernel: Any) -> None:
        super().__init__(kernel)
        self._engines: dict[str, Any] = {}

    @contextlib.contextmanager
    def around(self, engine: str | None, page: str, number: int) -> Iterator[None]:
        """Bind the variable of a data engine; end the work of a cell that is interrupted."""
        if engine is not None:
            self._bind(split_engine(engine)[0], page)
        with contextlib.ExitStack() as stack:
            works: list[CellWork] = [
                stack.enter_context(each.cell_work(f"cell-{number}", self._report))
                for each in self._engines.values()
            ]
            yield
            result = self.kernel.shell.last_execution_result
            if result is not None and isinstance(result.error_in_exec, KeyboardInterrupt):
                for work in works:
                    with contextlib.suppress(Exception):  # what was waited for may be gone
                        work.interrupt()

    def _bind(self, name: str, page: str) -> None:
        module: Any = import_module(f".{MODULES[name]}", __package__)
        self._engines[name] = module
        module.bind(self.kernel.shell.user_ns, page)

    def _report(self, text: str) -> None:
        """Send the progress of work to the status line of the cell."""
        kernel = self.kernel
        parent = kernel.get_parent("shell")
        kernel.session.send(
            kernel.iopub_socket,
            PROGRESS_MESSAGE,
            {"text": text},
            parent=parent,
            ident=kernel._topic(PROGRESS_MESSAGE),
        )
