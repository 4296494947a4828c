"""Loops that go on behind the last item that was done before their state was saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set, Sized
from itertools import islice
from typing import Any, TypeVar

from jupyter_sky.base.errors import SkyCheckpointError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.checkpoints.state import CheckpointedState

T = TypeVar("T")


def resumable(iterable: Iterable[T], state: CheckpointedState) -> Iterator[T]:
    """Yield the items that are not done yet, and save the position with the state.

    An item is done when the next one is asked for. None is skipped, and none that belongs to a save
    is done twice. Sequences are entered at the position; loaders with ``state_dict`` and
    ``load_state_dict`` restore their own; of all others the items that were done are passed over.

    Parameters
    ----------
    iterable
        Must give the same items in the same order again.
    state
        State of `checkpointed`.

    Returns
    -------
    Iterator
        The items that are left.

    Raises
    ------
    SkyUsageError
        The order of the items differs from process to process, or the state is no such state.
    SkyCheckpointError
        Fewer items came than had been done: it has other items now.

    Examples
    --------
    >>> with sky.checkpointed("sum") as state:  # doctest: +SKIP
    ...     for row in sky.resumable(rows, state):
    ...         state["sum"] = state.get("sum", 0) + row
    """
    if not isinstance(state, CheckpointedState):
        raise SkyUsageError(
            _("resumable(..., {kind}): the second argument is a state").format(
                kind=type(state).__name__
            ),
            hint=_('with sky.checkpointed("name") as state: ...'),
        )
    if isinstance(iterable, Set) and not isinstance(iterable, Sequence):
        raise SkyUsageError(
            _("a set has another order in each process: its items cannot be counted"),
            hint=_("resumable(sorted(items), state)"),
        )
    return _resume(iterable, state)


def _resume(iterable: Iterable[T], state: CheckpointedState) -> Iterator[T]:
    positions = state.positions
    loop = positions.begin()
    reader = (LoaderPosition if hasattr(iterable, "load_state_dict") else CountedPosition)(iterable)
    items = reader.restore(positions.done.get(loop))
    for item in items:
        positions.enter(loop)
        try:
            yield item
        except GeneratorExit:  # the loop was left: its item is not done
            positions.leave(loop)
            raise
        positions.commit(loop, reader.advance())
        if "." not in loop and isinstance(iterable, Sized):
            state.count_item(reader.done, len(iterable))
        state.item_done()
    positions.commit(loop, reader.finish())


class CountedPosition:
    """Position in an iterable: the number of items that are done."""

    def __init__(self, iterable: Iterable[Any]) -> None:
        self._iterable, self.done = iterable, 0

    def restore(self, position: int | None) -> Iterator[Any]:
        """Return the items behind a position."""
        self.done = position or 0
        return _from(self._iterable, self.done)

    def advance(self) -> Any:
        """Count an item; return the position behind it."""
        self.done += 1
        return self.done

    def finish(self) -> Any:
        """Return the position behind the last item."""
        return self.done


class LoaderPosition(CountedPosition):
    """Position in a loader with ``state_dict``, such as torchdata's ``StatefulDataLoader``."""

    _iterable: Any

    def restore(self, position: Any) -> Iterator[Any]:
        """Return the items behind a position."""
        if position is None:
            return iter(self._iterable)
        self.done = position["done"]
        if position["loader"] is None:  # it would begin anew after its end
            return iter(())
        self._iterable.load_state_dict(position["loader"])
        return iter(self._iterable)

    def advance(self) -> Any:
        """Count an item; return the position behind it."""
        self.done += 1
        return {"done": self.done, "loader": self._iterable.state_dict()}

    def finish(self) -> Any:
        """Return the position behind the last item."""
        return {"done": self.done, "loader": None}


def _from(iterable: Iterable[T], done: int) -> Iterator[T]:
    """Return the items behind those that are done."""
    if isinstance(iterable, Sequence):
        if done > len(iterable):
            raise _changed(done, len(iterable))
        return (iterable[index] for index in range(done, len(iterable)))
    items = iter(iterable)
    passed = sum(1 for _item in islice(items, done))
    if passed < done:
        raise _changed(done, passed)
    return items


def _changed(done: int, found: int) -> SkyCheckpointError:
    return SkyCheckpointError(
        _("{done} items were done before, and only {found} are there now").format(
            done=done, found=found
        ),
        hint=_(
            "make the iterable anew with the same items: an iterator that was begun, a stream or a "
            "queue cannot be resumed; or begin anew: fresh=True"
        ),
    )
