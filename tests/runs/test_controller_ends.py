"""Controllers that end at any point, also with the power of their machine."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.workflows.pipelines.model.graph import RunTask
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.state import REPEATED, Event

from .pretended_world import DIAMOND, PretendedWorld, phases_of, run_graph, set_trouble


class Ended(BaseException):
    """A controller that ends without another word."""


def _count_points(
    journal: RunJournal, world: PretendedWorld, tasks: tuple[RunTask, ...]
) -> list[str]:
    points: list[str] = []
    run_graph(journal, world, tasks, at_point=points.append)
    return points


class DiskJournal(RunJournal):
    """A journal that copies its file where it waits for the disk: what a power cut leaves.

    Parameters
    ----------
    path
        Of the file; the copy lies in a folder beside it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path, self._disk = path, path.with_suffix(".disk")

    def add(self, *values: Any, **named: Any) -> None:
        super().add(*values, **named)
        self._copy()

    def append(self, name: str, epoch: int, events: Sequence[Event]) -> list[Event]:
        wishes = super().append(name, epoch, events)
        if any(event.kind not in REPEATED for event in events):
            self._copy()
        return wishes

    def _copy(self) -> None:
        shutil.rmtree(self._disk, ignore_errors=True)
        self._disk.mkdir()
        for file in self._path.parent.glob(f"{self._path.name}*"):
            shutil.copy(file, self._disk)

    def cut_power(self) -> RunJournal:
        """Return the journal as it is after a power cut."""
        return RunJournal(self._disk / self._path.name)


@pytest.mark.parametrize(
    ("is_batched", "has_power_cut"), [(False, False), (True, False), (True, True)]
)
def test_a_controller_may_end_at_any_point(
    quick_folder: Path, is_batched: bool, has_power_cut: bool
) -> None:
    tasks = tuple(replace(each, is_batched=is_batched) for each in DIAMOND)
    counted = PretendedWorld(quick_folder / "counted.db")
    set_trouble(counted)
    points = _count_points(RunJournal(quick_folder / "counted-runs.db"), counted, tasks)
    assert len(points) >= 40
    assert {name.split()[-1] for name in points} >= {
        *("MakePlan", "FindResult", "Launch", "Send", "Follow", "Release"),
        *(() if is_batched else ("Move",)),
        "journal",
    }
    lost = 0
    for index in range(len(points)):
        journal = DiskJournal(quick_folder / f"{index}-runs.db")
        world = PretendedWorld(quick_folder / f"{index}.db")
        set_trouble(world)
        passed = 0

        def end(name: str, index: int = index) -> None:
            nonlocal passed
            passed += 1
            if passed == index + 1:
                raise Ended

        with pytest.raises(Ended):
            run_graph(journal, world, tasks, at_point=end)
        left = journal.cut_power() if has_power_cut else journal
        lost += len(journal.events("r")) - len(left.events("r"))
        state = run_graph(left, world)
        assert set(phases_of(state).values()) == {"succeeded"}, index
        expected = {"prepare": 1, "left": 2, "right": 1, "join": 2, "report": 1}
        assert world.attempts() == expected, (index, points[index])
        assert world.clusters_up() == [], (index, points[index])
        assert world.launches() == counted.launches(), (index, points[index])
        left.close()
        journal.close()
        world.db.close()
    assert bool(lost) == has_power_cut, "what was not on the disk yet"
