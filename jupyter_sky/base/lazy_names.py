"""Names of a package, imported at their first use, from the one list in its stub.

The stub ``__init__.pyi`` is what type checkers and editors read. Reading it here as well leaves one
list of names; it is read at the first use of one, so that importing the package costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ast


def read_stub(file: str) -> dict[str, tuple[str, str]]:
    """Return module and attribute of each name that the stub beside a package's file exports."""
    import ast  # not at the import of jupyter_sky
    from pathlib import Path

    names: dict[str, tuple[str, str]] = {}
    imported: dict[str, tuple[str, str]] = {}
    for node in ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        match node:
            case ast.ImportFrom(module=str(module)):
                imported |= {each.asname or each.name: (module, each.name) for each in node.names}
                # without `as` a name of a stub is not for its importers
                names |= {name: imported[name] for name in map(_exported, node.names) if name}
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=value)):
                names[name] = imported[value]  # another name of what is imported
            case _:
                pass
    return names


def _exported(alias: ast.alias) -> str:
    return alias.name if alias.asname == alias.name else ""


@cache
def load_class(path: str) -> Any:
    """Return a class by ``module:name``, also of a hall above the caller's."""
    module, __, name = path.partition(":")
    return getattr(import_module(module), name)


def attach(
    package: str, file: str, hidden: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    file
        ``__file__`` of the package.
    hidden
        Names that ``from package import *`` leaves out.

    Examples
    --------
    >>> import jupyter_sky.knowledge.catalog as catalog
    >>> "Catalog" in dir(catalog), catalog.load.__name__
    (True, 'load')
    """

    @cache
    def homes() -> dict[str, tuple[str, str]]:
        return read_stub(file)

    def get_name(name: str) -> Any:
        if name == "__all__":
            return sorted(homes().keys() - {*hidden})
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = homes()[name]
        home = import_module(module)
        return getattr(home, attribute, None) or import_module(f"{module}.{attribute}")

    def list_names() -> list[str]:
        return sorted(homes())

    return get_name, list_names
