"""Processes of a data engine below a controller or a node agent: their start and their state."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.remote.supervisor import tail_log
from jupyter_sky.machines.engines.node.service_orders import (
    EngineOrder,
    endpoint_file,
    engine_orders,
    read_state,
)
from jupyter_sky.machines.engines.wire.messages import ClusterConfig

STARTING: JsonObject = {"state": "starting", "detail": "", "hint": None}


class NodeProcess:
    """Process that runs a data engine on one node, with the interface of its parent.

    It ends with its parent, which is the controller or the agent of the node.
    """

    def __init__(self, order: EngineOrder) -> None:
        folder = order.folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "state.json").unlink(missing_ok=True)
        self._folder, self._serial = folder, order.serial
        with (folder / "node.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyter_sky.machines.services"],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # interrupts are for cells
            )
        assert self._process.stdin is not None
        with self._process.stdin as stdin:  # secrets: not in arguments or in the environment
            stdin.write(json.dumps(order.to_dict()).encode() + b"\n")

    def state(self) -> JsonObject:
        """Return the state of the node, as `write_state` describes it."""
        code = self._process.poll()
        state = read_state(self._folder) or STARTING
        if code is not None and state["state"] != "failed":
            log = tail_log(self._folder / "node.log")
            state = {"state": "failed", "detail": f"it ended with {code}{log}", "hint": None}
        return state | {"serial": self._serial}

    def kill(self) -> None:
        """Kill the process; most of those that it has started end with it, others by the next."""
        self._process.kill()
        self._process.wait()


class ClusterEngine:
    """Data engine on the nodes of a cluster, as its controller knows it.

    Parameters
    ----------
    engine
        Name of the data engine.
    config
        Configuration of the controller.
    send_order
        Sends the order of a node to its agent.
    remote_states
        Returns what agents have reported of their data engines, by rank.
    lost_nodes
        Returns the ranks of nodes that have not been heard of for long: nobody waits for them but
        for the first one, and what is to run there starts when they return.
    """

    def __init__(
        self,
        engine: str,
        config: ClusterConfig,
        send_order: Callable[[int, JsonObject], None],
        remote_states: Callable[[], Mapping[int, JsonObject]],
        lost_nodes: Callable[[], Collection[int]],
    ) -> None:
        self._engine, self._config, self._send_order = engine, config, send_order
        self._remote_states, self._lost_nodes = remote_states, lost_nodes
        self._local: dict[int, NodeProcess] = {}
        self._remote: set[int] = set()
        self._unsent: dict[int, EngineOrder] = {}
        self._serial = 0

    def request(self, version: str, start: bool) -> JsonObject:
        """Return how far the data engine is, with its facts.

        Parameters
        ----------
        version
            Version to start it in, as an order has it.
        start
            Start it where it does not run, also after a failure.
        """
        self._send_orders()
        state = self._state()
        if start and state["state"] in ("", "failed"):
            self._start(version)
            state = self._state()
        return state

    def _start(self, version: str) -> None:
        for process in self._local.values():
            process.kill()
        self._serial += 1
        folder = endpoint_file(self._config["directory"], self._engine).parent
        folder.mkdir(mode=0o700, exist_ok=True)
        self._remote = set(self._config.get("elsewhere", []))
        orders = {
            order.rank: order
            for order in engine_orders(self._config, self._engine, version, self._serial)
        }
        self._unsent = {rank: orders[rank] for rank in self._remote}
        self._send_orders()
        self._local = {
            rank: NodeProcess(order) for rank, order in orders.items() if rank not in self._remote
        }

    def _send_orders(self) -> None:
        """Send the orders of nodes that are there."""
        for rank in self._unsent.keys() - set(self._lost_nodes()):
            self._send_order(rank, self._unsent.pop(rank).to_dict())

    def _state(self) -> JsonObject:
        """Return the state of the node that is least far, and the facts of the first one."""
        states = {rank: process.state() for rank, process in self._local.items()}
        # nothing runs without the first node
        for rank in sorted(self._remote - (set(self._lost_nodes()) - {0})):
            told = self._remote_states().get(rank, {}).get(self._engine, {})
            is_current = told.get("serial") == self._serial
            states[rank] = told if is_current else STARTING
        if not states:
            return {"state": "", "detail": "", "hint": None}
        order = ("failed", "installing", "starting", "ready")
        least = min(states.values(), key=lambda state: order.index(state["state"]))
        return least | {"facts": states[0].get("facts", {})}
