"""Account of a cloud that the conformance suite controls: an emulator of its author's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NoReturn

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.clouds.provider import Provider
from jupyter_sky.clouds.provider.values import ErrorCause

Operation = Literal["launch", "machines", "terminate"]
OPERATIONS: tuple[Operation, ...] = ("launch", "machines", "terminate")
"""Operations of a provider whose requests a world can disturb."""


class World(ABC):
    """Account of a cloud, with faults by command.

    The suite makes one for all checks, calls `reset` after each, and `close` at the end. What a
    world cannot do it declares in `unsupported`; the checks that need it are then skipped.

    Attributes
    ----------
    unsupported : mapping
        Names of operations that the world does not have, with the reason; ``ssh`` where its
        machines do not answer, ``cells`` where they cannot run engines, ``leases`` where they do
        not end themselves, ``owners`` where an account has one owner.
    boot_seconds : float
        Time within which a machine answers, with `boots_in` not called.
    settle_seconds : float
        Time within which what was asked for has happened in the account.

    Examples
    --------
    >>> class Account(World):
    ...     unsupported = {"take_back": "the cloud has no spot machines"}
    ...
    ...     def environment(self):
    ...         return {"NIMBUS_API_KEY": "secret"}
    ...
    ...     def bill(self):
    ...         return set()
    ...
    ...     def reset(self):
    ...         pass
    ...
    ...     close = reset
    >>> Account().secrets()
    ['secret']
    """

    unsupported: ClassVar[Mapping[str, str]] = {}
    boot_seconds: ClassVar[float] = 60.0
    settle_seconds: ClassVar[float] = 60.0

    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Return the environment variables by which the provider reaches and may use the cloud."""

    @abstractmethod
    def bill(self) -> set[str]:
        """Return the IDs of all machines that cost, as the cloud knows and not the provider."""

    @abstractmethod
    def reset(self) -> None:
        """End all machines without asking the provider, and forget all faults."""

    @abstractmethod
    def close(self) -> None:
        """Leave nothing behind."""

    def offer(self, provider: Provider, spot: bool = False) -> Offer:
        """Return the offer that the checks launch, by default the cheapest of a market.

        Parameters
        ----------
        spot
            Whether it is for a machine that `take_back` takes; on demand where there is no spot.
        """
        offers = list(provider.offers())
        market = [offer for offer in offers if offer.spot is spot] or offers
        return min(market, key=lambda offer: offer.price or 0.0)

    def secrets(self) -> list[str]:
        """Return texts that must appear nowhere, by default values of variables named like keys."""
        marks = ("KEY", "TOKEN", "SECRET", "PASSWORD")
        return [
            value
            for name, value in self.environment().items()
            if any(mark in name.upper() for mark in marks)
        ]

    # -- faults -----------------------------------------------------------------------------

    def refuse(self, cause: ErrorCause, times: int = 1, after: int = 0) -> None:
        """Refuse the next launches for a cause, in the cloud's own words.

        Parameters
        ----------
        times
            Number of requests that are refused.
        after
            Number of machines that are launched before.
        """
        self._skip("refuse", cause, times, after)

    def lose_answer(self, operation: Operation) -> None:
        """Carry out the next request of an operation, and cut the connection without an answer."""
        self._skip("lose_answer", operation)

    def delay(self, operation: Operation, seconds: float) -> None:
        """Answer requests of an operation late from now on."""
        self._skip("delay", operation, seconds)

    def hide_new(self, seconds: float) -> None:
        """Leave machines out of listings for some time after their launch, from now on."""
        self._skip("hide_new", seconds)

    def boots_in(self, seconds: float) -> None:
        """Let machines launched from now on answer after some time only."""
        self._skip("boots_in", seconds)

    def stop(self, id: str) -> None:
        """Power a machine off, as its own ``shutdown`` does; return when it is off."""
        self._skip("stop", id)

    def take_back(self, id: str) -> None:
        """Take a machine back, as the cloud does with spot machines."""
        self._skip("take_back", id)

    def fill(self, count: int, owner: str) -> set[str]:
        """Put machines of an owner into the account that need not answer; return their IDs."""
        self._skip("fill", count, owner)

    def _skip(self, operation: str, *_: Any) -> NoReturn:
        """Skip the check that asks for an operation; fail it where that is not declared."""
        import pytest

        if reason := self.unsupported.get(operation):
            pytest.skip(f"{operation}: {reason}")
        pytest.fail(f"the world has no `{operation}`: write it, or declare it in `unsupported`")

    def require(self, capability: str) -> None:
        """Skip the check that asks for a capability where that is declared as missing."""
        if capability in self.unsupported:
            self._skip(capability)
