"""Display of a run's messages in the output area of its own cell."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from jupyter_sky.execution.cells.results import page_text
from jupyter_sky.execution.display import Display, RunStatus, WrappedDisplay
from jupyter_sky.interfaces.widgets.status_line import mimebundle, output_metadata, to_text

if TYPE_CHECKING:
    from jupyter_sky.interfaces.widgets.shared_comm import SharedComm


class CellDisplay:
    """Output area of the cell that runs when the object is made.

    Messages are sent with that cell as their parent: they appear there also when they come from
    a thread or after another cell has been started.
    """

    def __init__(self, shell: Any) -> None:
        self.shell, self.kernel = shell, shell.kernel
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # what a cell has printed before it runs another comes first
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

    def payload(self, parts: list[dict[str, Any]]) -> None:
        """Put a payload into the cell's reply; once that has gone, show its pages as outputs."""
        for part in parts:
            if self._awaits_reply():
                self.shell.payload_manager.write_payload(part)
            elif (text := page_text(part)) is not None:
                self.send("display_data", {"data": {"text/plain": text}, "metadata": {}})

    def _awaits_reply(self) -> bool:
        is_running = self.kernel.get_parent("shell").get("header") == self.parent.get("header")
        return is_running and threading.current_thread() is threading.main_thread()

    # -- widgets ---------------------------------------------------------------------------

    def comm(self, message: dict[str, Any], engine: str, client: Any) -> None:
        """Pass on a widget's message; register a shared comm for a new widget."""
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
        comm = self._shared_comm(content["comm_id"])
        if kind == "comm_open":
            self._register_comm(content, engine, client)
        elif kind == "comm_close":
            self._forget_comm(content["comm_id"])
        elif comm is not None and not comm.is_shown(message, engine):
            return None
        state = content.get("data", {}).get("state") if kind == "comm_msg" else None
        captures = None
        if isinstance(state, dict) and "msg_id" in state and (captures := bool(state["msg_id"])):
            # an Output widget captures by the id of the parent message: here another than there
            state["msg_id"] = parent["header"]["msg_id"]
        self._post(kind, content, message["metadata"], message.get("buffers"), parent)
        if kind == "comm_msg" and comm is not None:
            comm.receive(message, engine)
        return captures

    def share_widgets(self, models: Iterable[str], engine: str, client: Any) -> None:
        """Keep widgets of the notebook equal to those that are sent to an engine."""
        from jupyter_sky.machines.engines.wire.widget_state import find_widget

        for model in models:
            comm, widget = self._shared_comm(model), find_widget(model)
            if comm is None and widget is not None:
                comm = self._add_comm(model, widget.comm.target_name, maker="")
                widget.comm._closed = True  # else its end would close the model in the page
                widget.comm = comm
            if comm is not None:
                comm.join(engine, client, self._receiver)

    def settle_widgets(self) -> None:
        """Give the notebook's widgets what engines have changed."""
        from jupyter_sky.interfaces.widgets.shared_comm import settle_widgets

        settle_widgets()

    def _shared_comm(self, identity: str) -> SharedComm | None:
        from jupyter_sky.interfaces.widgets.shared_comm import SharedComm

        comm = self.kernel.comm_manager.comms.get(identity)
        return comm if isinstance(comm, SharedComm) else None

    def _add_comm(self, identity: str, target: str, maker: str) -> SharedComm:
        from jupyter_sky.interfaces.widgets.shared_comm import SharedComm

        comm = SharedComm(identity, target, maker)
        self.kernel.comm_manager.register_comm(comm)
        return comm

    def _register_comm(self, content: dict[str, Any], engine: str, client: Any) -> None:
        """Register a comm that forwards the front end's messages to the engine."""
        comm = self._add_comm(content["comm_id"], content["target_name"], engine)
        comm.join(engine, client, self._receiver)

    def _forget_comm(self, identity: str) -> None:
        comm = self.kernel.comm_manager.comms.pop(identity, None)
        if comm is not None:
            comm._closed = True  # else its end would publish a comm_close of its own
            getattr(comm, "end", lambda: None)()

    def _receiver(self, engine: str, client: Any, event: dict[str, Any]) -> _ReplyDisplay:
        """Return the receiver of an engine's outputs for an event."""
        return _ReplyDisplay(self, event, engine, client)


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


class PartlyCapturedDisplay(WrappedDisplay):
    """Display of a cell whose text or displays are captured, by ``%%capture`` and the like.

    Parameters
    ----------
    shell
        The shell; what captures is there when the object is made.
    cell
        Display of the cell, which shows the status line and all that is not captured.
    """

    def __init__(self, shell: Any, cell: CellDisplay) -> None:
        super().__init__(cell)
        self._publisher, self._streams = captured_publisher(shell), captured_streams()

    def send(
        self,
        kind: str,
        content: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        buffers: list[Any] | None = None,
    ) -> None:
        """Hand one message to what captures it, else show it."""
        if kind == "stream" and (stream := self._streams.get(content["name"])) is not None:
            stream.write(content["text"])
        elif kind == "clear_output" and self._publisher is not None:
            self._publisher.clear_output(content.get("wait", False))
        elif "data" in content and self._publisher is not None:
            _publish(self._publisher, kind, content)
        else:
            self.display.send(kind, content, metadata, buffers)

    def comm(self, message: dict[str, Any], engine: str, client: Any) -> None:
        """Pass on a widget's message, which nothing captures."""
        self.display.comm(message, engine, client)


class PlainDisplay:
    """Display for terminals: plain text and IPython's publisher."""

    def __init__(self, shell: Any) -> None:
        self.shell, self._publisher = shell, shell.display_pub
        self._is_captured = captured_publisher(shell) is not None

    def status(self, status: RunStatus) -> None:
        """Print the final status only: printed lines cannot be replaced."""
        if status.is_final and not self._is_captured:
            _print(sys.stdout, to_text(status) + "\n")

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
            _print(getattr(sys, content["name"]), content["text"])
        elif kind == "error":
            _print(sys.stderr, "\n".join([*content["traceback"], ""]))
        elif kind == "clear_output":
            self._publisher.clear_output(content.get("wait", False))
        else:
            _publish(self._publisher, kind, content)

    def comm(self, message: dict[str, Any], engine: str, client: Any) -> None:
        """Ignore it: a terminal shows no widgets."""

    def share_widgets(self, models: Iterable[str], engine: str, client: Any) -> None:
        """Ignore it: a terminal shows no widgets."""

    def settle_widgets(self) -> None:
        """Ignore it: a terminal shows no widgets."""

    def payload(self, parts: list[dict[str, Any]]) -> None:
        """Show pages in the pager, and put an input below the cell."""
        from IPython.core.page import page

        for part in parts:
            if (text := page_text(part)) is not None:
                page(text, start=part.get("start", 0))
            elif part["source"] == "set_next_input":
                self.shell.set_next_input(part["text"], part.get("replace", False))


def _print(stream: Any, text: str) -> None:
    stream.write(text)
    stream.flush()


def _publish(publisher: Any, kind: str, content: dict[str, Any]) -> None:
    publisher.publish(
        content["data"],
        content.get("metadata", {}),
        transient=content.get("transient", {}),
        update=kind == "update_display_data",
    )


def captured_publisher(shell: Any) -> Any:
    """Return what captures the displays of a shell now, or None."""
    publisher = shell.display_pub
    return publisher if type(publisher).__name__ == "CapturingDisplayPublisher" else None


def captured_streams() -> dict[str, Any]:
    """Return what captures the text of this kernel now, by the names of the streams."""
    from ipykernel.iostream import OutStream

    streams = {"stdout": sys.stdout, "stderr": sys.stderr}
    return {name: stream for name, stream in streams.items() if not isinstance(stream, OutStream)}


def for_cards(shell: Any) -> Display:
    """Return the display of cards in the cell that runs now; nothing captures them."""
    return PlainDisplay(shell) if getattr(shell, "kernel", None) is None else CellDisplay(shell)


def for_cell(shell: Any) -> Display:
    """Return the display of the outputs of the cell that runs now."""
    display = for_cards(shell)
    is_captured = captured_publisher(shell) is not None or captured_streams()
    if isinstance(display, CellDisplay) and is_captured:
        return PartlyCapturedDisplay(shell, display)
    return display
