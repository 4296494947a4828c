"""Functions for another minor version of Python: as source, for byte code does not travel.

What can go there: functions and classes of the notebook by their source, with the plain values,
modules and installed functions that they name; arguments and results that plain pickle takes. What
cannot: lambdas and functions without source, bound methods, functions that name another one of
`jupyter_sky` (it runs in the engine's Python), and values whose classes are the notebook's own.
"""

from __future__ import annotations

import ast
import inspect
import pickle
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyVersionError
from jupyter_sky.base.remote.environment_spec import python_minor_version
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls.lazy_calls import Function
from jupyter_sky.execution.functions.node.image_install import PortableFunction
from jupyter_sky.execution.functions.node.python_worker import PROTOCOL
from jupyter_sky.machines.packages.installed_modules import is_installed

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.images.image import Image
    from jupyter_sky.execution.functions.node.image_install import PackageRequest

FUTURE = "from __future__ import annotations"
PACKAGE = __name__.partition(".")[0]


MakePortable = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes functions run in the Python of an image."""


def portable_functions(image: Image) -> MakePortable | None:
    """Return what makes functions run in the Python of an image; None if that is ours."""
    if not image.python_option():
        return None
    setup = image.setup()
    return lambda function: make_portable(function, setup.request, setup.trees)


def make_portable(
    function: Callable[..., Any], packages: PackageRequest, trees: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """Return a function that runs in another Python; one of this package stays as it is.

    Raises
    ------
    SkyVersionError
        It, or something that it names, cannot travel; says what.

    Examples
    --------
    >>> from jupyter_sky.execution.functions.node.image_install import PackageRequest
    >>> make_portable(print, PackageRequest(python="3.99"))
    Traceback (most recent call last):
    ...
    jupyter_sky.base.errors.SkyVersionError: print cannot go to Python 3.99: \
<built-in function print> is no plain function
    functions with their source, plain values and installed modules can; Image(python="auto") \
takes all
    """
    if (getattr(function, "__module__", None) or "").partition(".")[0] == PACKAGE:
        return function
    parts = SourceParts(getattr(function, "__qualname__", repr(function)), packages.python)
    name = parts.add_definition(function)
    data = pickle.dumps(parts.data, PROTOCOL)
    return PortableFunction(
        name,
        "\n".join([FUTURE, *parts.imports, *parts.definitions]),
        data,
        packages,
        trees,
        inspect.isgeneratorfunction(function),
    )


class SourceParts:
    """Source of a function and of what it names.

    Attributes
    ----------
    imports, definitions : list of str
        Code that comes first, and that of functions and classes.
    data : dict
        Values by name.
    """

    def __init__(self, name: str, python: str) -> None:
        self._name, self._python = name, python
        self.imports: list[str] = []
        self.definitions: list[str] = []
        self.data: dict[str, Any] = {}
        self._known: set[int] = set()

    def add_definition(self, thing: Any) -> str:
        """Add a function or class of the notebook; return its name."""
        thing = _plain(thing)
        if not isinstance(thing, (FunctionType, type)):
            raise self._error(_("{thing!r} is no plain function").format(thing=thing))
        if thing.__name__ == "<lambda>":
            raise self._error(_("it has no name of its own: write it with def"))
        if id(thing) in self._known:
            return thing.__name__
        self._known.add(id(thing))
        try:
            definition = _definition(thing)
        except (OSError, TypeError, SyntaxError):
            text = _("{name} has no source").format(name=thing.__name__)
            raise self._error(text) from None
        for name, value in _named_values(thing, definition).items():
            self._add(name, value)
        self.definitions.append(ast.unparse(definition))
        if isinstance(thing, FunctionType):  # as the other functions here call it
            self.definitions.append(f"{thing.__name__}.local = {thing.__name__}")
        return thing.__name__

    def _add(self, name: str, value: Any) -> None:
        plain = _plain(value)
        module = getattr(plain, "__module__", None)
        if isinstance(value, ModuleType):
            self._add_module(name, value)
        elif isinstance(plain, (FunctionType, type)) or inspect.isbuiltin(plain):
            if module and not _is_importable(module):
                if plain.__name__ != name:
                    raise self._error(
                        _("{name} is another name of {other}").format(
                            name=name, other=plain.__name__
                        )
                    )
                self.add_definition(plain)
            else:
                self._check_module(name, module or "builtins")
                self.imports.append(f"from {module} import {plain.__name__} as {name}")
        else:
            try:
                pickle.dumps(value, PROTOCOL)
            except Exception as error:
                text = _("{name} does not pickle plainly: {error}")
                raise self._error(text.format(name=name, error=error)) from None
            if type(value).__module__ == "__main__":
                kind = type(value).__name__
                raise self._error(
                    _("{name} is a {kind} of the notebook's own").format(name=name, kind=kind)
                )
            self.data[name] = value

    def _add_module(self, name: str, module: ModuleType) -> None:
        self._check_module(name, module.__name__)
        self.imports.append(f"import {module.__name__} as {name}")

    def _check_module(self, name: str, module: str) -> None:
        if module.partition(".")[0] == PACKAGE:
            text = _("it names {name} of {package}, which runs in Python {here} there, too")
            here = python_minor_version()
            raise self._error(text.format(name=name, package=PACKAGE, here=here))

    def _error(self, why: str) -> SkyVersionError:
        return SkyVersionError(
            _("{name} cannot go to Python {python}: {why}").format(
                name=self._name, python=self._python, why=why
            ),
            hint=_(
                "functions with their source, plain values and installed modules can; "
                'Image(python="auto") takes all'
            ),
        )


def _definition(thing: Any) -> ast.stmt:
    """Return the syntax tree of a function or class, without what is of this side.

    Decorators of functions are (`sky.function`), and annotations of their parameters.

    Raises
    ------
    OSError, TypeError, SyntaxError
        It has no source.
    """
    (definition, *__) = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    for node in ast.walk(definition):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
        definition.decorator_list = []
    return definition


def _named_values(thing: Any, definition: ast.stmt) -> dict[str, Any]:
    """Return the globals and outer variables that a function or class names."""
    annotations = {
        id(name)
        for node in ast.walk(definition)
        if isinstance(node, ast.AnnAssign)
        for name in ast.walk(node.annotation)
    }
    names = {
        node.id
        for node in ast.walk(definition)
        if isinstance(node, ast.Name) and id(node) not in annotations
    }
    space = vars(sys.modules[thing.__module__]) if isinstance(thing, type) else thing.__globals__
    values = {name: space[name] for name in names if name in space}
    if isinstance(thing, FunctionType):
        outer = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
        values |= {name: cell.cell_contents for name, cell in outer}
    return {name: value for name, value in values.items() if _plain(value) is not thing}


def _is_importable(module: str) -> bool:
    """Return whether a module may be there, too: it is built in, or installed."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return module != "__main__" and (file is None or is_installed(Path(file)))


def _plain(value: Any) -> Any:
    return value.local if isinstance(value, Function) else value
