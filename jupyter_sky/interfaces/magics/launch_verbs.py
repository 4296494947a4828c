"""Verbs of the shell that run commands, scripts and task files, and look after their runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.quantities import parse_usd
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.magics.arguments import option, rest, word
from jupyter_sky.interfaces.magics.declaration import SHELL, verb
from jupyter_sky.interfaces.magics.pipeline_verbs import parse_parameters

_COMMAND = rest(
    "[OPTIONS] FILE|-- COMMAND", "Options as after %%sky, and a script, a task file or a command."
)
_DETACH = "--detach"
_VALUES = ("-p", "--parameters")
_CANDIDATES, _BUDGET = "--candidates", "--budget"


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
    from jupyter_sky.execution.sessions import session as sessions

    if cluster is None or cluster.startswith("-"):
        raise SkyUsageError(
            _("jupyter sky exec: CLUSTER is missing"),
            hint=_("such as jupyter sky exec train -- nvidia-smi"),
        )
    sessions.current().clusters.find_row(cluster)
    _launch("exec", ["-c", cluster, *options], [cluster, *options])


def _launch(name: str, words: Sequence[str], written: Sequence[str]) -> None:
    from dataclasses import replace

    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.interfaces.api import launches

    detach, values, own = _take_own_options(words)
    line = launches.read_command_line(own, f"jupyter sky {name}", Sky.load().aliases)
    command = launches.read_command(line, values)
    if command.options.dry_run:
        from jupyter_sky.interfaces.magics.dryrun import dry_run

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
    before, after = _split_command(words)
    detach = _DETACH in before
    before = [each for each in before if each != _DETACH]
    values: dict[str, Any] = {}
    for flag in _VALUES:
        for text in _take_values(before, flag, "-p EPOCHS=3"):
            values |= parse_parameters(text, flag)
    return detach, values, before + after


def _split_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words before ``--``, and the others with it."""
    split = list(words).index("--") if "--" in words else len(words)
    return list(words[:split]), list(words[split:])


def _take_values(words: list[str], flag: str, example: str) -> list[str]:
    """Remove an option of these verbs from words; return its values."""
    values = []
    while True:
        place = next((at for at, each in enumerate(words) if each.partition("=")[0] == flag), None)
        if place is None:
            return values
        __, equals, value = words.pop(place).partition("=")
        if not equals:
            if place >= len(words):
                raise SkyUsageError(
                    _("{flag} needs a value").format(flag=flag),
                    hint=_("such as {example}").format(example=example),
                )
            value = words.pop(place)
        values.append(value)


@verb(
    "bench",
    "bench --candidates T4,L4,m5.large --budget 2 train.py",
    rest(
        "--candidates LIST [OPTIONS] FILE|-- COMMAND",
        "Accelerators, instance types or options, with commas; --budget USD of all of them; "
        "options as after %%sky, and a script, a task file or a command.",
    ),
    only=SHELL,
)
def bench(options: Sequence[str]) -> None:
    """Run one command on several kinds of machines side by side; compare time and cost.

    What it may cost and change elsewhere is shown, and asked for, before anything is launched.
    """
    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.interfaces.api import bench as benchmark
    from jupyter_sky.interfaces.api import launches
    from jupyter_sky.interfaces.api.confirmation import confirm
    from jupyter_sky.knowledge.ledger.ledger import format_usd

    before, after = _split_command(options)
    lists = _take_values(before, _CANDIDATES, benchmark.EXAMPLE)
    budgets = _take_values(before, _BUDGET, "--budget 2")
    budget = parse_usd(budgets[-1], _BUDGET) if budgets else None
    detach, values, own = _take_own_options([*before, *after])
    if detach:
        raise SkyUsageError(
            _("bench --detach: its table is shown at its end"),
            hint=_("nohup jupyter sky bench --yes ... & goes on without a terminal"),
        )
    aliases = Sky.load().aliases
    line = launches.read_command_line(own, "jupyter sky bench", aliases)
    command = launches.read_command(line, values)
    texts = [each for text in lists for each in benchmark.split_candidates(text)]
    planned = benchmark.plan_bench(command, texts, budget, aliases)
    print(planned.table(), flush=True)
    if command.options.dry_run:
        print(_("nothing was launched"))
        return
    benchmark.check_limits(planned)
    if (planned.usd or planned.effects) and not command.options.yes:
        cost = _("bench: it costs up to {usd}").format(usd=format_usd(planned.usd))
        confirm(
            _("Launch {count} candidates? [y/N] ").format(count=len(planned.launchable)),
            SkyUsageError("; ".join([cost, *planned.effects]), hint=_("--yes agrees to it")),
            _("nothing was launched"),
        )
    results = benchmark.run_bench(planned)
    print(benchmark.compare(planned, results))
    if not any(each.run.ok for each in results):
        raise SystemExit(1)


@verb(
    "queue",
    "queue train",
    word("[CLUSTER]", "Cluster; all unless given.", "cluster"),
    option("--all", "", "Also those that have ended."),
    only=SHELL,
)
def queue(cluster: str | None, all: bool) -> Any:
    """Show the runs on clusters that go on or wait, and those that have ended within a day."""
    from jupyter_sky.interfaces.forms.run_queue import queue as list_queue

    return list_queue(cluster, all)
