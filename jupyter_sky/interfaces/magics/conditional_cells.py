"""Cells with ``--if`` that are run by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_sky.base.requests.cell_options.conditions import default_value, describe_unmet, is_met
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.translation import _


def find_defaults(options: CellOptions, namespace: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the defaults of a cell whose condition does not hold, and say so; else None.

    Parameters
    ----------
    options
        Of the cell.
    namespace
        Values of the notebook, and those of a sweep.

    Raises
    ------
    SkyUsageError
        The condition reads what is not there, or cannot be compared.

    Examples
    --------
    >>> from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
    >>> options = parse_cell_line('--if "acc > .9" -o model --default model=None')
    >>> find_defaults(options, {"acc": 0.5})
    the cell is skipped: acc > .9 is false: acc = 0.5
    {'model': None}
    """
    if not options.condition or is_met(options.condition, namespace):
        return None
    why = describe_unmet(options.condition, namespace)
    print(_("the cell is skipped: {why}").format(why=why))
    return {each.name: default_value(each) for each in options.defaults}
