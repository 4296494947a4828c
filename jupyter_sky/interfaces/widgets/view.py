"""Widget around a module of `static`: live in any front end, static in a saved notebook.

Imported when a view is made, never at the start: anywidget brings ipywidgets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anywidget

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import browser_texts
from jupyter_sky.interfaces.widgets.modules import bundle_module, bundle_styles

_log = logging.getLogger(__name__)

MIME = "application/vnd.jupyter-sky.view+json"
"""MIME type that JupyterLab's extension shows with the same module and answers of the server: a
view needs no kernel when the notebook is opened again."""


class View(anywidget.AnyWidget):
    """Widget of a module of `static` whose requests this kernel answers.

    Parameters
    ----------
    name : str
        The module ``static/NAME.js``; its style sheet is ``static/NAME.css``.
    answers : dict
        Handlers by kind of request: ``answers["match"](payload)`` returns what fits into JSON;
        a SkyError is shown with its hint.
    static : callable
        Returns the HTML and the plain text for saved notebooks.
    state : dict, optional
        Value of ``model.get("state")`` in the module and of `MIME`.

    Examples
    --------
    >>> View("form", answers, lambda: ("<p>a form</p>", "a form"))  # doctest: +SKIP
    """

    state: Any  # a trait added by the constructor: its first value differs between views

    def __init__(
        self,
        name: str,
        answers: dict[str, Callable[[Any], Any]],
        static: Callable[[], tuple[str, str]],
        state: dict[str, Any] | None = None,
    ) -> None:
        from traitlets import Dict

        self._esm, self._css = bundle_module(name), bundle_styles(name)
        self._name, self._answers, self._static = name, answers, static
        super().__init__()
        self.add_traits(
            state=Dict(state or {}).tag(sync=True),
            texts=Dict(dict(browser_texts())).tag(sync=True),
        )
        self.on_msg(_answer)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        found = super()._repr_mimebundle_(**kwargs)
        data, metadata = found if isinstance(found, tuple) else (found or {}, {})
        html, plain = self._static()
        state = {"version": 1, "view": self._name, "state": self.state}
        return {**data, MIME: state, "text/html": html, "text/plain": plain}, metadata


def _answer(view: View, message: Any, _buffers: Any) -> None:
    """Answer one request; a failure becomes a message without traceback."""
    if not isinstance(message, dict) or "id" not in message:
        return
    reply: dict[str, Any] = {"id": message["id"]}
    try:
        kind = message.get("kind", "")
        reply["answer"] = view._answers[kind](message.get("payload") or {})
    except SkyError as error:
        words = {"message": error.message, "hint": error.hint, "kind": type(error).__name__}
        reply["error"] = words
    except Exception as error:
        _log.debug("a view's request failed", exc_info=True)
        reply["error"] = {"message": f"{type(error).__name__}: {error}", "hint": None, "kind": ""}
    view.send(reply)
