"""Inputs of a cell: named with ``-i``, or found by reading the cell (``--auto``)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.cell_options.values import CellInput, CellOptions
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.cell_names import (
    SHELL_NAMES,
    free_names,
    is_result,
    reads_all_results,
)
from jupyter_sky.execution.cells.notebook_history import NO_HISTORY, NotebookHistory, reads_history
from jupyter_sky.execution.files.transfer import RemoteValue, is_inline, sent_digest
from jupyter_sky.machines.engines.wire.auto_inputs import AutoInput
from jupyter_sky.machines.engines.wire.code_sources import with_sources
from jupyter_sky.machines.engines.wire.values import INLINE_BYTES, Parcel

if TYPE_CHECKING:
    from jupyter_sky.machines.engines.wire.auto_inputs import Decision


def collect_inputs(
    options: CellOptions,
    code: str,
    namespace: Mapping[str, Any],
    config: Sky,
    history: NotebookHistory = NO_HISTORY,
) -> Sending:
    """Evaluate and pickle the inputs of a cell.

    Parameters
    ----------
    namespace
        Variables of the notebook.
    history
        Cells before this one.

    Raises
    ------
    SkyUsageError
        A name or an environment variable does not exist here.
    SkyTransferError
        A value cannot be pickled; says which part of it, and why.
    """
    packed = _PackedInputs(namespace)
    for item in options.inputs:
        packed.add(item)
    if config.auto_inputs if options.auto is None else options.auto:
        packed.add_read_names(free_names(code, namespace))
        if reads_all_results(code):
            packed.add_results()
    found = list(packed.digests)
    order = history.changed_later(found)
    order |= {name: (True, True) for name in found if is_result(name)}  # the latest is here
    env = {name: _read_variable(name) for name in options.env}
    return Sending(
        code,
        options,
        packed.inline,
        packed.large,
        packed.remote,
        {
            name: AutoInput(packed.digests[name], *order[name], packed.trees.get(name, ""))
            for name in found
        },
        env,
        tuple(_describe(packed, found)),
        tuple(packed.types),
        tuple(packed.modules),
        frozenset(packed.models),
    )


def _describe(packed: _PackedInputs, found: Sequence[str]) -> Iterator[str]:
    """Yield notes for the user on inputs; `found` by ``--auto``."""
    if found:
        yield _("found by --auto: {found}").format(found=", ".join(found))
    if packed.sent_modules:
        words = _("sent along, as the inputs need them: modules {names}")
        yield words.format(names=", ".join(sorted(packed.sent_modules)))
    if missing := packed.left_out:
        words = _("Out is there without {missing}: -i {first} sends it")
        yield words.format(missing=", ".join(missing), first=missing[0])


class _PackedInputs:
    """Inputs of a cell, evaluated and pickled.

    Attributes
    ----------
    digests : dict
        Hashes of the values that ``--auto`` sends, by their names; empty for handles.
    models : set
        Models of the widgets among the values.
    trees : dict
        Digests of the files of the local modules that values refer to, by their names.
    sent_modules : set
        Names of the local modules whose files are sent along.
    left_out : list
        Results that are too large to be sent with all others, or cannot be sent.
    """

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self.inline: dict[str, dict[str, Any]] = {}
        self.large: dict[str, Parcel] = {}
        self.remote: dict[str, list[RemoteValue]] = {}
        self.types: list[type] = []
        self.modules: list[str] = []
        self.digests: dict[str, str] = {}
        self.models: set[str] = set()
        self.trees: dict[str, str] = {}
        self.sent_modules: set[str] = set()
        self.left_out: list[str] = []

    def add_read_names(self, names: Iterable[str]) -> None:
        """Add variables that a cell reads, and those that functions among them read."""
        named = {*self.inline, *self.large, *self.remote}
        pending = deque(name for name in names if name not in named)
        while pending:
            name = pending.popleft()
            if name in self.digests:
                continue
            parcel = self.add(CellInput(name, name), self._namespace)
            self.digests[name] = sent_digest(self._namespace[name], parcel) if parcel else ""
            read = parcel.names - SHELL_NAMES - named if parcel else ()
            pending += sorted(name for name in read if name in self._namespace)

    def add_results(self) -> None:
        """Add the small results of the notebook's cells, for code that reads all of them."""
        for number, value in self._namespace.get("_oh", {}).items():
            name = f"_{number}"
            if name in self.digests or isinstance(value, RemoteValue):
                continue
            parcel = Parcel.small(value, INLINE_BYTES)
            if parcel is None:
                self.left_out.append(name)
                continue
            self.inline[name] = parcel.inline()
            self.digests[name] = parcel.digest()

    def add(self, item: CellInput, shared: Mapping[str, Any] | None = None) -> Parcel | None:
        """Add one input; return its parcel, or None where it is on a cluster already.

        The files of the modules beside the notebook that it refers to are sent with it, and are no
        part of the parcel returned, by whose hash an engine knows the value.
        """
        value = _evaluate(item.expression, self._namespace)
        handles = value if isinstance(value, list) else [value]
        if handles and all(isinstance(handle, RemoteValue) for handle in handles):
            self.remote[item.name] = handles
            return None
        self.types.append(type(value))
        if isinstance(value, ModuleType):
            self.modules.append(value.__name__)
        parcel = Parcel.of(value, item.expression, shared, self.models)
        sent = self._with_modules(item.name, value, parcel)
        if is_inline(sent):
            self.inline[item.name] = with_sources(sent.inline(), sent)
        else:
            self.large[item.name] = sent
        return parcel

    def _with_modules(self, name: str, value: Any, parcel: Parcel) -> Parcel:
        from jupyter_sky.execution.serialization.local_modules import (
            LocalModules,
            input_with_modules,
        )

        function = value if isinstance(value, FunctionType) else None
        archives = LocalModules().needed_by(parcel.segments[0], function)
        if archives:
            self.trees[name] = " ".join(archive.tree for archive in archives)
            self.sent_modules |= {archive.name for archive in archives}
        return input_with_modules(parcel, archives)


def _read_variable(name: str) -> str:
    """Return an environment variable of this machine."""
    if name not in os.environ:
        raise SkyUsageError(
            _("--env {name}: it is not set here").format(name=name),
            hint=_("set it before the kernel starts, or os.environ[{name!r}] = getpass()").format(
                name=name
            ),
        )
    return os.environ[name]


def _evaluate(expression: str, namespace: Mapping[str, Any]) -> Any:
    if expression in namespace:
        return namespace[expression]
    if expression.isidentifier():
        names = [name for name in namespace if not name.startswith("_") and name not in SHELL_NAMES]
        raise SkyUsageError(
            _("-i {expression}: there is no variable {expression!r} in this notebook").format(
                expression=expression
            ),
            hint=suggest(expression, names) if names else _("run the cell that makes it first"),
        )
    try:
        return eval(expression, dict(namespace))
    except Exception as error:
        raise SkyUsageError(f"-i {expression}: {type(error).__name__}: {error}") from None


# -- Cell on its way to engines, and their replies ------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sending:
    """A cell with its inputs, which are pickled before any money is spent.

    Attributes
    ----------
    code
        The body of the cell.
    inline
        Small values, sent in the request of the cell.
    large
        Parcels sent before the cell.
    handles
        Values that are on a cluster already: one, or one for each engine.
    auto
        Inputs found by ``--auto``: the engine may have newer values of these names.
    env
        Environment variables; they go to the engine and nowhere else.
    notes
        Notes for the user.
    types
        Types of the values, whose packages the engines need.
    modules
        Names of the modules among the values.
    models
        Models of the widgets among the values.
    """

    code: str
    options: CellOptions
    inline: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    large: Mapping[str, Parcel] = field(default_factory=dict)
    handles: Mapping[str, Sequence[RemoteValue]] = field(default_factory=dict)
    auto: Mapping[str, AutoInput] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    types: tuple[type, ...] = ()
    modules: tuple[str, ...] = ()
    models: frozenset[str] = frozenset()

    def request(
        self, cell: int, session: str, history: NotebookHistory, trusted: bool
    ) -> dict[str, Any]:
        """Return the part of the request that goes to the engines alone.

        Parameters
        ----------
        cell
            Number of the cell.
        session
            Id of the notebook's kernel.
        history
            Cells before it, for one that reads them on an engine that is trusted.
        """
        return {
            "cell": cell,
            "session": session,
            "history": history.texts() if trusted and reads_history(self.code) else {},
            "inputs": {name: value | self.policy(name) for name, value in self.inline.items()},
            "outputs": [[output.name, output.keep] for output in self.options.outputs],
            "env": self.env,
            "as_data": not trusted,
            "engine": self.options.engine,
        }

    def policy(self, name: str) -> dict[str, Any]:
        """Return the part of a message that says when the engine's own value is used."""
        return {"auto": self.auto[name].to_json()} if name in self.auto else {}


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply of one engine to a cell.

    Attributes
    ----------
    status
        ``ok``, ``error``, ``aborted`` or ``killed``.
    value
        Description of the last expression's value; None where it has none.
    outputs
        Descriptions of the values that ``-o`` names; where the cell has failed, of those that it
        had made by then.
    error
        Content of a reply that is not ``ok``; empty otherwise.
    refused
        Reason why the engine could not open an input; None otherwise.
    decisions
        What the engine has decided on inputs of ``--auto``.
    payload
        Payload of the reply, as the engine has sent it.
    """

    rank: int
    status: str
    value: dict[str, Any] | None = None
    outputs: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    error: Mapping[str, Any] = field(default_factory=dict)
    refused: str | None = None
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    payload: Any = ()

    @classmethod
    def parse(cls, rank: int, content: Mapping[str, Any]) -> Reply:
        """Return the reply that is the content of an ``execute_reply``."""
        status, described = content["status"], content.get("sky") or {}
        decisions = described.get("decisions")
        common: dict[str, Any] = {
            "decisions": decisions if isinstance(decisions, Mapping) else {},
            "payload": content.get("payload") or (),
        }
        common["outputs"] = described.get("outputs") or {}
        if status == "ok":
            return cls(rank, status, described.get("result"), **common)
        return cls(rank, status, error=content, refused=described.get("refused"), **common)


Replies = Sequence[Reply]
"""Replies of the engines of a cell, by rank."""
