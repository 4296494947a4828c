"""Checks of users' numbers, with errors of one line and a remedy."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _


def check_number(
    value: Any, label: str, *, above: float | None = None, least: float = 0.0
) -> float:
    """Check for a finite number of at least `least`, or strictly above `above`.

    Raises
    ------
    SkyUsageError
        For anything else, nan included.

    Examples
    --------
    >>> check_number(4, "work (hours)", above=0)
    4.0
    """
    wanted = f"above {above:g}" if above is not None else f"of at least {least:g}"
    fits = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or (value <= above if above is not None else value < least):
        raise SkyUsageError(
            _("{label} is {value!r}").format(label=label, value=value),
            hint=_("give a finite number {wanted}").format(wanted=wanted),
        )
    return float(value)


def check_count(value: Any, label: str, least: int = 1) -> int:
    """Check for a whole number of at least `least`.

    Examples
    --------
    >>> check_count(3, "nodes")
    3
    """
    known = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not known or value != math.floor(value) or value < least:
        raise SkyUsageError(
            _("{label} is {value!r}").format(label=label, value=value),
            hint=_("give a whole number from {least}").format(least=least),
        )
    return int(float(value))
