"""The machines that we have data of: the model that is assumed where nothing else is known."""

from __future__ import annotations

from functools import cache

from jupyter_sky.knowledge.lifetimes.models import FloorHyperbolic
from jupyter_sky.knowledge.lifetimes.proportional_hazards import Proportional

_ZONES = (
    *(("europe-north1-a", 0.1425), ("europe-west4-a", -0.5706), ("us-central1-c", 0.4627)),
    *(("us-central1-f", 0.4372), ("us-east1-b", -0.0879), ("us-west1-a", -0.3842)),
)


@cache
def reference() -> Proportional:
    """Return the floor plus hyperbolic hazard by vCPUs and zone that fits `google_2019`.

    The figures stand here so that a plan need not fit them; a test fits them again.

    Returns
    -------
    Proportional
        The result of `fit_proportional`.

    Examples
    --------
    >>> reference().at(64).expected_lifetime() < reference().at(2).expected_lifetime()
    True
    """
    return Proportional(FloorHyperbolic(0.003217, 0.2661, 0.3054, 24.0), 0.2276, _ZONES)
