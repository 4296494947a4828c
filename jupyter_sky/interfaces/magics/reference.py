"""Help pages of the public names, made from their docstrings."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from dataclasses import dataclass
from typing import Any, Literal, get_args

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _

_FOR_DOCTEST = re.compile(r"\s*# doctest:.*")
_WIDTH = 88
_MOST_LINES = 60
"""More members than these are listed by name alone."""
_NOT_REFERENCE = {"__version__", "sky"}


@dataclass(frozen=True, slots=True)
class HelpPage:
    """Help about one verb, public name or page of the guide.

    Attributes
    ----------
    kind : {'guide', 'verb', 'name'}
    name : str
        Name by which `help` finds it.
    title : str
        Heading: a signature, a usage, or the title of a page.
    summary : str
        One sentence.
    text : str
        All that follows the heading; columns are aligned by spaces.
    """

    kind: Literal["guide", "verb", "name"]
    name: str
    title: str
    summary: str
    text: str

    def __str__(self) -> str:
        if self.kind == "verb":
            return f"{self.title}\n{self.text}"
        text = textwrap.indent(self.text, "    ") if self.kind == "name" else self.text
        return f"{self.title}\n\n{text}"

    __repr__ = __str__


class _Annotation(str):
    """Annotation that a signature shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def list_names() -> list[str]:
    """Return the public names of the package, in the order of the alphabet.

    Examples
    --------
    >>> "plan" in list_names(), "SkyNoOffer" in list_names()
    (True, True)
    """
    public = {*dir(_package())} - _NOT_REFERENCE
    return sorted(public, key=lambda name: (name.lower(), name))


def _package() -> Any:
    """Return the package; its own lazy imports lead here, so that it is not imported."""
    return sys.modules[__name__.partition(".")[0]]


def is_public(name: str) -> bool:
    """Whether a name, or the first part of ``Compute.dask``, is one of the package's."""
    return strip_package(name).partition(".")[0] in list_names()


def strip_package(name: str) -> str:
    """Return a name without the package in front.

    Examples
    --------
    >>> strip_package("sky.plan")
    'plan'
    """
    return name.removeprefix("jupyter_sky.").removeprefix("sky.")


def describe_name(name: str, command: str = "%sky") -> HelpPage:
    """Return the help page of a public name, or of an attribute of one.

    Parameters
    ----------
    name
        Such as ``plan``, ``sky.plan`` or ``preemption.fit``.
    command
        What a verb follows in the text: ``%sky`` or ``jupyter sky``.

    Raises
    ------
    SkyUsageError
        There is no such name; the hint has the nearest.

    Examples
    --------
    >>> describe_name("sky.extend").title.partition("(")[0]
    'sky.extend'
    """
    from jupyter_sky.interfaces.magics.declaration import VERBS

    path = strip_package(name)
    found = _find(path)
    text = _FOR_DOCTEST.sub("", _documentation(found))
    if members := _members(found):
        title = _("Members")
        text += "\n".join(["\n", title, "-" * len(title), *members])
    if path in VERBS:
        text += "\n\n" + _("Verb of this name: {command} help {name}").format(
            command=command, name=path
        )
    title = _title(f"sky.{path}", found)
    return HelpPage("name", f"sky.{path}", title, text.partition("\n")[0], text)


def _find(path: str) -> Any:
    first, *rest = path.split(".")
    found, known, before = _package(), list_names(), "sky"
    for part in (first, *rest):
        if part not in known:
            raise SkyUsageError(
                _("{owner} has no public name {name}").format(owner=before, name=part),
                hint=suggest(part, known),
            )
        found, before = getattr(found, part), f"{before}.{part}"
        known = _public_attributes(found)
    return found


def _documentation(value: Any) -> str:
    """Return the docstring; of a value that has none of its own, what it is."""
    is_own = isinstance(value, property) or "__doc__" in getattr(value, "__dict__", ())
    if is_own or inspect.ismodule(value) or inspect.isclass(value) or inspect.isroutine(value):
        return inspect.getdoc(value) or ""
    if choices := get_args(value):
        names = (each.__name__ if inspect.isclass(each) else repr(each) for each in choices)
        return _("One of {choices}.").format(choices=", ".join(names))
    return f"{type(value).__name__} {value}"


def _public_attributes(owner: Any) -> list[str]:
    """Return the names that a module exports, or those of a class that this package has written."""
    if inspect.ismodule(owner):
        names = getattr(owner, "__all__", dir(owner))
    elif inspect.isclass(owner):
        ours = [each for each in owner.__mro__ if each.__module__.startswith("jupyter_sky")]
        names = {name for each in ours for name in vars(each)}
    else:
        return []
    return sorted(name for name in names if not name.startswith("_"))


def _members(owner: Any) -> list[str]:
    """Return lines with the methods and properties of a class, or the functions of a module."""
    is_error = inspect.isclass(owner) and issubclass(owner, BaseException)
    names = [] if is_error else _public_attributes(owner)
    if len(names) > _MOST_LINES:
        return textwrap.wrap(", ".join(names), _WIDTH)
    rows = []
    for name in names:
        value = inspect.getattr_static(owner, name, None)
        if inspect.ismodule(owner):
            value = getattr(owner, name, None)
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if callable(value) or isinstance(value, property):
            rows.append(f"{name:24} {(inspect.getdoc(value) or '').partition(chr(10))[0]}".rstrip())
    return rows


def _title(name: str, value: Any) -> str:
    """Return a name with its arguments, wrapped between them."""
    if not callable(value):
        return name
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # of built-in types
        return name
    shown = signature.replace(
        parameters=[
            each.replace(annotation=_unquote(each.annotation))
            for each in signature.parameters.values()
        ],
        return_annotation=_unquote(signature.return_annotation),
    )
    lines = textwrap.wrap(
        f"{name}{shown}", _WIDTH, subsequent_indent="    ", break_long_words=False
    )
    return "\n".join(lines)


def _unquote(annotation: Any) -> Any:
    return _Annotation(annotation) if isinstance(annotation, str) else annotation
