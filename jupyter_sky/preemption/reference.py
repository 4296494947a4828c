"""The machines that we have data of: the model that is assumed where nothing else is known."""

from __future__ import annotations

from functools import cache

from .fitting import fit_proportional
from .lifetimes import google_2019
from .proportional import Proportional


@cache
def reference() -> Proportional:
    """Floor plus hyperbolic hazard by vCPUs and zone, fitted to `google_2019` on first use.

    Examples
    --------
    >>> reference().at(64).expected_lifetime() < reference().at(2).expected_lifetime()
    True
    """
    return fit_proportional(google_2019())
