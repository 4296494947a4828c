"""Plans of launches before they are made: for the dry run and ``%sky plan`` of a request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_sky import clouds
from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyError, SkyNoOffer, SkyPermission
from jupyter_sky.base.requests.cell_options.burst import BurstPolicy
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.machines.provisioner.own_queue import decide_now, rent_instead
from jupyter_sky.machines.provisioner.placement import (
    combined_stage,
    decide_placement,
    no_place_error,
    on_premises_candidates,
    on_premises_offers,
    slot_shortage_error,
    usable_providers,
    wants_spot,
)

if TYPE_CHECKING:
    from jupyter_sky.decisions.optimizer.plan import Alternative, Plan

_NEXT = 3  # places beside the one that would be taken


def preview_plan(
    need: Resources, burst: BurstPolicy | None = None, **settings: Any
) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan of a launch, and notes about it.

    Where nothing can be launched, it is a plan for the best on sale, and the notes say why.

    Parameters
    ----------
    burst
        How long machines of one's own are waited for, and what is rented then.
    **settings
        Of `decisions.optimizer.planner.plan`. With an aim or limits of its own, a plan weighs
        one's own machines and those that can be rented against each other.
    """
    plan, notes = _preview_plan(need, burst, settings)
    return replace(plan, name=need.command_line()), notes  # as it was written


def _preview_plan(
    need: Resources, burst: BurstPolicy | None, settings: dict[str, Any]
) -> tuple[Plan, tuple[str, ...]]:
    from jupyter_sky.decisions.optimizer.objectives import OBJECTIVE_SETTINGS

    try:
        if not settings.keys() & OBJECTIVE_SETTINGS:
            decision = decide_placement(need, burst=burst, **settings)
            if burst is None or decision.stage.kind != "own":
                return decision.plan(), decision.notes
            decision, verdict = decide_now(decision, burst)
            if verdict.action == "rent":
                decision = rent_instead(decision, verdict) or decision
            waiting = verdict.text if verdict.action == "wait" else ""
            texts = (_("burst: {policy}").format(policy=burst.describe()), waiting)
            return decision.plan(), (*filter(None, texts), *decision.notes)
        own, small = on_premises_candidates(need)
        stage = combined_stage(need, own, usable_providers(need), wants_spot(need))
        if stage is None:
            raise (
                slot_shortage_error(need, small)
                if small
                else no_place_error(need, on_premises_offers(need))
            )
        planned = stage.plan(**settings)
        offer = planned.tasks[0].offer
        off = clouds.power_off_note(offer.cloud, offer.instance_type)
        return planned, tuple(filter(None, [off]))
    except (SkyNoOffer, SkyPermission) as error:
        if need.clouds and all(find_facts(name).on_premises for name in need.clouds):
            raise  # the catalog has none of them
        refusal = error
    best = _catalog_plan(need, **settings)
    return best, tuple(launch_obstacle_notes(best, refusal))


def with_alternatives(plan: Plan, need: Resources) -> Plan:
    """Return the plan with the next places: its own alternatives, then those of the catalog."""
    alternatives = {other.offer.place: other for other in plan.alternatives()}
    if len(alternatives) < _NEXT:
        alternatives = {
            other.offer.place: other for other in _with_catalog_plan(plan, need)
        } | alternatives
    alternatives.pop(plan.tasks[0].offer.place, None)
    nearest = sorted(alternatives.values(), key=lambda other: (other.usd, other.hours))
    return replace(plan, alternatives_=tuple(nearest[:_NEXT]))


def _with_catalog_plan(plan: Plan, need: Resources) -> list[Alternative]:
    """Return the catalog's alternatives to a plan of offers that can be launched from here."""
    from jupyter_sky.decisions.optimizer.plan import Alternative

    try:
        best = _catalog_plan(need)
    except SkyError:  # the catalog has nothing for it, as for --cloud local
        return []
    (task,) = best.tasks
    usd, hours = best.usd - plan.usd, best.hours - plan.hours
    gco2 = best.gco2 - plan.gco2
    first = Alternative(task.task, "in the clouds", task.offer, task.nodes, usd, hours, gco2)
    return [
        first,
        *(
            replace(other, usd=other.usd + usd, hours=other.hours + hours, gco2=other.gco2 + gco2)
            for other in best.alternatives()
        ),
    ]


def _catalog_plan(need: Resources, **settings: Any) -> Plan:
    """Return the plan over what an account would be enough for; else over the whole catalog."""
    from jupyter_sky.decisions.optimizer.launchability import Launchable
    from jupyter_sky.decisions.optimizer.planning import plan

    wanted = replace(need, spot=wants_spot(need))
    limits = {
        **settings,
        "constraints": (*settings.get("constraints", ()), Launchable(are_bought=False)),
    }
    try:
        return plan(wanted, **limits)
    except SkyNoOffer:
        return plan(wanted, **settings)


def launch_obstacle_notes(plan: Plan, error: SkyNoOffer | SkyPermission | None = None) -> list[str]:
    """Return sentences on the offers of a plan that cannot be launched from here, with reasons.

    Parameters
    ----------
    error
        Error with which its launch would be refused.
    """
    notes: list[str] = []
    for offer in {placed.offer.place: placed.offer for placed in plan.tasks}.values():
        if why := clouds.launch_obstacle(offer):
            notes.append(f"{offer.place}: {why}")
        elif not clouds.is_ready(offer.cloud):
            reason = error.message.splitlines()[0] if isinstance(error, SkyPermission) else ""
            text = _("{cloud}: cannot launch here yet: {reason}")
            notes.append(text.format(cloud=offer.cloud, reason=reason or _("see %sky check")))
    if error is not None and not notes:
        reason = error.message.splitlines()[0]
        notes.append(_("a launch would be refused now: {reason}").format(reason=reason))
    return notes
