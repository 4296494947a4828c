"""Requests to clouds: sent again where that helps, and what is refused in errors of our own."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from ..errors import SkyError, SkyNoCapacity, SkyPermission, SkyUnreachable, SkyUsageError
from ..offers import Offer
from .base import Driver, Tick, Trouble, patient

TRIES = 5
"""How often a request is sent that the cloud throttles, or whose answer is lost."""
FIRST_WAIT_SECONDS = 0.5
LOST = {"throttled", "transient"}
SDKS = ("azure", "boto3", "botocore", "google")

T = TypeVar("T")


class Asking:
    """The way to ask one cloud.

    Parameters
    ----------
    driver
        Knows what the cloud's errors mean.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver, self.name = driver, driver.name

    def __call__(
        self,
        request: Callable[[], T],
        offer: Offer | None = None,
        tick: Tick = patient,
    ) -> T:
        """Send a request; again where that helps; turn what is refused into our own errors.

        Requests can be sent twice: they carry a token, or change nothing the second time.
        """
        for attempt in range(TRIES):
            try:
                return self.installed(request)
            except SkyError:
                raise
            except Exception as error:
                trouble = self.driver.explain(error)
                if trouble is None:
                    raise
                if trouble.cause not in LOST or attempt == TRIES - 1:
                    raise self._refusal(trouble, offer) from None
                until = time.monotonic() + FIRST_WAIT_SECONDS * 2**attempt * random.uniform(0.5, 1)
                while time.monotonic() < until:
                    tick()
                    time.sleep(0.05)
        raise AssertionError

    def installed(self, request: Callable[[], T]) -> T:
        """Send a request once; a missing SDK is told with how to install it."""
        try:
            return request()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in SDKS:
                raise
            raise SkyUsageError(
                f"{self.name}: its SDK is not installed (there is no {error.name})",
                hint=f"pip install 'jupyter_sky[{self.name}]'",
            ) from None

    def _refusal(self, trouble: Trouble, offer: Offer | None) -> SkyError:
        where = offer.place if offer else self.name
        message = f"{where}: {trouble.message} ({trouble.code})"
        if trouble.cause in ("capacity", "quota"):
            refused = SkyNoCapacity(message, hint=trouble.fix or None)
            refused.cause, refused.width = trouble.cause, trouble.width
            return refused
        if trouble.cause == "permission":
            return SkyPermission(message, hint=trouble.fix or "see %sky check")
        if trouble.cause == "invalid":
            return SkyUsageError(message, hint=trouble.fix or None)
        return SkyUnreachable(message, hint=trouble.fix or None)
