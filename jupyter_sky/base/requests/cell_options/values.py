"""Options of one cell, with the values that go to and come from its engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_sky.base.requests.cell_options.burst import BurstPolicy
from jupyter_sky.base.requests.resources import Resources

SCRATCH = "store"
"""Stands for an address in the scratch of the cluster's region, ``-o NAME@store``."""


@dataclass(frozen=True, slots=True)
class CellInput:
    """A local expression, and the name that its value takes on the engines."""

    expression: str
    name: str


@dataclass(frozen=True, slots=True)
class CellOutput:
    """A remote name; with `keep` its value stays remote, behind a handle.

    Attributes
    ----------
    uri
        Address of a store in which the value is kept, or `SCRATCH`; empty to keep it on its engine.
    large_only
        Whether a value that fits a message comes all the same, and is not stored.
    """

    name: str
    keep: bool = False
    uri: str = ""
    large_only: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class CellData:
    """Data of a store, and the path at which the cell reads them."""

    uri: str
    path: str


@dataclass(frozen=True, slots=True)
class CellUpload:
    """A path of files that the cell writes, and the address to which they are uploaded."""

    path: str
    uri: str
    also_after_error: bool = False


@dataclass(frozen=True, slots=True)
class CellMap:
    """A name, and the list as it is written, each of whose values is one task's."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class CellDefault:
    """A name of ``-o``, and its value as it is written where the cell does not run."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class CellOptions:
    """Options of one cell. Costs are in USD, `timeout` and `idle` in seconds.

    `burst` says what is rented while machines of one's own are busy, None for what the settings
    say. `files` are the paths of ``-o file:PATH``. `recover` is the strategy by which a place is
    chosen after a loss, empty for the usual one and None not to go on; `checkpoint` the seconds
    between two saves, None where the schedule decides. `name` and `after` name the cell's task and
    those that it waits for in a pipeline; `maps` make several tasks of it, `at_once` run at a time,
    and `allow_failures` of them, such as ``2`` or ``10%``, may fail; `ranges` make it a bag of
    jobs, on `at_once` machines. `engine` is a data engine on the machines of the cluster, such as
    ``ray==2.60.*``; with `sql` the cell is a statement for it. It runs if `condition` holds, empty
    for always; else its outputs are `defaults`. A pipeline or a bag tries it `retries` times more
    after an error of its
    own. `search` is ``cost`` or ``time`` where machines are tried, empty elsewhere: `trials` of
    them at most, for `budget` USD, until `deadline` seconds have passed.
    """

    resources: Resources = field(default_factory=Resources)
    cluster: str | None = None
    on: str | None = None
    engine: str | None = None
    sql: bool = False
    max_cost: float | None = None
    timeout: float | None = None
    idle: float | None = None
    pip: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    sync: tuple[str, ...] = ()
    data: tuple[CellData, ...] = ()
    mounts: tuple[CellData, ...] = ()
    uploads: tuple[CellUpload, ...] = ()
    inputs: tuple[CellInput, ...] = ()
    outputs: tuple[CellOutput, ...] = ()
    files: tuple[str, ...] = ()
    auto: bool | None = None
    background: bool = False
    name: str | None = None
    after: tuple[str, ...] = ()
    maps: tuple[CellMap, ...] = ()
    ranges: Mapping[str, Any] = field(default_factory=dict)
    at_once: int | None = None
    allow_failures: str = ""
    condition: str = ""
    defaults: tuple[CellDefault, ...] = ()
    retries: int = 0
    dry_run: bool = False
    retry_until_up: bool = False
    burst: BurstPolicy | None = None
    recover: str | None = None
    checkpoint: float | None = None
    search: str = ""
    trials: int | None = None
    budget: float | None = None
    deadline: float | None = None
    yes: bool = False
    untrusted: bool = False
