"""Names of runs and bags that their user has not named."""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from itertools import count


def dated_name(stem: str, taken: Collection[str], now: float | None = None) -> str:
    """Return a name that begins with a stem and tells the time, unlike those that are taken.

    Parameters
    ----------
    stem
        Characters that a file name should not have become ``-``.
    taken
        Names of other runs: two may begin in the same second.
    now
        Unix time; the present unless given.

    Examples
    --------
    >>> first = dated_name("wine", [])
    >>> dated_name("wine", [first]) in (f"{first}-2", dated_name("wine", []))
    True
    """
    stem = re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "run"
    name = f"{stem}-{time.strftime('%m%d-%H%M%S', time.localtime(now))}"
    numbered = (f"{name}-{number}" for number in count(2))
    return name if name not in taken else next(each for each in numbered if each not in taken)
