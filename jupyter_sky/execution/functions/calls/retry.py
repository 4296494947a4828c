"""Retry policy of calls."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

MAX_LOSSES = 3
"""Losses of its node after which a call seems to be their cause."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Retry policy of calls that fail.

    Attributes
    ----------
    times : int
        Most further attempts.
    on : tuple of exception classes
        Those that are worth one.
    losses : int
        Losses of the node that runs it after which it is given up; 1 is at most once. With
        `recover`, those since the newest save.
    recover : bool
        Whether the states of `checkpointed` come to the notebook, and go on with it elsewhere.
    """

    times: int = 0
    on: tuple[type[BaseException], ...] = (Exception,)
    losses: int = MAX_LOSSES
    recover: bool = False


DEFAULT_RETRY = Retry()
AT_MOST_ONCE = Retry(losses=1)


def make_retry(times: int, on: tuple[type[BaseException], ...] = (Exception,)) -> Retry:
    """Return the policy of calls that are made again so many times; with 0 they run at most once.

    Raises
    ------
    SkyUsageError
        It is no number of times.

    Examples
    --------
    >>> make_retry(2).losses, make_retry(0).losses
    (3, 1)
    """
    if isinstance(times, bool) or not isinstance(times, int) or times < 0:
        raise SkyUsageError(
            _("retry {times!r}: how often a call is made again is 0 or more").format(times=times)
        )
    return Retry(times, on, MAX_LOSSES if times else 1)


def check_recover(retry: Retry) -> None:
    """Refuse to recover calls that may run once only.

    Raises
    ------
    SkyUsageError
        They may not be sent again.
    """
    if retry.losses <= 1:
        raise SkyUsageError(
            _("recover=True sends a call again when its node is lost, and retry=0 forbids it"),
            hint=_("leave one of the two out"),
        )
