"""Verbs for offers, plans, and the knowledge of where launches succeed."""

from __future__ import annotations

from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.requests.geography import parse_clouds
from jupyter_sky.base.requests.quantities import parse_count, parse_usd
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.magics.arguments import RESOURCES, option, word
from jupyter_sky.interfaces.magics.declaration import NOTEBOOK, verb
from jupyter_sky.interfaces.magics.search_cells import TRIALS, space_labels

_SHOWN = 20
_GOALS = ("cost", "time", "time_then_cost", "carbon")


def _parse_number(text: str, flag: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SkyUsageError(
            _("{flag} {text}: not a number").format(flag=flag, text=text),
            hint=_("such as {flag} 5000").format(flag=flag),
        ) from None


@verb(
    "offers",
    "offers A100:8 --spot --region eu",
    word("[NAME]", "Accelerators such as A100:8, or an instance type.", "gpu"),
    *RESOURCES,
    option(
        "--limit",
        "N",
        f"Lines to show; {_SHOWN} by default.",
        "--limit 50",
        parse=parse_count,
    ),
    option("--flagged", "", "Also spot offers that cost more than on demand."),
)
def offers(name: str | None, limit: int | None, flagged: bool, **labels: Any) -> Any:
    """List what the clouds sell, the cheapest first."""
    from jupyter_sky.interfaces.api import planning

    return planning.offers(name, limit=limit or _SHOWN, flagged=flagged, **labels)


@verb(
    "plan",
    "plan --gpus A100:8 --minimize cost --deadline 3h",
    word(
        "[DAG]",
        "Variable of a notebook with a Dag or a Task; else options of a request.",
        "local-name",
    ),
    *RESOURCES,
    option("--minimize", "GOAL", f"{', '.join(_GOALS)}.", "--minimize cost", " ".join(_GOALS)),
    option("--deadline", "TIME", "Longest time that it may take.", "--deadline 3h"),
    option("--budget", "USD", "Most USD that it may cost.", "--budget 20"),
    option("--carbon-cap", "G", "Most grams of CO2.", "--carbon-cap 5000", parse=_parse_number),
    option("--solver", "NAME", "auto, glpk or highs.", "--solver highs", "auto glpk highs"),
)
def plan(dag: str | None, **settings: Any) -> Any:
    """Show where tasks would run and what they would cost; nothing is launched."""
    from jupyter_sky.interfaces.api import planning

    labels = {each.dest: settings.pop(each.dest) for each in RESOURCES if each.dest in settings}
    if dag and labels:
        raise SkyUsageError(
            _("%sky plan: {dag} and {labels} at once").format(dag=dag, labels=" ".join(labels)),
            hint=_("labels belong to the tasks of a Dag: set_resources(...)"),
        )
    if not (dag or labels):
        raise SkyUsageError(
            _("%sky plan: what is to be planned?"),
            hint=_("a request: %sky plan --gpus A100:8; in a notebook also a Dag, by its name"),
        )
    given = {name: value for name, value in settings.items() if value is not None}
    return planning.plan(_find_variable(dag) if dag else None, **given, **labels)


@verb(
    "search",
    "search train --cpus 4+ --cloud aws,gcp --trials 12",
    word("NAME", "Variable with a function without arguments, a Task or a Dag.", "local-name"),
    *RESOURCES,
    option("--minimize", "GOAL", "cost or time.", "--minimize time", "cost time"),
    option(
        "--trials", "N", f"Machines to try; {TRIALS} by default.", "--trials 20", "", parse_count
    ),
    option("--budget", "USD", "Most USD for all trials together.", "--budget 12", "", parse_usd),
    option("--deadline", "TIME", "Time after which no trial goes on.", "--deadline 2h"),
    option("--yes", "", "Repeat what it changes outside its machines."),
    only=NOTEBOOK,
)
def search(
    name: str,
    minimize: str | None,
    trials: int | None,
    budget: float | None,
    deadline: str | None,
    yes: bool,
    **labels: Any,
) -> Any:
    """Try a function or graph on machines, and show on which it costs least."""
    from IPython.core.getipython import get_ipython

    from jupyter_sky.execution.sessions import session as sessions
    from jupyter_sky.interfaces.widgets.search_view import LiveView
    from jupyter_sky.workflows.trials.live_search import search_live

    if minimize not in (None, "cost", "time"):
        raise SkyUsageError(
            _("--minimize {goal}: not understood").format(goal=minimize),
            hint=_("--minimize cost, or time"),
        )
    namespace = sessions.current().namespace
    if name not in namespace:
        known = [key for key, value in namespace.items() if callable(value)]
        raise SkyUsageError(
            _("%sky search {name}: there is no variable of that name").format(name=name),
            hint=suggest(name, known),
        )
    asked = space_labels(CellOptions(resources=Resources.parse(**labels)))
    goal = "time" if minimize == "time" else "cost"
    limits: dict[str, Any] = {"usd": budget, "deadline": deadline, "yes": yes}
    view = LiveView(get_ipython())
    found = search_live(namespace[name], asked, trials or TRIALS, goal, watch=view, **limits)
    view(found, trials=False)
    return found


def _find_variable(name: str) -> Any:
    """Return a graph or a task of the notebook by the name of its variable."""
    from jupyter_sky.base.requests.dag.dag import Dag, Task
    from jupyter_sky.base.requests.resources import Resources
    from jupyter_sky.execution.sessions import session as sessions

    namespace = sessions.current().namespace
    kinds = (Dag, Task, Resources)
    if isinstance(namespace.get(name), kinds):
        return namespace[name]
    known = [key for key, value in namespace.items() if isinstance(value, kinds)]
    if not namespace:
        hint = _("a shell has no variables; for a notebook: %sky pipeline plan FILE")
    else:
        hint = suggest(name, known) if known else _("make one: with sky.Dag() as pipeline:")
    raise SkyUsageError(
        _("%sky plan {name}: there is no Dag of that name here").format(name=name), hint=hint
    )


@verb(
    "tracker",
    "tracker --blocked",
    option("--blocked", "", "Only places that are not asked for a while."),
    option("--launches", "", "Only probabilities of a launch."),
    option("--lifetimes", "", "Only lifetimes of machines."),
    option("--prices", "", "Only current spot prices."),
    option("--cloud", "CLOUDS", "Only these clouds.", "--cloud aws,gcp", "cloud", parse_clouds),
)
def show_tracker(cloud: tuple[str, ...] | None, **parts: bool) -> Any:
    """Show blocked places, probabilities of a launch, lifetimes, spot prices."""
    import time

    from jupyter_sky.interfaces.widgets.tracker import tracker_tables
    from jupyter_sky.knowledge import tracker

    named = [part for part, is_named in parts.items() if is_named]
    return tracker_tables(tracker.current(), time.time(), named, cloud or ())


@verb(
    "tracker clear",
    "tracker clear aws us-east-1",
    word("[PLACE ...]", "Words of places; all unless given.", "cloud region"),
)
def clear_blocks(places: list[str]) -> None:
    """Ask blocked places again."""
    from jupyter_sky.knowledge import tracker

    cleared = tracker.clear(*places)
    scopes = ", ".join(str(block.scope) for block in cleared)
    print(
        _("can be asked again: {scopes}").format(scopes=scopes)
        if cleared
        else _("no place is blocked")
    )


@verb(
    "tracker failures",
    "tracker failures aws",
    word("[CLOUD]", "Cloud; all unless given.", "cloud"),
)
def show_failures(cloud: str | None) -> Any:
    """Show refused launches and lost machines, in the clouds' own words."""
    from jupyter_sky.interfaces.api import failures

    return failures.failures(cloud)


@verb(
    "measurements",
    "measurements train",
    word("[APPLICATION]", "Name of runs; all unless given.", "run"),
)
def show_measurements(application: str | None) -> Any:
    """Show time, price, failures and waiting of own runs, by application and machine."""
    from jupyter_sky.interfaces.forms import measurements

    return measurements.measurements(application)
