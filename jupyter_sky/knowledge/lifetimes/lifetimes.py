"""Lifetimes of machines that were observed: how long each lived, and how it ended.

Three things can end an observation, and each says something else:

- the cloud takes the machine back before its cap: the lifetime is known;
- its owner gives it back: the machine would have lived *at least* that long (right-censored);
- it reaches the cap that its provider sets, such as 24 hours: it outlived everything but a rule.

To count the second as preemptions, or to drop them, makes lifetimes too short. To fit the third as
a rising rate puts a bathtub's end where there is none.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes import validation

if TYPE_CHECKING:
    from jupyter_sky.knowledge.tracker import Observation

CAP_HOURS = 24.0
"""The age at which Google ends a preemptible machine."""
CAP_SLACK = 1.0
"""Hours that a provider may take to end a machine that is past its cap (0.83 h were seen)."""

COLUMNS = ("batch_id", "vm_type", "vcpus", "zone", "lifetime_h", "end_kind")
ENDS = ("preempted", "user_stop")


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """Lifetimes of machines, one row for each.

    Attributes
    ----------
    hours : array of float
        Age at the end, in hours.
    preempted : array of bool
        Whether the provider ended it (before the cap, or because of it); else its owner did.
    batch : array of str
        Machines launched together share their fate: split and resample by this.
    kind : array of str
        Instance type.
    vcpus : array of float
        Virtual processors.
    zone : array of str
        Where it ran.
    cap : float
        Age in hours that no machine outlives; ``inf`` when the provider sets none.

    Examples
    --------
    >>> seen = Lifetimes.of([0.5, 24.2, 3.0], [True, True, False])
    >>> len(seen), seen.events.sum(), seen.capped.sum()
    (3, np.int64(1), np.int64(1))
    """

    hours: np.ndarray
    preempted: np.ndarray
    batch: np.ndarray
    kind: np.ndarray
    vcpus: np.ndarray
    zone: np.ndarray
    cap: float = CAP_HOURS

    @classmethod
    def of(
        cls,
        hours: Iterable[float],
        preempted: Iterable[bool],
        *,
        batch: Sequence[str] | None = None,
        kind: str | Sequence[str] = "",
        vcpus: float | Sequence[float] = 8.0,
        zone: str | Sequence[str] = "",
        cap: float = CAP_HOURS,
    ) -> Lifetimes:
        """Lifetimes from plain lists; what is not given is the same for all.

        Without `batch`, each machine is a batch of its own.

        Raises
        ------
        SkyUsageError
            For lifetimes that are negative, not finite or beyond the cap, lists of different
            lengths, or no lifetime at all.
        """
        if cap != math.inf:
            validation.check_number(cap, "cap (hours)", above=0)
        lived = np.array(list(hours), float)
        size = len(lived)
        batches = [str(i) for i in range(size)] if batch is None else batch
        columns = {
            "preempted": _column(list(preempted), size, "preempted", bool),
            "batch": _column(batches, size, "batch", str),
            "kind": _column(kind, size, "kind", str),
            "vcpus": _column(vcpus, size, "vcpus", float),
            "zone": _column(zone, size, "zone", str),
        }
        _check_hours(lived, cap)
        return cls(lived, **columns, cap=cap)

    @classmethod
    def read(cls, path: str | Path, cap: float = CAP_HOURS) -> Lifetimes:
        """Lifetimes of a CSV file, or of the one such file in a folder.

        It has the columns ``batch_id``, ``vm_type``, ``vcpus``, ``zone``, ``lifetime_h`` and
        ``end_kind`` (``preempted`` or ``user_stop``).

        Raises
        ------
        SkyUsageError
            When there is no such file, or a row of it makes no sense.
        """
        source = _file(Path(path))
        with source.open(newline="") as lines:
            rows = [row for row in csv.DictReader(lines)]
        if not rows:
            raise SkyUsageError(
                _("{source} has no rows").format(source=source),
                hint=_("give lifetimes, one VM a row"),
            )
        for line, row in enumerate(rows, start=2):
            if row["end_kind"] not in ENDS:
                raise SkyUsageError(
                    _("{source}, line {line}: end_kind is {row!r}").format(
                        source=source, line=line, row=row["end_kind"]
                    ),
                    hint=_("write {ends}").format(ends=" or ".join(ENDS)),
                )
        return cls.of(
            (_float(row["lifetime_h"], source) for row in rows),
            (row["end_kind"] == "preempted" for row in rows),
            batch=[row["batch_id"] for row in rows],
            kind=[row["vm_type"] for row in rows],
            vcpus=[_float(row["vcpus"], source) for row in rows],
            zone=[row["zone"] for row in rows],
            cap=cap,
        )

    @classmethod
    def observed(cls, seen: Iterable[Observation], cap: float = math.inf) -> Lifetimes:
        """Lifetimes of what the tracker observed: machines preempted, or given back alive.

        Weights are not taken over; see `priors` for an estimate that lets old ones fade.
        Observations that were folded into one are that many machines of the same age.
        """
        ends = [one for one in seen if one.kind in ("preempted", "ended")]
        machines = [one for one in ends for __ in range(max(1, one.events))]
        return cls.of(
            [(one.seconds or 0.0) / 3600 for one in machines],
            [one.kind == "preempted" for one in machines],
            kind=[one.place.instance_type for one in machines],
            zone=[one.place.zone or one.place.region for one in machines],
            cap=cap,
        )

    def __len__(self) -> int:
        return len(self.hours)

    @property
    def capped(self) -> np.ndarray:
        """Rows that reached the cap."""
        return self.hours >= self.cap

    @property
    def events(self) -> np.ndarray:
        """Rows that were preempted before the cap."""
        return self.preempted & ~self.capped

    def where(self, rows: np.ndarray | Sequence[int]) -> Lifetimes:
        """Select rows by a mask or by their numbers."""
        names = ("hours", "preempted", "batch", "kind", "vcpus", "zone")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def of_kind(self, kind: str) -> Lifetimes:
        """Return the rows of one instance type."""
        return self.where(self.kind == kind)

    def kinds(self, least: int = 1) -> list[str]:
        """Instance types with at least so many rows, the smallest machines first."""
        names, first, counts = np.unique(self.kind, return_index=True, return_counts=True)
        found = sorted(zip(self.vcpus[first], names, counts, strict=True))
        return [str(name) for __, name, rows in found if rows >= least]

    def resampled(self, rng: np.random.Generator) -> Lifetimes:
        """As many batches, drawn with replacement: one sample of a bootstrap by batch."""
        names, codes = np.unique(self.batch, return_inverse=True)
        rows = [np.flatnonzero(codes == i) for i in rng.integers(0, len(names), len(names))]
        return self.where(np.concatenate(rows))

    def folds(self, parts: int = 5, seed: int = 0) -> Iterator[tuple[Lifetimes, Lifetimes]]:
        """Pairs (to fit on, to judge on); no batch is torn, parts are nearly equal in machines."""
        names, counts = np.unique(self.batch, return_counts=True)
        if len(names) < parts:
            raise SkyUsageError(
                _("{parts} folds of {names_count} batches").format(
                    parts=parts, names_count=len(names)
                ),
                hint=_("take fewer folds, or more batches"),
            )
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(names))
        order = order[np.argsort(-counts[order], kind="stable")]
        sizes, part_of = np.zeros(parts), {}
        for i in order:  # the largest batch first, each to the part that has least
            part_of[names[i]] = part = int(sizes.argmin())
            sizes[part] += counts[i]
        parts_of = np.array([part_of[name] for name in self.batch])
        for part in range(parts):
            yield self.where(parts_of != part), self.where(parts_of == part)


@cache
def google_2019() -> Lifetimes:
    """Return 998 lifetimes of Google's preemptible machines, February to April 2019.

    Source: Sharma, Kadupitiya and Jadhao, arXiv:1911.05160; see ``data/README.md`` beside the file
    for its licence (Apache-2.0) and what was changed.

    Returns
    -------
    Lifetimes
        With instance types, zones, vCPUs and batches.

    Examples
    --------
    >>> len(google_2019().hours)
    998
    """
    return Lifetimes.read(Path(__file__).parent / "data" / "google-2019.csv")


def _column(value: Any, size: int, label: str, dtype: type) -> np.ndarray:
    plain = isinstance(value, str | float | int)
    array = np.full(size, value) if plain else np.array(list(value))
    if len(array) != size:
        raise SkyUsageError(
            _("{size} lifetimes, but {array_count} of {label}").format(
                size=size, array_count=len(array), label=label
            ),
            hint=_("give one for each lifetime"),
        )
    return array.astype(dtype) if size else np.array([], dtype)


def _check_hours(hours: np.ndarray, cap: float) -> None:
    if not len(hours):
        raise SkyUsageError(
            _("no lifetimes at all"),
            hint=_("without data, take a prior: preemption.posterior(offer)"),
        )
    bad = ~np.isfinite(hours) | (hours < 0)
    if bad.any():
        row = int(bad.argmax())
        raise SkyUsageError(
            _("lifetime {hours} of row {row} ({sum} such)").format(
                hours=hours[row], row=row, sum=bad.sum()
            ),
            hint=_("give finite hours from 0, counted from the launch"),
        )
    if hours.max() > cap + CAP_SLACK:
        row = int(hours.argmax())
        raise SkyUsageError(
            _("lifetime {hours:g} h of row {row} lies beyond the cap of {cap:g} h").format(
                hours=hours[row], row=row, cap=cap
            ),
            hint=_("are these minutes? Else give the provider's cap, or cap=math.inf for none"),
        )


def _float(text: str, source: Path) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        raise SkyUsageError(
            _("{source}: {text!r} is not a number").format(source=source, text=text),
            hint=_("mend the file"),
        ) from None


def _file(path: Path) -> Path:
    found = [path] if path.is_file() else sorted(path.glob("*.csv"))
    fitting = []
    for one in found:
        with one.open(newline="") as lines:
            header = next(csv.reader(lines), [])
        if set(COLUMNS) <= set(header):
            fitting.append(one)
    if len(fitting) != 1:
        raise SkyUsageError(
            _("{path}: {fitting_count} CSV files with the columns {columns}").format(
                path=path, fitting_count=len(fitting), columns=", ".join(COLUMNS)
            ),
            hint=_("name one such file, or a folder that holds one"),
        )
    return fitting[0]
