"""Cluster controller (``python -m``): hub, schedulers, supervision of engines, record of outputs.

    python -m jupyter_sky.engines.controller.controller CONFIG.json

One process holds the hub and all schedulers (as threads: a controller of nine processes costs
three times the memory and half a second of start). It starts the engines, restarts those that
die, keeps every message that cells print, and ends the cluster when nothing has used it for the
length of its idle limit: see `jupyter_sky.engines.controller.activity`.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...remote.supervisor import descendants, describe_exit, kill_all, processes_with_env, tail_log
from ...remote.supervisor import write_private as write
from ..node.current_cell import CurrentCell, cell_file_path, read_current_cell
from ..node.engine import import_dependencies
from ..node.engine_process import Process, load_config, memory_usage, start_engine
from ..node.keepalive import KeepAlive
from ..node.metrics import PERIOD_SECONDS, MetricsHistory, NodeMetrics
from .activity import Activity, notebook_name
from .agent_server import GIVEN_UP, REJOIN_SECONDS, SILENCE_SECONDS, AgentServer, RemoteEngine
from .deadline import BUDGET_SPENT_REASON, Deadline
from .journal import Journal
from .logins import LOGIN_POLL_SECONDS, LoginMonitor
from .runs import Run, Runs

if TYPE_CHECKING:
    from ...functions.shared.shared_state_server import SharedStateProcess

MEMORY_PERIOD_SECONDS = 1.0
MAX_RAPID_DEATHS = 3
"""An engine that dies this often before it is up is not started again."""


@dataclass(slots=True)
class EngineRecord:
    """Process of an engine and its state."""

    rank: int
    process: Process | RemoteEngine
    process_marker: tuple[str, str] = ("", "")
    """What tells its descendants: see `jupyter_sky.remote.supervisor.processes_with_env`."""
    log_start: int = 0
    cell: CurrentCell | None = None
    """What it executes, as far as was seen."""
    rapid_deaths: int = 0
    """How often in a row it has died before it was up."""
    exit_reason: str = ""
    """Why the one before it ended, in words for the user."""
    kill_reason: str = ""
    """Why the controller is about to kill it."""
    lost_reason: str = ""
    """Why its node is lost; empty while it is not."""


class ClusterController:
    """State of one cluster, and handlers for the requests of its notebooks.

    Parameters
    ----------
    config
        ``directory``, ``cluster``, ``nodes``, ``idle`` (seconds), ``cpus`` (a list of CPU
        numbers a rank, or None) and ``memory`` (GiB an engine, or None). Engines of ranks in
        ``elsewhere`` are on other nodes, which reach this one at ``private``.
    loaded
        This process has loaded what engines need: the first ones are forked from it.
    """

    def __init__(self, config: dict[str, Any], config_path: Path, loaded: bool = False) -> None:
        self.config, self.config_path = config, config_path
        self.directory = Path(config["directory"])
        self.journal = Journal(self.directory / "journal")
        self.activity = Activity(float(config["idle"]), time.monotonic())
        self.deadline = Deadline()
        self.runs = Runs()
        # a shell on the notebook's own machine belongs to its user, and not for this cluster
        self._logins = LoginMonitor(self.directory, bool(config.get("tunnel")))
        self.keepalive = KeepAlive(self.directory / "supervisor.json")
        self.stopping = ""
        self.parent = os.getppid()
        self._spawn_count = 0
        self._remote_ranks: list[int] = config.get("elsewhere", [])
        self._ranks = [rank for rank in range(config["nodes"]) if rank not in self._remote_ranks]
        engines = {rank: self._spawn(rank, loaded) for rank in self._ranks}  # no sockets yet
        self.agent_server = self._start_agent_server() if self._remote_ranks else None
        self._tunnel_server = self._start_tunnel_server() if config.get("tunnel") else None
        self._shared_state: SharedStateProcess | None = None
        cpus = config.get("cpus") or [None] * config["nodes"]
        self._metrics = NodeMetrics([cpus[rank] for rank in self._ranks])
        self._history = MetricsHistory()
        self.engines = engines | {rank: self._spawn(rank) for rank in self._remote_ranks}
        self._last_memory = 0.0
        self.is_registered: Callable[[int], bool] = lambda rank: False
        self.on_death: Callable[[int], None] = lambda rank: None
        self.drain_outputs: Callable[[], None] = lambda: None
        self.stop_loop: Callable[[], None] = lambda: None

    def _start_tunnel_server(self) -> subprocess.Popen:
        """Start the tunnel server, for notebooks on other machines."""
        command = [
            sys.executable,
            "-m",
            "jupyter_sky.engines.controller.tunnel_server",
            "serve",
            str(self.directory),
        ]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def _spawn(self, rank: int, loaded: bool = False) -> EngineRecord:
        self._spawn_count += 1
        if rank in self._remote_ranks:
            assert self.agent_server is not None
            return EngineRecord(rank, self.agent_server.spawn(rank, self._spawn_count))
        started = start_engine(self.directory, self.config_path, rank, self._spawn_count, loaded)
        return EngineRecord(rank, *started)

    def _start_agent_server(self) -> AgentServer:
        """Write the address of the agent server to a file that is copied to other nodes."""
        agent_server = AgentServer(self.config["private"], self._remote_ranks)
        write(self.directory / "security" / "agents.json", agent_server.endpoint)
        return agent_server

    def publish_controller(self) -> None:
        """Send the address of the controller to engines on other nodes."""
        if self.agent_server is not None:
            address = self.config["private"]
            engine = json.loads((self.directory / "security" / "engine.json").read_text())
            engine |= {"interface": f"tcp://{address}", "location": address}
            # first: node agents that have connected meanwhile get the address at once
            self.agent_server.receive_reports(self._history.add)
            self.agent_server.set_controller(engine)

    # -- periodic checks ---------------------------------------------------------------------------

    def tick(self) -> None:
        """Check engines, limits of runs, idle time and keep-alive."""
        if self.stopping:
            return
        self.keepalive.renew()
        for rank, sample in zip(self._ranks, self._metrics.tick(), strict=False):
            self._history.add(rank, sample)
        if self.agent_server is not None:
            self.agent_server.receive_reports(self._history.add)
            if missing := self.agent_server.missing_node():
                self.stop(missing)
                return
            self._check_nodes(self.agent_server)
        self._read_current_cells()
        for engine in list(self.engines.values()):
            if not engine.lost_reason and engine.process.poll() is not None:
                self._replace_engine(engine)
        if self._tunnel_server is not None and self._tunnel_server.poll() is not None:
            self._tunnel_server = self._start_tunnel_server()
        if self._shared_state is not None:
            self._shared_state.tick()
        now = time.monotonic()
        if self.config.get("memory") and now - self._last_memory > MEMORY_PERIOD_SECONDS:
            self._last_memory = now
            self._check_memory()
        for run, facts, kill in self.runs.iter_overdue():
            if kill:
                why = f"its cell went on after the {facts['limit']:g} s that it was allowed"
                self._op_kill({"run": run, "ranks": facts["ranks"], "why": why})
            else:
                self._op_interrupt({"run": run, "ranks": facts["ranks"]})
        running = dict(self.runs.running())
        self.journal.flush(running.keys())
        for run in running.values():
            self.activity.record_use(_cell_label(run.facts), now)
        for login in self._logins.poll(now):
            self.activity.record_use(str(login), now - login.idle)
        if os.getppid() != self.parent:
            self.stop("its supervisor was killed")
        elif self.deadline.is_over():
            self.stop(BUDGET_SPENT_REASON)
        elif self.activity.seconds_left(now) < 0:
            self.stop("idle")

    def _describe_use(self) -> dict[str, Any]:
        """Return current uses, last use and idle time left."""
        cells = [_cell_label(run.facts) for _, run in self.runs.running()]
        shells = [str(login) for login in self._logins.found if login.idle <= LOGIN_POLL_SECONDS]
        return self.activity.report(time.monotonic(), cells, shells)

    def _check_nodes(self, agent_server: AgentServer) -> None:
        """Fail cells on lost nodes, and start engines on nodes that are back."""
        for rank in agent_server.newly_lost():
            engine = self.engines[rank]
            engine.lost_reason = f"it has not answered for {SILENCE_SECONDS:g} s"
            engine.exit_reason = f"node {rank} is lost: {engine.lost_reason}"
            self.runs.mark_rank_lost(rank)
            self.on_death(rank)
        for rank in agent_server.newly_given_up():
            minutes = REJOIN_SECONDS / 60
            self.engines[rank].lost_reason = f"it was {GIVEN_UP} after {minutes:g} min of silence"
        for rank in agent_server.newly_returned():
            # what its engine did meanwhile has failed: it begins anew, and so does its node
            words = f"node {rank} is back; {self.engines[rank].lost_reason}"
            self.engines[rank] = self._spawn(rank)
            self.engines[rank].exit_reason = words

    def _read_current_cells(self) -> None:
        """Read the current-cell files of the engines."""
        for engine in self.engines.values():
            before = engine.cell
            if isinstance(engine.process, RemoteEngine):
                now = None if engine.lost_reason else engine.process.cell
            else:
                now = read_current_cell(cell_file_path(self.directory, engine.rank))
            if now == before:
                continue
            engine.cell = now
            if before is not None and (run := self.runs.get(before.facts["run"])):
                run.mark_finished(before.msg_id)
            if now is not None and not now.facts.get("call"):
                self._record_cell(now, engine_lives=True).mark_started()

    def _record_cell(self, cell: CurrentCell, engine_lives: bool) -> Run:
        """Return the run of a cell; requests on direct routes do not pass the controller."""
        run = self.runs.get(cell.facts["run"])
        if run is None or cell.msg_id not in run.ranks:
            for old in self.runs.record_sent(cell.facts, cell.msg_id, engine_lives):
                self.journal.forget(old)
        run = self.runs.get(cell.facts["run"])
        assert run is not None
        return run

    def _replace_engine(self, engine: EngineRecord) -> None:
        """Handle the end of an engine: record why, fail its cells, start another."""
        code, up = engine.process.returncode or 0, self.is_registered(engine.rank)
        remote = engine.process if isinstance(engine.process, RemoteEngine) else None
        engine.kill_reason = engine.kill_reason or (remote.kill_reason if remote else "")
        words = engine.kill_reason or f"it {describe_exit(code)}"
        if code == -signal.SIGKILL and not engine.kill_reason:
            words += " (perhaps the machine ran out of memory)"
        if code > 0 and not up:
            log = self.directory / f"engine-{engine.rank}.log"
            words += remote.log_tail if remote else tail_log(log, engine.log_start)
        self._kill_processes(engine)
        self.runs.mark_rank_lost(engine.rank)
        deaths = 0 if up else engine.rapid_deaths + 1
        if deaths >= MAX_RAPID_DEATHS:
            self.stop(f"engine {engine.rank} does not start: {words}")
            return
        fresh = self.engines[engine.rank] = self._spawn(engine.rank)
        fresh.rapid_deaths, fresh.exit_reason = deaths, words
        self.on_death(engine.rank)  # clients learn of it at once, not by missed heartbeats

    def _kill_processes(self, engine: EngineRecord) -> None:
        """Kill an engine and the processes of its cells."""
        if isinstance(engine.process, RemoteEngine):
            engine.process.kill()
        else:
            self.killpg(engine, signal.SIGKILL)
            kill_all(processes_with_env(*engine.process_marker))

    def _check_memory(self) -> None:
        bound = self.config["memory"] * 2**30
        for engine in self.engines.values():
            if isinstance(engine.process, RemoteEngine):  # its node agent does that
                continue
            used = memory_usage(engine.process.pid, bound)
            if used > bound:
                engine.kill_reason = (
                    f"it used {used / 2**30:.1f} GiB of the "
                    f"{self.config['memory']:g} GiB asked for with --memory"
                )
                self.killpg(engine, signal.SIGKILL)

    def kill_engine(self, rank: int, why: str) -> None:
        """Kill an engine that does not respond; it is replaced."""
        engine = self.engines.get(rank)
        if engine is not None:
            engine.kill_reason = engine.kill_reason or why
            self.killpg(engine, signal.SIGKILL)

    def stop(self, reason: str) -> None:
        """End the cluster and its processes; the supervisor kills any that remain."""
        if self.stopping:
            return
        self.stopping = reason
        with suppress(OSError):  # a full disk must not keep the cluster up
            write(self.directory / "ended.json", {"time": time.time(), "reason": reason})
        for engine in self.engines.values():
            self._kill_processes(engine)
        if self.agent_server is not None:
            self.agent_server.stop_agents()
        kill_all(descendants(os.getpid()))
        self.drain_outputs()  # what was printed last
        self.journal.flush(())
        self.stop_loop()

    def on_signal(self) -> None:
        """End because of a signal: a user's, or the system's when the supervisor is gone."""
        self.stop("stopped" if os.getppid() == self.parent else "its supervisor was killed")

    @staticmethod
    def killpg(engine: EngineRecord, signum: int) -> None:
        """Send a signal to an engine and to the processes of its cells."""
        if isinstance(engine.process, RemoteEngine):
            engine.process.signal(signum)
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(engine.process.pid, signum)

    # -- messages of cells -------------------------------------------------------------------------

    def on_request(self, message: dict[str, Any], engine_lives: bool) -> None:
        """Record a cell on its way to an engine."""
        facts, header = _facts(message["header"]), message["header"]
        if facts and header["msg_type"] == "execute_request":
            self._record_cell(CurrentCell(header["msg_id"], facts), engine_lives)

    def on_reply(self, message: dict[str, Any]) -> None:
        """Record the end of a cell on one engine."""
        facts = _facts(message["parent_header"])
        run = self.runs.get(facts["run"]) if facts else None
        if run is not None:
            self.runs.record_reply(run, message["parent_header"]["msg_id"], message["content"])

    def on_output(self, message: dict[str, Any]) -> None:
        """Record an output of a cell, and the last one as such."""
        facts = _facts(message["parent_header"])
        if not facts:
            return
        if message["header"]["msg_type"] == "status":
            if message["content"]["execution_state"] == "idle":
                cell = CurrentCell(message["parent_header"]["msg_id"], facts)
                self._record_cell(cell, facts["rank"] in self.engines).mark_finished(
                    cell.msg_id, quiet=True
                )
            return
        run = self.runs.get(facts["run"])
        if run is not None and message["header"]["msg_type"] == "error":
            run.mark_failed(message["content"]["ename"])
        self.journal.append(facts["run"], facts["rank"], message)

    # -- requests ----------------------------------------------------------------------------------

    def handle_request(self, content: dict[str, Any]) -> dict[str, Any]:
        """Handle one request of a notebook or of an observer."""
        self._read_current_cells()
        return getattr(self, f"_op_{content['op']}")(content) or {}

    def _op_hello(self, content: dict[str, Any]) -> dict[str, Any]:
        from ..._version import __version__

        return {
            "cluster": self.config["cluster"],
            "python": platform.python_version(),
            "version": __version__,
            "nodes": len(self.engines),
            "running": [run for run, _ in self.runs.running()],
        }

    def _op_beat(self, content: dict[str, Any]) -> dict[str, Any]:
        """Record the heartbeat of a notebook."""
        if content.get("idle"):
            self.activity.idle = float(content["idle"])
        if "left" in content:
            self.deadline.set(content["left"])
        if content.get("notebook"):
            what, uses = content.get("what", ""), content.get("uses", "")
            now = time.monotonic()
            self.activity.record_heartbeat(content["notebook"], now, content.get("ago"), what, uses)
        return {"stopping": self.stopping, **self._describe_use()}

    def _op_deadline(self, content: dict[str, Any]) -> dict[str, Any]:
        """Set the deadline of the cluster: the time until which the day's budget lasts."""
        self.deadline.set(content["left"])
        return {"left": self.deadline.seconds_left}

    def _op_use(self, content: dict[str, Any]) -> dict[str, Any]:
        return self._describe_use()

    def _op_extend(self, content: dict[str, Any]) -> dict[str, Any]:
        """Keep an idle cluster up for some seconds."""
        self.activity.keep_until(time.monotonic() + float(content["seconds"]))
        return self._describe_use()

    def _op_metrics(self, content: dict[str, Any]) -> dict[str, Any]:
        return {
            "at": time.time(),
            "period": PERIOD_SECONDS,
            **self._describe_use(),
            "running": [run for run, _ in self.runs.running()],
            "nodes": self._history.nodes(),
        }

    def _op_journal(self, content: dict[str, Any]) -> dict[str, Any]:
        # the state first: what comes between the two would be left out otherwise
        run = self.runs.get(content["run"])
        status = run.status if run else "unknown"
        entries, following = self.journal.read(content["run"], content["start"])
        return {
            "entries": entries,
            "next": following,
            "status": status,
            "ended": run.ended if run else None,
        }

    def _op_interrupt(self, content: dict[str, Any]) -> dict[str, Any]:
        """Interrupt a run; return the ranks that execute it."""
        told = self._running_engines(content)
        for engine in told:
            self.killpg(engine, signal.SIGINT)
        return {"interrupted": [engine.rank for engine in told]}

    def _op_kill(self, content: dict[str, Any]) -> dict[str, Any]:
        """Kill the engines that execute a run; they are replaced."""
        killed = self._running_engines(content)
        for engine in killed:
            self.kill_engine(engine.rank, content.get("why", "it was told to"))
        return {"killed": [engine.rank for engine in killed]}

    def _running_engines(self, content: dict[str, Any]) -> list[EngineRecord]:
        """Return the live engines of `ranks`; with a run, those that execute it."""
        return [
            engine
            for engine in self.engines.values()
            if engine.rank in content["ranks"]
            and (
                content["run"] is None
                or (engine.cell is not None and engine.cell.facts["run"] == content["run"])
            )
        ]

    def _op_shared_state(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return the endpoint of the shared state and the ports for rendezvous."""
        if self._shared_state is None:
            from ...functions.shared.shared_state_server import SharedStateProcess

            self._shared_state = SharedStateProcess(self.config.get("private", ""))
        return self._shared_state.endpoint

    def _op_engines(self, content: dict[str, Any]) -> dict[str, Any]:
        return {
            "engines": [
                {
                    "rank": engine.rank,
                    "pid": engine.process.pid,
                    "running": engine.cell.facts["run"] if engine.cell else None,
                    "exit_reason": engine.exit_reason,
                    "lost": engine.lost_reason,
                }
                for engine in self.engines.values()
            ]
        }


def _cell_label(facts: dict[str, Any]) -> str:
    """Return a label of a cell and its notebook."""
    what = facts.get("name") or f"cell {facts.get('cell', '?')}"
    notebook = facts.get("notebook")
    return f"{what} of {notebook_name(notebook)}" if notebook else what


def _facts(header: dict[str, Any]) -> dict[str, Any] | None:
    """Return the metadata that a notebook put into the header of a cell's messages."""
    text = header.get("sky") if header else None
    return json.loads(text) if text else None


def main(argv: list[str]) -> None:
    """Start the engines at once, and the controller while they load."""
    path = Path(argv[0])
    config = load_config(path)
    several = config["nodes"] - len(config.get("elsewhere", ())) > 1
    if several:
        import_dependencies()
    controller = ClusterController(config, path, loaded=several)
    try:
        from .hub import run_controller  # takes long: engines start meanwhile

        run_controller(controller)
    finally:
        controller.stop("ended")


if __name__ == "__main__":
    main(sys.argv[1:])
