"""Lost work and saves of a job on spot machines, through the states that users have.

A job of four hours saves its state in one minute, by the pace that `sky.checkpointed` chooses. Its
machines live as the reference model says; time is simulated, all else is the package's own code.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from jupyter_sky.execution.checkpoints.places import SaveNumber
from jupyter_sky.execution.checkpoints.resumable import resumable
from jupyter_sky.execution.checkpoints.save_format import PackedState, write_state
from jupyter_sky.execution.checkpoints.state import COST_STEP, CheckpointedState, Pace
from jupyter_sky.knowledge.lifetimes import plan_checkpoints, reference

HOUR = 3600.0
WORK = 4.0
"""Hours."""
COST = COST_STEP**12
"""Seconds of one save: about a minute, and one that the pace need not round."""
ITEM = 30.0
"""Seconds of one item of work."""


class MachineLost(BaseException):
    """The machine has been taken away."""


@dataclass
class Machines:
    """One machine after the other, and the time that passes on them.

    Attributes
    ----------
    now, begun, ends : float
        Seconds: now, and from when to when the present machine lives.
    """

    rng: np.random.Generator
    now: float = 0.0
    begun: float = 0.0
    ends: float = 0.0
    losses: int = 0

    def launch(self) -> None:
        """Replace the machine; a new one is there at once, as in the forecast."""
        model = reference().base
        self.begun = self.now
        self.ends = self.now + HOUR * float(model.sample(1, self.rng)[0])

    def work(self, seconds: float) -> None:
        """Let time pass, or raise at the end of the machine."""
        if self.now + seconds >= self.ends:
            self.now = self.ends
            self.losses += 1
            raise MachineLost
        self.now += seconds


@dataclass
class SlowPlace:
    """Place whose saves take `COST` seconds."""

    machines: Machines
    saves: dict[SaveNumber, bytes] = field(default_factory=dict)

    def numbers(self) -> list[SaveNumber]:
        return sorted(self.saves, reverse=True)

    def open(self, number: SaveNumber) -> BinaryIO:
        return io.BytesIO(self.saves[number])

    def write(self, number: SaveNumber, packed: PackedState, keep: int) -> None:
        self.machines.work(COST)
        file = io.BytesIO()
        write_state(packed, file)
        self.saves = {number: file.getvalue()}


def work_lost_over_forecast(rng: np.random.Generator, jobs: int) -> float:
    """Return hours beyond the work itself, over those that the dynamic program forecasts."""
    expected = plan_checkpoints(reference().base, WORK, COST / HOUR).expected() - WORK
    return float(np.mean([run_job(rng) / HOUR - WORK for _job in range(jobs)])) / expected


def run_job(rng: np.random.Generator) -> float:
    """Run a job until it has ended; return the seconds that it took."""
    machines = Machines(rng)
    place = SlowPlace(machines)
    while True:
        machines.launch()
        try:
            return _run_once(machines, place)
        except MachineLost:
            continue


def _run_once(machines: Machines, place: SlowPlace) -> float:
    state = CheckpointedState(
        "job",
        place,
        Pace(restart=0.0),
        clock=lambda: machines.now,
        age=lambda: machines.now - machines.begun,
    )
    state.__enter__()  # not as a block: the save at its end is not the job's
    for _item in resumable(range(round(WORK * HOUR / ITEM)), state):
        machines.work(ITEM)
    return machines.now
