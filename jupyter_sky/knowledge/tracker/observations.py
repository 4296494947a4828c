"""Observations of clouds: frozen values, each with its place and time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.offers import Place
from jupyter_sky.base.translation import _

KINDS = ("launched", "refused", "preempted", "ended", "price", "cleared")
"""``ended`` is a machine that was alive when its user gave it back; ``cleared`` a block that its
user took away."""
CAUSES = ("capacity", "quota", "permission", "transient")
"""Cause of a refused launch."""

DAY = 86400.0

# What each kind must say besides its place and time.
_NEEDS_SECONDS = ("preempted", "ended")
_NEEDS_MACHINE = ("launched", "preempted", "ended", "price")


@dataclass(frozen=True, slots=True)
class Observation:
    """Something that was seen at a place.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    at : float
        When, in unix seconds.
    cause : str
        Why it was refused: one of `CAUSES`. For ``cleared`` the cause of the block.
    seconds : float, optional
        How long the launch took, or the age at which the machine ended.
    usd : float, optional
        Spot price in USD/h of one machine.
    why : str
        The refusal in the cloud's own words.
    weight : float
        How many observations it counts for; old ones are folded into one that counts for less
        than their number because they have faded.
    events : int
        How many observations were folded into it.
    """

    kind: str
    place: Place
    at: float
    cause: str = ""
    seconds: float | None = None
    usd: float | None = None
    why: str = ""
    weight: float = 1.0
    events: int = 1


def check_observation(seen: Observation) -> Observation:
    """Return an observation that makes sense.

    Raises
    ------
    SkyUsageError
        For an unknown kind or cause, a figure that is missing, negative or not finite, or a place
        that is too wide for what was seen there.

    Examples
    --------
    >>> place = Place("aws", "us-east-1", "", "g5.xlarge")
    >>> check_observation(Observation("launched", place, 0.0)).kind
    'launched'
    """
    kind, where = seen.kind, Place.of(seen.place)
    if kind not in KINDS:
        raise SkyUsageError(
            _("{kind!r} is not something to observe").format(kind=kind), hint=suggest(kind, KINDS)
        )
    if kind in ("refused", "cleared") and seen.cause not in CAUSES:
        raise SkyUsageError(
            _("{kind} at {where}: {cause!r} is not a cause").format(
                kind=kind, where=where, cause=seen.cause
            ),
            hint=suggest(seen.cause, CAUSES),
        )
    if kind in _NEEDS_MACHINE and not (where.region and where.instance_type):
        raise SkyUsageError(
            _("{kind} at {where}: the region and the instance type are missing").format(
                kind=kind, where=where
            ),
            hint=_('such as Place("aws", "us-east-1", "us-east-1a", "g5.xlarge")'),
        )
    if kind in _NEEDS_SECONDS and seen.seconds is None:
        raise SkyUsageError(
            _("{kind} at {where}: the machine's age is missing").format(kind=kind, where=where),
            hint="seconds=5400",
        )
    if kind == "price" and (seen.usd is None or not where.spot):
        raise SkyUsageError(
            _("price at {where}: it takes USD/h and a spot place").format(where=where),
            hint=_("on-demand prices belong to the catalog: jupyter sky catalog refresh"),
        )
    for name, value in (("at", seen.at), ("seconds", seen.seconds), ("usd", seen.usd)):
        if value is not None and not (_is_number(value) and 0 <= value < math.inf):
            raise SkyUsageError(
                _("{kind} at {where}: {name}={value} cannot be").format(
                    kind=kind, where=where, name=name, value=value
                ),
                hint=_("0 or more"),
            )
    return seen


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def age_weight(age: float, half_life: float) -> float:
    """Return the weight of an observation of this age: a half after each half-life.

    Parameters
    ----------
    age, half_life
        In the same unit; an age below zero counts as zero.

    Examples
    --------
    >>> age_weight(2.0, 1.0)
    0.25
    """
    return 0.5 ** (max(0.0, age) / half_life)


def quota_family(cloud: str, instance_type: str) -> str:
    """Return the name under which instance types share a quota, as far as their names tell.

    Examples
    --------
    >>> quota_family("aws", "g5.xlarge"), quota_family("aws", "c7g.large")
    ('g', 'standard')
    >>> quota_family("gcp", "n2-standard-8"), quota_family("gcp", "n1-standard-8+V100:1")
    ('n2', 'V100')
    >>> quota_family("azure", "Standard_NC24ads_A100_v4")
    'Standard_NCads_A100_v4'
    """
    return find_facts(cloud).quota_family(instance_type)
