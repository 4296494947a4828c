"""Widget around a module of `static`: live in any front end, static in a saved notebook.

Imported when a view is made, never at the start: anywidget brings ipywidgets.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import anywidget

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import browser_texts

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


# -- Bundles of the ES modules in `static` for anywidget ------------------------------------------

_IMPORT = re.compile(r"^import\s*\{([^}]*)\}\s*from\s*'\./([\w-]+)\.js';\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const)\b)", re.MULTILINE)
_EXPORTED = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)


@cache
def bundle_module(name: str) -> str:
    """Return ``static/NAME.js`` and its imports as one module, each in its own scope.

    Parameters
    ----------
    name : str
        Name of the file, without ``.js``.

    Examples
    --------
    >>> bundle_module("form").count("export default widget(")
    1
    """
    order: list[str] = []
    _visit(name, order)
    scopes = [_scope(one) for one in order[:-1]]
    # other exports go: anywidget would use an exported `render`
    return "\n".join([*scopes, _EXPORT.sub("", _link_imports(name))])


@cache
def bundle_styles(*names: str) -> str:
    """Return the shared style sheet followed by ``static/NAME.css`` of each name.

    Examples
    --------
    >>> bundle_styles("form").startswith(bundle_styles())
    True
    """
    return "\n".join(_read(f"{name}.css") for name in ("base", *names))


def _visit(name: str, order: list[str]) -> None:
    """Append a module after those that it imports."""
    for _, other in _IMPORT.findall(_read(f"{name}.js")):
        if other not in order:
            _visit(other, order)
    order.append(name)


def _scope(name: str) -> str:
    """Return a module as an object with its exports."""
    text = _link_imports(name)
    exported = ", ".join(_EXPORTED.findall(text))
    body = _EXPORT.sub("", re.sub(r"^export default .*?;\n", "", text, flags=re.M | re.S))
    return f"const {_object(name)} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();\n"


def _link_imports(name: str) -> str:
    """Return a module's text with its imports taken from the objects of `_scope`."""

    def taken(match: re.Match[str]) -> str:
        names = match[1].replace(" as ", ": ").strip().rstrip(",")
        return f"const {{ {names} }} = {_object(match[2])};\n"

    return _IMPORT.sub(taken, _read(f"{name}.js"))


def _object(name: str) -> str:
    return f"_module_{name.replace('-', '_')}"


def _read(name: str) -> str:
    return (
        files("jupyter_sky.interfaces.widgets").joinpath("static", name).read_text(encoding="utf-8")
    )
