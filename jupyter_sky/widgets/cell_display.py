"""Display of a run's messages in the output area of its own cell."""

from __future__ import annotations

import sys
import threading
import uuid
from typing import Any

from ..executor.display import Display, RunStatus
from .status_line import mimebundle, output_metadata, to_text


class CellDisplay:
    """Output area of the cell that runs when the object is made.

    Messages are sent with that cell as their parent: they appear there also when they come from
    a thread or after another cell has been started.
    """

    def __init__(self, shell: Any) -> None:
        self.kernel = shell.kernel
        self.parent = self.kernel.get_parent("shell")
        self.number = shell.displayhook.prompt_count
        self._id = uuid.uuid4().hex
        self._shown: dict[str, Any] = {}
        self._visible = False
        self._clear_waits = False
        self._captured = False
        self._lock = threading.RLock()

    def status(self, status: RunStatus) -> None:
        """Show or replace the status line."""
        with self._lock:
            self._shown = {"data": mimebundle(status), "metadata": output_metadata(status)}
            self._show_status()

    def update_status(self, status: RunStatus) -> None:
        """Replace the status line of a cell that has ended."""
        self.status(status)

    def _show_status(self) -> None:
        kind = "update_display_data" if self._visible else "display_data"
        self._visible = True
        transient = {"display_id": self._id}
        self._post(kind, {**self._shown, "transient": transient})

    def send(
        self,
        kind: str,
        content: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        buffers: list[Any] | None = None,
    ) -> None:
        """Show one message below the status line, which survives the clearing of outputs."""
        with self._lock:
            if self._captured:  # it goes into an Output widget, where no status line stands
                self._post(kind, content, metadata, buffers)
                return
            if kind == "clear_output":
                self._clear_waits = True
                if content.get("wait"):
                    return  # cleared when the next output comes, as the protocol has it
                self._clear()
                return
            if self._clear_waits:
                self._clear()
            if kind == "execute_result":
                content = {**content, "execution_count": self.number}
            self._post(kind, content, metadata, buffers)

    def _clear(self) -> None:
        self._clear_waits = False
        # the front end waits for the status line, so that nothing flickers
        self._post("clear_output", {"wait": True})
        self._visible = False
        self._show_status()

    def _post(
        self,
        kind: str,
        content: Any,
        metadata: Any = None,
        buffers: Any = None,
        parent: dict[str, Any] | None = None,
    ) -> None:
        kernel = self.kernel
        kernel.session.send(
            kernel.iopub_socket,
            kind,
            content,
            parent=parent or self.parent,
            ident=kind.encode(),
            metadata=metadata or {},
            buffers=buffers,
        )

    # -- widgets ---------------------------------------------------------------------------

    def comm(self, message: dict[str, Any], engine: str, client: Any) -> None:
        """Pass on a widget's message; register a proxy comm for a new widget."""
        with self._lock:
            captures = self.pass_comm(message, engine, client, self.parent)
            self._captured = self._captured if captures is None else captures

    def pass_comm(
        self, message: dict[str, Any], engine: str, client: Any, parent: dict[str, Any]
    ) -> bool | None:
        """Pass on a widget's message on behalf of `parent`.

        Returns
        -------
        bool or None
            Whether an Output widget captures what comes next; None where that does not change.
        """
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "comm_open":
            self._register_proxy_comm(content, engine, client)
        elif kind == "comm_close":
            self.kernel.comm_manager.comms.pop(content["comm_id"], None)
        state = content.get("data", {}).get("state") if kind == "comm_msg" else None
        captures = None
        if isinstance(state, dict) and "msg_id" in state and (captures := bool(state["msg_id"])):
            # an Output widget captures by the id of the parent message: here another than there
            state["msg_id"] = parent["header"]["msg_id"]
        self._post(kind, content, message["metadata"], message.get("buffers"), parent)
        return captures

    def _register_proxy_comm(self, content: dict[str, Any], engine: str, client: Any) -> None:
        """Register a comm that forwards the front end's messages to the engine."""
        from ipykernel.comm import Comm

        identity = content["comm_id"]
        comm = Comm(comm_id=identity, target_name=content["target_name"], primary=False)
        # reply on the subshell of the request, so that a busy main thread does not block it
        comm._reply_subshell_for = lambda data, subshell: subshell  # type: ignore[attr-defined]

        def to_engine(received: dict[str, Any]) -> None:
            kind = received["header"]["msg_type"]
            sent = client.send_comm(
                engine,
                kind,
                received["content"],
                metadata=received.get("metadata"),
                buffers=received.get("buffers"),
            )
            client.sinks[sent] = _ReplyDisplay(self, received, engine, client)

        comm.on_msg(to_engine)
        comm.on_close(to_engine)
        self.kernel.comm_manager.register_comm(comm)


class _ReplyDisplay:
    """Display of an engine's output for a widget event, in the output area of that event."""

    def __init__(self, display: CellDisplay, event: dict[str, Any], engine: str, client: Any):
        self.display, self.event, self.engine, self.client = display, event, engine, client

    def __call__(self, message: dict[str, Any]) -> None:
        kind = message["header"]["msg_type"]
        if kind.startswith("comm_"):
            self.display.pass_comm(message, self.engine, self.client, self.event)
        elif kind not in ("status", "execute_input"):
            self.display._post(kind, message["content"], message["metadata"], None, self.event)


class PlainDisplay:
    """Display for terminals and ``%%capture``: plain text or IPython's publisher."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def status(self, status: RunStatus) -> None:
        """Print the final status only: printed lines cannot be replaced."""
        if status.is_final:
            self._print(sys.stdout, to_text(status) + "\n")

    def update_status(self, status: RunStatus) -> None:
        """Print nothing: a printed line cannot be replaced."""

    def send(
        self,
        kind: str,
        content: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        buffers: list[Any] | None = None,
    ) -> None:
        """Print or publish one message."""
        if kind == "stream":
            self._print(getattr(sys, content["name"]), content["text"])
        elif kind == "error":
            self._print(sys.stderr, "\n".join([*content["traceback"], ""]))
        elif kind == "clear_output":
            self.shell.display_pub.clear_output(content.get("wait", False))
        else:
            self.shell.display_pub.publish(
                content["data"],
                content.get("metadata", {}),
                transient=content.get("transient", {}),
                update=kind == "update_display_data",
            )

    @staticmethod
    def _print(stream: Any, text: str) -> None:
        stream.write(text)
        stream.flush()

    def comm(self, message: dict[str, Any], engine: str, client: Any) -> None:
        """Ignore it: a terminal shows no widgets."""


def for_cell(shell: Any) -> Display:
    """Return the display of the cell that runs now."""
    capturing = type(shell.display_pub).__name__ == "CapturingDisplayPublisher"
    if getattr(shell, "kernel", None) is None or capturing:
        return PlainDisplay(shell)
    return CellDisplay(shell)
