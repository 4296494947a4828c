"""Policy by which machines are rented while those of one's own are busy (bursting)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.quantities import format_duration, plain_number
from jupyter_sky.base.requests.resources import parse_duration
from jupyter_sky.base.translation import _

Market = Literal["spot", "on-demand", "any"]
EXAMPLE = '--burst "spot<=2/h after 10m"'
_POLICY = re.compile(
    r"(?P<market>spot|on-demand|any)?\s*"
    r"(?:(?:<=|up to)\s*\$?(?P<usd>\d+(?:\.\d+)?)(?:\s*(?:USD)?/h)?)?\s*"
    r"(?:after\s+(?P<after>\S.*?))?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class BurstPolicy:
    """Machines of one's own first; others are rented when the queue for them is long.

    Attributes
    ----------
    market : str
        Market of machines that are rented: ``spot``, ``on-demand``, or ``any``.
    max_usd_h : float or None
        Most USD/h for all nodes of a request; None for no limit but that of the request.
    after : float
        Longest wait for machines of one's own, seconds.
    is_of_cell : bool
        Whether the cell itself says so: then ``--cloud ssh`` names where it goes first, and clouds
        may be rented beside it. A setting does not go beyond the clouds of a cell.

    Examples
    --------
    >>> parse_burst("spot<=2/h after 10m").describe()
    'own machines first, then spot machines up to $2/h, when the wait is longer than 10:00'
    """

    market: Market = "any"
    max_usd_h: float | None = None
    after: float = 0.0
    is_of_cell: bool = False

    @property
    def spot(self) -> bool | None:
        """Whether spot machines are rented; None for both markets."""
        return {"spot": True, "on-demand": False}.get(self.market)

    def option(self) -> str:
        """Return the policy as an option of a cell.

        Examples
        --------
        >>> parse_burst("up to 2.50 after 600s").option()
        '--burst "any<=2.5/h after 600s"'
        """
        limit = "" if self.max_usd_h is None else f"<={plain_number(self.max_usd_h)}/h"
        wait = f" after {plain_number(self.after)}s" if self.after else ""
        return f'--burst "{self.market}{limit}{wait}"'

    def describe_rented(self) -> str:
        """Return in words what is rented."""
        kinds = {
            "spot": _("spot machines"),
            "on-demand": _("on-demand machines"),
            "any": _("machines of either market"),
        }
        kind = kinds[self.market]
        if self.max_usd_h is None:
            return kind
        return _("{kind} up to ${usd:g}/h").format(kind=kind, usd=self.max_usd_h)

    def describe(self) -> str:
        """Return the policy in words."""
        kind = self.describe_rented()
        if not self.after:
            return _("own machines first, then {kind} at once").format(kind=kind)
        return _("own machines first, then {kind}, when the wait is longer than {time}").format(
            kind=kind, time=format_duration(self.after)
        )


def check_burst(text: str, label: str) -> None:
    """Raise SkyUsageError for a text that is no policy; an empty one is none, and allowed."""
    if text.strip():
        parse_burst(text, label)


@lru_cache(maxsize=64)
def parse_burst(text: str, label: str = "--burst", is_of_cell: bool = False) -> BurstPolicy:
    """Parse a policy: a market, a limit in USD/h, and the longest wait; each may be left out.

    Parameters
    ----------
    text
        Such as ``spot<=2/h after 10m``, ``on-demand after 1h`` or ``<=5``.
    label
        What it is called in errors.

    Raises
    ------
    SkyUsageError
        It is not understood.

    Examples
    --------
    >>> parse_burst("spot up to $2/h after 10 min")
    BurstPolicy(market='spot', max_usd_h=2.0, after=600.0, is_of_cell=False)
    >>> parse_burst("<=5").market, parse_burst("on-demand").after
    ('any', 0.0)
    """
    found = _POLICY.fullmatch(text.strip())
    if found is None or not text.strip():
        raise SkyUsageError(
            _("{label} {text}: not understood").format(label=label, text=text),
            hint=_("a market, a limit and a wait, such as {example}").format(example=EXAMPLE),
        )
    market: Market = (found["market"] or "any").lower()  # type: ignore[assignment]
    after = parse_duration(found["after"], label) if found["after"] else 0.0
    usd = float(found["usd"]) if found["usd"] else None
    return BurstPolicy(market, usd, after, is_of_cell)
