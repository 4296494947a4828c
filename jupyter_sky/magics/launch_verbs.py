"""Verbs of the shell that run commands, scripts and task files, and look after their runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import SkyUsageError
from ..translation import _
from .arguments import option, rest, word
from .declaration import SHELL, verb
from .pipeline_verbs import parse_parameters

_COMMAND = rest(
    "[OPTIONS] FILE|-- COMMAND", "Options as after %%sky, and a script, a task file or a command."
)
_DETACH = "--detach"
_VALUES = ("-p", "--parameters")


@verb("launch", "launch --cpus 4 -c train train.py -- --epochs 3", _COMMAND, only=SHELL)
def launch(options: Sequence[str]) -> None:
    """Run a script, a task file or a command on a cluster, launched if need be; print its output.

    The exit code is that of the command. The cluster stays up until it is idle.
    """
    _launch("launch", options, options)


@verb(
    "exec",
    "exec train -- nvidia-smi",
    word("CLUSTER", "Cluster that is up.", "cluster"),
    _COMMAND,
    only=SHELL,
)
def run_on_cluster(cluster: str, options: Sequence[str]) -> None:
    """Run a script, a task file or a command on a cluster that is up."""
    from ..executor import session as sessions

    if cluster is None or cluster.startswith("-"):
        raise SkyUsageError(
            _("jupyter sky exec: CLUSTER is missing"),
            hint=_("such as jupyter sky exec train -- nvidia-smi"),
        )
    sessions.current().clusters.find_row(cluster)
    _launch("exec", ["-c", cluster, *options], [cluster, *options])


def _launch(name: str, words: Sequence[str], written: Sequence[str]) -> None:
    from dataclasses import replace

    from ..api import launches
    from ..config.settings import Sky

    detach, values, own = _take_own_options(words)
    line = launches.read_command_line(own, f"jupyter sky {name}", Sky.load().aliases)
    command = launches.read_command(line, values)
    if command.options.dry_run:
        from .dryrun import dry_run

        print(dry_run(command.code, replace(command.options, outputs=())))
        return
    if detach:
        run = command.options.name or launches.free_name(command.title)
        again = [each for each in written if each != _DETACH]
        split = again.index("--") if "--" in again else len(again)
        named = [] if command.options.name else ["--name", run]
        position = 1 if name == "exec" else 0
        again = [*again[:position], *named, *again[position:split], *again[split:]]
        launches.start_detached([name, *again], run)
        print(_("{run} goes on by itself: jupyter sky logs {run} -f").format(run=run))
        return
    if code := launches.run_command(command):
        raise SystemExit(code)


def _take_own_options(words: Sequence[str]) -> tuple[bool, dict[str, Any], list[str]]:
    """Return what only these verbs understand, and the other words."""
    split = list(words).index("--") if "--" in words else len(words)
    before, after = list(words[:split]), list(words[split:])
    detach = _DETACH in before
    before = [each for each in before if each != _DETACH]
    values: dict[str, Any] = {}
    for flag in _VALUES:
        while flag in before:
            position = before.index(flag)
            if position + 1 >= len(before):
                raise SkyUsageError(
                    _("{flag} needs a value").format(flag=flag), hint=_("such as -p EPOCHS=3")
                )
            values |= parse_parameters(before[position + 1], flag)
            del before[position : position + 2]
    return detach, values, before + after


@verb(
    "queue",
    "queue train",
    word("[CLUSTER]", "Cluster; all unless given.", "cluster"),
    option("--all", "", "Also those that have ended."),
    only=SHELL,
)
def queue(cluster: str | None, all: bool) -> Any:
    """Show the runs on clusters that go on or wait, and those that have ended within a day."""
    from ..api.run_queue import queue as list_queue

    return list_queue(cluster, all)
