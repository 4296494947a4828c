"""The verbs of ``%sky``, which are also those of ``jupyter sky``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..errors import SkyUsageError, suggest


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: what it does, how it is written, and whether it makes sense outside a notebook."""

    run: Callable[[list[str]], Any]
    usage: str
    help: str
    example: str
    anywhere: bool = True


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


def _one(names: Sequence[str], verb: str) -> str | None:
    if len(names) > 1:
        raise SkyUsageError(f"%sky {verb}: one name at most, not {' '.join(names)}")
    return names[0] if names else None


def _status(words: list[str]) -> Any:
    from .. import api

    return api.status(_one(words, "status"))


def _up(words: list[str]) -> Any:
    import shlex

    from .. import api
    from ..config import Sky
    from .options import parse_cell_line

    options = parse_cell_line(shlex.join(words), Sky.load().aliases)
    cluster = api.up(options.cluster, idle=options.idle, **options.resources.labels())
    return api.status(cluster.row.name)


def _down(words: list[str]) -> Any:
    from .. import api

    names, _ = _flags(words, {"--yes": False}, "down")
    ended = api.down(_one(names, "down") or "all")
    print(f"ended: {', '.join(ended)}" if ended else "no cluster is up")


def _cost(words: list[str]) -> Any:
    from .. import api

    names, given = _flags(words, {"--since": True, "--by": True}, "cost")
    known = ("notebook", "cell", "cluster", "cloud", "day")
    by = given.get("--by") or _one(names, "cost") or "cell"
    if by not in known:
        raise SkyUsageError(f"%sky cost --by {by}: not known", hint=suggest(by, known))
    return api.cost(by, given.get("--since"))


def _logs(words: list[str]) -> Any:
    from .. import api

    names, given = _flags(words, {"-f": False, "--provision": False}, "logs")
    if "--provision" in given:
        print(api.provision_log(_one(names, "logs")), end="")
        return None
    if given:
        _follow(_one(names, "logs"))
        return None
    print(api.logs(_one(names, "logs")), end="")
    return None


def _ssh(words: list[str]) -> Any:
    from .. import api

    print(api.ssh_command(_one(words, "ssh")))


def _follow(which: str | None) -> None:
    """Print a run's output as it comes, until it ends or the user has seen enough."""
    import time

    from ..executor import session as sessions

    session = sessions.current()
    run = session.find_run(which)
    shown = 0
    while True:
        text = session.log_text(run.run_id)
        print(text[shown:], end="", flush=True)
        shown = len(text)
        again = session.store.run(run.run_id)
        if again is None or again.status != "running":
            return
        time.sleep(0.5)


def _vars(words: list[str]) -> Any:
    from .. import api

    return api.vars(_one(words, "vars"))


def _names(words: list[str], verb: str) -> tuple[list[str], str | None]:
    names, given = _flags(words, {"-c": True, "--cluster": True, "--yes": False}, verb)
    split = [name for word in names for name in word.split(",") if name]
    if not split:
        raise SkyUsageError(f"%sky {verb}: which variables?", hint=f"%sky {verb} a b")
    return split, given.get("-c") or given.get("--cluster")


def _put(words: list[str]) -> Any:
    from .. import api

    names, cluster = _names(words, "put")
    api.put(*names, cluster=cluster)


def _get(words: list[str]) -> Any:
    from .. import api

    names, cluster = _names(words, "get")
    api.get(*names, cluster=cluster)


def _wait(words: list[str]) -> Any:
    from .. import api

    return api.wait(_one(words, "wait"))


def _cancel(words: list[str]) -> Any:
    from .. import api

    which = _one(words, "cancel")
    if which is None:
        raise SkyUsageError("%sky cancel: which cell?", hint="its name or its number")
    api.cancel(which)


def _alias(words: list[str]) -> Any:
    import shlex

    from .. import api

    return api.alias(words[0], shlex.join(words[1:])) if words else api.alias()


def _config(words: list[str]) -> Any:
    from .. import api

    text = _one(words, "config")
    if text is None:
        return api.config()
    key, equals, value = text.partition("=")
    return api.config(key.strip(), value.strip() if equals else None)


def _check(words: list[str]) -> Any:
    from .. import api

    return api.check()


def _help(words: list[str]) -> Any:
    which = _one(words, "help")
    if which is not None:
        verb = find(which)
        print(f"%sky {verb.usage}\n    {verb.help}\n    example: %sky {verb.example}")
        return None
    from .options import help_text

    lines = [f"%sky {verb.usage:34} {verb.help}" for verb in VERBS.values()]
    print("\n".join(["Verbs:", *lines, "", help_text()]))
    return None


VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        "status": Verb(_status, "status [CLUSTER]", "clusters that are up", "status"),
        "up": Verb(_up, "up [OPTIONS]", "bring a cluster up", "up -c train --cpus 2"),
        "down": Verb(_down, "down [CLUSTER|all]", "end a cluster, or all", "down train"),
        "cost": Verb(_cost, "cost [--by WHAT] [--since WHEN]", "what was spent", "cost --by day"),
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
        "help": Verb(_help, "help [VERB]", "this help", "help logs"),
    }
)


def find(name: str) -> Verb:
    """Return a verb by name; SkyUsageError suggests the nearest."""
    if name not in VERBS:
        raise SkyUsageError(
            f"%sky {name}: there is no such verb",
            hint=f"{suggest(name, VERBS)} (to run code on a cluster, put %%sky above a cell)",
        )
    return VERBS[name]


def call(words: Sequence[str]) -> Any:
    """Carry out a verb; without one, show the status."""
    if not words:
        return _status([])
    return find(words[0]).run(list(words[1:]))
