"""Both ends of a copy, and the machine between them: plan, places, price and transfer."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.quantities import format_size
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.execution.files.transfer_account import TransferAccount, observed_rates
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.execution.sessions.copy_route import CopyRoute, find_route
from jupyter_sky.machines.storage.datasets.data import Storage
from jupyter_sky.machines.storage.datasets.residency import Station, check_residency, find_rules
from jupyter_sky.machines.storage.stores.places import ask_place, is_priced, place_of
from jupyter_sky.machines.storage.stores.traffic import Traffic, TransferTraffic, traffic_of
from jupyter_sky.machines.storage.stores.uri import exact_name, fold_of_platform
from jupyter_sky.machines.storage.transfers.copying import CopyPlan, plan_copy
from jupyter_sky.machines.storage.transfers.estimate import (
    Estimate,
    cold_bytes,
    estimate_transfer,
    expected_traffic,
)

if TYPE_CHECKING:
    from jupyter_sky.machines.storage.transfers.transfer import Transfer


@dataclass
class CopyEnds:
    """Source and target of a copy.

    Parameters
    ----------
    source, target
        The data and where they go.
    via
        Name of the cluster that moves the bytes, ``here``, or empty.
    """

    source: Storage
    target: Storage
    via: str = ""
    _begun: tuple[Traffic, Traffic] = field(init=False)

    def __post_init__(self) -> None:
        self._begun = traffic_of(self.source.store), traffic_of(self.target.store)

    @property
    def is_inside(self) -> bool:
        """Whether the store copies by itself."""
        return self.target.store.can_copy_from(self.source.store)

    @cached_property
    def way(self) -> CopyRoute | None:
        """Machine that moves the bytes; None where it would be this one, unasked."""
        return find_route(self.source, self.target, self.via)

    @cached_property
    def route(self) -> tuple[str, ...]:
        """Places that the bytes pass."""
        source = place_of(self.source.store, self.source.uri)
        target = place_of(self.target.store, self.target.uri)
        if self.way is None or not self.way.place:
            return source, target
        return source, self.way.place, target

    def check_residency(self, given: str = "") -> None:
        """Raise SkyResidency where a place on the way is outside of an area.

        The stores are asked for their regions; nothing is asked without a rule.
        """
        rules = find_rules((self.source.uri, self.target.uri), Sky.load().residency, given)
        if not rules:
            return
        from jupyter_sky.knowledge import catalog

        source, target = (
            Station(str(end.uri), ask_place(end.store, end.uri))
            for end in (self.source, self.target)
        )
        way = self.way
        between = [Station(way.title, way.place)] if way is not None and way.place else []
        check_residency(catalog.load(), rules, [source, target, *between])

    def plan(self) -> CopyPlan:
        """Return what would be copied."""
        manifest = self.source.list()
        manifest.check_readable()
        fold = fold_of_platform() if self.target.uri.is_local else exact_name
        target = self.target
        return plan_copy(manifest, self.source.store, target.store, target.uri, fold)

    @property
    def traffic(self) -> TransferTraffic:
        """Requests since these ends are known, such as those of listing."""
        ends = self.source.store, self.target.store
        counts = [traffic_of(end) - begun for end, begun in zip(ends, self._begun, strict=True)]
        return TransferTraffic(counts[0], Traffic() if ends[0] is ends[1] else counts[1])

    def estimate(self, plan: CopyPlan) -> Estimate:
        """Return amount, time and price, with the requests that listing has taken."""
        from jupyter_sky.knowledge import catalog

        expected = expected_traffic(
            plan.items,
            not self.source.uri.is_local,
            None if self.target.uri.is_local else self.target.store.capability,
            inside=self.is_inside,
        )
        objects = [item.source for item in plan.items]
        spent = self.traffic + expected
        return estimate_transfer(catalog.load(), self.route, objects, spent, observed_rates())

    def check_way(self, plan: CopyPlan, estimate: Estimate) -> None:
        """Raise SkyUsageError where bytes would pass this machine and nobody has said so."""
        if self.way is None:
            raise SkyUsageError(
                _(
                    "{plan}: {price}: between two clouds the bytes would pass through this "
                    "machine, {nbytes} down and up again"
                ).format(plan=plan, price=estimate.price, nbytes=format_size(plan.nbytes)),
                hint=_(
                    "via='CLUSTER' lets a cluster's machine do it, via='here' this one "
                    "(%sky storage cp --via)"
                ),
            )

    def account(self, plan: CopyPlan) -> TransferAccount | None:
        """Return the account of the copy, with what listing has taken; None if all is free."""
        if not any(map(is_priced, self.route)):
            return None
        from jupyter_sky.knowledge import catalog

        session = _sessions.current()
        return TransferAccount(
            session.store,
            session.notebook,
            catalog.load(),
            f"{plan.source} → {plan.target}",
            self.route,
            cold_bytes([item.source for item in plan.items]),
            self.traffic,
        )

    def transfer(self, plan: CopyPlan, account: TransferAccount | None) -> Transfer:
        """Return the transfer, which has not begun."""
        from jupyter_sky.machines.storage.stores.journal import Journal
        from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferOptions

        options: dict[str, Any] = {}
        if account is not None:
            options["price"] = lambda traffic: account.price(traffic).known_usd
        if self.way is not None:
            names = ("start_worker", "read_store", "write_store")
            options |= {name: getattr(self.way, name) for name in names}
        folder = Path(Sky.load().data_dir)
        folder.mkdir(parents=True, exist_ok=True)
        return Transfer(
            self.source.store,
            self.target.store,
            plan.items,
            Journal.open(folder),
            TransferOptions(condition=plan.condition, **options),
        )


# -- Route of a copy: the machine through which the bytes pass, or none ---------------------------
