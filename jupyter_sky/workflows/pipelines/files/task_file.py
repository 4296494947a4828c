"""Task files: graphs as documents of YAML, in the format of SkyPilot's tasks.

Each document is a task, and follows the one before it. What SkyPilot's format has no field for
stands in ``x-sky``::

    name: two
    ---
    name: prepare
    run: python prepare.py $OUTPUT[0]
    outputs: {"?:/clean": 2}
    ---
    name: train
    resources: {accelerators: V100}
    inputs: {prepare.output(0): null}
    x-sky: {function: "training:fit", retry: 2, timeout: 2h}
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from jupyter_sky.base.clouds.register import find_store
from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.dag.dag import Dag, Task, TaskEnvironment
from jupyter_sky.base.translation import _
from jupyter_sky.workflows.pipelines.files.located_yaml import Located, read_documents
from jupyter_sky.workflows.pipelines.files.task_resources import FileNotes, read_resources

EXTENSION = "x-sky"
_HEADER = ("name", "execution", EXTENSION)
_SHARED = {"same_region": Dag.same_region, "same_cluster": Dag.same_cluster}
_OWN = ("after", "arg", "function", "hours", "residency", "retry", "spin_up", "time", "timeout")
_ENVIRONMENT = ("envs", "secrets", "workdir", "file_mounts", "setup")
_FIELDS = ("name", "run", "num_nodes", "resources", "inputs", "outputs", EXTENSION, *_ENVIRONMENT)
_IGNORED = {
    "config": "settings of SkyPilot do not hold here; those of jupyter_sky do: %sky config",
    "event_callback": "no command runs at changes of state",
    "experimental": "settings of SkyPilot do not hold here; those of jupyter_sky do: %sky config",
}
_REFUSED = {
    "pool": "tasks get machines of their own",
    "service": "a task ends; nothing is served",
    "volumes": "give stores as file_mounts, inputs or outputs",
}
_OUTPUT = re.compile(r"(?P<task>[\w.-]+)\.output\((?P<position>\d+)\)")


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A graph that was read from a file.

    Attributes
    ----------
    dag
        The graph.
    warnings
        What of the file is not done, with its lines.
    """

    dag: Dag
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Reading:
    """A file while it is read: its tasks by name, and the links that are made at its end."""

    notes: FileNotes
    values: Mapping[str, Any]
    tasks: dict[str, Task] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)


def read_task_file(path: Path, values: Mapping[str, Any] | None = None) -> TaskFile:
    """Read a graph from a file.

    Parameters
    ----------
    path
        Of the file. Paths in it are relative to the present folder.
    values
        In place of those of its ``envs``.

    Raises
    ------
    SkyUsageError
        It cannot be read, or a field is unknown or unsupported; the message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SkyUsageError(
            _("{path} cannot be read: {error}").format(path=path, error=error)
        ) from None
    reading = _Reading(FileNotes(path.name), values or {})
    documents = read_documents(text, path.name)
    for each in documents:
        reading.notes.mapping(each, _("a task"))
    header: dict[str, Located] = {}
    if len(documents) > 1 and not set(documents[0].value) - set(_HEADER):
        header, documents = documents[0].value, documents[1:]
    if not documents:
        raise SkyUsageError(_("{path} has no task").format(path=path))
    own = _fields_of(header, reading)
    dag = Dag(_name(header.get("name"), path.stem, reading))
    single = path.stem if len(documents) == 1 and not header else ""
    with dag:
        for number, document in enumerate(documents, 1):
            _read_task(document, single or f"task{number}", reading)
    _link(documents, _is_parallel(header, reading), dag, reading)
    for key, share in _SHARED.items():
        for group in _groups(own.get(key), key, reading):
            share(dag, *group)
    for name in reading.values:
        if name not in reading.used:
            known = sorted({each for task in dag for each in task.environment.variables})
            raise SkyUsageError(
                _("{path} has no variable {name} in envs").format(path=path, name=name),
                hint=suggest(name, known),
            )
    return TaskFile(dag, tuple(reading.notes.warnings))


# -- tasks ---------------------------------------------------------------------------------------


def _read_task(document: Located, name: str, reading: _Reading) -> None:
    fields, notes = document.value, reading.notes
    _check_fields(fields, notes)
    environment = read_environment(fields, reading.values, notes)
    reading.used |= {*environment.values.variables} & {*reading.values}
    own = _fields_of(fields, reading, _OWN)
    named = _name(fields.get("name"), name, reading, environment)
    if named in reading.tasks:
        text = _("two tasks are called {name}").format(name=named)
        raise notes.error(document.line, text, _("give each a name of its own"))
    task = Task(named)
    reading.tasks[task.name] = task
    found = read_resources(fields.get("resources", Located(None, document.line)), notes)
    task.needs, task.environment = found.needs, environment.values
    task.retries = found.retries
    task.num_nodes = _number(fields.get("num_nodes"), 1, reading)
    task.run, task.arg = _read_code(fields.get("run"), own, environment, document.line, reading)
    for key, setting in _SETTINGS.items():
        if (given := own.get(key)) is not None and given.value is not None:
            _at_line(given, notes, lambda: setting(task, given.plain))  # noqa: B023
    if "retry" in own or "timeout" in own:
        retries = _number(own.get("retry"), task.retries, reading)
        limit = own.get("timeout", Located(None, 0))
        line = own.get("retry", limit).line
        _at_line(
            Located(None, limit.line or line),
            notes,
            lambda: task.set_limits(retries=retries, timeout=limit.value),
        )
    for uri, size in notes.mapping(fields.get("outputs", _NOTHING), "outputs").items():
        address = environment.fill(uri)
        gb, region = _size(size, reading)
        _at_line(size, notes, lambda: task.set_output(address, gb, region=region))  # noqa: B023


_NOTHING = Located(None, 1)
_SETTINGS: dict[str, Callable[[Task, Any], Any]] = {
    "hours": lambda task, value: task.set_time_estimator(value),
    "time": lambda task, value: task.set_time_estimator(import_reference(value)),
    "residency": lambda task, value: task.set_residency(
        *([value] if isinstance(value, str) else value)
    ),
    "spin_up": lambda task, value: task.set_spin_up(value),
}


def _at_line(found: Located, notes: FileNotes, act: Callable[[], Any]) -> Any:
    """Do something; an error names the line."""
    try:
        return act()
    except SkyUsageError as error:
        raise notes.error(found.line, error.message, error.hint or "") from None


def _check_fields(fields: Mapping[str, Located], notes: FileNotes) -> None:
    for key, found in fields.items():
        if key in _REFUSED:
            text = _("{key} is not supported").format(key=key)
            raise notes.error(found.line, text, _(_REFUSED[key]))
        if key in _IGNORED:
            text = _("{key} is ignored: {why}").format(key=key, why=_(_IGNORED[key]))
            notes.warn(found.line, text)
        elif key not in _FIELDS:
            raise notes.unknown(found.line, key, _("a task"), list(_FIELDS))


def _fields_of(
    fields: Mapping[str, Located], reading: _Reading, known: Collection[str] = _SHARED
) -> dict[str, Located]:
    """Return the fields of ``x-sky``."""
    own = reading.notes.mapping(fields.get(EXTENSION, _NOTHING), EXTENSION)
    for key, found in own.items():
        if key not in known:
            raise reading.notes.unknown(found.line, key, EXTENSION, list(known))
    return own


def _name(
    found: Located | None, default: str, reading: _Reading, within: FileEnvironment | None = None
) -> str:
    if found is None or found.value is None:
        return re.sub(r"[^\w.-]", "_", default)
    if isinstance(found.value, dict | list):
        raise reading.notes.error(found.line, _("name is no text"))
    return within.fill(str(found.value)) if within else str(found.value)


def _number(found: Located | None, default: int, reading: _Reading) -> int:
    if found is None or found.value is None:
        return default
    if not isinstance(found.value, int) or isinstance(found.value, bool) or found.value < 0:
        text = _("{value!r} is not a whole number").format(value=found.plain)
        raise reading.notes.error(found.line, text)
    return found.value


def _read_code(
    run: Located | None,
    own: Mapping[str, Located],
    environment: FileEnvironment,
    line: int,
    reading: _Reading,
) -> tuple[Any, str]:
    """Return what a task runs, and its arguments."""
    function = own.get("function")
    text = run.value if run else None
    if function is not None and text is not None:
        raise reading.notes.error(function.line, _("a task has either run or x-sky.function"))
    argument = own.get("arg", _NOTHING).value
    if function is not None:
        found = _at_line(function, reading.notes, lambda: import_reference(function.value))
        return found, ""
    if text is None and not environment.values.setup:
        raise reading.notes.error(line, _("the task has nothing to run"), _("run: a command"))
    if isinstance(text, dict | list):
        assert run is not None
        raise reading.notes.error(run.line, _("run is no text"))
    return ("true" if text is None else str(text)), str(argument or "")


def import_reference(reference: Any) -> Callable[..., Any]:
    """Return the function of a reference.

    Parameters
    ----------
    reference
        ``module:name``; modules of the present folder are found, too.

    Raises
    ------
    SkyUsageError
        There is no such module or function.

    Examples
    --------
    >>> import_reference("math:sqrt")(9)
    3.0
    """
    module, __, name = str(reference).partition(":")
    if not re.fullmatch(r"[\w.]+:[\w.]+", str(reference)):
        raise SkyUsageError(
            _("{reference} is no function").format(reference=reference),
            hint=_("write module:name, such as training:fit"),
        )
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise SkyUsageError(
            _("{reference} cannot be imported: {error}").format(reference=reference, error=error)
        ) from None
    if not callable(found):
        raise SkyUsageError(_("{reference} is no function").format(reference=reference))
    return found


# -- links ---------------------------------------------------------------------------------------


def _is_parallel(header: Mapping[str, Located], reading: _Reading) -> bool:
    found = header.get("execution", Located("serial", 1))
    if found.value not in ("serial", "parallel"):
        raise reading.notes.error(found.line, _("execution is serial or parallel"))
    return found.value == "parallel"


def _link(documents: list[Located], is_parallel: bool, dag: Dag, reading: _Reading) -> None:
    """Connect the tasks: each follows those that it names, else the one before it."""
    previous: Task | None = None
    for document, task in zip(documents, dag.tasks, strict=True):
        inputs = reading.notes.mapping(document.value.get("inputs", _NOTHING), "inputs")
        for address, size in inputs.items():
            _read_input(task, address, size, reading)
        after = _fields_of(document.value, reading, _OWN).get("after")
        if after is not None:
            for producer, facts in _producers(after, reading):
                dag.add_edge(producer, task, **facts)
        elif previous is not None and not is_parallel:
            dag.add_edge(previous, task)
        previous = task


def _read_input(task: Task, address: str, size: Located, reading: _Reading) -> None:
    gb, region = _size(size, reading)
    if found := _OUTPUT.fullmatch(address):
        source: Any = _find(found["task"], size.line, reading).output(int(found["position"]))
    else:
        source = FileEnvironment(task.environment).fill(address)
    _at_line(size, reading.notes, lambda: task.set_input(source, gb, region=region))


def _find(name: str, line: int, reading: _Reading) -> Task:
    if name not in reading.tasks:
        text = _("there is no task {name!r}").format(name=name)
        raise reading.notes.error(line, text, suggest(name, reading.tasks))
    return reading.tasks[name]


def _size(found: Located, reading: _Reading) -> tuple[Any, str | None]:
    """Return the GB and the region of data."""
    if not isinstance(found.value, dict):
        return found.plain, None
    known = ["estimated_size_gigabytes", "region"]
    for key, each in found.value.items():
        if key not in known:
            raise reading.notes.unknown(each.line, key, _("data"), known)
    return tuple(found.value.get(key, _NOTHING).plain for key in known)  # pyright: ignore


def _producers(after: Located, reading: _Reading) -> list[tuple[Task, dict[str, Any]]]:
    """Return the tasks that one follows, with size and residency of what comes from each."""
    given = after.value if isinstance(after.value, list) else [after] if after.value else []
    found: list[tuple[Task, dict[str, Any]]] = []
    for each in given:
        if not isinstance(each.value, dict):
            found.append((_find(str(each.value), each.line, reading), {}))
            continue
        facts = {key: value.plain for key, value in each.value.items()}
        if unknown := set(facts) - {"task", "size", "residency"}:
            known = ["task", "size", "residency"]
            raise reading.notes.unknown(each.line, min(unknown), "after", known)
        task = _find(str(facts.pop("task", "")), each.line, reading)
        found.append((task, facts))
    return found


def _groups(found: Located | None, key: str, reading: _Reading) -> list[list[Task]]:
    if found is None:
        return []
    if not isinstance(found.value, list):
        raise reading.notes.error(found.line, _("{key} is a list of lists").format(key=key))
    return [
        [_find(str(name.value), group.line, reading) for name in group.value or []]
        for group in found.value
    ]


# -- Environment of a task as task files of SkyPilot write it -------------------------------------

_SCHEMES = {"gcs": "gs"}
"""Schemes of addresses that SkyPilot's names of stores do not begin with."""
_STORAGE = ("name", "source", "store", "mode", "persistent")
_NOTHING_task_environment = Located(None, 1)


@dataclass(frozen=True, slots=True)
class FileEnvironment:
    """Environment of a task of a file."""

    values: TaskEnvironment

    def fill(self, text: str) -> str:
        """Return a text in which the variables of the task are replaced by their values.

        Examples
        --------
        >>> FileEnvironment(TaskEnvironment(variables={"SIZE": "7b"})).fill("model-${SIZE}-$X")
        'model-7b-$X'
        """
        return _fill(text, self.values.variables)


def _fill(text: str, variables: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        return variables.get(found[1] or found[2], found[0])

    return re.sub(r"\$\{(\w+)\}|\$(\w+)", value, text)


def read_environment(
    fields: Mapping[str, Located], values: Mapping[str, Any], notes: FileNotes
) -> FileEnvironment:
    """Return the environment that the fields of a task describe.

    Parameters
    ----------
    fields
        Of the task.
    values
        In place of those of ``envs``.
    notes
        Gets warnings.

    Raises
    ------
    SkyUsageError
        A field is invalid.
    """
    variables, secrets = _read_variables(fields, values, notes)
    files: dict[str, str] = {}
    mounts: dict[str, str] = {}
    given = notes.mapping(fields.get("file_mounts", _NOTHING_task_environment), "file_mounts")
    for path, source in given.items():
        if isinstance(source.value, dict):
            kind = files if _mode(source, notes) == "COPY" else mounts
            address = _storage_address(source, notes)
        else:
            kind, address = files, str(source.value or "")
        if not address:
            raise notes.error(source.line, _("{path} has no source").format(path=path))
        kind[_fill(path, variables)] = _fill(address, variables)
    setup = fields.get("setup", _NOTHING_task_environment)
    if isinstance(setup.value, dict | list):
        raise notes.error(setup.line, _("setup is no text"))
    workdir = _read_workdir(fields.get("workdir", _NOTHING_task_environment), variables, notes)
    files = {path: _own_path(source) for path, source in files.items()}
    text = str(setup.value or "")
    return FileEnvironment(TaskEnvironment(text, variables, secrets, workdir, files, mounts))


def _read_variables(
    fields: Mapping[str, Located], values: Mapping[str, Any], notes: FileNotes
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables with values, and those whose values are taken from this machine."""
    variables: dict[str, str] = {}
    secrets: list[str] = []
    for key in ("envs", "secrets"):
        for name, found in notes.mapping(fields.get(key, _NOTHING_task_environment), key).items():
            if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
                text = _("{name} is no name of a variable").format(name=name)
                raise notes.error(found.line, text)
            if isinstance(found.value, dict | list):
                raise notes.error(found.line, _("{name} has no text").format(name=name))
            if key == "secrets" and found.value not in (None, ""):
                raise notes.error(
                    found.line,
                    _("the value of the secret {name} stands in the file").format(name=name),
                    _("leave it empty: it is taken from the environment of this machine"),
                )
            if key == "envs" and name in values:
                variables[name] = str(values[name])
            elif found.value is None or key == "secrets":
                secrets.append(name)
            else:
                variables[name] = str(found.value)
    return variables, tuple(dict.fromkeys(secrets))


def _read_workdir(found: Located, variables: Mapping[str, str], notes: FileNotes) -> str:
    if isinstance(found.value, dict | list):
        raise notes.error(
            found.line,
            _("a workdir of git is not supported"),
            _("clone it here, or in setup"),
        )
    text = _fill(str(found.value or ""), variables)
    return _own_path(text) if text else ""


def _own_path(source: str) -> str:
    """Return a path of this machine relative to the present folder where it is below it."""
    if "://" in source or source.startswith("file:"):
        return source
    path, here = Path(source).expanduser().resolve(), Path.cwd().resolve()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def _mode(source: Located, notes: FileNotes) -> str:
    for key, each in source.value.items():
        if key not in _STORAGE:
            raise notes.unknown(each.line, key, "file_mounts", list(_STORAGE))
    mode = source.value.get("mode", Located("MOUNT", source.line))
    if mode.value not in ("COPY", "MOUNT", "MOUNT_CACHED"):
        text = _("mode {mode} is not supported").format(mode=mode.value)
        raise notes.error(mode.line, text, _("COPY or MOUNT"))
    if mode.value != "COPY":
        text = _("it is mounted for reading: what the task writes belongs into outputs")
        notes.warn(mode.line, text)
    return mode.value


def _storage_address(source: Located, notes: FileNotes) -> str:
    """Return the address of a store that is described by its parts."""
    parts = {key: each.value for key, each in source.value.items()}
    if "://" in str(parts.get("source") or ""):
        return str(parts["source"])
    if parts.get("source"):
        text = _("{source} is not uploaded").format(source=parts["source"])
        raise notes.error(source.line, text, _("copy it first: %sky storage copy"))
    store = parts.get("store")
    scheme = _SCHEMES.get(str(store), str(store)[:2])
    if not find_store(scheme) or not parts.get("name"):
        text = _("a store is named by source, or by name and store")
        raise notes.error(source.line, text, _("such as source: s3://mine/data"))
    return f"{scheme}://{parts['name']}"
