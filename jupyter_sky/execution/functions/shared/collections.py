"""Shared objects of a pool by name: dict, set, counter, queue, barrier, lock.

Inside a function they are the pool's; in the notebook those of the pool that is up; without any
pool they are this process's own, so that ``train.local()`` works. Operations are atomic. Every
method has a coroutine beside it, for functions that are one: ``await jobs.get_async()``.
"""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Iterable, Iterator, MutableMapping, MutableSet
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.shared.key_encoding import dump, encode_key, load
from jupyter_sky.execution.functions.shared.proxy import SharedProxy, check_consistency
from jupyter_sky.execution.functions.shared.synchronization import Barrier, Lock, Queue

Consistency = Literal["strong", "eventual"]
"""Consistency of a collection. All operations are strongly consistent, whatever is asked for."""
K = TypeVar("K")
V = TypeVar("V")

_MISSING: Any = object()


class Dict(SharedProxy, MutableMapping[K, V], Generic[K, V]):
    """Dict that all tasks share.

    Keys are compared by what they are worth, as in any dict. A value that is changed in place is
    changed here only: assign it again.

    Examples
    --------
    >>> best = Dict("best")
    >>> best["loss"] = 0.25
    >>> best.setdefault("loss", 1.0), len(best), best.get("accuracy")
    (0.25, 1, None)
    """

    kind = "dict"
    _async_methods = MappingProxyType({"set": "__setitem__", "contains": "__contains__"})

    def __init__(self, name: str, consistency: Consistency = "strong") -> None:
        super().__init__(name)
        check_consistency(f"sky.dict({name!r})", consistency)

    def __getitem__(self, key: K) -> V:
        found, frames = self._ask("get", encode_key(key))
        if not found:
            raise KeyError(key)
        return load(frames[0])

    def __setitem__(self, key: K, value: V) -> None:
        self._ask("put", encode_key(key), dump(key, self), dump(value, self))

    def __delitem__(self, key: K) -> None:
        if not self._ask("pop", encode_key(key))[0]:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return self._ask("has", encode_key(key))[0]

    def __len__(self) -> int:
        return self._ask("len")[0]

    def __iter__(self) -> Iterator[K]:
        return map(load, self._ask("keys")[1])

    def pop(self, key: K, default: Any = _MISSING) -> Any:
        """Remove a key and return its value; only one task gets it."""
        found, frames = self._ask("pop", encode_key(key))
        if found:
            return load(frames[0])
        if default is _MISSING:
            raise KeyError(key)
        return default

    def setdefault(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, after setting it if missing; the first task wins."""
        frames = self._ask("default", encode_key(key), dump(key, self), dump(default, self))[1]
        return load(frames[0])

    def update(self, *others: Any, **more: V) -> None:
        """Set many keys atomically."""
        made = builtins.dict(*others, **more)
        frames = [
            frame
            for key, value in made.items()
            for frame in (encode_key(key), dump(key, self), dump(value, self))
        ]
        if frames:
            self._ask("put", *frames)

    def snapshot(self) -> Any:
        """Return a consistent copy as a plain dict."""
        frames = self._ask("items")[1]
        pairs = zip(frames[::2], frames[1::2], strict=True)
        return {load(key): load(value) for key, value in pairs}

    def items(self) -> Any:
        """Return a consistent copy of keys and values."""
        return self.snapshot().items()

    def values(self) -> Any:
        """Return a consistent copy of the values."""
        return self.snapshot().values()

    def clear(self) -> None:
        """Remove all entries."""
        self._ask("clear")


class Set(SharedProxy, MutableSet[K], Generic[K]):
    """Set that all tasks share.

    Examples
    --------
    >>> seen = Set("seen")
    >>> seen.add("a"), seen.add("a")
    (True, False)
    """

    kind = "set"
    _async_methods = MappingProxyType({"contains": "__contains__"})

    def __init__(self, name: str, consistency: Consistency = "strong") -> None:
        super().__init__(name)
        check_consistency(f"sky.set({name!r})", consistency)

    def add(self, value: K) -> bool:  # type: ignore[override]
        """Add an element; return True to the one task that added it."""
        frames = encode_key(value), dump(value, self), dump(value, self)
        return self._ask("add", *frames)[0]

    def discard(self, value: K) -> bool:  # type: ignore[override]
        """Remove an element; return whether it was present."""
        return self._ask("pop", encode_key(value))[0]

    def __contains__(self, value: object) -> bool:
        return self._ask("has", encode_key(value))[0]

    def __len__(self) -> int:
        return self._ask("len")[0]

    def __iter__(self) -> Iterator[K]:
        return map(load, self._ask("keys")[1])

    def update(self, *others: Iterable[K]) -> None:
        """Add many elements atomically."""
        frames = [
            frame
            for value in itertools.chain(*others)
            for frame in (encode_key(value), dump(value, self), dump(value, self))
        ]
        if frames:
            self._ask("put", *frames)

    def snapshot(self) -> Any:
        """Return a consistent copy as a plain set."""
        return {*self}

    def clear(self) -> None:
        """Remove all entries."""
        self._ask("clear")

    @classmethod
    def _from_iterable(cls, values: Iterable[Any]) -> Any:
        return {*values}


class Counter(SharedProxy):
    """Counter that all tasks share.

    Examples
    --------
    >>> done = Counter("done")
    >>> done.add(), done.add(4), done.value
    (1, 5, 5)
    """

    kind = "counter"

    def __init__(self, name: str, consistency: Consistency = "strong") -> None:
        super().__init__(name)
        check_consistency(f"sky.counter({name!r})", consistency)

    def add(self, amount: float = 1) -> Any:
        """Add to it and return the new value, unique to this task."""
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise SkyUsageError(
                _("{self_value!r}.add({amount!r}): not a number").format(
                    self_value=self, amount=amount
                )
            )
        return self._ask("add", amount=amount)[0]

    increment = add

    def decrement(self, amount: float = 1) -> Any:
        """Subtract from it and return the new value."""
        return self.add(-amount)

    @property
    def value(self) -> Any:
        """Current value."""
        return self._ask("add", amount=0)[0]

    def reset(self, value: float = 0) -> Any:
        """Set the value, and return the previous one."""
        return self._ask("reset", value=value)[0]

    def __int__(self) -> int:
        return int(self.value)

    def __iadd__(self, amount: float) -> Counter:
        self.add(amount)
        return self


# the names under which `sky` has them
dict, set, counter, queue, barrier, lock = Dict, Set, Counter, Queue, Barrier, Lock
