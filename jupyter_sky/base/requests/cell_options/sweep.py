"""Options that make several tasks of a cell, ``--map``, and values as people write them."""

from __future__ import annotations

import ast
from collections.abc import Container, Sequence
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.identifiers import check_identifier
from jupyter_sky.base.requests.cell_options.values import CellMap
from jupyter_sky.base.translation import _

MAP_HINT = "such as --map lr=[0.1,0.01]; with spaces or quotes: --map \"kind=['a b','c']\""


def most_failures(allowed: str, count: int) -> int:
    """Return how many of the tasks of a cell may fail, as ``--allow-failures`` says.

    Examples
    --------
    >>> most_failures("10%", 25), most_failures("3", 25), most_failures("", 25)
    (2, 3, 0)
    """
    if allowed.endswith("%"):
        return count * int(allowed[:-1]) // 100
    return int(allowed or 0)


def parse_maps(items: Sequence[str], sent: Container[str]) -> tuple[CellMap, ...]:
    """Parse the values of ``--map``: ``NAME=LIST``.

    Parameters
    ----------
    items
        The values.
    sent
        Names that ``-i`` gives the cell.

    Raises
    ------
    SkyUsageError
        A value is not understood, or a name is given twice.

    Examples
    --------
    >>> parse_maps(["lr=[0.1, 0.01]"], ())
    (CellMap(name='lr', expression='[0.1, 0.01]'),)
    """
    maps: dict[str, CellMap] = {}
    for item in items:
        name, equals, expression = (part.strip() for part in item.partition("="))
        if not equals or not expression:
            raise SkyUsageError(
                _("--map {item}: not a name with a list").format(item=item), hint=MAP_HINT
            )
        check_identifier(name, "--map", MAP_HINT)
        try:
            ast.parse(expression, mode="eval")
        except (SyntaxError, ValueError):
            raise SkyUsageError(
                _("--map {item}: not an expression").format(item=item), hint=MAP_HINT
            ) from None
        if name in maps or name in sent:
            other = "--map" if name in maps else "-i"
            raise SkyUsageError(
                _("--map {item}: {name} is given by another {flag}").format(
                    item=item, name=name, flag=other
                ),
                hint=_("give it once"),
            )
        maps[name] = CellMap(name, expression)
    return tuple(maps.values())


def read_written(node: ast.expr) -> Any:
    """Return the value of an expression that is written, not computed; a bare word is text.

    A shell and ``%sky`` take quotes away, so ``['adam', 'sgd']`` arrives as ``[adam, sgd]``.

    Raises
    ------
    ValueError
        It is computed.

    Examples
    --------
    >>> read_written(ast.parse("[adam, 'sgd', -1, True]", mode="eval").body)
    ['adam', 'sgd', -1, True]
    """
    return ast.literal_eval(_Quoted().visit(node))


class _Quoted(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in ("inf", "nan"):  # as text it would be taken for the number
            raise ValueError(node.id)
        return ast.Constant(node.id)
