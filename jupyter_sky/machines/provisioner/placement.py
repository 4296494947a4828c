"""Decision on the place of a request: the same for form, dry run, plan, launch and pools.

Machines of one's own come first. Where none of them can take the request, or they refuse, machines
are rented (bursting: section 6 of the SkyPilot paper, NSDI 2023), unless the request names clouds
of one's own alone. Rented machines are on demand unless spot machines were asked for. Offers that
nothing can launch from here are planned against and never chosen for a launch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from jupyter_sky import clouds
from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyNoOffer, SkyPermission
from jupyter_sky.base.requests.cell_options.burst import BurstPolicy
from jupyter_sky.base.requests.cell_options.spark_version import spark_version
from jupyter_sky.base.requests.geography import OWN_SPARK
from jupyter_sky.base.requests.offers import LIVE, Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.candidates import candidates, no_offer
from jupyter_sky.decisions.optimizer.service_requests import check_service
from jupyter_sky.knowledge.ledger.ledger import format_rate

if TYPE_CHECKING:
    from jupyter_sky.decisions.optimizer.plan import Plan
    from jupyter_sky.knowledge.tracker.blocks import Scope


_SHOWN = 100  # offers that are looked at to explain why none of them can be launched

StageKind = Literal["own", "spot", "on demand", "any market"]
PASSED_OVER: dict[StageKind, str] = {
    "own": "no machine of your own could take it: a machine is rented",
    "spot": "no spot machine could be had: it is on demand",
}
"""Sentences about the stages that had nothing, or refused, before the one that is taken."""


@dataclass(frozen=True, slots=True)
class PlacementStage:
    """Offers that are equally welcome; a request goes to the best of them.

    Attributes
    ----------
    kind : str
        Machines of one's own, or the market of rented ones.
    need : Resources
        The request, with the clouds and the market of this stage.
    on_premises : tuple of Offer
        Offers of one's own machines that meet it, and of clouds that the catalog does not list.
    """

    kind: StageKind
    need: Resources
    on_premises: tuple[Offer, ...] = ()

    def choose(self, settings: Mapping[str, Any]) -> tuple[Offer, Plan | None]:
        """Return the best offer, and its plan; None where there was nothing to decide.

        Parameters
        ----------
        settings
            Settings of the plan, see `plan`.

        Raises
        ------
        SkyNoOffer
            There is none.
        """
        if self.kind == "own" and len(self.on_premises) == 1:
            return self.on_premises[0], None
        try:
            plan = self.plan(**settings)
        except SkyNoOffer:
            if self.kind != "own":
                self._explain_unlaunchable()
            raise
        return plan.tasks[0].offer, plan

    def _explain_unlaunchable(self) -> None:
        """Raise SkyNoOffer with the reasons if no offer that meets the request can be launched."""
        from jupyter_sky.knowledge.catalog import load

        places: dict[str, str] = {}
        for offer in load().filter(self.need).offers(_SHOWN):
            if not (why := clouds.launch_obstacle(offer)):
                return
            places.setdefault(why, offer.place)
        if places:
            obstacles = "; ".join(f"{place}: {why}" for why, place in places.items())
            raise SkyNoOffer(obstacles, hint=_placement_hint(self.need))

    def plan(self, **settings: Any) -> Plan:
        """Return the plan of this stage, by settings of `decisions.optimizer.planner.plan`."""
        from jupyter_sky.decisions.optimizer.launchability import Launchable
        from jupyter_sky.decisions.optimizer.planning import plan

        if self.kind == "own":
            return plan(self.need, offers=self.on_premises, **settings)
        constraints = (*settings.pop("constraints", ()), Launchable())
        return plan(self.need, own=self.on_premises, constraints=constraints, **settings)


@dataclass(frozen=True, slots=True)
class Decision:
    """Chosen place of a request that is about to be launched.

    Attributes
    ----------
    need : Resources
        The request as it was made.
    offer : Offer
        The chosen offer.
    stage : PlacementStage
        Stage of the offer.
    later : tuple of PlacementStage
        Stages that follow when all offers of this one have refused.
    passed : tuple of str
        Kinds of stages that had no offer, or refused.
    planned : Plan, optional
        Plan of the offer; None where there was nothing to decide.
    burst : str
        Why machines are rented though there are some of one's own; empty elsewhere.
    """

    need: Resources
    offer: Offer
    stage: PlacementStage
    later: tuple[PlacementStage, ...] = ()
    passed: tuple[StageKind, ...] = ()
    planned: Plan | None = None
    burst: str = ""

    @property
    def price(self) -> float | None:
        """USD/h of all nodes; None when unknown."""
        return None if self.offer.price is None else self.offer.price * self.need.nodes

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on stages passed over, with the price, on what "off" costs, on live prices."""
        known = () if self.burst else PASSED_OVER  # which says it in its own words
        sentences = [PASSED_OVER[kind] for kind in self.passed if kind in known]
        sentences += [self.burst] if self.burst else []
        passed = f"{', and '.join(sentences)}, {format_rate(self.price)}" if sentences else ""
        off = clouds.power_off_note(self.offer.cloud, self.offer.instance_type)
        return tuple(filter(None, (passed, off, self._live)))

    @property
    def _live(self) -> str:
        """Sentence on a price that the cloud was asked for just now; empty for any other."""
        if not self.offer.source.endswith(LIVE):
            return ""
        facts = find_facts(self.offer.cloud)
        return _("live: {cloud} has one free now at this price").format(cloud=facts.title)

    def plan(self) -> Plan:
        """Return the plan of the offer."""
        from jupyter_sky.decisions.optimizer.planning import plan

        return self.planned or plan(self.need, offers=[self.offer])

    def without_refused(self, refused: Scope) -> Decision:
        """Return the next best decision, once a place has refused.

        Raises
        ------
        SkyNoOffer
            Nothing is left.
        """
        if self.planned is not None:
            try:
                plan = self.planned.replan([refused])
                return replace(self, offer=plan.tasks[0].offer, planned=plan)
            except SkyNoOffer:
                pass
        return self.next_stage()

    def next_stage(self) -> Decision:
        """Return the decision for the stages after this one.

        Raises
        ------
        SkyNoOffer
            There is no other, or nothing in it.
        """
        if not self.later:
            raise SkyNoOffer(_("nothing else can take it"))
        return _decide_first_stage(self.need, self.later, (*self.passed, self.stage.kind), {})


def decide_placement(
    need: Resources,
    allocation: str | None = None,
    without: Collection[str] = (),
    burst: BurstPolicy | None = None,
    **settings: Any,
) -> Decision:
    """Decide on the place of a request.

    Parameters
    ----------
    need
        The request, with what the settings limit.
    allocation
        For a request that names no market, how spot machines count: ``spot-if-available`` asks for
        them first, ``cheapest`` weighs both markets and one's own machines by their cost alone.
    without
        Kinds of stages to leave out.
    burst
        What is rented when no machine of one's own can take it; `own_queue` says when.
    **settings
        Settings of `jupyter_sky.decisions.optimizer.planning.plan`.

    Raises
    ------
    SkyNoOffer
        Nothing on sale meets the request, or nothing that can be launched; the message says
        why.
    SkyPermission
        Only clouds were asked for that cannot be used from here.
    """
    if need.service:
        from jupyter_sky.knowledge.catalog import load

        check_service(need, load())
    own, small = on_premises_candidates(need)
    if not own and not small and (why := clouds.permanent_obstacle(need)):
        raise SkyNoOffer(f"{need.command_line()}: {why}", hint=_placement_hint(need))
    stages = [stage for stage in _stages(need, own, allocation, burst) if stage.kind not in without]
    if not stages:
        raise (
            slot_shortage_error(need, small)
            if small
            else no_place_error(need, on_premises_offers(need))
        )
    passed: tuple[StageKind, ...] = ("own",) if small and not own else ()
    return _decide_first_stage(need, stages, passed, settings)


def usable_providers(need: Resources) -> tuple[str, ...]:
    """Return the clouds that rent machines, are asked for, and have credentials here."""
    built_in = clouds.provider_names()
    names = need.clouds or [name for name in built_in if not find_facts(name).only_by_name]
    order = [*built_in, *(name for name in names if name not in built_in)]
    return tuple(
        name
        for name in order
        if name in names
        and clouds.is_rented(name)
        and clouds.is_ready(name)
        and (need.nodes == 1 or clouds.connects_nodes(name))
    )


def on_premises_offers(need: Resources) -> list[Offer]:
    """Return the offers of machines of one's own for a request, with Spark where it is wanted."""
    offers = [
        offer
        for name in clouds.ON_PREMISES
        for offer in clouds.on_premises_cloud(name).offers(need)
    ]
    if not need.service:
        return offers
    version = spark_version()
    packages = (f"{OWN_SPARK}=={version}", f"spark=={version}")
    return [replace(offer, service=OWN_SPARK, packages=packages) for offer in offers]


def on_premises_candidates(need: Resources) -> tuple[list[Offer], list[Offer]]:
    """Return the offers of one's own that meet a request, and those with too few slots for it."""
    matching: list[Offer] = []
    small: list[Offer] = []
    for offer in candidates(need, on_premises_offers(need)):
        slots = clouds.on_premises_cloud(offer.cloud).slots(need, offer)
        (matching if slots is None or slots >= need.nodes else small).append(offer)
    return matching, small


def slot_shortage_error(need: Resources, small: Sequence[Offer]) -> SkyNoOffer:
    """Return the error that machines of one's own have too few slots."""
    counts = [
        f"{clouds.on_premises_cloud(offer.cloud).slots(need, offer)} slots of {offer.place}"
        for offer in small
    ]
    return SkyNoOffer(
        _("--nodes {nodes}: there are {counts} in all").format(
            nodes=need.nodes, counts=", ".join(counts)
        ),
        hint=_("take fewer nodes, list more machines, or allow clouds: see %sky check"),
    )


# -- stages ------------------------------------------------------------------------------------


def wants_spot(need: Resources) -> bool:
    """Return whether to rent spot machines: only on request, for they lose variables."""
    return bool(need.spot)


def _stages(
    need: Resources, own: Sequence[Offer], allocation: str | None, burst: BurstPolicy | None = None
) -> list[PlacementStage]:
    """Return the stages for a request, the preferred first."""
    if burst is not None:
        return _burst_stages(need, own, burst)
    renting = usable_providers(need)
    if allocation == "cheapest" and need.spot is None:
        stage = combined_stage(need, own, renting, None)
        return [] if stage is None else [stage]
    stages = [PlacementStage("own", need, tuple(own))] if own else []
    if renting:
        first = allocation == "spot-if-available" and need.spot is None
        markets = (True, False) if first else (wants_spot(need),)
        for spot in markets:
            kind: StageKind = "spot" if spot else "on demand"
            rented = replace(need, clouds=renting, spot=spot)
            stages.append(PlacementStage(kind, rented, tuple(clouds.external_offers(renting))))
    return stages


def _burst_stages(
    need: Resources, own: Sequence[Offer], burst: BurstPolicy
) -> list[PlacementStage]:
    """Return the stages of a policy: machines of one's own, then what it allows to rent."""
    stages = [PlacementStage("own", need, tuple(own))] if own else []
    asked = need
    if burst.is_of_cell and set(need.clouds) <= set(clouds.ON_PREMISES):
        asked = replace(need, clouds=())
    renting = usable_providers(asked)
    if not renting:
        return stages
    limits = [limit for limit in (need.max_hourly_cost, burst.max_usd_h) if limit is not None]
    spot = burst.spot
    if spot is None or not burst.is_of_cell:  # the market that a cell asks for is kept
        spot = spot if need.spot is None else need.spot
    rented = replace(need, clouds=renting, spot=spot, max_hourly_cost=min(limits, default=None))
    kinds: dict[bool | None, StageKind] = {True: "spot", False: "on demand", None: "any market"}
    offers = tuple(clouds.external_offers(renting))
    return [*stages, PlacementStage(kinds[spot], rented, offers)]


def combined_stage(
    need: Resources, own: Sequence[Offer], renting: tuple[str, ...], spot: bool | None
) -> PlacementStage | None:
    """Return one stage with all offers that can be launched; None without any."""
    if not renting:
        return PlacementStage("own", need, tuple(own)) if own else None
    names = (*renting, *dict.fromkeys(offer.cloud for offer in own))
    offers = (*own, *clouds.external_offers(renting))
    return PlacementStage("any market", replace(need, clouds=names, spot=spot), offers)


def _decide_first_stage(
    need: Resources,
    stages: Sequence[PlacementStage],
    passed: tuple[StageKind, ...],
    settings: Mapping[str, Any],
) -> Decision:
    """Decide for the first stage that has an offer."""
    refusal: SkyNoOffer | None = None
    for index, stage in enumerate(stages):
        try:
            offer, plan = stage.choose(settings)
        except SkyNoOffer as error:
            refusal, passed = error, (*passed, stage.kind)
            continue
        return Decision(need, offer, stage, tuple(stages[index + 1 :]), passed, plan)
    assert refusal is not None, "there is a stage at least"
    raise refusal


def no_place_error(need: Resources, own: Sequence[Offer]) -> SkyNoOffer | SkyPermission:
    """Return the error that nothing can be launched for a request."""
    renting = [name for name in need.clouds if clouds.is_rented(name)]
    if renting and set(need.clouds) <= set(renting):
        check = clouds.get(renting[0]).check()  # sends no request: there are no credentials
        return SkyPermission(
            _("--cloud {clouds}: {found}").format(clouds=",".join(need.clouds), found=check.found),
            hint=check.fix or _("see %sky check"),
        )
    on_premises_only = need.clouds and set(need.clouds) <= set(clouds.ON_PREMISES)
    return _no_machine_error(need, own) if on_premises_only else _no_account_error(need)


def _no_machine_error(need: Resources, own: Sequence[Offer]) -> SkyNoOffer:
    """Return the error that machines of one's own, the only ones asked for, do not suffice."""
    refusal = no_offer(need, own)
    message = refusal.message
    if need.gpu and own and not any(offer.gpu for offer in own):
        # "nearest: no --gpus" would be true, and no help
        message = _("{request} cannot run yet: no machine there has a GPU").format(
            request=need.command_line()
        )
    way = _("a cloud may have it: leave out --cloud, and set an account up: %sky check says how")
    return SkyNoOffer(message, hint="\n".join(filter(None, [refusal.hint, way])))


def no_account_reason(need: Resources) -> str:
    """Say why a request cannot run, where no cloud that it allows can be used from here."""
    own = set(need.clouds or clouds.ON_PREMISES) & set(clouds.ON_PREMISES)
    rented = [name for name in need.clouds if name not in clouds.ON_PREMISES]
    account = f"account of {' or '.join(rented)}" if rented else "account of a cloud"
    here = "this machine has less than that"
    if need.region or need.zone:
        here = "this machine is in no region of a cloud"
    reasons = [here] if own else []
    return ", and ".join([*reasons, f"no {account} is set up here"])


def _no_account_error(need: Resources) -> SkyNoOffer:
    """Return the error that a request needs an account, with the cheapest offer on sale."""
    from jupyter_sky.knowledge.catalog import load
    from jupyter_sky.knowledge.catalog.nearest_offers import find_nearest
    from jupyter_sky.machines.provisioner.launch_order import split_by_launchability

    catalog = load()
    on_sale = catalog.filter(replace(need, spot=wants_spot(need)))
    # an account helps where machines can be launched with one
    cheapest = next((found.offers(1)[0] for _tier, found in split_by_launchability(on_sale)), None)
    if cheapest is None:
        return no_offer(need, find_nearest(catalog, need))
    asked = need.command_line()
    return SkyNoOffer(
        _("{asked} cannot run yet: {need}").format(asked=asked, need=no_account_reason(need)),
        hint=_(
            "set an account up: %sky check says what is missing, %sky setup lists "
            "each step\n"
            "the cheapest place on sale: {place}, {price}; others: %sky plan "
            "{asked}"
        ).format(place=cheapest.place, price=format_rate(cheapest.price), asked=asked),
    )


def _placement_hint(need: Resources) -> str:
    prices = f"its prices: %sky plan {need.command_line()}"
    if not need.service:
        return prices
    bare = " ".join(["%%sky", replace(need, service=()).command_line(), "--engine spark"])
    return f"{prices}; Spark on machines of its own: {' '.join(bare.split())}"
