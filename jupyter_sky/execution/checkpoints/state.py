"""State that outlives its machine: `checkpointed` and `checkpoint`."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.quantities import parse_duration
from jupyter_sky.base.settings.paths import data_dir
from jupyter_sky.base.translation import _
from jupyter_sky.execution.checkpoints.call_saves import current_saves
from jupyter_sky.execution.checkpoints.leave_watch import LeaveWatch
from jupyter_sky.execution.checkpoints.leaving import leaving, notice_terms
from jupyter_sky.execution.checkpoints.places import (
    FolderPlace,
    PlaceError,
    SaveNumber,
    SavePlace,
    StorePlace,
)
from jupyter_sky.execution.checkpoints.save_format import (
    DamagedSave,
    SavedState,
    pack_state,
    read_state,
)

FOLDER_VARIABLE = "JUPYTER_SKY_CHECKPOINTS"
"""Environment variable with the folder or the store's address that keeps the saves of a job."""
GENERATION_VARIABLE = "JUPYTER_SKY_GENERATION"
"""Environment variable with the number of machines that the job has had before this one."""
EVERY_VARIABLE = "JUPYTER_SKY_CHECKPOINT_SECONDS"
"""Environment variable with the seconds between saves where the code says ``"auto"``."""
NOTICE_SECONDS = 0.25
"""Seconds between two looks for a notice."""
MAX_KEEP = 1000


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of the work.

    Attributes
    ----------
    done, total : float
        Units of any kind.
    """

    done: float = 0.0
    total: float = 0.0


class CheckpointedState(MutableMapping[str, Any]):
    """Values by name that are saved at safe points; see `checkpointed`.

    Parameters
    ----------
    name : str
        Name of the state.
    place : SavePlace
        Place of its saves.
    pace : Pace
        Rule for the time of saves.
    keep : int
        Saves that are kept.
    generation : int
        Number of machines that the work has had before this one.
    is_fresh : bool
        Whether to begin without what was saved.
    clock, age : callable
        Seconds, and seconds for which the machine has been up, for the pace.
    """

    def __init__(
        self,
        name: str,
        place: SavePlace,
        pace: Pace,
        keep: int = 2,
        generation: int = 0,
        is_fresh: bool = False,
        clock: Callable[[], float] = time.monotonic,
        age: Callable[[], float] | None = None,
    ) -> None:
        self.name, self.place, self.pace, self.keep = name, place, pace, keep
        self.saves = 0
        self._generation, self._is_fresh, self._clock = generation, is_fresh, clock
        self._age = age or machine_age
        self._values = dict[str, Any]()
        self.positions = LoopPositions()
        self._progress = self._begun_at = Progress()
        self._step, self._cost = 0, None
        self._started = self._saved = clock()
        self._remaining: float | None = None
        self._due, self._look = self._started + self._interval(), 0.0
        self._is_wanted = self._is_noticed = self._is_told = self._is_writing = False
        self._leave_watch: LeaveWatch | None = None

    _cost: float | None

    # -- values ------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._values[key] = value

    def __delitem__(self, key: str) -> None:
        del self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<state {self.name!r}: {', '.join(map(str, self._values)) or 'empty'}>"

    # -- life --------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if isinstance(self.place, FolderPlace):
            self.place.remove_partials()
        numbers = self.place.numbers()
        self._step = max((number.step for number in numbers), default=-1) + 1
        if not self._is_fresh:
            self._restore(numbers)
        self._started = self._saved = self._clock()
        self._due = self._started + self._interval()
        if notice_terms().share:
            self._leave_watch = LeaveWatch(lambda: self._is_noticed or self._is_writing)
            self._leave_watch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._leave_watch is not None:
            self._leave_watch.stop()
        if kind is None:  # after an error the values may belong to half an item
            self._write(is_end=True)

    def _restore(self, numbers: list[SaveNumber]) -> None:
        """Take the newest save whose digest holds."""
        damaged = []
        for number in numbers:
            try:
                with self.place.open(number) as file:
                    saved = read_state(file, f"{self.place}/{number.name}")
            except (DamagedSave, FileNotFoundError):
                damaged.append(number.name)
                continue
            self._take(saved)
            break
        if damaged:
            warnings.warn(
                _("{place}: {names} damaged; {rest}").format(
                    place=self.place,
                    names=", ".join(damaged),
                    rest=_("an older save is used")
                    if len(damaged) < len(numbers)
                    else _("the work begins anew"),
                ),
                stacklevel=4,
            )

    def _take(self, saved: SavedState) -> None:
        self._values = dict(saved.values["values"])
        self.positions.done = dict(saved.values["positions"])
        self._progress = self._begun_at = Progress(*saved.header["progress"])
        self._cost, self._remaining = saved.header["seconds"], saved.header["remaining"]
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(saved.header["at"]))
        if saved.header["is_end"]:
            text = _("{name}: was completed on {at}; fresh=True begins anew")
        else:
            text = _("{name}: goes on from the save of {at}{progress}")
        print(text.format(name=self.name, at=at, progress=self._progress_text()))

    def _progress_text(self) -> str:
        if not self._progress.total:
            return ""
        return f" ({self._progress.done:g}/{self._progress.total:g})"

    # -- progress and saves ------------------------------------------------------------------------

    def progress(self, done: float, total: float) -> None:
        """Tell how much is done, from which follows how much work is left.

        Parameters
        ----------
        done, total
            Units of any kind: epochs, rows.
        """
        self._is_told = True
        self._progress = Progress(float(done), float(total))

    def safe_point(self) -> bool:
        """Save if it is time, or if this machine will be taken away.

        Within a loop of `resumable`, the save is made as soon as the item is done, so that it is
        neither skipped nor repeated.

        Returns
        -------
        bool
            Whether it has saved.
        """
        now = self._clock()
        if now < self._due and now < self._look:
            return False
        left = self._look_for_notice(now)
        if now < self._due and (left is None or self._is_noticed):
            return False
        if self.positions.is_inside:
            self._is_wanted = True
            return False
        return self._save_on_time(left)

    def count_item(self, done: int, total: int) -> None:
        """Note the progress of the outermost loop, unless the user tells it."""
        if not self._is_told:
            self._progress = Progress(done, total)

    def item_done(self) -> None:
        """Save, after an item of a loop, if it is time or a safe point has asked for it."""
        now = self._clock()
        if not self._is_wanted and now < self._due and now < self._look:
            return
        left = self._look_for_notice(now)
        is_new_notice = left is not None and not self._is_noticed
        if self._is_wanted or now >= self._due or is_new_notice:
            self._is_wanted = False
            self._save_on_time(left)

    def _look_for_notice(self, now: float) -> float | None:
        self._look = now + NOTICE_SECONDS
        left = leaving()
        self._is_noticed = self._is_noticed and left is not None
        return left

    def _save_on_time(self, left: float | None) -> bool:
        """Save, and go on where the place does not take it: the work matters more."""
        if left is not None:
            self._is_noticed = True
            if not is_worth_saving(self._cost, left):
                warnings.warn(
                    _(
                        "{name}: this machine ends in {left:.0f} s and a save takes {cost:.0f} s; "
                        "the last one counts"
                    ).format(name=self.name, left=left, cost=self._cost),
                    stacklevel=3,
                )
                return False
        try:
            self.save()
        except PlaceError as error:
            if not self.saves:
                raise
            warnings.warn(f"{self.name}: {error}", stacklevel=3)
            self._due = self._clock() + FIRST_INTERVAL
            return False
        return True

    def save(self) -> None:
        """Save now.

        Raises
        ------
        SkyCheckpointError
            Values cannot be pickled, or the place does not take the save.
        """
        self._write(is_end=False)

    def _write(self, *, is_end: bool) -> None:
        begun = self._clock()
        facts = {
            "name": self.name,
            "at": time.time(),
            "progress": [self._progress.done, self._progress.total],
            "is_end": is_end,
            "seconds": self._cost,
            "remaining": self._remaining_seconds(),
        }
        values = {"values": self._values, "positions": self.positions.done}
        packed = pack_state(values, facts, self._values)
        self._is_writing = True
        try:
            self.place.write(SaveNumber(self._generation, self._step), packed, self.keep)
        finally:
            self._is_writing = False
        self._step += 1
        self.saves += 1
        self._saved = self._clock()
        self._cost = mean_cost(self._cost, self._saved - begun)
        if not is_end:
            self._due = self._saved + self._interval()

    def _interval(self) -> float:
        """Return the seconds until the next save; the first one measures what they take."""
        if self._cost is None:
            return self.pace.every or FIRST_INTERVAL
        return self.pace.interval(self._cost, self._remaining_seconds(), self._age())

    def _remaining_seconds(self) -> float:
        """Return the seconds of work that are left: as the last machine saw it, at the begin."""
        worked = self._clock() - self._started
        begun, now = self._begun_at.done, self._progress
        if self._remaining is not None and now.done <= begun:
            return self._remaining
        return remaining_seconds(worked, begun, now.done, now.total)


def machine_age() -> float:
    """Return the seconds for which this machine has been up."""
    import psutil

    return max(0.0, time.time() - psutil.boot_time())


def checkpointed(
    name: str,
    every: str | float = "auto",
    keep: int = 2,
    *,
    to: str | Path = "",
    fresh: bool = False,
) -> CheckpointedState:
    """Return a state that is saved at safe points and holds the newest save at the begin.

    Parameters
    ----------
    name
        Name by which the work finds its state again.
    every
        Seconds or a duration between saves; ``"auto"`` by the age of the machine, the work that is
        left and the measured time of a save.
    keep
        Number of saves that are kept.
    to
        Folder, or address of a store such as ``s3://bucket/runs/``. Unless given, the place that
        ``%%sky --recover`` or ``sky.function(recover=True)`` prepares, else the data directory of
        this machine.
    fresh
        Begin without what was saved.

    Returns
    -------
    CheckpointedState
        Like a dict; use it in a ``with`` block.

    Raises
    ------
    SkyUsageError
        A name or number makes no sense.

    Examples
    --------
    >>> with checkpointed("fit", to=folder) as state:  # doctest: +SKIP
    ...     for epoch in sky.resumable(range(30), state):
    ...         state["model"] = train(state.get("model"))
    """
    if not name or name != Path(name).name or name in (".", ".."):
        raise SkyUsageError(
            _("a state cannot be named {name!r}").format(name=name),
            hint=_("a word, such as checkpointed('fit')"),
        )
    if not isinstance(keep, int) or not 1 <= keep <= MAX_KEEP:
        raise SkyUsageError(
            _("keep={keep!r}: a number from 1 to {most}").format(keep=keep, most=MAX_KEEP)
        )
    seconds = parse_every(every) or float(os.environ.get(EVERY_VARIABLE, "0"))
    terms = notice_terms()
    pace = Pace(seconds, terms.share, terms.seconds)
    saves = current_saves()
    generation = saves.generation if saves else int(os.environ.get(GENERATION_VARIABLE, "0"))
    return CheckpointedState(name, open_place(name, to), pace, keep, generation, fresh)


def open_place(name: str, to: str | Path = "") -> SavePlace:
    """Return the place of a state's saves; each rank and each call that recovers has its own."""
    saves = current_saves()
    if saves is not None and not to:
        return saves.open(name)
    owner = saves.owner if saves is not None else _rank()
    local = FolderPlace(data_dir() / "checkpoints" / name / owner)
    target = str(to or os.environ.get(FOLDER_VARIABLE, ""))
    if not target:
        return local
    from jupyter_sky.machines.storage.stores.uri import StorageUri

    uri = StorageUri.parse(target)
    if uri.is_local:
        return FolderPlace(uri.path / name / owner)
    from jupyter_sky.machines.storage.datasets.data import Storage

    return StorePlace(local, Storage(f"{target.rstrip('/')}/{name}/{owner}/"))


def _rank() -> str:
    from jupyter_sky.machines.engines.node.instance import instance_info

    return str(instance_info().node)


def checkpoint(obj: Any, name: str, *, to: str | Path = "") -> None:
    """Save one object under a name, now; it is ``state["value"]`` of `checkpointed`.

    Parameters
    ----------
    obj
        Anything that can be pickled.
    name
        Name of the state.
    to
        Place, as of `checkpointed`.

    Raises
    ------
    SkyCheckpointError
        It cannot be pickled, or the place does not take it.

    Examples
    --------
    >>> sky.checkpoint(model, "best")  # doctest: +SKIP
    """
    state = checkpointed(name, to=to, fresh=True)
    with state:
        state["value"] = obj


# -- Times between saves: fixed, or of least expected loss by the lifetime of spot machines -------
#
# With a notice that is long enough for a save, a loss costs the save alone. Only the share of
# losses that comes without one has to be insured against: the hazard of the schedule is thinned by
# it.

CHEAP_SECONDS = 0.2
"""Saves that take less are made once in `CHEAP_INTERVAL`."""
CHEAP_INTERVAL = 60.0
FIRST_INTERVAL = 300.0
"""Seconds to the first save, which measures the cost of the others."""
NOTICE_MARGIN = 8.0
"""Seconds of a notice that are left for what else ends with the machine."""
COST_STEP = math.sqrt(2.0)
"""Ratio of two costs that are told apart: a schedule is computed once for each."""
LIFETIME_SECONDS = 3600 * 17.5
"""Mean life of the machines of `preemption.reference`, for Young's rule where numpy is missing."""
WEIGHT = 0.5
"""Weight of the newest save in the mean of costs."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Rule for the time of the next save.

    Attributes
    ----------
    every : float
        Seconds between two saves; 0 for those of least expected loss.
    notice_share : float
        Share of losses with a notice.
    notice_seconds : float
        Time from a notice to the loss: one in which a save does not fit is none.
    restart : float
        Seconds from a loss until the work goes on elsewhere.

    Examples
    --------
    >>> Pace(every=600.0).interval(cost=3.0, remaining=7200.0, age=0.0)
    600.0
    >>> Pace().interval(cost=0.01, remaining=7200.0, age=0.0)
    60.0
    >>> Pace(notice_share=1.0).interval(cost=60.0, remaining=7200.0, age=0.0)
    7200.0
    >>> Pace(notice_share=1.0, notice_seconds=30.0).interval(60.0, 7200.0, 0.0) < 7200
    True
    """

    every: float = 0.0
    notice_share: float = 0.0
    notice_seconds: float = math.inf
    restart: float = 300.0

    def interval(self, cost: float, remaining: float, age: float) -> float:
        """Return the seconds of work until the next save.

        Parameters
        ----------
        cost
            Seconds that a save takes.
        remaining
            Seconds of work left.
        age
            Seconds for which the machine has lived.
        """
        if self.every:
            return self.every
        if cost < CHEAP_SECONDS:
            return CHEAP_INTERVAL
        if remaining <= 0:
            return math.inf
        unsaved = 1.0 if cost + NOTICE_MARGIN > self.notice_seconds else 1 - self.notice_share
        if unsaved <= 0:
            return remaining
        rounded = COST_STEP ** round(math.log(cost, COST_STEP))
        try:
            return self._plan(rounded, remaining, age, unsaved)
        except ImportError:  # a machine without numpy
            lifetime = LIFETIME_SECONDS / unsaved
            return min(remaining, math.sqrt(2 * rounded * lifetime))

    def _plan(self, cost: float, remaining: float, age: float, unsaved: float) -> float:
        from jupyter_sky.knowledge.lifetimes.checkpoints import next_checkpoint
        from jupyter_sky.knowledge.lifetimes.reference_model import reference

        model = reference().base.times(unsaved)
        age = min(age / 3600, 23.0)  # the model's machines do not outlive a day
        hours = next_checkpoint(
            remaining / 3600, age, cost / 3600, model, round(self.restart / 60) / 60
        )
        return 3600 * hours


def parse_every(every: str | float) -> float:
    """Return the seconds between saves that a user asks for; 0 for ``auto``.

    Raises
    ------
    SkyUsageError
        It is no duration.

    Examples
    --------
    >>> parse_every("10m"), parse_every(30), parse_every("auto")
    (600.0, 30.0, 0.0)
    """
    if every == "auto":
        return 0.0
    seconds = parse_duration(every, "every") if isinstance(every, str) else float(every)
    if not 0 < seconds < math.inf:
        raise SkyUsageError(
            _("every={every!r}: saves need some time between them").format(every=every),
            hint=_('seconds, a duration such as "10m", or "auto"'),
        )
    return seconds


def mean_cost(before: float | None, newest: float) -> float:
    """Return the moving mean of what saves take (seconds).

    Examples
    --------
    >>> mean_cost(None, 2.0), mean_cost(2.0, 4.0)
    (2.0, 3.0)
    """
    return newest if before is None else before + WEIGHT * (newest - before)


def remaining_seconds(worked: float, begun_at: float, done: float, total: float) -> float:
    """Return the seconds of work left at the speed so far; as much again where nothing is known.

    Parameters
    ----------
    worked
        Seconds of work on this machine.
    begun_at, done, total
        Progress at the begin on this machine, now and at the end.

    Examples
    --------
    >>> remaining_seconds(60.0, 2.0, 4.0, 10.0), remaining_seconds(60.0, 0.0, 0.0, 0.0)
    (180.0, 60.0)
    """
    if done <= begun_at or total <= begun_at:
        return worked
    return worked * max(0.0, total - done) / (done - begun_at)


def is_worth_saving(cost: float | None, left: float | None) -> bool:
    """Return whether a save that is begun now is complete before a machine ends.

    Parameters
    ----------
    cost
        Seconds that saves take; None before the first.
    left
        Seconds until the machine ends; None where that is not told.
    """
    return cost is None or left is None or cost <= left


# -- Positions of resumable loops: items that are done, by loop -----------------------------------


@dataclass
class LoopPositions:
    """Positions of loops, which may lie in each other.

    A loop is known by its place: ``"0"`` is the first, ``"0.1"`` the second within an item of it.
    When an item of a loop is done, the loops within it begin anew with the next one.

    Attributes
    ----------
    done : dict
        What each loop has done: a number of items, or the state of a loader.
    """

    done: dict[str, Any] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _begun: dict[str, int] = field(default_factory=dict)

    @property
    def is_inside(self) -> bool:
        """Whether an item is being worked on."""
        return bool(self._open)

    def begin(self) -> str:
        """Begin a loop; return its name."""
        parent = self._open[-1] if self._open else ""
        number = self._begun.get(parent, 0)
        self._begun[parent] = number + 1
        return f"{parent}.{number}" if parent else str(number)

    def enter(self, loop: str) -> None:
        """Begin an item."""
        self._open.append(loop)
        self._begun[loop] = 0

    def leave(self, loop: str) -> None:
        """End an item that was not completed, and all within it."""
        if loop in self._open:
            del self._open[self._open.index(loop) :]

    def commit(self, loop: str, position: Any) -> None:
        """Note that an item is done."""
        self.leave(loop)
        self.done = {
            name: done for name, done in self.done.items() if not name.startswith(loop + ".")
        }
        self.done[loop] = position
