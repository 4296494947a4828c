"""Request for a cluster, and the limits of a cell on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import (
    SkyBudget,
    SkyError,
    SkyTimeout,
)
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.requests.resources import Resources, format_duration
from jupyter_sky.base.store.store import ClusterRow
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.base.requests.cell_options.burst import BurstPolicy
    from jupyter_sky.base.requests.dag.dag import Data
    from jupyter_sky.knowledge.tracker.blocks import Scope


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
