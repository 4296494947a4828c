"""Machines of a bag, as its controller uses them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.execution.cells.request import with_settings
from jupyter_sky.workflows.bags.decisions.backlog import MachineKind
from jupyter_sky.workflows.bags.decisions.job_forecast import DegradedOption
from jupyter_sky.workflows.bags.decisions.outlook import FleetView
from jupyter_sky.workflows.bags.queue.application import App, BagSettings, JobOutcome, OpenJob


def fleet_options(settings: BagSettings) -> CellOptions:
    """Return the options of a bag's machines, with the settings of this user."""
    return with_settings(parse_cell_line(settings.options), Sky.load())


class Fleet(Protocol):
    """Machines of a bag."""

    @property
    def slots(self) -> int:
        """Jobs that run at a time on the machines that are up; 0 while they are launched."""
        ...

    @property
    def error(self) -> SkyError | None:
        """Why no machine can be had; None while one can."""
        ...

    def begin(self, jobs: int) -> None:
        """Launch machines for so many jobs; return at once."""

    def submit(
        self, app: App, jobs: Sequence[OpenJob], timeout: float | None
    ) -> Future[list[JobOutcome]]:
        """Send jobs to one machine."""
        ...

    def spending(self) -> tuple[float, float]:
        """Return the cost up to now (USD) and the price now (USD/h)."""
        ...

    def describe(self, rank: int) -> tuple[str, float]:
        """Return the place of a node, and the price of one of its slots (USD/h)."""
        ...

    def clusters(self) -> list[str]:
        """Return the names of the clusters that are up."""
        ...

    def take_events(self) -> list[str]:
        """Return what has happened to machines since it was asked last."""
        ...

    def view(self, now: float) -> FleetView:
        """Return the machines that are up, at a unix time."""
        ...

    def alternatives(self) -> tuple[DegradedOption, ...]:
        """Return other machines that can be had where these do not keep a deadline."""
        ...

    def grow(self, slots: int, kind: MachineKind | None = None) -> None:
        """Launch machines, so that so many jobs run at a time; return at once.

        Parameters
        ----------
        slots
            Jobs at a time, in all.
        kind
            Of the further machines, such as one of the alternatives; as those that are there unless
            given.
        """

    def exchange(self, age: float) -> None:
        """Replace idle machines that have lived for so many hours; return at once."""

    def give_back(self, jobs: int) -> None:
        """End machines that so few jobs do not need, once these are idle."""

    def end(self) -> None:
        """End all machines."""
