"""The verbs of ``%sky``, which are also those of ``jupyter sky``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..engines.controller.activity import notebook_name
from ..errors import SkyUsageError, suggest


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: what it does, how it is written, and whether it makes sense outside a notebook."""

    run: Callable[[list[str]], Any]
    usage: str
    help: str
    example: str
    works_outside_notebook: bool = True
    details: Callable[[], str] | None = None


def _flags(words: Sequence[str], known: Mapping[str, bool], verb: str) -> tuple[list[str], dict]:
    """Split words into names and options; an option that is True in `known` takes a value."""
    names: list[str] = []
    given: dict[str, Any] = {}
    queue = list(words)
    while queue:
        word = queue.pop(0)
        flag, equals, value = word.partition("=")
        if not word.startswith("-"):
            names.append(word)
        elif flag not in known:
            raise SkyUsageError(f"%sky {verb}: unknown option {flag}", hint=suggest(flag, known))
        elif not known[flag]:
            given[flag] = True
        elif equals or queue:
            given[flag] = value if equals else queue.pop(0)
        else:
            raise SkyUsageError(f"%sky {verb}: {flag} needs a value")
    return names, given


def _single_name(names: Sequence[str], verb: str) -> str | None:
    if len(names) > 1:
        raise SkyUsageError(f"%sky {verb}: one name at most, not {' '.join(names)}")
    return names[0] if names else None


def _status(words: list[str]) -> Any:
    from ..api import clusters

    return clusters.status(_single_name(words, "status"))


def _up(words: list[str]) -> Any:
    import shlex

    from ..api import clusters
    from ..cell_options.parsing import parse_cell_line
    from ..config.settings import Sky

    options = parse_cell_line(shlex.join(words), Sky.load().aliases)
    cluster = clusters.up(options.cluster, idle=options.idle, **options.resources.labels())
    return clusters.status(cluster.row.name)


def _down(words: list[str]) -> Any:
    from .confirmation import end_with_confirmation

    names, given = _flags(words, {"--yes": False, "--all": False}, "down")
    name = _single_name(names, "down")
    everything = "--all" in given or name == "all"
    if "--all" in given and name not in (None, "all"):
        raise SkyUsageError(
            f"%sky down {name} --all: one or all?", hint=f"%sky down {name}, or %sky down --all"
        )
    outcome = end_with_confirmation(
        None if everything else name, everything, "--yes" in given, "%sky down --all --yes"
    )
    for each, place in outcome.ended:
        print(f"ended: {each} ({place})")
    for each, why in outcome.spared:
        print(f"not ended: {each}: {why}" + ("" if everything else f"; %sky down {each} ends it"))
    if not (outcome.ended or outcome.spared or outcome.failed):
        print(_no_clusters_text(everything))
    outcome.raise_for_failures()


def _no_clusters_text(everything: bool) -> str:
    from ..executor import session as sessions

    others = [] if everything else sessions.current().store.live_clusters()
    if not others:
        return "no cluster is up"
    names = ", ".join(f"{row.name} ({notebook_name(row.notebook)})" for row in others)
    return f"no cluster of this notebook is up; of others: {names}. %sky down --all ends those, too"


def _extend(words: list[str]) -> Any:
    from ..api import clusters
    from ..resources import format_duration

    names, _ = _flags(words, {}, "extend")
    if len(names) not in (1, 2):
        raise SkyUsageError("%sky extend: for how long?", hint="%sky extend train 1h")
    left = clusters.extend(names[0] if len(names) == 2 else None, names[-1])
    which = names[0] if len(names) == 2 else "the cluster"
    print(f"{which} stays up for {format_duration(left)}, used or not")


def _reap(words: list[str]) -> Any:
    from ..api import clusters

    names, given = _flags(words, {"--here": False}, "reap")
    if names:
        raise SkyUsageError(f"%sky reap: {names[0]} is not understood", hint="%sky reap")
    return clusters.reap(everywhere="--here" not in given)


def _cost(words: list[str]) -> Any:
    from ..api import costs
    from ..ledger.report import parse_by

    names, given = _flags(words, {"--since": True, "--by": True, "--csv": True}, "cost")
    by = parse_by(given.get("--by") or _single_name(names, "cost") or "cell")
    cost = costs.cost(by, given.get("--since"))
    if "--csv" not in given:
        return cost
    cost.to_csv(given["--csv"])
    print(f"{len(cost)} lines are in {given['--csv']}")
    return None


def _logs(words: list[str]) -> Any:
    from ..api import cells, clusters

    names, given = _flags(words, {"-f": False, "--provision": False}, "logs")
    if "--provision" in given:
        print(clusters.provision_log(_single_name(names, "logs")), end="")
        return None
    if given:
        _follow(_single_name(names, "logs"))
        return None
    print(cells.logs(_single_name(names, "logs")), end="")
    return None


def _ssh(words: list[str]) -> Any:
    from ..api import clusters

    print(clusters.ssh_command(_single_name(words, "ssh")))


def _follow(which: str | None) -> None:
    """Print a run's output as it comes, until it ends or the user has seen enough."""
    import time

    from ..executor import session as sessions
    from ..widgets.logs import format_entries

    session = sessions.current()
    run_id, start = session.history.find_run(which).run_id, 0
    while True:
        run = session.store.run(run_id)  # before: what comes between the two is printed next time
        entries, start = session.history.read_journal(run_id, start)
        print("".join(line["text"] for line in format_entries(entries)), end="", flush=True)
        if entries:
            continue
        if run is None or run.ended is not None:
            return
        time.sleep(0.5)


def _vars(words: list[str]) -> Any:
    from ..api import variables

    return variables.vars(_single_name(words, "vars"))


def _names(words: list[str], verb: str) -> tuple[list[str], str | None]:
    names, given = _flags(words, {"-c": True, "--cluster": True, "--yes": False}, verb)
    split = [name for word in names for name in word.split(",") if name]
    if not split:
        raise SkyUsageError(f"%sky {verb}: which variables?", hint=f"%sky {verb} a b")
    return split, given.get("-c") or given.get("--cluster")


def _put(words: list[str]) -> Any:
    from ..api import variables

    names, cluster = _names(words, "put")
    variables.put(*names, cluster=cluster)


def _get(words: list[str]) -> Any:
    from ..api import variables

    names, cluster = _names(words, "get")
    variables.get(*names, cluster=cluster)


def _wait(words: list[str]) -> Any:
    from ..api import cells

    return cells.wait(_single_name(words, "wait"))


def _cancel(words: list[str]) -> Any:
    from ..api import cells

    which = _single_name(words, "cancel")
    if which is None:
        raise SkyUsageError("%sky cancel: which cell?", hint="its name or its number")
    cells.cancel(which)


def _alias(words: list[str]) -> Any:
    import shlex

    from ..api.settings import alias

    return alias(words[0], shlex.join(words[1:])) if words else alias()


def _config(words: list[str]) -> Any:
    from ..api.settings import config

    text = _single_name(words, "config")
    if text is None:
        return config()
    key, equals, value = text.partition("=")
    return config(key.strip(), value.strip() if equals else None)


def _check(words: list[str]) -> Any:
    from ..api import clusters

    return clusters.check()


def _tracker(words: list[str]) -> Any:
    import time

    from .. import tracker
    from ..resources import parse_clouds
    from ..widgets.tracker import PARTS, tracker_tables

    if words[:1] == ["clear"]:
        cleared = tracker.clear(*words[1:])
        places = ", ".join(str(block.scope) for block in cleared)
        print(f"can be asked again: {places}" if cleared else "no place is blocked")
        return None
    flags = {f"--{part}": False for part in PARTS} | {"--cloud": True}
    names, given = _flags(words, flags, "tracker")
    if names:
        raise SkyUsageError(
            f"%sky tracker {' '.join(names)}: not understood", hint=suggest(names[0], ["clear"])
        )
    parts = [part for part in PARTS if f"--{part}" in given]
    clouds = parse_clouds(given["--cloud"], "--cloud") if "--cloud" in given else ()
    return tracker_tables(tracker.current(), time.time(), parts, clouds)


def _offers(words: list[str]) -> Any:
    from ..api.planning import offers
    from ..cell_options.parsing import parse_request
    from ..resources import parse_count

    rest, limit, flagged = [], 20, "--flagged" in words
    queue = [word for word in words if word != "--flagged"]
    while queue:
        flag, equals, value = queue[0].partition("=")
        if flag != "--limit":
            rest.append(queue.pop(0))
            continue
        del queue[0]
        limit = parse_count(value if equals else queue.pop(0) if queue else "", "--limit")
    names, given = parse_request(rest, "offers")
    return offers(_single_name(names, "offers"), limit=limit, flagged=flagged, **given)


_PLAN = ("--minimize", "--deadline", "--budget", "--carbon-cap", "--solver")


def _plan(words: list[str]) -> Any:
    from ..api.planning import plan
    from ..cell_options.parsing import parse_request

    rest: list[str] = []
    settings: dict[str, Any] = {}
    queue = list(words)
    while queue:
        word = queue.pop(0)
        flag, equals, value = word.partition("=")
        if flag not in _PLAN:
            rest.append(word)
            continue
        if not equals and not queue:
            raise SkyUsageError(f"%sky plan: {flag} needs a value")
        settings[flag[2:].replace("-", "_")] = value if equals else queue.pop(0)
    names, labels = parse_request(rest, "plan", _PLAN)
    if "carbon_cap" in settings:
        settings["carbon_cap"] = _number(settings["carbon_cap"], "--carbon-cap")
    name = _single_name(names, "plan")
    if name and labels:
        raise SkyUsageError(
            f"%sky plan: {name} and {' '.join(labels)} at once",
            hint="labels belong to the tasks of a Dag: set_resources(...)",
        )
    return plan(_variable(name) if name else None, **settings, **labels)


def _number(text: str, flag: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SkyUsageError(f"{flag} {text}: not a number", hint=f"such as {flag} 5000") from None


def _variable(name: str) -> Any:
    """Return a graph or a task of the notebook by the name of its variable."""
    from ..dag.dag import Dag, Task
    from ..executor import session as sessions
    from ..resources import Resources

    namespace = sessions.current().namespace
    kinds = (Dag, Task, Resources)
    if isinstance(namespace.get(name), kinds):
        return namespace[name]
    known = [key for key, value in namespace.items() if isinstance(value, kinds)]
    raise SkyUsageError(
        f"%sky plan {name}: there is no Dag of that name here",
        hint=suggest(name, known) if known else "make one: with sky.Dag() as pipeline:",
    )


def _catalog(words: list[str]) -> Any:
    from ..catalog import commands

    return commands.call(words)


def _resource_options() -> str:
    from ..cell_options.schema import group_text

    return group_text("Resources")


def _catalog_commands() -> str:
    from ..catalog.commands import USAGE

    return USAGE


def _help(words: list[str]) -> Any:
    which = _single_name(words, "help")
    if which is not None:
        print(describe_verb(which, "%sky"))
        return None
    from ..cell_options.schema import help_text

    lines = [f"%sky {verb.usage:34} {verb.help}" for verb in VERBS.values()]
    print("\n".join(["Verbs:", *lines, "", help_text()]))
    return None


VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        "status": Verb(_status, "status [CLUSTER]", "clusters that are up", "status"),
        "up": Verb(_up, "up [OPTIONS]", "bring a cluster up", "up -c train --cpus 2"),
        "down": Verb(
            _down,
            "down [CLUSTER|--all] [--yes]",
            "end a cluster, those of this notebook, or all",
            "down train",
        ),
        "extend": Verb(
            _extend,
            "extend [CLUSTER] TIME",
            "keep a cluster that nobody uses for a while",
            "extend train 1h",
        ),
        "reap": Verb(
            _reap,
            "reap [--here]",
            "end machines that nobody needs; --here: only where we launched",
            "reap",
        ),
        "cost": Verb(
            _cost,
            "cost [--by WHAT] [--since WHEN] [--csv FILE]",
            "what was spent, is to come and was saved",
            "cost --by day --since 30d",
        ),
        "logs": Verb(_logs, "logs [CELL] [-f|--provision]", "all that a cell printed", "logs 7"),
        "ssh": Verb(_ssh, "ssh [CLUSTER]", "how to open a shell on its head node", "ssh train"),
        "vars": Verb(_vars, "vars [CLUSTER]", "variables on a cluster", "vars"),
        "put": Verb(_put, "put NAME ... [-c CLUSTER]", "send variables", "put x y", False),
        "get": Verb(_get, "get NAME ... [-c CLUSTER]", "bring variables here", "get model", False),
        "wait": Verb(_wait, "wait [CELL]", "wait for background cells", "wait train", False),
        "cancel": Verb(_cancel, "cancel CELL", "stop a background cell", "cancel train", False),
        "alias": Verb(_alias, "alias [NAME OPTIONS]", "name options", "alias big --cpus 8+", False),
        "config": Verb(_config, "config [KEY[=VALUE]]", "settings", "config idle=20m"),
        "check": Verb(_check, "check", "clouds and credentials", "check"),
        "tracker": Verb(
            _tracker,
            "tracker [--blocked] [--cloud NAMES] | tracker clear [PLACE]",
            "blocked places, chances of a launch, lifetimes, spot prices",
            "tracker --blocked",
        ),
        "offers": Verb(
            _offers,
            "offers [GPUS] [OPTIONS] [--limit N]",
            "what the clouds sell, the cheapest first",
            "offers A100:8 --spot --region eu",
            details=_resource_options,
        ),
        "plan": Verb(
            _plan,
            "plan DAG|OPTIONS [--minimize WHAT] [--deadline TIME] [--budget USD]",
            "where tasks would run, at what cost; nothing is launched",
            "plan pipeline --minimize cost --deadline 3h",
        ),
        "catalog": Verb(
            _catalog,
            "catalog [refresh [CLOUD ...]|check|build]",
            "prices: what is held, fetch anew, check your own",
            "catalog refresh aws",
            details=_catalog_commands,
        ),
        "help": Verb(_help, "help [VERB]", "this help", "help logs"),
    }
)


def find_verb(name: str) -> Verb:
    """Return a verb by name; SkyUsageError suggests the nearest."""
    if name not in VERBS:
        raise SkyUsageError(
            f"%sky {name}: there is no such verb",
            hint=f"{suggest(name, VERBS)} (to run code on a cluster, put %%sky above a cell)",
        )
    return VERBS[name]


def describe_verb(name: str, command: str) -> str:
    """How a verb is written after a command, what it does, and an example.

    Examples
    --------
    >>> print(describe_verb("check", "jupyter sky"))
    jupyter sky check
        clouds and credentials
        example: jupyter sky check
    """
    verb = find_verb(name)
    text = f"{command} {verb.usage}\n    {verb.help}\n    example: {command} {verb.example}"
    return f"{text}\n\n{verb.details()}" if verb.details else text


def call_verb(words: Sequence[str]) -> Any:
    """Carry out a verb; without one, show the status."""
    if not words:
        return _status([])
    verb, *rest = words
    if rest[-1:] in (["-h"], ["--help"]):
        return _help([verb])
    return find_verb(verb).run(rest)
