"""Work that is asked for piece by piece and carried out together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


class Gatherer(Generic[_Item, _Answer]):
    """Carries out in one call what is asked for in one turn of the event loop.

    Parameters
    ----------
    carry_out
        Called in a thread with what was asked for; returns the answers in the same order.

    Examples
    --------
    >>> async def ask() -> list[int]:
    ...     lengths = Gatherer(lambda texts: [len(text) * len(texts) for text in texts])
    ...     return await asyncio.gather(lengths.ask("a"), lengths.ask("bc"))
    >>> asyncio.run(ask())
    [2, 4]
    """

    def __init__(self, carry_out: Callable[[Sequence[_Item]], Sequence[_Answer]]) -> None:
        self._carry_out = carry_out
        self._waiting: list[tuple[_Item, asyncio.Future[_Answer]]] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def ask(self, item: _Item) -> _Answer:
        """Return the answer to one item."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._begin)  # after all that asks in this turn
        future: asyncio.Future[_Answer] = loop.create_future()
        self._waiting.append((item, future))
        return await future

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        task = asyncio.ensure_future(self._answer(waiting))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _answer(self, waiting: list[tuple[_Item, asyncio.Future[_Answer]]]) -> None:
        try:
            answers = await asyncio.to_thread(self._carry_out, [item for item, _future in waiting])
        except BaseException as error:
            for _item, future in waiting:
                if not future.done():
                    future.set_exception(error)
            return
        for (_item, future), answer in zip(waiting, answers, strict=True):
            if not future.done():  # whoever asked may have been cancelled
                future.set_result(answer)
