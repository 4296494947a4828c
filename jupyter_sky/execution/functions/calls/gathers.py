"""Gathers: any number of calls, with a tuple of results or a stream of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar, overload

from jupyter_sky.execution.functions.calls.lazy_calls import (
    PRECEDENCE,
    PendingFunction,
    PendingFunctionGroup,
    calls_of,
    target_pool,
)

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.active_pools import CallTarget

T = TypeVar("T", covariant=True)
U = TypeVar("U")


@dataclass(frozen=True, slots=True, eq=False)
class Gathered(PendingFunctionGroup, Generic[T]):
    """Concurrent calls of any number: ``gather(*calls) >> pool`` gives a tuple of their results."""

    calls: tuple[PendingFunction[T], ...]

    def __rshift__(self, pool: CallTarget | Any) -> tuple[T, ...]:
        return target_pool(pool, ">>").run_all(self.calls)

    def __matmul__(self, pool: Any) -> NoReturn:
        raise TypeError("gathered calls go to a pool by >>; @ is for one call on every node")

    def __gt__(self, pool: Any) -> NoReturn:
        raise TypeError("gathered calls go to a pool by >>; stream=True gives results as they come")

    def __and__(self, other: Any) -> Gathered[Any]:
        return Gathered((*self.calls, *calls_of(other)))

    def with_timeout(self, seconds: float | str | None) -> Gathered[T]:
        """Return them with a limit on how long each of the calls may run."""
        return replace(self, calls=tuple(call.with_timeout(seconds) for call in self.calls))


@dataclass(frozen=True, slots=True, eq=False)
class Streamed(Gathered[T]):
    """Calls of any number, whose results are iterated over as they arrive."""

    ordered: bool = True

    @property
    def is_joinable(self) -> bool:
        """Whether ``&`` can join it with other calls: its results come one by one."""
        return False

    def __and__(self, other: Any) -> NoReturn:
        raise TypeError("streamed calls cannot be joined by &: hand all calls to one gather")

    def __rshift__(self, pool: CallTarget | Any) -> Iterator[T]:  # type: ignore[override]
        return target_pool(pool, ">>").stream_all(self.calls, self.ordered)


@overload
def gather(
    *tasks: PendingFunction[U], stream: Literal[False] = False, ordered: bool = True
) -> Gathered[U]: ...
@overload
def gather(
    *tasks: PendingFunction[U], stream: Literal[True], ordered: bool = True
) -> Streamed[U]: ...
def gather(*tasks: Any, stream: bool = False, ordered: bool = True) -> Any:
    """Combine any number of calls.

    Parameters
    ----------
    stream
        Give results one by one, as they come.
    ordered
        Of a stream: in the order of the calls, or as they are done.

    Returns
    -------
    Gathered or Streamed
        ``>> pool`` gives a tuple of results, or with `stream` an iterator over them.

    Raises
    ------
    TypeError
        Something other than a call is among `tasks`.

    Examples
    --------
    >>> from jupyter_sky.execution.functions.calls.lazy_calls import function
    >>> @function
    ... def double(x: int) -> int:
    ...     return 2 * x
    >>> len(gather(*(double(i) for i in range(3))))
    3
    >>> results = gather(double(1), double(2)) >> pool  # doctest: +SKIP
    """
    for number, task in enumerate(tasks):
        if not isinstance(task, PendingFunction):
            raise TypeError(
                f"gather: argument {number} is a {type(task).__name__}, not a pending call"
                + ("; gather(*calls), with the star" if _is_many(task) else f". {PRECEDENCE}")
            )
    return Streamed(tasks, ordered) if stream else Gathered(tasks)


def _is_many(value: object) -> bool:
    return isinstance(value, (list, tuple)) or inspect.isgenerator(value)
