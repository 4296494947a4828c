# pyright: strict
"""Commands of a controller to the agents of its other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.messages import Message
from jupyter_sky.machines.engines.wire.controller_requests import PROTOCOL


class AgentCommand(Message):
    """Command to a node agent, which answers by reports."""

    __slots__ = ()
    envelope: ClassVar[Mapping[str, str | int]] = {"protocol": PROTOCOL}


@dataclass(frozen=True, slots=True)
class SetController(AgentCommand, op="set_controller"):
    """Address of the controller for the engine."""

    engine: JsonObject


@dataclass(frozen=True, slots=True)
class Spawn(AgentCommand, op="spawn"):
    """Command to start an engine process, which gets a serial number."""

    serial: int


@dataclass(frozen=True, slots=True)
class Signal(AgentCommand, op="signal"):
    """Command to signal an engine process and the processes of its cells."""

    serial: int
    signum: int


@dataclass(frozen=True, slots=True)
class EndEngine(AgentCommand, op="end"):
    """Command to kill an engine process and the processes of its cells."""

    serial: int


@dataclass(frozen=True, slots=True)
class StartDataEngineNode(AgentCommand, op="data_engine"):
    """Command to start a data engine: fields of an `EngineOrder`."""

    order: JsonObject


@dataclass(frozen=True, slots=True)
class AgentBeat(AgentCommand, op="beat"):
    """Heartbeat of the controller."""


@dataclass(frozen=True, slots=True)
class StopAgent(AgentCommand, op="stop"):
    """Command to end the agent and its engine."""
