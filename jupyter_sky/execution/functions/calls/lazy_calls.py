"""Lazy calls: functions that describe calls, and operators that send them to a pool."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, replace
from functools import update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NoReturn,
    ParamSpec,
    TypeVar,
    TypeVarTuple,
    cast,
    overload,
)

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.quantities import parse_duration
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls.output import SHOWN_ATTRIBUTE, Only
from jupyter_sky.execution.functions.calls.retry import (
    DEFAULT_RETRY,
    Retry,
    check_recover,
    make_retry,
)

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.active_pools import CallTarget

P = ParamSpec("P")
T = TypeVar("T", covariant=True)
U = TypeVar("U")
Ts = TypeVarTuple("Ts")

PRECEDENCE = (
    "operators bind like this: >> and @ before &, & before >. "
    "Write (a() & b()) >> pool, with the parentheses"
)


class Function(Generic[P, T]):
    """Function whose calls describe a computation instead of running it.

    Attributes
    ----------
    local : callable
        The function itself: ``train.local(10)`` runs it here and now.
    """

    local: Callable[P, T]
    timeout: float | None
    retry: Retry
    shown: dict[str, Only]

    def __init__(
        self,
        function: Callable[P, T],
        timeout: float | None = None,
        retry: Retry | None = None,
        shown: dict[str, Only] | None = None,
    ) -> None:
        self.local = function
        self.timeout, self.retry = timeout, retry or DEFAULT_RETRY
        self.shown = {**getattr(function, SHOWN_ATTRIBUTE, {}), **(shown or {})}
        update_wrapper(self, function)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> PendingFunction[T]:
        """Return a description of a call; nothing is run, pickled or sent."""
        # PendingFunction(self, args, kwargs, self.timeout, self.retry), in less time
        call: PendingFunction[T] = object.__new__(PendingFunction)
        _set_function(call, self)
        _set_args(call, args)
        _set_kwargs(call, kwargs)
        _set_timeout(call, self.timeout)
        _set_retry(call, self.retry)
        return call

    def __get__(self, instance: Any, owner: type | None = None) -> Function[..., T]:
        """Bind to an instance, as functions of a class are: ``model.fit(X)`` describes a call."""
        bind = getattr(type(self.local), "__get__", None)
        if bind is None or (instance is None and not isinstance(self.local, _UNBOUND)):
            return self
        return Function(bind(self.local, instance, owner), self.timeout, self.retry, self.shown)

    def __repr__(self) -> str:
        return f"<sky.function {self.name}>"

    @property
    def name(self) -> str:
        """Name of the function."""
        return getattr(self.local, "__qualname__", None) or repr(self.local)

    def with_output(self, shown: dict[str, Only]) -> Function[P, T]:
        """Return this function with other nodes whose output is shown, by stream."""
        return Function(self.local, self.timeout, self.retry, {**self.shown, **shown})

    def __reduce__(self) -> tuple:
        # as a state, not as arguments: a function may speak of itself
        return _blank, (), (self.local, self.timeout, self.retry, self.shown)

    def __setstate__(self, state: tuple) -> None:
        self.local, self.timeout, self.retry, self.shown = state
        update_wrapper(self, self.local)


_UNBOUND = (staticmethod, classmethod)
"""Descriptors that need no instance."""


def _blank() -> Function:
    return Function.__new__(Function)


@overload
def function(function: Callable[P, T], /) -> Function[P, T]: ...
@overload
def function(
    *, timeout: float | str | None = None, retry: int | None = None, recover: bool = False
) -> Callable[[Callable[P, T]], Function[P, T]]: ...
def function(
    function: Callable[..., Any] | None = None,
    /,
    *,
    timeout: float | str | None = None,
    retry: int | None = None,
    recover: bool = False,
) -> Any:
    """Make a function lazy: its calls describe a computation, an operator sends them to a pool.

    Parameters
    ----------
    timeout
        Most seconds that a call may run on a node, or ``"10m"``.
    retry
        How often a call that raises is made again; not at all unless given. A call whose node
        dies is sent again, at most twice. ``retry=0`` is at most once: neither.
    recover
        Whether a call that is sent again goes on from the newest save of its
        ``sky.checkpointed`` states. It is sent again as long as there are new saves between its
        losses, also where it was meant for one node.

    Returns
    -------
    Function
        The lazy function; ``double.local(21)`` runs the original.

    Examples
    --------
    >>> @function
    ... def double(x: int) -> int:
    ...     return 2 * x
    >>> double(21)
    double(21)
    >>> double.local(21)
    42
    """
    if function is None:
        seconds, again = _seconds(timeout), DEFAULT_RETRY if retry is None else make_retry(retry)
        if recover:
            check_recover(again)
        again = replace(again, recover=bool(recover))
        return lambda function: _decorated(function, seconds, again)
    return _decorated(function, None, DEFAULT_RETRY)


def _decorated(function: Any, timeout: float | None, retry: Retry) -> Function:
    if isinstance(function, Function):
        return Function(function.local, timeout or function.timeout, retry, function.shown)
    if not callable(function) and not isinstance(function, classmethod):
        raise SkyUsageError(
            _("sky.function is for functions, not for a {name}").format(
                name=type(function).__name__
            )
        )
    if inspect.isasyncgenfunction(function):
        raise SkyUsageError(
            _("{qualname} is an async generator, which cannot be streamed").format(
                qualname=function.__qualname__
            ),
            hint=_("write it as a plain generator"),
        )
    if retry.recover and inspect.isgeneratorfunction(function):
        raise SkyUsageError(
            _("{qualname} is a generator: recover=True is for functions that return").format(
                qualname=function.__qualname__
            ),
            hint=_("without it, a stream whose node is lost goes on behind the items that came"),
        )
    return Function(cast(Any, function), timeout, retry)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PendingFunction(Generic[T]):
    """Call that has not been made, to be sent to a pool by an operator.

    ========================  ==================================================
    ``call >> pool``          on one node; its result
    ``call @ pool``           on every node; the results, by rank
    ``call > pool``           on one node; a future, at once
    ``(a() & b()) >> pool``   side by side; a tuple of results
    ========================  ==================================================

    Parameters
    ----------
    function
        Function to call.
    args, kwargs
        Its arguments.
    timeout
        Most seconds that the call may run; None for no limit.
    retry
        How often the call is made again, and after which exceptions.

    Examples
    --------
    >>> call = PendingFunction(Function(max), (1, 2))
    >>> call, call.local()
    (max(1, 2), 2)
    """

    function: Function[..., T]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    timeout: float | None = None
    retry: Retry = DEFAULT_RETRY

    def with_timeout(self, seconds: float | str | None) -> PendingFunction[T]:
        """Return this call with a limit on how long it may run, in seconds or as ``"10m"``."""
        return replace(self, timeout=_seconds(seconds))

    def with_retry(
        self,
        times: int = 3,
        on: type[BaseException] | tuple[type[BaseException], ...] = Exception,
    ) -> PendingFunction[T]:
        """Return this call, to be made again up to `times` times when it raises one of `on`.

        With 0 it runs at most once: it is not sent again when its node dies, either.
        """
        kinds = on if isinstance(on, tuple) else (on,)
        retry = make_retry(times, kinds)
        if self.retry.recover:
            check_recover(retry)
        return replace(self, retry=replace(retry, recover=self.retry.recover))

    def local(self) -> T:
        """Run the call in this process."""
        return self.function.local(*self.args, **self.kwargs)

    def __rshift__(self, pool: CallTarget | Any) -> T:
        return target_pool(pool, ">>").run(self)

    def __matmul__(self, pool: CallTarget | Any) -> list[T]:
        return target_pool(pool, "@").broadcast(self)

    def __gt__(self, pool: CallTarget | Any) -> Future[T]:
        return target_pool(pool, ">").submit(self)

    @overload
    def __and__(self, other: PendingFunction[U]) -> Group[T, U]: ...
    @overload
    def __and__(self, other: Group[*Ts]) -> Group[T, *Ts]: ...
    def __and__(self, other: Any) -> Any:
        return Group((self, *calls_of(other)))

    def __rand__(self, other: object) -> NoReturn:
        calls_of(other)
        raise AssertionError

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self!r} has not been run, so it is neither true nor false: "
            "send it with >> pool first (a chain like a > b > c does not work either)"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self!r} has not been run: send it with >> pool, then iterate")

    def __repr__(self) -> str:
        shown = [_short(value) for value in self.args]
        shown += [f"{name}={_short(value)}" for name, value in self.kwargs.items()]
        return f"{self.function.name}({', '.join(shown)})"


_set_function, _set_args, _set_kwargs, _set_timeout, _set_retry = (
    getattr(PendingFunction, slot.name).__set__ for slot in fields(PendingFunction)
)


class PendingFunctionGroup:
    """Calls that are sent together: what ``&`` and `gather` give.

    Attributes
    ----------
    calls : tuple of PendingFunction
        The calls.

    Examples
    --------
    >>> add = function(lambda a, b: a + b)
    >>> len((add(1, 2) & add(3, 4)).calls)
    2
    """

    __slots__ = ()
    calls: tuple[PendingFunction[Any], ...]

    @property
    def is_joinable(self) -> bool:
        """Whether ``&`` can join it with other calls."""
        return True

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[PendingFunction[Any]]:
        return iter(self.calls)

    def __bool__(self) -> bool:
        raise TypeError("calls of a group are neither true nor false: send them with >> pool first")


@dataclass(frozen=True, slots=True, eq=False)
class Group(PendingFunctionGroup, Generic[*Ts]):
    """Concurrent calls: ``(a() & b()) >> pool`` gives a tuple of their results."""

    calls: tuple[PendingFunction[Any], ...]

    @overload
    def __and__(self, other: PendingFunction[U]) -> Group[*Ts, U]: ...
    @overload
    def __and__(self, other: Group) -> Group: ...
    def __and__(self, other: Any) -> Any:
        return Group((*self.calls, *calls_of(other)))

    def __rand__(self, other: object) -> NoReturn:
        calls_of(other)
        raise AssertionError

    def __rshift__(self, pool: CallTarget | Any) -> tuple[*Ts]:
        return target_pool(pool, ">>").run_all(self.calls)

    def __matmul__(self, pool: Any) -> NoReturn:
        raise TypeError("a group of calls goes to a pool by >>; @ is for one call on every node")

    def __gt__(self, pool: Any) -> NoReturn:
        raise TypeError("a group of calls goes to a pool by >>; for futures: a() > pool, each")

    def with_timeout(self, seconds: float | str | None) -> Group[*Ts]:
        """Return the group with a limit on how long each of its calls may run."""
        return Group(tuple(call.with_timeout(seconds) for call in self.calls))


def calls_of(other: object) -> tuple[PendingFunction[Any], ...]:
    """Return the calls of an operand of ``&``.

    Raises
    ------
    TypeError
        It is something else, or a stream of results.
    """
    if isinstance(other, PendingFunction):
        return (other,)
    if isinstance(other, PendingFunctionGroup) and other.is_joinable:
        return other.calls
    raise TypeError(
        f"& joins calls that have not been sent, and this is a {type(other).__name__}: {PRECEDENCE}"
    )


def target_pool(pool: Any, operator: str) -> Any:
    """Return the target pool of an operator: a pool, or the current one for this package."""
    from jupyter_sky.execution.functions.calls.active_pools import CallTarget, current

    if isinstance(pool, CallTarget):
        return pool.resolve_pool()
    if pool is sys.modules.get("jupyter_sky"):
        return current()
    if isinstance(pool, (PendingFunction, PendingFunctionGroup)):
        raise TypeError(f"{operator} sends a call to a pool, not to another call. {PRECEDENCE}")
    raise TypeError(
        f"{operator} sends a call to a pool, and this is a {type(pool).__name__}: "
        "use what sky.Compute(...) or sky.up(...) gives"
    )


def _seconds(value: float | str | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        return parse_duration(value, "timeout")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise SkyUsageError(
            _("timeout={value!r}: a number of seconds above 0, or like '10m'").format(value=value)
        )
    return float(value)


def _short(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"<{type(value).__name__} {'x'.join(map(str, shape)) or 'scalar'}>"
    if isinstance(value, (list, tuple, set, dict, str, bytes)) and len(value) > 20:
        return f"<{type(value).__name__} of {len(value)}>"
    try:
        text = repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
    return text if len(text) <= 40 else f"<{type(value).__name__}>"
