"""Cell on its way to engines, and their replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.execution.cells.notebook_history import reads_history

if TYPE_CHECKING:
    from jupyter_sky.execution.cells.notebook_history import NotebookHistory
    from jupyter_sky.execution.files.transfer import RemoteValue
    from jupyter_sky.machines.engines.wire.auto_inputs import AutoInput, Decision
    from jupyter_sky.machines.engines.wire.values import Parcel


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
