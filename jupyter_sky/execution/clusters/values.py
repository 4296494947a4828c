"""Values that the steps of a cell take: cluster request, sending, placement, limits, replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyBudget, SkyError, SkyTimeout
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.requests.resources import Resources, format_duration
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.notebook_history import reads_history

if TYPE_CHECKING:
    from jupyter_sky.base.requests.cell_options.burst import BurstPolicy
    from jupyter_sky.base.requests.dag.graph import Data
    from jupyter_sky.base.store.store import ClusterRow
    from jupyter_sky.execution.cells.notebook_history import NotebookHistory
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.files.transfer import RemoteValue
    from jupyter_sky.knowledge.tracker.blocks import Scope
    from jupyter_sky.machines.engines.wire.auto_inputs import AutoInput, Decision
    from jupyter_sky.machines.engines.wire.values import Parcel


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """A request for a cluster, live or new.

    Attributes
    ----------
    resources
        Requirements of its nodes.
    name
        Name that its user gives it; None for the notebook's own.
    idle
        Seconds without use after which it ends; None for that of the settings.
    engine
        Data engine that a new one starts at once, beside its own engines.
    until_up
        Whether places are asked until there is one.
    allocation
        Market to launch it on; None for that of the resources.
    inputs
        Data that the plan of a new one counts: their place draws it there.
    areas
        Areas that those data may not leave.
    avoided
        Places not to launch it at.
    burst
        How long machines of one's own are waited for, and what is rented then.
    """

    resources: Resources
    name: str | None = None
    idle: float | None = None
    engine: str | None = None
    until_up: bool = False
    allocation: str | None = None
    inputs: tuple[Data, ...] = ()
    areas: tuple[str, ...] = ()
    avoided: tuple[Scope, ...] = ()
    burst: BurstPolicy | None = None

    @classmethod
    def of_cell(
        cls, options: CellOptions, inputs: tuple[Data, ...], areas: tuple[str, ...]
    ) -> ClusterRequest:
        """Return the request of a cell, whose data the plan counts."""
        return cls(
            options.resources,
            options.cluster,
            options.idle,
            options.engine,
            until_up=options.retry_until_up,
            inputs=inputs,
            areas=areas,
            burst=options.burst,
        )

    @property
    def plan_settings(self) -> dict[str, Any]:
        """Settings of the plan of its place."""
        settings = data_settings(self.inputs, self.areas)
        if self.avoided:
            from jupyter_sky.decisions.optimizer.constraints import Avoid

            demand = Avoid(self.avoided, _("places whose machines are taken away"))
            settings["constraints"] = (*settings.get("constraints", ()), demand)
        return settings


def data_settings(inputs: Sequence[Data], areas: Sequence[str]) -> dict[str, Any]:
    """Return the settings by which a plan counts data and stays in their areas."""
    settings: dict[str, Any] = {"inputs": tuple(inputs)} if inputs else {}
    if areas:
        from jupyter_sky.decisions.optimizer.constraints import Residency

        settings["constraints"] = (Residency(areas),)
    return settings


@dataclass(frozen=True, slots=True)
class Sending:
    """A cell with its inputs, which are pickled before any money is spent.

    Attributes
    ----------
    code
        The body of the cell.
    inline
        Small values, sent in the request of the cell.
    large
        Parcels sent before the cell.
    handles
        Values that are on a cluster already: one, or one for each engine.
    auto
        Inputs found by ``--auto``: the engine may have newer values of these names.
    env
        Environment variables; they go to the engine and nowhere else.
    notes
        Notes for the user.
    types
        Types of the values, whose packages the engines need.
    modules
        Names of the modules among the values.
    models
        Models of the widgets among the values.
    """

    code: str
    options: CellOptions
    inline: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    large: Mapping[str, Parcel] = field(default_factory=dict)
    handles: Mapping[str, Sequence[RemoteValue]] = field(default_factory=dict)
    auto: Mapping[str, AutoInput] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    types: tuple[type, ...] = ()
    modules: tuple[str, ...] = ()
    models: frozenset[str] = frozenset()

    def request(
        self, cell: int, session: str, history: NotebookHistory, trusted: bool
    ) -> dict[str, Any]:
        """Return the part of the request that goes to the engines alone.

        Parameters
        ----------
        cell
            Number of the cell.
        session
            Id of the notebook's kernel.
        history
            Cells before it, for one that reads them on an engine that is trusted.
        """
        return {
            "cell": cell,
            "session": session,
            "history": history.texts() if trusted and reads_history(self.code) else {},
            "inputs": {name: value | self.policy(name) for name, value in self.inline.items()},
            "outputs": [[output.name, output.keep] for output in self.options.outputs],
            "env": self.env,
            "as_data": not trusted,
            "engine": self.options.engine,
        }

    def policy(self, name: str) -> dict[str, Any]:
        """Return the part of a message that says when the engine's own value is used."""
        return {"auto": self.auto[name].to_json()} if name in self.auto else {}


@dataclass(frozen=True, slots=True)
class Placement:
    """The engines of a cell: a cluster, and ranks of its nodes."""

    cluster: ClusterHandle
    ranks: tuple[int, ...]

    @property
    def row(self) -> ClusterRow:
        """Record of the cluster, with its price in USD/h."""
        return self.cluster.row


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of a cell on its cluster.

    Attributes
    ----------
    timeout
        Seconds; None without a limit.
    max_cost
        USD; None without a limit.
    """

    timeout: float | None
    max_cost: float | None

    def check_price(self, row: ClusterRow) -> None:
        """Raise SkyBudget when the cost is limited and the price of the cluster is not known."""
        if self.max_cost is not None and row.price is None:
            raise SkyBudget(
                _("--max-cost {max_cost:g}: the price of {instance_type} is not known").format(
                    max_cost=self.max_cost, instance_type=row.instance_type
                )
            )

    def seconds(self, price: float | None) -> float | None:
        """Return the most seconds that time and money leave the cell; None without a limit.

        Parameters
        ----------
        price
            USD/h of the cluster.
        """
        by_money = self.max_cost / price * 3600 if self.max_cost is not None and price else None
        return min((limit for limit in (self.timeout, by_money) if limit is not None), default=None)

    def exceeded(self, label: str, seconds: float, usd: float | None) -> SkyError | None:
        """Return the error of a cell that has taken or cost too much; None within the limits."""
        if self.timeout and seconds > self.timeout:
            limit = format_duration(self.timeout)
            return SkyTimeout(
                _("{label} was stopped: --timeout {limit} has passed").format(
                    label=label, limit=limit
                )
            )
        if self.max_cost is not None and usd is not None and usd > self.max_cost:
            return SkyBudget(
                _("{label} was stopped: it has cost more than --max-cost {max_cost:g}").format(
                    label=label, max_cost=self.max_cost
                )
            )
        return None


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply of one engine to a cell.

    Attributes
    ----------
    status
        ``ok``, ``error``, ``aborted`` or ``killed``.
    value
        Description of the last expression's value; None where it has none.
    outputs
        Descriptions of the values that ``-o`` names; where the cell has failed, of those that it
        had made by then.
    error
        Content of a reply that is not ``ok``; empty otherwise.
    refused
        Reason why the engine could not open an input; None otherwise.
    decisions
        What the engine has decided on inputs of ``--auto``.
    payload
        Payload of the reply, as the engine has sent it.
    """

    rank: int
    status: str
    value: dict[str, Any] | None = None
    outputs: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    error: Mapping[str, Any] = field(default_factory=dict)
    refused: str | None = None
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    payload: Any = ()

    @classmethod
    def parse(cls, rank: int, content: Mapping[str, Any]) -> Reply:
        """Return the reply that is the content of an ``execute_reply``."""
        status, described = content["status"], content.get("sky") or {}
        decisions = described.get("decisions")
        common: dict[str, Any] = {
            "decisions": decisions if isinstance(decisions, Mapping) else {},
            "payload": content.get("payload") or (),
        }
        common["outputs"] = described.get("outputs") or {}
        if status == "ok":
            return cls(rank, status, described.get("result"), **common)
        return cls(rank, status, error=content, refused=described.get("refused"), **common)


Replies = Sequence[Reply]
"""Replies of the engines of a cell, by rank."""
