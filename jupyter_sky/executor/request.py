"""What one cell asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..resources import Resources


@dataclass(frozen=True, slots=True)
class Input:
    """A local expression, and the name that its value takes on the engines."""

    expression: str
    name: str


@dataclass(frozen=True, slots=True)
class Output:
    """A remote name; with `keep` its value stays remote, behind a handle."""

    name: str
    keep: bool = False


@dataclass(frozen=True, slots=True)
class CellOptions:
    """What a ``%%sky`` line says. Costs are in USD, `timeout` and `idle` in seconds."""

    resources: Resources = field(default_factory=Resources)
    cluster: str | None = None
    on: str | None = None
    max_cost: float | None = None
    timeout: float | None = None
    idle: float | None = None
    pip: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    sync: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    auto: bool | None = None
    background: bool = False
    name: str | None = None
    dry_run: bool = False
    yes: bool = False
