"""Commands, scripts and task files on clusters, as ``jupyter sky launch`` and ``exec`` run them."""

from __future__ import annotations

import os
import re
import shlex
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from keyword import iskeyword
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError, SkyUsageError, suggest
from jupyter_sky.base.requests.cell_options.parsing import (
    is_option,
    parse_cell_line,
    written_options,
)
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.execution.sessions import session as _sessions

if TYPE_CHECKING:
    from jupyter_sky.base.requests.dag.dag import Task

SCRIPTS = (".py", ".sh")
TASK_FILES = (".yaml", ".yml")
_OPTIONS = (
    "cluster on engine max_cost timeout idle pip env sync data mount out output name "
    "retry_until_up burst recover checkpoint dry_run yes untrusted"
).split()
"""Options of a cell that a command may have, beside those of its resources."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Words of ``launch`` and ``exec``, read.

    Attributes
    ----------
    options
        As those of a cell.
    file
        Script or task file; empty for a command.
    words
        Command after ``--``, or arguments of the script.
    written
        The words of the options, without the file.
    """

    options: CellOptions
    file: str = ""
    words: tuple[str, ...] = ()
    written: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """Command with what its machine has before it, as a cell.

    Attributes
    ----------
    code, options, values
        As `jupyter_sky.workflows.pipelines.model.task_body.TaskCell` has them.
    title
        Command or file, for lists of runs.
    """

    code: str
    options: CellOptions
    title: str
    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


# -- words -----------------------------------------------------------------------------------


def read_command_line(
    words: Sequence[str], verb: str, aliases: Mapping[str, str] = MappingProxyType({})
) -> CommandLine:
    """Read the words after ``launch`` or ``exec CLUSTER``.

    Parameters
    ----------
    words
        Options of a cell and a file in any order; or options, ``--`` and a command.
    verb
        For messages.
    aliases
        Options that a word stands for.

    Raises
    ------
    SkyUsageError
        There is nothing to run, more than one file, or an option that only cells have.

    Examples
    --------
    >>> line = read_command_line(["--cpus", "2", "train.py", "--", "--lr", "3"], "launch")
    >>> line.file, line.words, line.written
    ('train.py', ('--lr', '3'), ('--cpus', '2'))
    """
    split = list(words).index("--") if "--" in words else len(words)
    before, after = list(words[:split]), tuple(words[split + 1 :])
    alias = before[:1] if before and before[0] in aliases else []
    written, files = _take_files(before[len(alias) :])
    if len(files) > 1:
        hint = _("arguments stand after --: {verb} {file} -- {rest}").format(
            verb=verb, file=files[0], rest=" ".join(files[1:])
        )
        raise SkyUsageError(_("{verb}: one file at a time").format(verb=verb), hint=hint)
    if not files and not after:
        raise SkyUsageError(
            _("{verb}: there is nothing to run").format(verb=verb),
            hint=_("such as {verb} --cpus 4 -- python train.py, or {verb} train.yaml").format(
                verb=verb
            ),
        )
    line = [*alias, *written]
    _check_options(written, verb)
    options = parse_cell_line(shlex.join(line), aliases)
    if options.outputs:
        raise SkyUsageError(
            _("{verb} -o {name}: a command has no variables").format(
                verb=verb, name=options.outputs[0].name
            ),
            hint=_("a file comes back with -o file:out/model.pt"),
        )
    return CommandLine(options, files[0] if files else "", after, tuple(line))


def _take_files(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words that are options and their values, and the others."""
    options, files = list(words), []
    while True:
        end = 0
        try:
            for use in written_options(options):
                end = use.last
        except SkyUsageError:
            if end >= len(options) or is_option(options[end]):
                raise
            files.append(options.pop(end))
            continue
        return options, files


def _check_options(words: Sequence[str], verb: str) -> None:
    for use in written_options(words):
        if use.option.group == "Resources" or use.option.dest in _OPTIONS:
            continue
        hint = _("{verb} takes the resources, limits and data of a cell").format(verb=verb)
        if use.option.dest == "bg":
            hint = _("{verb} --detach returns while it goes on").format(verb=verb)
        text = _("{verb}: {flag} is for cells").format(verb=verb, flag=use.flag)
        raise SkyUsageError(text, hint=hint)


# -- commands --------------------------------------------------------------------------------


def read_command(line: CommandLine, values: Mapping[str, Any] = MappingProxyType({})) -> Command:
    """Return a command line as a cell.

    Parameters
    ----------
    line
        The command line.
    values
        Values of the ``envs`` of a task file.

    Raises
    ------
    SkyUsageError
        The file does not exist, is of another kind, or is invalid; names the nearest.
    """
    from jupyter_sky.workflows.pipelines.model.task_body import TaskBody, make_graph

    task = _read_task(line, values)
    dag = task.dag
    assert dag is not None
    [(name, run)] = make_graph(dag).tasks.items()
    cell = TaskBody.from_json(run.body).as_cell(name, "_sky_result", lambda *__: None)
    title = line.file or _as_shell(line.words)
    if line.file and line.words:
        title += f" {shlex.join(line.words)}"
    [need] = task.needs
    options = _merge(cell.options, line.options, need, task.num_nodes)
    code = f"{title!r}\n{cell.code}"  # lists of runs show the first line that tells something
    sync = tuple(dict.fromkeys((*options.sync, *_own_files(line))))
    return Command(code, replace(options, outputs=(), sync=sync), title, cell.values)


def _own_files(line: CommandLine) -> tuple[str, ...]:
    """Return the scripts that a command names and that are here, with the modules beside them."""
    from jupyter_sky.workflows.pipelines.files.script_files import script_files

    words = [line.file] if line.file else [word for text in line.words for word in text.split()]
    scripts = [
        word
        for word in words
        if word.endswith(SCRIPTS) and Path(word).is_file() and not Path(word).is_absolute()
    ]
    inside = [script for script in scripts if ".." not in Path(script).parts]
    return tuple(dict.fromkeys(file for script in inside for file in script_files(script)))


def _read_task(line: CommandLine, values: Mapping[str, Any]) -> Task:
    """Return the task of a command line, in a graph of its own."""
    from jupyter_sky.base.requests.dag.dag import Dag, Task

    if line.file.endswith(TASK_FILES):
        return _read_task_file(line, values)
    if values:
        raise SkyUsageError(
            _("-p gives values to the envs of a task file"),
            hint=_("--env NAME sends a variable of this environment"),
        )
    if line.file:
        _check_script(line.file)
    with Dag("launch"):
        if line.file:
            return Task(_stem(line.file), run=line.file, arg=shlex.join(line.words))
        return Task("command", run=_as_shell(line.words))


def _as_shell(words: Sequence[str]) -> str:
    """Return a command for a shell; a single word may be a whole line of one.

    Examples
    --------
    >>> _as_shell(["echo", "a b"]), _as_shell(["cd src && make"])
    ("echo 'a b'", 'cd src && make')
    """
    return words[0] if len(words) == 1 else shlex.join(words)


def _read_task_file(line: CommandLine, values: Mapping[str, Any]) -> Task:
    from jupyter_sky.interfaces.api.pipelines import read_dag

    if not Path(line.file).is_file():
        raise _no_file(line.file)
    if line.words:
        raise SkyUsageError(
            _("{file}: a task file has no arguments").format(file=line.file),
            hint=_("give values to its envs: -p NAME=VALUE"),
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dag = read_dag(line.file, **values)
    for text in dict.fromkeys(str(each.message) for each in caught):
        print(text)
    graph = _("jupyter sky pipeline run {file}").format(file=line.file)
    if len(dag.tasks) > 1:
        text = _("{file} has {count} tasks: it is a graph").format(
            file=line.file, count=len(dag.tasks)
        )
        raise SkyUsageError(text, hint=graph)
    [task] = dag.tasks
    if len(task.needs) > 1:
        text = _("{file} names {count} alternatives of resources").format(
            file=line.file, count=len(task.needs)
        )
        raise SkyUsageError(text, hint=_("{command} chooses among them").format(command=graph))
    if callable(task.run):
        text = _("{file} runs a function of Python").format(file=line.file)
        raise SkyUsageError(text, hint=graph)
    return task


def _check_script(file: str) -> None:
    path = Path(file)
    if path.suffix == ".ipynb":
        raise SkyUsageError(
            _("{file} is a notebook").format(file=file),
            hint=_("jupyter sky run {file}, or jupyter sky pipeline run {file}").format(file=file),
        )
    if not path.is_file():
        raise _no_file(file)
    if path.suffix not in SCRIPTS:
        raise SkyUsageError(
            _("{file}: only scripts ({suffixes}) and task files (.yaml) are run").format(
                file=file, suffixes=", ".join(SCRIPTS)
            ),
            hint=_("a command stands after --, such as -- ./{file}").format(file=file),
        )
    if path.is_absolute() or ".." in path.parts:
        raise SkyUsageError(
            _("{file} is not below {folder}").format(file=file, folder=Path.cwd()),
            hint=_("run from the folder that holds it, so that its neighbours can go along"),
        )


def _no_file(file: str) -> SkyUsageError:
    """Return the error of a file that does not exist; a word without a suffix is a command."""
    path = Path(file)
    kinds = (*SCRIPTS, *TASK_FILES)
    with_suffix = path.suffix in (*kinds, ".ipynb")
    if not with_suffix:
        return SkyUsageError(
            _("there is no file {file}").format(file=file),
            hint=_("a command stands after --, such as -- {file}").format(file=file),
        )
    known: list[str] = []
    if path.parent.is_dir():
        known = [str(each) for each in sorted(path.parent.iterdir()) if each.suffix in kinds]
    return SkyUsageError(
        _("there is no file {file}").format(file=file), hint=suggest(file, known[:200])
    )


def _merge(own: CellOptions, given: CellOptions, need: Resources, nodes: int) -> CellOptions:
    """Return the options of the command line above those of a task."""
    if nodes > 1:
        need = Resources.parse(**{"nodes": str(nodes), **need.labels()})
    return replace(
        given,
        resources=need.override(given.resources),
        env=tuple(dict.fromkeys((*own.env, *given.env))),
        sync=tuple(dict.fromkeys((*own.sync, *given.sync))),
        data=(*own.data, *given.data),
        mounts=(*own.mounts, *given.mounts),
        uploads=(*own.uploads, *given.uploads),
        timeout=given.timeout or own.timeout,
    )


# -- running ---------------------------------------------------------------------------------


def run_command(command: Command) -> int:
    """Run a command on its cluster, and print what it prints; return its exit code.

    An interrupt stops the command on its cluster; the cluster stays up until it is idle.

    Raises
    ------
    SkyError
        It has not run, or has not ended by itself.
    """
    from jupyter_sky.execution.cells.failures import RemoteFailure
    from jupyter_sky.execution.cells.request import CellPosition
    from jupyter_sky.interfaces.widgets.terminal_display import TerminalDisplay

    session = _sessions.current()
    options = replace(command.options, name=command.options.name or free_name(command.title))
    position = CellPosition(0, is_outermost=True)
    try:
        session.run(command.code, options, TerminalDisplay(), position, command.values)
    except Exception as error:
        if not isinstance(error, RemoteFailure):
            raise
        code = getattr(error, "returncode", None)
        if type(error).__name__ != "CalledProcessError" or not isinstance(code, int):
            raise SkyError(str(error)) from None
        return code if code >= 0 else 128 - code  # as a shell tells a signal
    return 0


def print_status(log: Path, start: int) -> int:
    """Print the status lines of a log from a place on; return how many bytes were read."""
    whole, newline, _rest = log.read_bytes()[start:].rpartition(b"\n")
    for line in whole.decode(errors="replace").split("\n"):
        if line.startswith("☁"):
            print(line, flush=True)
    return len(whole + newline)


def free_name(title: str) -> str:
    """Return a name for a run, from the first word of its command that tells something."""
    return free_names(title, 1)[0]


def free_names(title: str, count: int) -> list[str]:
    """Return names for several runs of a command, which no run has.

    Examples
    --------
    >>> _stem("python -u src/train.py --lr 3"), _stem("task.yaml"), _stem("./2-run")
    ('train', 'task', 'run_2_run')
    """
    stem = _stem(title)
    taken = {row.name for row in _sessions.current().store.runs(limit=1000, unsent=True)}
    numbered = (f"{stem}_{number}" for number in range(2, 2000))
    free = (name for name in chain([stem], numbered) if name not in taken)
    return list(islice(free, count))


def _stem(title: str) -> str:
    words = [word for word in re.split(r"\s+", title) if word and not word.startswith("-")]
    scripts = [word for word in words if Path(word).suffix in SCRIPTS]
    name = re.sub(r"\W+", "_", Path((scripts or words or ["run"])[0]).stem, flags=re.ASCII)
    name = name.strip("_") or "run"
    return name[:24] if name.isidentifier() and not iskeyword(name) else f"run_{name}"[:24]


def start_detached(words: Sequence[str], name: str, folder: Path | None = None) -> None:
    """Carry a command line out in a process of its own; return once it is on its cluster.

    Parameters
    ----------
    words
        The words after ``jupyter sky``.
    name
        Of the run.
    folder
        In which the process works; that of this one unless given.

    Raises
    ------
    SkyError
        It has ended before; has what it printed.
    """
    from jupyter_sky.base.settings.background_process import start_background_process
    from jupyter_sky.workflows.pipelines.run.detached import LOGS

    session = _sessions.current()
    path = Path(session.config.data_dir) / LOGS / f"launch-{name}.log"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    begun = time.time()
    try:
        arguments = ["-m", "jupyter_sky.cli", *words]
        process = start_background_process(arguments, session.config, log, folder)
    finally:
        os.close(log)
    told = 0
    while True:
        code = process.poll()  # read before the store: a short run is over when it is seen
        told += print_status(path, told)
        rows = session.store.runs(limit=100, unsent=True)
        row = next((one for one in rows if one.name == name and one.last_beat >= begun - 1), None)
        if row is not None and row.nodes:
            return
        if code is not None:
            printed = path.read_text(errors="replace").strip()[-2000:]
            raise SkyError(
                _("{name} has not begun: {printed}").format(
                    name=name, printed=printed or _("it printed nothing")
                )
            )
        time.sleep(0.1)
