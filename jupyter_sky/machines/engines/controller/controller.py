"""Cluster controller: supervision of engines, record of outputs, requests of notebooks.

One process holds the hub and all schedulers (as threads: a controller of nine processes costs
three times the memory and half a second of start). It starts the engines, restarts those that
die, keeps every message that cells print, and ends the cluster when nothing has used it for the
length of its idle limit: see `jupyter_sky.machines.engines.controller.activity`.
"""

from __future__ import annotations

import json
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.messages import Done, Message, Receiver, handles
from jupyter_sky.base.remote.supervisor import descendants, kill_all, unmount_below
from jupyter_sky.base.remote.supervisor import write_private as write
from jupyter_sky.machines.engines.controller.activity import Activity, notebook_name
from jupyter_sky.machines.engines.controller.cluster_engines import ClusterEngines
from jupyter_sky.machines.engines.controller.journal import Journal
from jupyter_sky.machines.engines.controller.logins import LOGIN_POLL_SECONDS, LoginMonitor
from jupyter_sky.machines.engines.node import outgoing_files
from jupyter_sky.machines.engines.node.current_cell import CurrentCell
from jupyter_sky.machines.engines.node.keepalive import KeepAlive
from jupyter_sky.machines.engines.node.metrics import PERIOD_SECONDS, MetricsHistory, NodeMetrics
from jupyter_sky.machines.engines.node.ports import free_port
from jupyter_sky.machines.engines.wire.agent_commands import StartDataEngineNode
from jupyter_sky.machines.engines.wire.agent_link import listen_addresses
from jupyter_sky.machines.engines.wire.controller_requests import (
    ABSENT,
    PROTOCOL,
    ApproveEnd,
    ApproveEndReply,
    Beat,
    BeatReply,
    DataEngineReply,
    DeadlineReply,
    EnginesReply,
    Extend,
    FilesReply,
    FindSharedState,
    GiveUp,
    Hello,
    HelloReply,
    Interrupt,
    InterruptReply,
    JournalReply,
    Kill,
    KillReply,
    ListEngines,
    MetricsReply,
    ReadFiles,
    ReadJournal,
    ReadMetrics,
    SetDeadline,
    SharedStateReply,
    StartDataEngine,
    Use,
    UseReply,
)
from jupyter_sky.machines.engines.wire.messages import (
    CellFacts,
    ClusterConfig,
    JupyterMessage,
    NoticeRecord,
    cell_label,
)

if TYPE_CHECKING:
    from jupyter_sky.machines.engines.node.service_processes import ClusterEngine


UseReplyT = TypeVar("UseReplyT", bound=UseReply)
SUPERVISOR_KILLED = "its supervisor was killed"
START_SECONDS = 120.0
"""The start of a cluster is a use of it until all engines are up, for so long at most."""


class ClusterController(Receiver):
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

    def __init__(self, config: ClusterConfig, config_path: Path, loaded: bool = False) -> None:
        self.config, self.directory = config, Path(config["directory"])
        self.journal = Journal(self.directory / "journal")
        now = time.monotonic()
        self.activity = Activity(float(config["idle"]), now)
        self._start_limit = now + START_SECONDS
        self.deadline = Deadline()
        self.runs = Runs()
        # a shell on the notebook's own machine belongs to its user, and not for this cluster
        self._logins = LoginMonitor(self.directory, bool(config.get("tunnel")))
        self.keepalive = KeepAlive(self.directory / "supervisor.json")
        self._last_output: tuple[float, CellFacts] | None = None
        self.stopping = ""
        self.parent = os.getppid()
        self.engines = ClusterEngines(config, config_path, loaded)
        self.engines.on_death = self._on_engine_death
        self._tunnel_server = self._start_tunnel_server() if config.get("tunnel") else None
        self._shared_state: SharedStateProcess | None = None
        self._data_engines: dict[str, ClusterEngine] = {}
        cpus = config.get("cpus") or [None] * config["nodes"]
        self._metrics = NodeMetrics([cpus[rank] for rank in self.engines.local_ranks])
        self._history = MetricsHistory()
        self._notices: dict[int, list[NoticeRecord]] = {}
        self._silent: list[int] = []
        self.unregister: Callable[[int], None] = lambda rank: None
        self.publish_notices: Callable[[JsonObject], None] = lambda notices: None
        self.drain_outputs: Callable[[], None] = lambda: None
        self.stop_loop: Callable[[], None] = lambda: None

    def _start_tunnel_server(self) -> subprocess.Popen:
        """Start the tunnel server, for notebooks on other machines."""
        command = [
            sys.executable,
            "-m",
            "jupyter_sky.machines.engines.controller.tunnel_server",
            "serve",
            str(self.directory),
        ]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def publish_controller(self) -> None:
        """Send the address of the controller to engines on other nodes."""
        self.engines.publish_controller(self._history.add)

    # -- periodic checks ---------------------------------------------------------------------------

    def tick(self) -> None:
        """Check engines, limits of runs, idle time and keep-alive."""
        if self.stopping:
            return
        now = time.monotonic()
        self.keepalive.renew()
        for rank, sample in zip(self.engines.local_ranks, self._metrics.tick(), strict=False):
            self._history.add(rank, sample)
        if reason := self._check_engines(now):
            self.stop(reason)
            return
        if self._tunnel_server is not None and self._tunnel_server.poll() is not None:
            self._tunnel_server = self._start_tunnel_server()
        if self._shared_state is not None:
            self._shared_state.tick()
        self._stop_overdue_runs()
        self._record_uses(now)
        if reason := self._end_reason(now):
            self.stop(reason)

    def _check_engines(self, now: float) -> str:
        """Check engines and nodes; return the reason why the cluster cannot go on, if any."""
        if reason := self.engines.check_nodes(self._history.add):
            return reason
        self._check_notices()
        self._read_current_cells()
        if reason := self.engines.replace_dead():
            return reason
        self.engines.check_memory(now)
        return ""

    def _check_notices(self) -> None:
        """Tell notebooks at once of notices that have changed, and of nodes that are silent."""
        notices, silent = self.engines.notices(), self.engines.silent()
        if (notices, silent) != (self._notices, self._silent):
            self._notices, self._silent = notices, silent
            self.publish_notices({"notices": self._describe_notices(), "silent": silent})

    def _describe_notices(self) -> JsonObject:
        return {str(rank): found for rank, found in self._notices.items()}

    def _stop_overdue_runs(self) -> None:
        """Interrupt runs that are past their limit, and kill those that go on."""
        for run, facts, kill in self.runs.iter_overdue():
            for engine in self.engines.running(run, facts["ranks"]):
                if kill:
                    limit = facts.get("limit") or 0.0
                    engine.kill(f"its cell went on after the {limit:g} s that it was allowed")
                else:
                    engine.signal(signal.SIGINT)

    def _record_uses(self, now: float) -> None:
        """Write the outputs of cells to disk, and record cells and logins as uses."""
        if now < self._start_limit:
            self.activity.record_use("its start", now)
            if self.engines.are_registered():
                self._start_limit = now
        running = dict(self.runs.running())
        self.journal.flush(running.keys())
        for run in running.values():
            self.activity.record_use(_describe_cell(run.facts), now)
        if self._last_output is not None:  # a cell that is shorter than a tick is not seen running
            at, facts = self._last_output
            self.activity.record_use(_describe_cell(facts), at)
            self._last_output = None
        for login in self._logins.poll(now):
            self.activity.record_use(str(login), now - login.idle)

    def _end_reason(self, now: float) -> str:
        """Return the reason why the cluster is to end now, if any."""
        if os.getppid() != self.parent:
            return SUPERVISOR_KILLED
        if self.deadline.is_over():
            return BUDGET_SPENT_REASON
        return "idle" if self.activity.seconds_left(now) < 0 else ""

    def _report_use(self, kind: type[UseReplyT], **more: Any) -> UseReplyT:
        """Return a reply with current uses, last use and idle time left."""
        cells = [_describe_cell(run.facts) for _, run in self.runs.running()]
        shells = [str(login) for login in self._logins.current if login.idle <= LOGIN_POLL_SECONDS]
        return kind(**self.activity.report(time.monotonic(), cells, shells), **more)

    def _read_current_cells(self) -> None:
        """Read the current-cell files of the engines."""
        for engine in self.engines.by_rank.values():
            before, now = engine.cell, engine.read_cell(self.directory)
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

    def _on_engine_death(self, rank: int) -> None:
        """Fail the cells of an engine, and unregister it."""
        self.runs.mark_rank_lost(rank)
        self.unregister(rank)

    def stop(self, reason: str) -> None:
        """End the cluster and its processes; the supervisor kills any that remain."""
        if self.stopping:
            return
        self.stopping = reason
        with suppress(OSError):  # a full disk must not keep the cluster up
            write(self.directory / "ended.json", {"time": time.time(), "reason": reason})
        self.engines.stop()
        kill_all(descendants(os.getpid()))
        unmount_below(self.directory)
        self.drain_outputs()  # what was printed last
        self.journal.flush(())
        self.stop_loop()

    def on_signal(self) -> None:
        """End because of a signal: a user's, or the system's when the supervisor is gone."""
        self.stop("stopped" if os.getppid() == self.parent else SUPERVISOR_KILLED)

    # -- messages of cells -------------------------------------------------------------------------

    def on_request(self, message: JupyterMessage, engine_lives: bool) -> None:
        """Record a cell on its way to an engine."""
        facts, header = _facts(message["header"]), message["header"]
        if facts and header["msg_type"] == "execute_request":
            self._record_cell(CurrentCell(header["msg_id"], facts), engine_lives)

    def on_reply(self, message: JupyterMessage) -> None:
        """Record the end of a cell on one engine."""
        facts = _facts(message["parent_header"])
        run = self.runs.get(facts["run"]) if facts else None
        if run is not None:
            self.runs.record_reply(run, message["parent_header"]["msg_id"], message["content"])

    def on_output(self, message: JupyterMessage) -> None:
        """Record an output of a cell, and the last one as such; its content is packed JSON."""
        facts = _facts(message["parent_header"])
        if not facts:
            self._record_call_output(message)
            return
        self._last_output = (time.monotonic(), facts)
        kind = message["header"]["msg_type"]
        if kind == "status":
            if _unpack(message["content"])["execution_state"] == "idle":
                cell = CurrentCell(message["parent_header"]["msg_id"], facts)
                self._record_cell(cell, facts["rank"] in self.engines.by_rank).mark_finished(
                    cell.msg_id, quiet=True
                )
            return
        run = self.runs.get(facts["run"])
        if run is not None and kind == "error":
            run.mark_failed(_unpack(message["content"])["ename"])
        self.journal.append(facts["run"], facts["rank"], kind, message["content"])

    def _record_call_output(self, message: JupyterMessage) -> None:
        """Record an output of a call of a pool, if it is one."""
        text = (message["parent_header"] or {}).get("sky_calls")
        if text:
            facts, kind = json.loads(text), message["header"]["msg_type"]
            self.journal.append(facts["run"], facts["rank"], kind, message["content"])

    # -- requests ----------------------------------------------------------------------------------

    def handle_request(self, content: JsonObject) -> Message:
        """Return the reply to a request of a notebook or of an observer."""
        self._read_current_cells()
        return self.dispatch(self.decode(content))

    @handles(Hello)
    def _say_hello(self, request: Hello) -> HelloReply:
        from jupyter_sky._version import __version__

        return HelloReply(
            cluster=self.config["cluster"],
            python=platform.python_version(),
            version=__version__,
            nodes=len(self.engines.by_rank),
            running=[run for run, _ in self.runs.running()],
            protocol=PROTOCOL,
        )

    @handles(Beat)
    def _record_beat(self, request: Beat) -> BeatReply:
        """Record the heartbeat of a notebook."""
        if request.idle:
            self.activity.idle = float(request.idle)
        if request.left is not ABSENT:
            self.deadline.set(request.left)
        if request.notebook:
            now = time.monotonic()
            self.activity.record_heartbeat(
                request.notebook, now, request.ago, request.what, request.uses
            )
        return self._report_use(BeatReply, stopping=self.stopping, notices=self._describe_notices())

    @handles(SetDeadline)
    def _set_deadline(self, request: SetDeadline) -> DeadlineReply:
        """Set the deadline of the cluster: the time until which the day's budget lasts."""
        self.deadline.set(request.left)
        return DeadlineReply(self.deadline.seconds_left)

    @handles(Use)
    def _describe_use(self, request: Use) -> UseReply:
        return self._report_use(UseReply)

    @handles(Extend)
    def _extend(self, request: Extend) -> UseReply:
        """Keep an idle cluster up for some seconds."""
        self.activity.keep_until(time.monotonic() + float(request.seconds))
        return self._report_use(UseReply)

    @handles(ReadMetrics)
    def _read_metrics(self, request: ReadMetrics) -> MetricsReply:
        return self._report_use(
            MetricsReply,
            at=time.time(),
            period=PERIOD_SECONDS,
            running=[run for run, _ in self.runs.running()],
            nodes=self._history.nodes(),
        )

    @handles(ReadJournal)
    def _read_journal(self, request: ReadJournal) -> JournalReply:
        # the state first: what comes between the two would be left out otherwise
        run = self.runs.get(request.run)
        status = run.status if run else "unknown"
        entries, following = self.journal.read(request.run, request.start)
        return JournalReply(entries, following, status, run.ended if run else None)

    @handles(Interrupt)
    def _interrupt(self, request: Interrupt) -> InterruptReply:
        """Interrupt a run; return the ranks that execute it."""
        engines = self.engines.running(request.run, request.ranks)
        for engine in engines:
            engine.signal(signal.SIGINT)
        return InterruptReply([engine.rank for engine in engines])

    @handles(Kill)
    def _kill(self, request: Kill) -> KillReply:
        """Kill the engines that execute a run; they are replaced."""
        engines = self.engines.running(request.run, request.ranks)
        for engine in engines:
            engine.kill(request.why)
        return KillReply([engine.rank for engine in engines])

    @handles(GiveUp)
    def _give_up(self, request: GiveUp) -> Done:
        self.engines.give_up(request.ranks, request.why)
        return Done()

    @handles(ApproveEnd)
    def _approve_end(self, request: ApproveEnd) -> ApproveEndReply:
        return ApproveEndReply(self.engines.approve_end(request.run))

    @handles(FindSharedState)
    def _find_shared_state(self, request: FindSharedState) -> SharedStateReply:
        """Return the endpoint of the shared state and the ports for rendezvous."""
        if self._shared_state is None:
            folder = Path(self.config["directory"])
            self._shared_state = SharedStateProcess(self.config.get("private", ""), folder)
        return SharedStateReply.decode(
            {**self._shared_state.endpoint, "is_used": self._shared_state.is_used}
        )

    @handles(StartDataEngine)
    def _start_data_engine(self, request: StartDataEngine) -> DataEngineReply:
        """Start a data engine on the nodes, or return its state."""
        name = request.engine
        if name not in self._data_engines:
            from jupyter_sky.machines.engines.node.service_processes import ClusterEngine

            server = self.engines.agent_server
            self._data_engines[name] = ClusterEngine(
                name,
                self.config,
                lambda rank, order: server.send_command(rank, StartDataEngineNode(order)),
                lambda: server.data_engines if server else {},
                lambda: server.lost if server else (),
            )
        return DataEngineReply.decode(
            self._data_engines[name].request(request.version, request.start)
        )

    @handles(ListEngines)
    def _list_engines(self, request: ListEngines) -> EnginesReply:
        return EnginesReply(self.engines.describe())

    @handles(ReadFiles)
    def _read_files(self, request: ReadFiles) -> FilesReply:
        """Find or read files of this node, also while a cell runs; see `outgoing_files`."""
        if request.do == "read":
            self.activity.record_use("files", time.monotonic())
        is_confined = request.is_confined
        folder = self.directory / "work" if is_confined else self.engines.working_folder()
        return outgoing_files.answer(folder, request)


def _describe_cell(facts: CellFacts) -> str:
    """Return the name of a cell and of its notebook."""
    what, notebook = cell_label(facts), facts.get("notebook")
    return f"{what} of {notebook_name(notebook)}" if notebook else what


def _facts(header: JsonObject) -> CellFacts | None:
    """Return the metadata that a notebook put into the header of a cell's messages."""
    text = header.get("sky") if header else None
    return json.loads(text) if text else None


def _unpack(content: bytes | memoryview) -> JsonObject:
    """Return the content of an output message from its JSON."""
    return json.loads(bytes(content).decode(errors="replace"))


# -- Deadline at which a cluster ends because the day's budget is spent, in use or not ------------
#
# Notebooks and servers say how much longer it lasts, again and again, while any of them lives. The
# controller counts on its own clock, which includes suspension and cannot be set.

BUDGET_SPENT_REASON = "the day's budget is spent"
"""Recorded reason of the end of a cluster."""


class Deadline:
    """Optional time of this machine's clock.

    Examples
    --------
    >>> deadline = Deadline()
    >>> deadline.is_over()
    False
    >>> deadline.set(0.0)
    >>> deadline.is_over()
    True
    """

    def __init__(self) -> None:
        self._at: float | None = None

    def set(self, seconds: float | None) -> None:
        """Set the deadline to `seconds` from now; None removes it."""
        self._at = None if seconds is None else _clock() + float(seconds)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline; None without a deadline."""
        return None if self._at is None else self._at - _clock()

    def is_over(self) -> bool:
        """Whether it has passed."""
        return self._at is not None and _clock() >= self._at


def _clock() -> float:
    """Return seconds since boot, including suspension where the platform reports it."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


# -- Runs of a cluster and their states, derived from passing messages ----------------------------

MAX_RUNS = 1000
"""Approximate number of remembered runs; of older ones the journal's file remains."""
SETTLE_SECONDS = 1.0
"""Time after its reply for a cell's last outputs, which come by another route."""
LIMIT_GRACE_SECONDS = 15.0
"""Time for the notebook to stop a cell at its limit, before the controller does it."""
KILL_SECONDS = 5.0
"""Time between the interrupt of an overdue cell and its kill."""

_STATUS_BY_REPLY = {"ok": "ok", "aborted": "cancelled", "abort": "cancelled"}


@dataclass(slots=True)
class RankState:
    """State of a cell on one engine."""

    rank: int
    replied: float | None = None
    is_drained: bool = False
    """Whether everything that it prints has passed."""

    def is_open(self) -> bool:
        """Whether more messages may follow."""
        if self.replied is None:
            return True
        return not self.is_drained and time.monotonic() - self.replied < SETTLE_SECONDS


@dataclass(slots=True)
class Run:
    """Cell on all of its engines.

    Attributes
    ----------
    facts : CellFacts
        Facts from the notebook; ``limit`` is the longest that it may take, in seconds.
    outcome : str
        Its status once it has ended: ``ok``, ``error``, ``interrupted``, ``cancelled`` or ``lost``.
    began : float or None
        Time at which an engine started it, by the monotonic clock.
    """

    facts: CellFacts
    ranks: dict[str, RankState] = field(default_factory=dict)
    outcome: str = "ok"
    began: float | None = None
    ended: float | None = None
    warned: bool = False

    @property
    def status(self) -> str:
        """``running`` until all messages have arrived, then its outcome."""
        return "running" if any(part.is_open() for part in self.ranks.values()) else self.outcome

    def mark_started(self) -> None:
        """Record that an engine has started this cell."""
        self.began = self.began or time.monotonic()

    def mark_finished(self, msg_id: str, quiet: bool = False) -> None:
        """Record the end of this cell on an engine; `quiet`: all outputs have passed, too."""
        part = self.ranks.get(msg_id)
        if part is not None:
            part.is_drained = part.is_drained or quiet
            if part.replied is None:  # its reply comes by another route
                part.replied, self.ended = time.monotonic(), time.time()

    def mark_failed(self, ename: str) -> None:
        """Record an error of an engine."""
        if self.outcome == "ok":
            self.outcome = "interrupted" if ename == "KeyboardInterrupt" else "error"

    def mark_rank_lost(self, part: RankState) -> None:
        """Record that a rank is lost."""
        part.replied, part.is_drained = time.monotonic(), True
        self.outcome, self.ended = "lost", time.time()


class Runs:
    """The runs of a cluster by id, the oldest first."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._open: dict[str, Run] = {}

    def get(self, run: str) -> Run | None:
        """Return a run, or None if unknown."""
        return self._runs.get(run)

    def running(self) -> Iterator[tuple[str, Run]]:
        """Iterate over unfinished runs."""
        for name, run in list(self._open.items()):
            if run.status == "running":
                yield name, run
            else:
                self._open.pop(name, None)

    def record_sent(self, facts: CellFacts, msg_id: str, engine_lives: bool) -> list[str]:
        """Record a cell on its way to an engine; return runs that were dropped for it."""
        run = self._open[facts["run"]] = self._runs.setdefault(facts["run"], Run(facts))
        part = run.ranks.setdefault(msg_id, RankState(facts["rank"]))
        if not engine_lives:
            run.mark_rank_lost(part)
        if len(self._runs) <= MAX_RUNS + MAX_RUNS // 10:
            return []
        surplus = len(self._runs) - MAX_RUNS
        old = [name for name, run in self._runs.items() if run.status != "running"][:surplus]
        for name in old:
            del self._runs[name]
        return old

    def record_reply(self, run: Run, msg_id: str, content: JsonObject) -> None:
        """Record the end of a cell on one engine."""
        part = run.ranks.get(msg_id)
        if part is None:
            return
        part.replied, run.ended = part.replied or time.monotonic(), time.time()
        outcome = _STATUS_BY_REPLY.get(content.get("status", "ok"), "error")
        if outcome == "error" and content.get("ename") == "KeyboardInterrupt":
            outcome = "interrupted"
        if run.outcome == "ok":
            run.outcome = outcome

    def mark_rank_lost(self, rank: int) -> None:
        """Record the loss of an engine and of all cells sent to it."""
        for _, run in self.running():
            for part in run.ranks.values():
                if part.rank == rank and part.replied is None:
                    run.mark_rank_lost(part)

    def iter_overdue(self) -> Iterator[tuple[str, CellFacts, bool]]:
        """Iterate over runs past their limit, with their facts and whether it is time to kill.

        Each is given once to be interrupted, then again and again to be killed.
        """
        now = time.monotonic()
        for name, run in self.running():
            limit = run.facts.get("limit")
            if limit is None or run.began is None:
                continue
            over = now - run.began - limit - LIMIT_GRACE_SECONDS
            if over > KILL_SECONDS:
                yield name, run.facts, True
            elif over > 0 and not run.warned:
                run.warned = True
                yield name, run.facts, False


# -- Handle of the process that serves a pool's shared state --------------------------------------
#
# The controller listens, and starts the server at the first connection, which it inherits: unused
# it costs nothing.

MODULE = "jupyter_sky.execution.functions.shared.shared_state_server"
"""Server, of a hall above this one: it is started by name."""


class SharedStateProcess:
    """Handle of the server process in the controller.

    Parameters
    ----------
    private
        Where the other nodes reach this one; empty where there are none.
    folder
        Folder for the file from which the next process goes on if one dies; None for no file.
    """

    def __init__(self, private: str = "", folder: Path | None = None) -> None:
        import zmq

        self._copy = str(folder / "shared_state.copy") if folder is not None else ""

        self._public, self._secret = zmq.curve_keypair()
        self._sockets: dict[str, socket.socket] = {}
        self._process: subprocess.Popen | None = None
        addresses = listen_addresses(private or "127.0.0.1")
        for address in addresses:
            listener = socket.create_server((address, 0), backlog=512)
            self._sockets[f"tcp://{address}:{listener.getsockname()[1]}"] = listener
        ports = [url.rpartition(":")[2] for url in self._sockets]
        self.endpoint = {
            "key": self._public.decode(),
            "local_url": f"tcp://127.0.0.1:{ports[-1]}",
            "remote_url": f"tcp://{private or '127.0.0.1'}:{ports[0]}",
            "head_addr": private or "127.0.0.1",
            "head_port": free_port(addresses[0]),
        }

    @property
    def is_used(self) -> bool:
        """Whether a client has connected."""
        return self._process is not None

    def tick(self) -> None:
        """Start the process when a client connects and it is not running."""
        if self._process is not None and self._process.poll() is None:
            return
        if select.select(list(self._sockets.values()), [], [], 0)[0]:
            self._start()

    def _start(self) -> None:
        numbers = {url: listener.fileno() for url, listener in self._sockets.items()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=list(numbers.values()),
        )
        assert self._process.stdin is not None
        order = {
            "sockets": numbers,
            "secret": self._secret.decode(),
            "public": self.endpoint["key"],
            "copy": self._copy,
        }
        with self._process.stdin as stdin:
            stdin.write(json.dumps(order).encode())
