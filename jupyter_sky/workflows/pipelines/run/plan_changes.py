"""Sentences on the plans of a run: why another one was made, what it changes and what it saves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_sky.base.requests.quantities import format_duration
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.knowledge.ledger.ledger import format_usd
from jupyter_sky.workflows.pipelines.run.outlook import Residual
from jupyter_sky.workflows.pipelines.run.residual_graph import read_offer

_SHOWN = 3
"""Tasks that a sentence names; the others are counted."""
_SMALL_USD, _SMALL_SECONDS = 0.00005, 1.0


def describe_change(left: Residual, plan: Plan, stay: Plan | None) -> str:
    """Return one sentence on a plan that is taken.

    Parameters
    ----------
    left
        What is left of the run.
    plan
        Of that.
    stay
        What it would come to if tasks stayed where they were to go; None where they cannot.
    """
    moved = [
        (one.task, one.offer.place)
        for one in plan.tasks
        if one.task in left.rest and _place(left, left.rest[one.task]) != one.offer.place
    ]
    words = [_("{task} goes to {place}").format(task=t, place=place) for t, place in moved]
    if len(words) > _SHOWN:
        more = _("{count} more tasks go elsewhere").format(count=len(words) - _SHOWN)
        words = [*words[:_SHOWN], more]
    change = ", ".join(words) or _("all tasks stay where they were to go")
    return _("{why}: {change}; {effect}").format(
        why=_describe_causes(left), change=change, effect=_describe_effect(plan, stay)
    )


def describe_kept(left: Residual, plan: Plan | None) -> str:
    """Return one sentence on a plan that stays, since another gains too little or there is none."""
    change = _("the plan stays, no other gains enough")
    if plan is None:
        return f"{_describe_causes(left)}: {change}"
    return _("{why}: {change}; {effect}").format(
        why=_describe_causes(left), change=change, effect=_describe_effect(plan, None)
    )


def describe_limits(left: Residual) -> str:
    """Return what is left of the deadline and the budget of a run; empty where it has none."""
    words = []
    if left.deadline_at is not None:
        time = format_duration(left.deadline_at - left.now)
        words.append(_("{time} are left until the deadline").format(time=time))
    if left.budget_usd is not None:
        usd, budget = format_usd(left.budget_usd - left.spent_usd), format_usd(left.budget_usd)
        words.append(_("{usd} are left of the budget of {budget}").format(usd=usd, budget=budget))
    return _(" and ").join(words)


def _place(left: Residual, cluster: str) -> str:
    return read_offer(left.offers[cluster]).place if cluster in left.offers else ""


def _describe_effect(plan: Plan, stay: Plan | None) -> str:
    """Return what a plan saves, or what the rest comes to."""
    words = []
    if stay is not None:
        usd, seconds = stay.usd - plan.usd, (stay.hours - plan.hours) * 3600
        if abs(usd) > _SMALL_USD:
            text = _("saves {usd}") if usd > 0 else _("costs {usd} more")
            words.append(text.format(usd=format_usd(abs(usd))))
        if abs(seconds) > _SMALL_SECONDS:
            text = _("ends {time} sooner") if seconds > 0 else _("ends {time} later")
            words.append(text.format(time=format_duration(abs(seconds))))
    rest = _("the rest costs {usd} and takes {time}").format(
        usd=format_usd(plan.usd), time=format_duration(plan.hours * 3600)
    )
    return _(" and ").join(words) if words else rest


def _describe_causes(left: Residual) -> str:
    found = dict.fromkeys(_describe_cause(cause, left) for cause in left.causes)
    return _(" and ").join(found) or _("tasks have no place")


def _describe_cause(cause: Mapping[str, Any], left: Residual) -> str:
    return _CAUSES[cause["kind"]](cause, left)


def _describe_trouble(cause: Mapping[str, Any], left: Residual) -> str:
    place = _place(left, cause["cluster"]) or cause["cluster"]
    text = _("{place} refused") if cause["kind"] == "refused" else _("{place} was lost")
    words = text.format(place=place)
    return f"{words} ({cause['reason']})" if cause["reason"] else words


def _describe_deadline(cause: Mapping[str, Any], left: Residual) -> str:
    return _("the run would end {time} after its deadline").format(
        time=format_duration(cause["seconds"])
    )


def _describe_budget(cause: Mapping[str, Any], left: Residual) -> str:
    text = _("{usd} of {budget} are spent")
    if cause["key"] != "budget":
        text = _("the run would cost {usd} and not {budget}")
    return text.format(usd=format_usd(cause["usd"]), budget=format_usd(cause["budget"]))


def _describe_overrun(cause: Mapping[str, Any], left: Residual) -> str:
    return _("{task} runs for {time} already and not {planned}").format(
        task=cause["task"],
        time=format_duration(cause["seconds"]),
        planned=format_duration(cause["planned"]),
    )


def _describe_end(cause: Mapping[str, Any], left: Residual) -> str:
    return _("{task} took {time} and not {planned}").format(
        task=cause["task"],
        time=format_duration(cause["seconds"]),
        planned=format_duration(cause["planned"]),
    )


def _describe_size(cause: Mapping[str, Any], left: Residual) -> str:
    return _("{task} gave {gb:.3g} GB and not {planned:.3g}").format(
        task=cause["task"], gb=cause["gb"], planned=cause["planned"]
    )


def _describe_price(cause: Mapping[str, Any], left: Residual) -> str:
    return _("{place} costs {usd}/h now and not {planned}/h").format(
        place=_place(left, cause["cluster"]),
        usd=format_usd(cause["usd_h"]),
        planned=format_usd(cause["planned"]),
    )


_CAUSES = {
    "refused": _describe_trouble,
    "lost": _describe_trouble,
    "deadline": _describe_deadline,
    "budget": _describe_budget,
    "overrun": _describe_overrun,
    "ended": _describe_end,
    "size": _describe_size,
    "price": _describe_price,
}
