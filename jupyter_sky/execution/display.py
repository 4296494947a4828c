"""Protocol of displays of a cell's outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Stage = Literal[
    "placing",
    "booting",
    "syncing",
    "queued",
    "running",
    "interrupting",
    "done",
    "failed",
    "interrupted",
    "cancelled",
]
FINAL = frozenset({"done", "failed", "interrupted", "cancelled"})
"""Stages of a cell that has ended."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Content of a status line.

    Attributes
    ----------
    stage : str
        Stage of the cell.
    seconds : float
        Seconds since it was sent to its cluster, before that since its begin; or until its end.
    cluster, place : str or None
        The cluster and where it is, such as ``'aws us-east-1 g5.xlarge spot'``.
    price : float or None
        USD/h of the whole cluster; None when unknown.
    cell_usd, notebook_usd : float or None
        USD so far; None when unknown.
    detail : str
        More about the stage, such as ``'12 MB'``.
    notes : tuple of str
        Sentences, each on a line of its own.
    run_id : str
        Id of the run, by which a front end finds it again; empty without a run.
    price_from : str
        Source and date of the price, such as ``'aws 2026-11-20'``.
    warning : str
        Why the cell goes on although it was stopped, and what is lost if it is stopped again.
    boot : float
        Seconds from its begin until it was sent.
    """

    stage: Stage
    seconds: float
    cluster: str | None
    place: str | None
    price: float | None
    cell_usd: float | None
    notebook_usd: float | None
    detail: str = ""
    notes: tuple[str, ...] = ()
    run_id: str = ""
    price_from: str = ""
    warning: str = ""
    boot: float = 0.0

    @property
    def is_final(self) -> bool:
        """Whether the cell has ended."""
        return self.stage in FINAL


class Display(Protocol):
    """The outputs of one cell. Its methods may be called from any thread."""

    def status(self, status: RunStatus) -> None:
        """Show or replace the status line."""
        ...

    def update_status(self, status: RunStatus) -> None:
        """Replace the status line of a cell that has ended, where that is possible."""
        ...

    def send(
        self,
        kind: str,
        content: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        buffers: list[Any] | None = None,
    ) -> None:
        """Show one message of the Jupyter protocol, below the status line."""
        ...

    def comm(self, message: dict[str, Any], engine: str, client: Any) -> None:
        """Pass on a widget's message, and join the two halves of the widget."""
        ...

    def share_widgets(self, models: Iterable[str], engine: str, client: Any) -> None:
        """Keep widgets of the notebook equal to those that are sent to an engine."""
        ...

    def settle_widgets(self) -> None:
        """Give the notebook's widgets what engines have changed."""
        ...

    def payload(self, parts: list[dict[str, Any]]) -> None:
        """Put the payload of a reply into the reply of the cell."""
        ...


class WrappedDisplay:
    """Display that passes the status line and payloads to another; subclasses handle outputs.

    Parameters
    ----------
    display
        Display of the cell.
    """

    def __init__(self, display: Display) -> None:
        self.display = display

    def status(self, status: RunStatus) -> None:
        """Show or replace the status line."""
        self.display.status(status)

    def update_status(self, status: RunStatus) -> None:
        """Replace the status line of a cell that has ended."""
        self.display.update_status(status)

    def share_widgets(self, models: Iterable[str], engine: str, client: Any) -> None:
        """Keep widgets of the notebook equal to those that are sent to an engine."""
        self.display.share_widgets(models, engine, client)

    def settle_widgets(self) -> None:
        """Give the notebook's widgets what engines have changed."""
        self.display.settle_widgets()

    def payload(self, parts: list[dict[str, Any]]) -> None:
        """Put the payload of a reply into the reply of the cell."""
        self.display.payload(parts)


class NoDisplay:
    """A display that shows nothing."""

    def status(self, status: RunStatus) -> None:
        """Ignore it."""

    def update_status(self, status: RunStatus) -> None:
        """Ignore it."""

    def send(self, kind: str, content: Any, metadata: Any = None, buffers: Any = None) -> None:
        """Ignore it."""

    def comm(self, message: Any, engine: str, client: Any) -> None:
        """Ignore it."""

    def share_widgets(self, models: Any, engine: str, client: Any) -> None:
        """Ignore it."""

    def settle_widgets(self) -> None:
        """Ignore it."""

    def payload(self, parts: Any) -> None:
        """Ignore it."""
