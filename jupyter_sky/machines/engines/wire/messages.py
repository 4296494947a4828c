# pyright: strict
"""Types of what notebooks, controllers, node agents and engines exchange as JSON."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from jupyter_sky.base.json_types import JsonMapping, JsonObject

JupyterMessage = JsonObject
"""Message of Jupyter's protocol: ``header``, ``parent_header``, ``metadata``, ``content``."""

RECORDED_TYPES = frozenset(
    {
        "stream",
        "display_data",
        "update_display_data",
        "execute_result",
        "clear_output",
        "error",
    }
)
"""Types of outputs that a journal keeps. Widgets' traffic is not: their live side is gone by then.
"""
COUNTED_TYPES = RECORDED_TYPES | {"comm_open", "comm_msg", "comm_close"}
"""Types of messages that the reply of a cell counts: the cell ends when all of them have come."""

NOTICE_MESSAGE = "sky_notices"
"""Type of the messages by which a controller tells of notices of its cloud."""
PROGRESS_MESSAGE = "sky_progress"
"""Type of the messages by which an engine tells what a cell waits for; they are not recorded."""


class ClusterConfig(TypedDict):
    """Configuration file of a controller, a node agent and their engines.

    Attributes
    ----------
    directory : str
        Folder of the cluster on this node.
    idle : float
        Idle limit in seconds.
    cpus : list, optional
        CPU numbers of each rank; None for all of them.
    memory : float, optional
        Limit of each engine in GiB.
    elsewhere : list of int
        Ranks on other nodes, which reach this one at the address `private`.
    peers : list of str
        Addresses of all nodes by rank.
    gpus : list
        Canonical name of the accelerators of a node, and their number.
    tunnel : bool
        Whether notebooks reach the controller through a tunnel.
    notice_service : str
        Reader of the cloud's notices that a machine is taken away; empty where there are none.
    keeps_environment : bool
        Whether the engines share the environment of the notebook, which cells must not change.
    """

    directory: str
    cluster: str
    nodes: int
    idle: float
    cpus: NotRequired[list[list[int] | None] | None]
    memory: NotRequired[float | None]
    elsewhere: NotRequired[list[int]]
    private: NotRequired[str]
    peers: NotRequired[list[str]]
    gpus: NotRequired[tuple[str, float]]
    tunnel: NotRequired[bool]
    notice_service: NotRequired[str]
    keeps_environment: NotRequired[bool]


class NodeConfig(ClusterConfig):
    """Configuration file of a node agent and its engine, which has the given rank."""

    rank: int


class CellFacts(TypedDict):
    """Facts of a cell that its notebook puts into the header of its messages.

    Attributes
    ----------
    rank : int
        Rank of the engine that the message is for.
    limit : float or None
        Longest time that the cell may take, in seconds.
    call : bool
        Whether this is a call of a function, which the controller does not record.
    """

    run: str
    rank: int
    ranks: list[int]
    cell: NotRequired[int]
    name: NotRequired[str | None]
    notebook: NotRequired[str]
    limit: NotRequired[float | None]
    call: NotRequired[bool]


def cell_label(facts: JsonMapping) -> str:
    """Return the name of a cell by its `CellFacts`, in the words of controllers: English.

    Examples
    --------
    >>> cell_label({"cell": 7}), cell_label({"cell": 7, "name": "train"})
    ('cell 7', 'train')
    """
    return str(facts.get("name") or f"cell {facts.get('cell', '?')}")


class GpuSample(TypedDict):
    """State of a GPU: use in per cent, memory in GiB; None where unknown."""

    name: str
    use: float | None
    memory: float | None
    memory_total: float | None


class NodeSample(TypedDict):
    """State of a node: CPU in per cent, None in the first sample; memory in GiB."""

    host: str
    cpu: float | None
    memory: float
    memory_total: float
    gpus: list[GpuSample]


class NoticeRecord(TypedDict):
    """Notice of a cloud about a machine; see `jupyter_sky.machines.engines.node.notices.Notice`."""

    kind: str
    id: str
    seen: float
    ends: float | None


class EngineReport(TypedDict):
    """Report of a node agent on its engine and its node.

    Attributes
    ----------
    serial : int
        Number of the engine process among those of its cluster.
    cell : tuple of str and CellFacts, optional
        Id of the request of the cell that it executes, and its facts.
    code : int or None
        Exit code; None while it runs.
    notices : list of NoticeRecord
        Notices of the cloud about the node that hold now.
    data_engines : dict of str to JsonObject
        How far the data engines are on the node that were asked for, by name.
    """

    rank: int
    serial: int
    pid: int
    cell: tuple[str, CellFacts] | None
    code: int | None
    log_tail: str
    kill_reason: str
    has_controller: bool
    metrics: NodeSample | None
    notices: NotRequired[list[NoticeRecord]]
    data_engines: NotRequired[dict[str, JsonObject]]
