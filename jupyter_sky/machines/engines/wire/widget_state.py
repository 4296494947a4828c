# pyright: strict
"""Widgets in pickles: one model in the page, with an object of Python in each process that uses it.

A widget of ipywidgets is a model in the page and an object in the process that made it, joined by
a comm. Another process gets an object of its own for the same comm. The notebook's kernel passes
changes on between the page and all of them; functions that were registered with a widget stay in
the process that registered them, and are called there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from jupyter_sky.machines.engines.wire.narrowing import class_of, is_dict, is_list_or_tuple

TARGET = "jupyter.widget"
_REFERENCE = "IPY_MODEL_"
_MOMENTARY = ("_property_lock", "_holding_sync", "_states_to_send")
"""Attributes that say what a widget is doing at the moment."""


def find_widget(model: str) -> Any:
    """Return the widget of this process that has a model, or None.

    Its registry is private to ipywidgets, and accessed here only.
    """
    module = sys.modules.get("ipywidgets.widgets.widget")
    return None if module is None else module._instances.get(model)


def open_model(value: Any) -> str:
    """Return the id of the model of a widget that is open; of anything else an empty string."""
    module = sys.modules.get("ipywidgets.widgets.widget")
    if module is None or not isinstance(value, module.Widget) or value.comm is None:
        return ""
    return value.model_id


def shared_digest(model: str) -> str:
    """Return what stands for the hash of a widget, whose state is the same everywhere."""
    return f"widget {model}"


def is_shared(digest: str) -> bool:
    """Return whether a digest stands for a widget."""
    return digest.startswith("widget ")


def reduce_widget(widget: Any) -> tuple[Any, ...]:
    """Return a widget in the form of ``__reduce__``, without its comm and others' callbacks."""
    dispatcher_class: type = import_module("ipywidgets").CallbackDispatcher

    state = widget.__getstate__()
    values = state["_trait_values"]
    for name in ("comm", *_MOMENTARY):
        values.pop(name, None)
        state.pop(name, None)
    state.pop("notify_change", None)
    for name, value in values.items():
        if isinstance(value, dispatcher_class):
            values[name] = _own_callbacks(widget, value)
    arguments = class_of(widget), widget.model_id
    return restore_widget, arguments, state, None, None, _set_state


def _own_callbacks(widget: Any, dispatcher: Any) -> Any:
    """Return a dispatcher with the callbacks that are methods of the widget itself."""
    own = type(dispatcher)()
    own.callbacks = [
        each for each in dispatcher.callbacks if getattr(each, "__self__", None) is widget
    ]
    return own


def restore_widget(kind: Any, model: str) -> Any:
    """Return the widget of this process for a model, a new one where it has none."""
    return find_widget(model) or kind.__new__(kind)


def _set_state(widget: Any, state: dict[str, Any]) -> None:
    """Set the state of a widget, and join one that is new here to its model in the page."""
    if getattr(widget, "comm", None) is not None:
        _update(widget, state)
        return
    from comm import create_comm, get_comm_manager

    widget.__setstate__(state)
    manager, model = get_comm_manager(), state["_model_id"]
    comm: Any = manager.comms.get(model)
    if comm is None:
        comm = create_comm(comm_id=model, target_name=TARGET, primary=False)
        if getattr(comm, "kernel", comm) is None:  # set at the first message, which the maker sent
            from ipykernel.kernelbase import Kernel

            comm.kernel = Kernel.instance() if Kernel.initialized() else None
        manager.register_comm(comm)
    widget.comm = comm


def _update(widget: Any, state: dict[str, Any]) -> None:
    """Set what no message of the comm has told: other attributes, and widgets that are new here.

    The rest is equal already, so that nobody is to be notified.
    """
    dispatcher_class: type = import_module("ipywidgets").CallbackDispatcher

    values: dict[str, Any] = state["_trait_values"]
    kept: dict[str, Any] = widget._trait_values
    kept.update(
        (name, value) for name, value in values.items() if not isinstance(value, dispatcher_class)
    )
    traits = {"_trait_values", "_trait_notifiers", "_trait_validators"}
    attributes: dict[str, Any] = widget.__dict__
    attributes.update({name: state[name] for name in state.keys() - traits})


def mentioned_models(value: Any) -> set[str]:
    """Return the models that a part of a widget's state refers to.

    Examples
    --------
    >>> mentioned_models({"children": ["IPY_MODEL_a"], "value": 3})
    {'a'}
    """
    if isinstance(value, str):
        return {value.removeprefix(_REFERENCE)} if value.startswith(_REFERENCE) else set()
    parts: Iterable[Any] = ()
    if is_dict(value):
        parts = value.values()
    elif is_list_or_tuple(value):
        parts = value
    found: set[str] = set()
    return found.union(*map(mentioned_models, parts))
