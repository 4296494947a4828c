"""Plans of a run on each single cloud, and what its own plan saves against the best of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.quantities import format_duration
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.decisions.optimizer.plan import Plan
    from jupyter_sky.workflows.pipelines.run.journal import RunJournal
    from jupyter_sky.workflows.pipelines.run.replanning import PlanGraph, RunProblem

_SETTING = "single_clouds"
"""Setting of a run that has the plans on single clouds."""
_LEAST_SHARE = 0.005
"""Share of the best single cloud that counts as saved; less is the rounding of prices."""


@dataclass(frozen=True, slots=True)
class SingleCloud:
    """Plan of a run on one cloud, beside one's own machines.

    Attributes
    ----------
    cloud
        Its name.
    usd, hours
        Of the whole run; None where no plan is possible there.
    """

    cloud: str
    usd: float | None = None
    hours: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return values of JSON, which the constructor takes."""
        return {"cloud": self.cloud, "usd": self.usd, "hours": self.hours}


def plan_single_clouds(
    problem: RunProblem, clouds: Iterable[str], plan_graph: PlanGraph, now: float
) -> tuple[SingleCloud, ...]:
    """Return the plan of a run on each cloud alone; machines of one's own are allowed in each.

    Parameters
    ----------
    problem
        Of the run. Its deadline holds, its budget does not: the cost is what is compared.
    clouds
        Names of those that can be used from here.
    plan_graph
        Plans a frozen graph.
    now
        Unix time.
    """
    return tuple(_plan_one(problem, cloud, plan_graph, now) for cloud in clouds)


def _plan_one(problem: RunProblem, cloud: str, plan_graph: PlanGraph, now: float) -> SingleCloud:
    from jupyter_sky import clouds as known
    from jupyter_sky.decisions.optimizer.constraints import Only

    settings = dict(problem.settings)
    alone = Only(cloud=[cloud, *known.ON_PREMISES])
    settings["constraints"] = [*settings.get("constraints", ()), alone]
    if problem.deadline_at is not None:
        settings["deadline"] = max((problem.deadline_at - now) / 3600, 0.0)
    try:
        plan = plan_graph(problem.graph, problem.minimize, **settings)
    except SkyError:
        return SingleCloud(cloud)
    return SingleCloud(cloud, plan.usd, plan.hours)


@dataclass(frozen=True, slots=True)
class Saving:
    """Saving of the plan of a run against one cloud.

    Attributes
    ----------
    headline
        Part of a sentence; empty where nothing is saved.
    text
        Sentence with each single cloud; empty where there are no two clouds to compare.
    """

    headline: str = ""
    text: str = ""


def describe_saving(
    plan: Plan, minimize: Any, singles: Sequence[Mapping[str, Any]] | None
) -> Saving:
    """Return what a plan saves against the best single cloud, as words.

    Parameters
    ----------
    plan
        With which the run began.
    minimize
        What the plan makes small; the time is compared where it is ``time``, else the cost.
    singles
        Values of `SingleCloud.to_json`; None where they are not known.
    """
    found = [SingleCloud(**each) for each in singles or ()]
    possible = [one for one in found if one.usd is not None and one.hours is not None]
    if len(found) < 2 or not any((one.usd or 0.0) > 0 for one in possible):
        if len(found) < 2 or possible:
            return Saving()
        return Saving(_("no single cloud could run it"), _("no single cloud could run it"))
    is_time = minimize in ("time", "time_then_cost")
    best = min(possible, key=lambda one: (one.hours if is_time else one.usd) or 0.0)
    theirs, mine = (best.hours, plan.hours) if is_time else (best.usd, plan.usd)
    assert theirs is not None
    others = ", ".join(_describe(one) for one in found)
    text = _("on one cloud alone: {clouds}").format(clouds=others)
    gained = theirs - mine
    if not theirs or gained < _LEAST_SHARE * theirs:
        words = _("placement saves nothing against {cloud} alone").format(cloud=best.cloud)
        return Saving("", f"{words}; {text}")
    amount = format_duration(gained * 3600) if is_time else f"${gained:.2f}"
    words = _("placement saves {amount} ({share:.0%}) against {cloud} alone").format(
        amount=amount, share=gained / theirs, cloud=best.cloud
    )
    return Saving(words, f"{words}; {text}")


def _describe(one: SingleCloud) -> str:
    if one.usd is None or one.hours is None:
        return _("{cloud} not possible").format(cloud=one.cloud)
    return f"{one.cloud} ${one.usd:.2f}, {format_duration(one.hours * 3600)}"


def note_single_clouds(journal: RunJournal, name: str) -> None:
    """Store the plans of a run on each single cloud, where several can be used from here."""
    from jupyter_sky.base.requests.resources import Resources
    from jupyter_sky.workflows.pipelines.run.placing import plan_graph, usable_providers
    from jupyter_sky.workflows.pipelines.run.replanning import RunProblem

    with suppress(OSError, SkyError):  # the run does without
        clouds = usable_providers(Resources())
        if len(clouds) < 2 or journal.noted(name, _SETTING) is not None:
            return
        recorded = journal.read(name)
        problem = RunProblem.from_text(recorded.settings["problem"])
        found = plan_single_clouds(problem, clouds, plan_graph, recorded.made)
        journal.note(name, _SETTING, [one.to_json() for one in found])


def read_saving(journal: RunJournal, name: str, plan: Plan) -> Saving:
    """Return what the plan of a run saves, as far as its single clouds are known."""
    from jupyter_sky.workflows.pipelines.run.replanning import RunProblem

    if not (singles := journal.noted(name, _SETTING)):
        return Saving()
    problem = RunProblem.from_text(journal.noted(name, "problem"))
    return describe_saving(plan, problem.minimize, singles)
