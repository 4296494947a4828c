"""Bundles of the ES modules in `static` for anywidget."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

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
