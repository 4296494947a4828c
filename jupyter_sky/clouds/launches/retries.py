"""Retried API calls, and the translation of SDK errors into `SkyError`s."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import (
    SkyError,
    SkyNoCapacity,
    SkyPermission,
    SkyUnreachable,
    SkyUsageError,
)
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.base import Tick, no_tick
from jupyter_sky.clouds.provider.protocol import TRANSIENT_CAUSES, Provider
from jupyter_sky.clouds.provider.values import CloudError

MAX_ATTEMPTS = 5
"""Number of times that a request is sent which is throttled, or whose answer is lost."""
FIRST_WAIT_SECONDS = 0.5
MAX_WAIT_SECONDS = 60.0
"""Longest wait that a cloud may ask for between two requests."""

T = TypeVar("T")


class RetryingCaller:
    """Caller of one cloud's API that retries transient failures.

    Parameters
    ----------
    provider
        Knows what the cloud's errors mean.
    """

    def __init__(self, provider: Provider) -> None:
        self.provider, self.name = provider, provider.name

    def __call__(
        self,
        request: Callable[[], T],
        offer: Offer | None = None,
        tick: Tick = no_tick,
    ) -> T:
        """Send a request; again where that helps; turn what is refused into our own errors.

        Requests can be sent twice: they carry a token, or change nothing the second time.
        """
        for attempt in range(MAX_ATTEMPTS):
            try:
                return self.call_once(request)
            except SkyError:
                raise
            except Exception as error:
                trouble = self.provider.explain(error)
                if trouble is None:
                    raise
                if trouble.cause not in TRANSIENT_CAUSES or attempt == MAX_ATTEMPTS - 1:
                    raise self._to_sky_error(trouble, offer) from None
                _wait(attempt, trouble.retry_after, tick)
        raise AssertionError

    def call_once(self, request: Callable[[], T]) -> T:
        """Send a request once; a missing SDK is told with how to install it."""
        try:
            return request()
        except ModuleNotFoundError as error:
            facts = find_facts(self.name)
            if (error.name or "").partition(".")[0] not in facts.packages:
                raise
            raise SkyUsageError(
                _("{name}: its SDK is not installed (there is no {name2})").format(
                    name=self.name, name2=error.name
                ),
                hint=facts.install,
            ) from None

    def _to_sky_error(self, trouble: CloudError, offer: Offer | None) -> SkyError:
        where = offer.place if offer else self.name
        message = f"{where}: {trouble.message} ({trouble.code})"
        if trouble.cause in ("capacity", "quota"):
            refused = SkyNoCapacity(message, hint=trouble.fix or None)
            refused.cause, refused.scope = trouble.cause, trouble.scope
            return refused
        if trouble.cause == "permission":
            return SkyPermission(message, hint=trouble.fix or _("see %sky check"))
        if trouble.cause == "invalid":
            return SkyUsageError(message, hint=trouble.fix or None)
        return SkyUnreachable(message, hint=trouble.fix or None)


def _wait(attempt: int, retry_after: float, tick: Tick) -> None:
    """Wait longer before each attempt, and as long as the cloud asks for."""
    own = FIRST_WAIT_SECONDS * 2**attempt * random.uniform(0.5, 1)
    until = time.monotonic() + max(own, min(retry_after, MAX_WAIT_SECONDS))
    while time.monotonic() < until:
        tick()
        time.sleep(0.05)
