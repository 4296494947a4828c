"""Spark in the cells of an engine: the variable, the tag of their queries, their interrupt."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..engines.wire.messages import PROGRESS_MESSAGE
from .spark_session import LazySpark, tagged_queries


class CellSpark:
    """Spark for the cells of one kernel, from the first cell with ``--engine spark`` on."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def bind(self) -> None:
        """Bind ``spark``, unless a cell has bound that name to something of its own."""
        self._kernel.shell.user_ns.setdefault("spark", LazySpark())

    @contextlib.contextmanager
    def around(self, number: int) -> Iterator[None]:
        """Tag the queries of a cell, and interrupt them when the cell is interrupted."""
        with tagged_queries(f"cell-{number}", self._report) as queries:
            yield
            result = self._kernel.shell.last_execution_result
            if result is not None and isinstance(result.error_in_exec, KeyboardInterrupt):
                queries.interrupt()

    def _report(self, text: str) -> None:
        """Send the progress of a query to the status line of the cell."""
        kernel = self._kernel
        parent = kernel.get_parent("shell")
        kernel.session.send(
            kernel.iopub_socket,
            PROGRESS_MESSAGE,
            {"text": text},
            parent=parent,
            ident=kernel._topic(PROGRESS_MESSAGE),
        )
