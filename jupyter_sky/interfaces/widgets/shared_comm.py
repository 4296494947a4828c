"""Comms of widgets that the page, engines and the notebook's kernel share.

The page has the model; each process that uses the widget has an object of its own. What one of
them changes goes to all others: engines and page are told at once, the kernel's own widget when the
main thread is free or the cell has ended, so that its observers run where those of a notebook do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from ipykernel.comm import Comm
from ipykernel.jsonutil import json_clean

from jupyter_sky.machines.engines.wire.widget_state import find_widget, mentioned_models

Replies = Callable[[str, Any, dict[str, Any]], Callable[[dict[str, Any]], None]]
"""Gives the receiver of an engine's outputs for an event: engine, client, event."""


class SharedComm(Comm):
    """Comm of one widget.

    Parameters
    ----------
    maker
        Engine that has made the widget; empty where the kernel has. Only the maker confirms
        changes to the page, which expects one confirmation of each.
    """

    def __init__(self, identity: str, target: str, maker: str) -> None:
        super().__init__(comm_id=identity, target_name=target, primary=False, show_warning=False)
        self._maker = maker
        self._peers: dict[str, tuple[Any, Replies]] = {}
        self._is_settling = False

    def _reply_subshell_for(self, data: Any, default: Any) -> Any:
        return default  # so that a busy main thread does not block the reply

    def join(self, engine: str, client: Any, replies: Replies) -> None:
        """Let an engine have the widget, too."""
        self._peers[engine] = client, replies

    # -- from the page -------------------------------------------------------------------------

    def handle_msg(self, msg: dict[str, Any]) -> None:
        """Pass a message of the page on to all engines, and to the kernel's widget."""
        self._pass_on("comm_msg", msg, msg)
        if self._msg_callback is not None:
            super().handle_msg(msg)

    def handle_close(self, msg: dict[str, Any]) -> None:
        """Pass on that the page has closed the widget."""
        self._pass_on("comm_close", msg, msg)
        super().handle_close(msg)

    # -- from the kernel's widget --------------------------------------------------------------

    def publish_msg(
        self,
        msg_type: str,
        data: Any = None,
        metadata: Any = None,
        buffers: Any = None,
        **keys: Any,
    ) -> None:
        """Send a message of the kernel's widget to the page, and changes to all engines."""
        method = (data or {}).get("method")
        if method == "echo_update" and (self._maker or self._is_settling):
            return
        super().publish_msg(msg_type, data, metadata, buffers, **keys)
        if method == "update" or msg_type == "comm_close":
            content = json_clean({"comm_id": self.comm_id, "data": data or {}})
            message = {"content": content, "metadata": metadata, "buffers": buffers}
            event = self.kernel.get_parent() if self.kernel is not None else {}
            self._pass_on(msg_type, message, event, is_confirmed=True)

    # -- from an engine ------------------------------------------------------------------------

    def is_shown(self, message: Mapping[str, Any], engine: str) -> bool:
        """Return whether a message of an engine goes to the page."""
        is_echo = message["content"].get("data", {}).get("method") == "echo_update"
        return not is_echo or engine == self._maker

    def receive(self, message: Mapping[str, Any], engine: str) -> None:
        """Pass an engine's change on to the others."""
        data = message["content"].get("data", {})
        if data.get("method") != "update":
            return
        self._pass_on("comm_msg", message, message["parent_header"], engine, is_confirmed=True)
        if self._msg_callback is not None and self.kernel is not None:
            state = _join_buffers(data, message.get("buffers") or ())
            known = {key: value for key, value in state.items() if _is_known(value)}
            _pending.add(self, known, self.kernel.io_loop)

    def end(self) -> None:
        """Close the kernel's widget: an engine has closed the model."""
        self._closed = True  # else its end would publish a comm_close of its own
        if (widget := find_widget(self.comm_id)) is not None:
            widget.close()

    def settle(self, state: dict[str, Any]) -> None:
        """Give the kernel's widget what engines have changed."""
        self._is_settling = True
        try:
            if self._msg_callback is not None and not self._closed:
                content = {"data": {"method": "update", "state": state}}
                self._msg_callback({"content": content, "buffers": []})
        finally:
            self._is_settling = False

    def _has(self, engine: str, model: str) -> bool:
        comm = self.kernel.comm_manager.comms.get(model)  # type: ignore[union-attr]
        return isinstance(comm, SharedComm) and engine in comm._peers

    def _pass_on(
        self,
        kind: str,
        message: Mapping[str, Any],
        event: Any,
        sender: str = "",
        is_confirmed: bool = False,
    ) -> None:
        """Send a message to all engines but its sender.

        Parameters
        ----------
        is_confirmed
            Whether the page expects no confirmation of it.
        """
        models = mentioned_models(message["content"].get("data", {}).get("state"))
        for engine, (client, replies) in list(self._peers.items()):
            if engine == sender or not all(self._has(engine, model) for model in models):
                continue  # what refers to a widget that it lacks comes with the next cell
            if client.is_closed:
                self._peers.pop(engine, None)
                continue
            parts = {"metadata": message.get("metadata"), "buffers": message.get("buffers")}
            sent = client.send_comm(engine, kind, message["content"], **parts)
            receive = replies(engine, client, event)
            client.sinks[sent] = _without_echoes(receive) if is_confirmed else receive


def _without_echoes(
    receive: Callable[[dict[str, Any]], None],
) -> Callable[[dict[str, Any]], None]:
    def receive_others(message: dict[str, Any]) -> None:
        data = message["content"].get("data")
        if not (isinstance(data, Mapping) and data.get("method") == "echo_update"):
            receive(message)

    return receive_others


def _is_known(value: Any) -> bool:
    """Return whether this process has the widgets that a value refers to."""
    return all(find_widget(model) is not None for model in mentioned_models(value))


def _join_buffers(data: Any, buffers: Any) -> dict[str, Any]:
    """Return the state in a message with its buffers at their places."""
    state: Any = json_clean(data.get("state") or {})
    paths: Any = data.get("buffer_paths") or ()
    for path, buffer in zip(paths, buffers, strict=False):
        part: Any = state
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = buffer
    return state


class _PendingChanges:
    """Changes of widgets that the kernel's own have not received yet, the latest of each trait."""

    def __init__(self) -> None:
        self._states: dict[SharedComm, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def add(self, comm: SharedComm, state: dict[str, Any], loop: Any) -> None:
        with self._lock:
            is_first = not self._states
            self._states.setdefault(comm, {}).update(state)
        if is_first:
            loop.add_callback(self.settle)

    def settle(self) -> None:
        """Give all changes to the widgets; in the main thread, where their observers run."""
        if threading.current_thread() is not threading.main_thread():
            return
        with self._lock:
            states, self._states = self._states, {}
        for comm, state in states.items():
            comm.settle(state)


_pending = _PendingChanges()


def settle_widgets() -> None:
    """Give the widgets of the kernel all that engines have changed."""
    _pending.settle()
