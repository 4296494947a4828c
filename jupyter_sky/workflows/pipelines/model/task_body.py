"""Bodies of tasks: functions and shell commands, as values of JSON that a journal keeps."""

from __future__ import annotations

import ast
import base64
import builtins
import dis
import inspect
import json
import pickle
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from io import BytesIO
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.values import (
    CellData,
    CellOptions,
    CellOutput,
    CellUpload,
)
from jupyter_sky.base.requests.dag.dag import Dag, Data, Task, TaskEnvironment, TaskOutput, TaskSpec
from jupyter_sky.base.store.pickles import open_pickle
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.cell_names import SHELL_NAMES
from jupyter_sky.workflows.pipelines.model.command_cell import (
    FOLDER,
    REFERENCE,
    check_environment,
    command_code,
    find_script,
    script_command,
    surround,
)
from jupyter_sky.workflows.pipelines.model.file_reads import (
    READERS,
    asks_network,
    named_files,
    unknown_read,
)
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.model.identity import TaskIdentity, digest_of
from jupyter_sky.workflows.pipelines.model.module_identity import find_modules

Stores = Mapping[tuple[str, str], str]
"""Address of each output whose store follows its machine, by its task and its ``?:/name``."""
Address = Callable[[str], str]
"""From the name of a value to the address of the store to which it goes."""
LoadValue = Callable[[str, str], Any]
"""From the names of a task and of one of its values, empty for a function's, to the value."""


@dataclass(frozen=True, slots=True)
class TaskCell:
    """Cell that runs a task.

    Attributes
    ----------
    code, options
        Without cluster and name.
    values
        Values that are sent to its engine, by name.
    before
        Code of a cell that runs before it.
    above
        Lines of the notebook's cell above the code.
    data
        Files of stores that the cell before it reads.
    """

    code: str
    options: CellOptions
    values: Mapping[str, Any]
    before: str = ""
    above: tuple[str, ...] = ()
    data: tuple[CellData, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskBody:
    """Code of a task, and its needs.

    Attributes
    ----------
    request
        Resources as they were asked for, as a line of options.
    function
        Base64 of the pickled function; empty for a command.
    command
        Shell command, in which ``$INPUT[0]`` and ``$OUTPUT[0]`` stand for paths.
    arguments
        Tasks whose values a function is called with.
    inputs, outputs
        Addresses of what it reads from stores and writes to stores.
    script
        File of this machine that the command runs, which goes along.
    environment
        What `TaskEnvironment.to_json` gives.
    timeout
        Longest time of an attempt, seconds; None for no limit.
    """

    request: str = ""
    function: str = ""
    command: str = ""
    arguments: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    script: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return values of JSON from which `from_json` makes an equal body."""
        return {"kind": "task", **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskBody:
        """Return the body of what `to_json` gave."""
        names = {each.name for each in fields(cls)}
        known = {name: value for name, value in data.items() if name in names}
        known |= {name: tuple(data[name]) for name in ("arguments", "inputs", "outputs")}
        return cls(**known)

    @staticmethod
    def load_function(pickled: str) -> Any:
        """Return a copy of a function, of its text."""
        return open_pickle(base64.b64decode(pickled))

    def as_cell(
        self, task: str, result: str, load: LoadValue, address: Address | None = None
    ) -> TaskCell:
        """Return the cell that runs it; its value stays under the name `result`.

        Parameters
        ----------
        task
            Its name, of which paths on the machine are made.
        load
            Returns a value of another task.
        address
            Returns where a large value goes; without it all come as they are.
        """
        inputs = [_input_path(task, index) for index in range(len(self.inputs))]
        outputs = [_output_path(task, index) for index in range(len(self.outputs))]
        environment = TaskEnvironment.from_json(self.environment)
        around = surround(environment, self.script)
        data = (CellData(uri, path) for uri, path in zip(self.inputs, inputs, strict=True))
        options = replace(
            around.options,
            data=(*data, *around.options.data),
            uploads=tuple(
                CellUpload(path, uri) for uri, path in zip(self.outputs, outputs, strict=True)
            ),
            outputs=(
                CellOutput(result, True, address("value"), large_only=True)
                if address is not None and self.function
                else CellOutput(result),
            ),
            timeout=self.timeout,
        )
        made = "".join(f"__import__('os').makedirs({path!r}, exist_ok=True)\n" for path in outputs)
        if self.function:
            values = {
                "_sky_function": self.load_function(self.function),
                "_sky_values": [load(producer, "") for producer in self.arguments],
            }
            if self.environment:
                made += command_code("true", environment, around.links, {}) + "\n"
                made += f"__import__('os').environ.update({dict(environment.variables)!r})\n"
            code = f"{made}{result} = _sky_function(*_sky_values, *{inputs + outputs!r})"
            return TaskCell(code, options, values)
        paths = {"INPUT": inputs, "OUTPUT": outputs}
        run = command_code(self.command, environment, around.links, paths)
        return TaskCell(f"{made}{run}\n{result} = None", options, {})


def _input_path(task: str, index: int) -> str:
    return f"{FOLDER}/{task}/input{index}"


def _output_path(task: str, index: int) -> str:
    return f"{FOLDER}/{task}/output{index}"


def make_graph(
    dag: Dag, stores: Stores = MappingProxyType({}), is_batched: bool = True
) -> RunGraph:
    """Return what is to be run for a Dag.

    Parameters
    ----------
    dag
        The graph.
    stores
        Address of each output ``?:/name``, by its task and itself; without one it stays as it is.
    is_batched
        Whether functions may be sent in one message: their values then come pickled.

    Raises
    ------
    SkyUsageError
        A task has nothing to run, or a name that no path can have; its graph has a cycle.

    Examples
    --------
    >>> with Dag("two") as dag:
    ...     first, second = Task("first", run="ls"), Task("second", run=len)
    ...     _ = first >> second
    >>> graph = make_graph(dag)
    >>> graph.tasks["second"].after, graph.tasks["second"].body["arguments"]
    (('first',), ('first',))
    """
    frozen = dag.freeze()
    names = [spec.name for spec in frozen.tasks]
    before: dict[str, list[str]] = {name: [] for name in names}
    for edge in frozen.edges:
        before[names[edge.dst]].append(names[edge.src])
    tasks = {task.name: task for task in dag}
    shared = _shared_clusters(names, frozen.same_cluster)
    made = (
        _make_task(tasks[spec.name], spec, before[spec.name], stores, shared.get(spec.name, ""))
        for spec in frozen.tasks
    )
    return RunGraph(made if is_batched else (replace(task, is_batched=False) for task in made))


def _shared_clusters(names: Sequence[str], pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return for each task that shares a cluster the first of those on it.

    Examples
    --------
    >>> _shared_clusters(["a", "b", "c", "d"], [("c", "b"), ("c", "d")])
    {'b': 'b', 'c': 'b', 'd': 'b'}
    """
    together: dict[str, list[str]] = {}
    for one, other in pairs:
        first, second = together.setdefault(one, [one]), together.setdefault(other, [other])
        if first is not second:
            first += second
            together |= dict.fromkeys(second, first)
    positions = {name: position for position, name in enumerate(names)}
    found: dict[str, str] = {}
    for name in sorted(together, key=positions.__getitem__):
        found.setdefault(name, name)
        found = dict.fromkeys(together[name], found[name]) | found
    return {name: found[name] for name in names if name in found}


def _make_task(
    task: Task, spec: TaskSpec, producers: Sequence[str], stores: Stores, shares: str
) -> RunTask:
    if not re.fullmatch(r"[\w.-]+", task.name):
        raise SkyUsageError(
            _("task {name!r} cannot be run under this name").format(name=task.name),
            hint=_("a name has letters, digits, '_', '-' and '.'"),
        )
    check_environment(task.name, task.environment)
    script = "" if callable(task.run) else find_script(str(task.run or ""))
    need = spec.needs[0].command_line()
    body = TaskBody(
        need,
        _pickled(task) if callable(task.run) else "",
        "" if callable(task.run) else _command(task, script),
        tuple(producers),
        tuple(_address(task, source, stores) for source in task.inputs),
        tuple(stores.get((task.name, data.uri), data.uri) for data in task.outputs),
        script,
        task.environment.to_json(),
        task.timeout,
    )
    if not (body.function or body.command):
        raise SkyUsageError(
            _("task {name} has nothing to run").format(name=task.name),
            hint=_("sky.Task({name!r}, run=function), or run='a shell command'").format(
                name=task.name
            ),
        )
    _check_references(task.name, body)
    identity = {"identity": _identity(task, body).to_json()}
    shared = {"shares": shares} if shares and shares != task.name else {}
    return RunTask(
        task.name,
        tuple(producers),
        task.retries,
        is_batched=_may_be_batched(task, body),
        body=body.to_json() | identity | shared,
    )


def _may_be_batched(task: Task, body: TaskBody) -> bool:
    """Return whether a task is a mere call, without files, limits or surroundings of its own."""
    own = body.inputs or body.outputs or body.environment or body.timeout is not None
    is_call = bool(body.function) and not own
    is_small = task.num_nodes == 1 and all(need.nodes == 1 for need in task.needs)
    return is_call and is_small and not any(need.service for need in task.needs)


def _command(task: Task, script: str) -> str:
    if script:
        return script_command(script, task.arg)
    return f"{task.run or ''} {task.arg}".strip()


def _check_references(task: str, body: TaskBody) -> None:
    """Refuse a command that names an input or output which its task does not have."""
    counts = {"INPUT": len(body.inputs), "OUTPUT": len(body.outputs)}
    for word, index in REFERENCE.findall(body.command):
        if int(index) >= counts[word]:
            raise SkyUsageError(
                _("task {name}: there is no {word}[{index}]").format(
                    name=task, word=word, index=index
                ),
                hint=_("it has {count}; set_input and set_output give it more").format(
                    count=counts[word]
                ),
            )


def _identity(task: Task, body: TaskBody) -> TaskIdentity:
    """Return what is known of the key of a task before it runs."""
    if body.function:
        found = function_identity(task.run, reads_stores=bool(body.inputs))
    else:
        network = _("its command asks the network") if asks_network(body.command) else ""
        files = named_files([body.command], Path.cwd())
        found = TaskIdentity(_command_identity(body.command), paths=files, problem=network)
    environment, here = task.environment, Path.cwd()
    given = {
        "outputs": list(body.outputs),
        "setup": environment.setup,
        "variables": dict(environment.variables),
    }
    around = surround(environment, body.script).options
    return replace(
        found,
        parameters={name: json.dumps(value) for name, value in given.items() if value},
        paths={**found.paths, **{path: str(here / path) for path in around.sync}},
        addresses=(*body.inputs, *(data.uri for data in (*around.data, *around.mounts))),
        products=body.outputs,
        values={producer: (producer, "") for producer in body.arguments},
    )


def _command_identity(command: str) -> str:
    """Return the digest of a command, without its lines that are remarks."""
    lines = [line.rstrip() for line in command.splitlines()]
    if "<<" not in command:  # a line of a text in it may begin so, too
        lines = [line for line in lines if line and not line.lstrip().startswith("#")]
    return digest_of("\n".join(lines).encode())


def _pickled(task: Task) -> str:
    import cloudpickle

    try:
        return base64.b64encode(cloudpickle.dumps(task.run)).decode()
    except Exception as error:
        raise SkyUsageError(
            _("task {name}: its function cannot be sent: {error}").format(
                name=task.name, error=error
            ),
            hint=_("make what it reads inside it, or give it as an input"),
        ) from error


def _address(task: Task, source: Data | TaskOutput, stores: Stores) -> str:
    """Return the address of an input; of ``?:/name`` that of the store of its producer."""
    if isinstance(source, Data):
        return source.uri
    uri = source.task.outputs[source.position].uri
    return stores.get((source.task.name, uri), uri)


# -- Identity of functions and values of this process, from what they are made of -----------------
#
# A function is identified by its compiled code, which comments, layout and docstrings do not
# change, and by the values of all names that it reads from elsewhere, functions among them in turn.
# Its source is not asked: the file may have been edited since the function was made.

_OF_CLASSES = frozenset(
    "__dict__ __doc__ __firstlineno__ __module__ __qualname__ __static_attributes__ __weakref__ "
    "_abc_impl".split()
)
"""Attributes of a class that do not change what it does."""
_SHELL_RESULTS = frozenset({"In", "Out", "_", "__", "___"})
"""Names under which IPython keeps what other cells have given."""
_OF_SHELL = frozenset({"IPython", "ipykernel", "_io", "io", "builtins", "_sitebuiltins"})


@dataclass(frozen=True, slots=True)
class References:
    """Modules, texts and functions of the notebook that values refer to.

    Attributes
    ----------
    modules
        Names of modules.
    texts
        Texts in the values and in the code of functions.
    functions
        Functions of the notebook, by their ids.
    """

    modules: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    functions: dict[int, FunctionType] = field(default_factory=dict)


def function_identity(function: Callable[..., Any], reads_stores: bool = False) -> TaskIdentity:
    """Return the identity of a function's calls, without their arguments.

    Parameters
    ----------
    function
        As it is now, with the values of the names that it reads.
    reads_stores
        Whether it is given paths of data of stores: it may read below them what it likes.

    Examples
    --------
    >>> factor = 2
    >>> one, other = (lambda x: factor * x), (lambda x: (factor * x))  # the same
    >>> function_identity(one) == function_identity(other)
    True
    """
    references, folder = References(), Path.cwd()
    try:
        code, definitions = _identify(function, references)
    except Exception as error:
        words = _("what its function reads cannot be identified: {error}")
        return TaskIdentity(problem=words.format(error=error))
    found = find_modules(references.modules)
    problem = found.problem
    if not problem and not reads_stores:
        problem = _unknown_read(references.functions, folder)
    return TaskIdentity(
        code,
        definitions,
        packages=found.packages,
        modules=found.modules,
        paths=named_files(references.texts, folder),
        problem=problem,
    )


def _identify(
    function: Callable[..., Any], references: References
) -> tuple[str, Mapping[str, str]]:
    """Return the digest of a function's code, and those of the names that it reads."""
    if not isinstance(function, FunctionType) or _is_importable(function):
        return value_digest(function, references), {}
    parts = _function_parts(function, references)
    definitions = {
        name: value_digest(value, references) for name, value in parts.pop("globals").items()
    }
    code = _code_digest(function.__code__, references)
    return value_digest([code, parts], references), definitions


def _unknown_read(functions: Mapping[int, FunctionType], folder: Path) -> str:
    trees = []
    for function in functions.values():
        names = {name for code in _codes(function.__code__) for name in code.co_names}
        if not names & READERS:
            continue
        try:
            trees.append(ast.parse(textwrap.dedent(inspect.getsource(function))))
        except (OSError, TypeError, SyntaxError):
            words = _("{name} reads files, and its source is not at hand")
            return words.format(name=function.__name__)
    return unknown_read(trees, folder)


def _is_importable(thing: Any) -> bool:
    """Whether a function or class is found by its name in a module other than the notebook's."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    found: Any = sys.modules.get(module) if module not in (None, "__main__") else None
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is thing


def value_digest(value: Any, references: References) -> str:
    """Return the digest of a value, the same in each process for equal values.

    Parameters
    ----------
    value
        Any that can be pickled, also with functions and classes of the notebook in it.
    references
        What it refers to is added here.

    Raises
    ------
    Exception
        As pickle raises it: the value cannot be identified.

    Examples
    --------
    >>> one, other = {"a", "b", "c"}, {"c", "b", "a"}
    >>> value_digest(one, References()) == value_digest(other, References())
    True
    """
    stream = BytesIO()
    _IdentityPickler(stream, references).dump(value)
    return digest_of(stream.getbuffer())


def _stand_in(*parts: Any) -> Any:
    """Stand for a value in a stream that is never opened."""
    raise NotImplementedError


class _IdentityPickler(pickle._Pickler):
    """Pickler of streams that are compared and never opened.

    Functions and classes of the notebook stand as what they are made of, and sets are sorted. The
    pickler that is written in Python is used, since the other does not let its treatment of sets
    and texts be changed; the method `memoize` is part of neither's interface.
    """

    def __init__(self, stream: BytesIO, references: References) -> None:
        super().__init__(stream, protocol=5)
        self._references = references

    def memoize(self, obj: Any) -> None:
        """Remember a value to refer to it again; texts are written again wherever they are."""
        if not isinstance(obj, str | bytes):
            super().memoize(obj)  # type: ignore[misc]

    def persistent_id(self, obj: Any) -> Any:
        """Return what stands for a value whose pickles differ between processes."""
        if isinstance(obj, str):
            self._references.texts.add(obj)
        elif type(obj) in (set, frozenset):
            digests = sorted(value_digest(each, self._references) for each in obj)
            return "set", type(obj).__name__, digests
        elif isinstance(obj, ModuleType):
            self._references.modules.add(obj.__name__)
            return "module", obj.__name__
        return None

    def reducer_override(self, obj: Any) -> Any:
        """Return the parts of a function or class of the notebook."""
        if isinstance(obj, FunctionType) and _is_importable(obj):
            return obj.__qualname__
        if isinstance(obj, FunctionType):
            code = _code_digest(obj.__code__, self._references)
            return _stand_in, ("function", code), _function_parts(obj, self._references)
        if isinstance(obj, type) and not _is_importable(obj):
            body = {
                name: value
                for name, value in sorted(vars(obj).items())
                if name not in _OF_CLASSES and not inspect.ismemberdescriptor(value)
            }
            return _stand_in, ("class", obj.__name__), {"bases": obj.__bases__, "body": body}
        if isinstance(obj, MappingProxyType):
            return _stand_in, ("mapping", dict(obj))
        if isinstance(obj, staticmethod | classmethod):
            return _stand_in, (type(obj).__name__, obj.__func__)
        if isinstance(obj, property):
            return _stand_in, ("property", obj.fget, obj.fset, obj.fdel)
        return NotImplemented

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Write the name of a thing of a module."""
        if obj is not _stand_in:
            called = name or getattr(obj, "__qualname__", "") or obj.__name__
            module = pickle.whichmodule(obj, called)  # type: ignore[attr-defined]
            self._references.modules.add(str(module))
        super().save_global(obj, name)  # type: ignore[misc]


def _function_parts(function: FunctionType, references: References) -> dict[str, Any]:
    """Return what a function has besides its code."""
    references.functions[id(function)] = function
    names: set[str] = set()
    for code in _codes(function.__code__):
        for each in dis.get_instructions(code):
            if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                names.add(str(each.argval))
            elif each.opname == "IMPORT_NAME":
                references.modules.add(str(each.argval))
    space = function.__globals__
    read = {name: space[name] for name in sorted(names) if name in space}
    read = {name: value for name, value in read.items() if value is not function}
    read = {name: value for name, value in read.items() if not _is_of_shell(name, value)}
    if results := read.keys() & _SHELL_RESULTS:
        raise ValueError(_("{name} is what other cells have given").format(name=min(results)))
    return {
        "defaults": (function.__defaults__, function.__kwdefaults__),
        "closure": [_content(cell) for cell in function.__closure__ or ()],
        "attributes": dict(sorted(function.__dict__.items())),
        "globals": read,
    }


def _is_of_shell(name: str, value: Any) -> bool:
    """Whether a name stands for what Python or IPython gives each notebook."""
    root = str(getattr(value, "__module__", None) or type(value).__module__).partition(".")[0]
    is_of_shell = name in SHELL_NAMES - _SHELL_RESULTS and root in _OF_SHELL
    return is_of_shell or value is getattr(builtins, name, None)


def _codes(code: CodeType) -> list[CodeType]:
    """Return a code object and all in it."""
    inside = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [code, *(found for each in inside for found in _codes(each))]


def _code_digest(code: CodeType, references: References) -> str:
    """Return a digest of compiled code without its positions and docstring."""
    lines: list[str] = []
    constants: list[Any] = []
    for each in dis.get_instructions(code):
        if isinstance(each.argval, CodeType):
            lines.append(f"{each.opname} {_code_digest(each.argval, references)}")
        elif each.opcode in dis.hasconst:
            lines.append(each.opname)
            constants.append(each.argval)
        elif each.opname not in ("NOP", "EXTENDED_ARG"):
            lines.append(f"{each.opname} {each.argval}")
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    names = code.co_name, code.co_varnames, code.co_cellvars, code.co_freevars
    lines += [repr(counts), repr(names), code.co_exceptiontable.hex()]
    return value_digest(["\n".join(lines).encode(), constants], references)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None
