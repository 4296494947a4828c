"""Extensions of an engine: parts that other rooms add, imported at the first message for one."""

from __future__ import annotations

import contextlib
from typing import Any

from jupyter_sky.machines.engines.wire.messages import JupyterMessage

CALLS = "jupyter_sky.execution.functions.node.node_worker:NodeWorker"
DATA_ENGINES = "jupyter_sky.machines.services.cell_engines:CellEngines"


class EngineExtension:
    """Part of an engine's kernel; a subclass overrides the messages that are for it."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def handle_commands(self, ident: list[bytes], message: JupyterMessage) -> None:
        """Handle the commands of a control message, in the thread of the control channel."""
        raise NotImplementedError

    def receive_blob(self, stream: Any, ident: list[bytes], parent: JupyterMessage) -> None:
        """Receive a part of a blob, in the main thread."""
        raise NotImplementedError

    def around(
        self, engine: str | None, page: str, number: int
    ) -> contextlib.AbstractContextManager[None]:
        """Return the context in which a cell runs."""
        return contextlib.nullcontext()
