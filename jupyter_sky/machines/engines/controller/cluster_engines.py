"""Engines of a cluster, on this node and on others: their start, their state, their replacement."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_sky.base.remote.supervisor import describe_exit, kill_all, processes_with_env, tail_log
from jupyter_sky.base.remote.supervisor import write_private as write
from jupyter_sky.machines.engines.controller.agent_server import (
    GIVEN_UP,
    SILENCE_SECONDS,
    AgentServer,
    RemoteEngine,
)
from jupyter_sky.machines.engines.node.current_cell import (
    CurrentCell,
    cell_file_path,
    read_current_cell,
)
from jupyter_sky.machines.engines.node.engine_process import Process, memory_usage, start_engine
from jupyter_sky.machines.engines.wire.agent_link import REJOIN_SECONDS
from jupyter_sky.machines.engines.wire.controller_requests import EngineState
from jupyter_sky.machines.engines.wire.messages import (
    ClusterConfig,
    NodeSample,
    NoticeRecord,
)

if TYPE_CHECKING:
    from jupyter_sky.machines.engines.node.notices import NoticeWatch

MEMORY_PERIOD_SECONDS = 1.0
MAX_RAPID_DEATHS = 3
"""An engine that dies this often before it is up is not started again."""


@dataclass(slots=True)
class EngineRecord:
    """Process of an engine and its state."""

    rank: int
    process: Process | RemoteEngine
    process_marker: tuple[str, str] = ("", "")
    """Mark of its descendants: see `jupyter_sky.base.remote.supervisor.processes_with_env`."""
    log_start: int = 0
    cell: CurrentCell | None = None
    """The cell that it executes, as last read."""
    rapid_deaths: int = 0
    """Number of deaths in a row before it was up."""
    exit_reason: str = ""
    """Reason why its predecessor ended, for the user."""
    kill_reason: str = ""
    """Reason why the controller is about to kill it."""
    lost_reason: str = ""
    """Reason why its node is lost; empty while it is not."""

    def signal(self, signum: int) -> None:
        """Send a signal to the engine and to the processes of its cells."""
        if isinstance(self.process, RemoteEngine):
            self.process.signal(signum)
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signum)

    def kill(self, reason: str) -> None:
        """Kill the engine because it does not respond or uses too much; it is replaced."""
        self.kill_reason = self.kill_reason or reason
        self.signal(signal.SIGKILL)

    def kill_processes(self) -> None:
        """Kill the engine and the processes of its cells, also those in other sessions."""
        if isinstance(self.process, RemoteEngine):
            self.process.kill()
        else:
            self.signal(signal.SIGKILL)
            kill_all(processes_with_env(*self.process_marker))

    def read_cell(self, directory: Path) -> CurrentCell | None:
        """Return the cell that it executes now."""
        if isinstance(self.process, RemoteEngine):
            return None if self.lost_reason else self.process.cell
        return read_current_cell(cell_file_path(directory, self.rank))


class ClusterEngines:
    """Engines of one cluster by rank.

    Parameters
    ----------
    config
        Configuration of the controller: see `ClusterController`.
    config_path
        Its file, which engines read too.
    loaded
        This process has loaded what engines need: the first ones are forked from it.

    Attributes
    ----------
    agent_server : AgentServer or None
        Connections to the agents of other nodes, if there are any.
    is_registered : callable
        Whether the engine of a rank has registered with the hub.
    on_death : callable
        Called with the rank of an engine that has died or whose node is lost.
    """

    def __init__(self, config: ClusterConfig, config_path: Path, loaded: bool = False) -> None:
        self._config, self._config_path = config, config_path
        self._directory = Path(config["directory"])
        self._spawn_count = 0
        self._remote_ranks: list[int] = config.get("elsewhere", [])
        self.local_ranks = [
            rank for rank in range(config["nodes"]) if rank not in self._remote_ranks
        ]
        self.agent_server: AgentServer | None = None
        self.by_rank = {rank: self._spawn(rank, loaded) for rank in self.local_ranks}
        if self._remote_ranks:  # only now: a process with sockets must not be forked
            self.agent_server = self._start_agent_server()
        self.by_rank |= {rank: self._spawn(rank) for rank in self._remote_ranks}
        self._last_memory = 0.0
        self._own_notices: list[NoticeRecord] = []
        self._watch: NoticeWatch | None = None
        self._watch_notices()
        self.is_registered: Callable[[int], bool] = lambda rank: False
        self.on_death: Callable[[int], None] = lambda rank: None

    def _spawn(self, rank: int, loaded: bool = False) -> EngineRecord:
        self._spawn_count += 1
        if rank in self._remote_ranks:
            assert self.agent_server is not None
            return EngineRecord(rank, self.agent_server.spawn(rank, self._spawn_count))
        started = start_engine(self._directory, self._config_path, rank, self._spawn_count, loaded)
        return EngineRecord(rank, *started)

    def _start_agent_server(self) -> AgentServer:
        """Write the address of the agent server to a file that is copied to other nodes."""
        agent_server = AgentServer(self._config.get("private", ""), self._remote_ranks)
        write(self._directory / "security" / "agents.json", agent_server.endpoint)
        return agent_server

    def publish_controller(self, add_metrics: Callable[[int, NodeSample], None]) -> None:
        """Send the address of the controller to engines on other nodes."""
        if self.agent_server is not None:
            address = self._config.get("private", "")
            engine = json.loads((self._directory / "security" / "engine.json").read_text())
            engine |= {"interface": f"tcp://{address}", "location": address}
            # first: node agents that have connected meanwhile get the address at once
            self.agent_server.receive_reports(add_metrics)
            self.agent_server.set_controller(engine)

    def _watch_notices(self) -> None:
        """Watch the cloud's notices about this machine, if it gives any."""
        if service := self._config.get("notice_service"):
            from jupyter_sky.machines.engines.node.notices import start_watch

            self._watch = start_watch(
                service,
                self._directory,
                lambda notices: setattr(self, "_own_notices", notices),
            )

    def are_registered(self) -> bool:
        """Return whether all engines have registered with the hub."""
        return all(map(self.is_registered, self.by_rank))

    def notices(self) -> dict[int, list[NoticeRecord]]:
        """Return the notices of the cloud that hold now, by rank; ranks without any are absent."""
        notices = {rank: self._own_notices for rank in self.local_ranks}
        if self.agent_server is not None:
            notices |= self.agent_server.notices
        return {rank: found for rank, found in notices.items() if found}

    def silent(self) -> list[int]:
        """Return the ranks of nodes that have not been heard of for a while."""
        return [] if self.agent_server is None else self.agent_server.silent()

    def approve_end(self, run: str) -> bool:
        """Let the cloud take this machine away now; only if nothing but a run needs it.

        Returns
        -------
        bool
            Whether the cloud was told.
        """
        needed = {engine["running"] for engine in self.describe()} - {None}
        if self._watch is None or self.agent_server is not None or needed != {run}:
            return False
        return self._watch.approve_end()

    def working_folder(self) -> Path:
        """Return the folder that the first engine of this node works in now."""
        import psutil

        process = self.by_rank[self.local_ranks[0]].process
        try:
            return Path(psutil.Process(process.pid).cwd())
        except (psutil.Error, OSError):  # it is being replaced
            return self._directory / "work"

    # -- checks ------------------------------------------------------------------------------------

    def check_nodes(self, add_metrics: Callable[[int, NodeSample], None]) -> str:
        """Read the reports of other nodes; report lost nodes, and start engines on returned ones.

        Parameters
        ----------
        add_metrics
            Called with the rank and the metrics of a node that has reported.

        Returns
        -------
        str
            The reason why the cluster cannot go on; empty if it can.
        """
        if self.agent_server is None:
            return ""
        self.agent_server.receive_reports(add_metrics)
        if missing := self.agent_server.missing_node():
            return missing
        for rank in self.agent_server.newly_lost():
            engine = self.by_rank[rank]
            engine.lost_reason = f"it has not answered for {SILENCE_SECONDS:g} s"
            engine.exit_reason = f"node {rank} is lost: {engine.lost_reason}"
            self.on_death(rank)
        for rank in self.agent_server.newly_given_up():
            minutes = REJOIN_SECONDS / 60
            self.by_rank[rank].lost_reason = f"it was {GIVEN_UP} after {minutes:g} min of silence"
        for rank in self.agent_server.newly_returned():
            # what its engine did meanwhile has failed: it begins anew, and so does its node
            reason = f"node {rank} is back; {self.by_rank[rank].lost_reason}"
            self.by_rank[rank] = self._spawn(rank)
            self.by_rank[rank].exit_reason = reason
        return ""

    def replace_dead(self) -> str:
        """Start an engine in place of each that has died.

        Returns
        -------
        str
            The reason why the cluster cannot go on; empty if it can.
        """
        for engine in list(self.by_rank.values()):
            if engine.lost_reason or engine.process.poll() is None:
                continue
            is_up = self.is_registered(engine.rank)
            reason = self._describe_death(engine, is_up)
            engine.kill_processes()
            deaths = 0 if is_up else engine.rapid_deaths + 1
            if deaths >= MAX_RAPID_DEATHS:
                self.on_death(engine.rank)
                return f"engine {engine.rank} does not start: {reason}"
            fresh = self.by_rank[engine.rank] = self._spawn(engine.rank)
            fresh.rapid_deaths, fresh.exit_reason = deaths, reason
            self.on_death(engine.rank)  # clients learn of it at once, not by missed heartbeats
        return ""

    def _describe_death(self, engine: EngineRecord, is_up: bool) -> str:
        """Return the reason why an engine has died; with its log if it never came up."""
        code = engine.process.returncode or 0
        remote = engine.process if isinstance(engine.process, RemoteEngine) else None
        kill_reason = engine.kill_reason or (remote.kill_reason if remote else "")
        reason = kill_reason or f"it {describe_exit(code)}"
        if code == -signal.SIGKILL and not kill_reason:
            reason += " (perhaps the machine ran out of memory)"
        if code > 0 and not is_up:
            log = self._directory / f"engine-{engine.rank}.log"
            reason += remote.log_tail if remote else tail_log(log, engine.log_start)
        return reason

    def check_memory(self, now: float) -> None:
        """Kill engines on this node that use more memory than they were given."""
        memory = self._config.get("memory")
        if not memory or now - self._last_memory <= MEMORY_PERIOD_SECONDS:
            return
        self._last_memory = now
        limit = memory * 2**30
        for engine in self.by_rank.values():
            if isinstance(engine.process, RemoteEngine):  # its node agent does that
                continue
            used = memory_usage(engine.process.pid, limit)
            if used > limit:
                engine.kill(
                    f"it used {used / 2**30:.1f} GiB of the {memory:g} GiB asked for with --memory"
                )

    # -- commands ----------------------------------------------------------------------------------

    def kill(self, rank: int, reason: str) -> None:
        """Kill an engine that does not respond; it is replaced."""
        if rank in self.by_rank:
            self.by_rank[rank].kill(reason)

    def give_up(self, ranks: Iterable[int], why: str) -> None:
        """Stop the agents of other nodes, now or when they return, and start no engines there."""
        for rank in ranks:
            if self.agent_server is not None and rank in self._remote_ranks:
                engine = self.by_rank[rank]
                was_lost, engine.lost_reason = engine.lost_reason, f"it was {GIVEN_UP}: {why}"
                engine.exit_reason = f"node {rank} is lost: {why}"
                self.agent_server.give_up(rank)
                if not was_lost:
                    self.on_death(rank)

    def stop(self) -> None:
        """Kill all engines, and stop the agents of other nodes."""
        for engine in self.by_rank.values():
            engine.kill_processes()
        if self.agent_server is not None:
            self.agent_server.stop_agents()

    def running(self, run: str | None, ranks: Iterable[int]) -> list[EngineRecord]:
        """Return the engines of `ranks` that execute a run; all of `ranks` without one."""
        return [
            engine
            for engine in self.by_rank.values()
            if engine.rank in ranks
            and (run is None or (engine.cell is not None and engine.cell.facts["run"] == run))
        ]

    def describe(self) -> list[EngineState]:
        """Return the state of each engine, for notebooks."""
        return [
            {
                "rank": engine.rank,
                "pid": engine.process.pid,
                "running": engine.cell.facts["run"] if engine.cell else None,
                "exit_reason": engine.exit_reason,
                "lost": engine.lost_reason,
            }
            for engine in self.by_rank.values()
        ]
