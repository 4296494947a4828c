"""The head of a cluster: ipyparallel's controller with a journal, a lease and a nurse.

    python -m jupyter_sky.engines.head CONFIG.json

One process holds the hub and all schedulers (as threads: a controller of nine processes costs
three times the memory and half a second of start). It starts the engines, restarts those that
die, keeps every message that cells print, and ends the cluster when no cell runs and no notebook
has been heard of for the length of the lease.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .guardian import PR_SET_PDEATHSIG, prctl
from .journal import Journal

HEARTBEAT_MS = 250
HEARTBEAT_MISSES = 20
TICK_SECONDS = 0.2
MEMORY_SECONDS = 1.0
RAPID_DEATHS = 3
"""An engine that dies this often within seconds of its start is not started again."""


@dataclass(slots=True)
class Engine:
    """One engine's process and what is known of it."""

    rank: int
    process: subprocess.Popen
    started: float
    running: str | None = None
    """The run whose cell it executes."""
    deaths: int = 0
    last_words: str = ""
    """Why the one before it ended, in words for the user."""
    verdict: str = ""
    """Why the head is about to kill it."""


@dataclass(slots=True)
class Run:
    """A cell that was sent to this cluster."""

    run: str
    facts: dict[str, Any]
    pending: set[str] = field(default_factory=set)
    status: str = "running"
    ended: float | None = None


class Head:
    """The state of one cluster, and the answers to what its notebooks ask.

    Parameters
    ----------
    config
        ``directory``, ``cluster``, ``nodes``, ``idle`` (seconds), ``cpus`` (a list of CPU
        numbers a rank, or None) and ``memory`` (GiB an engine, or None).
    """

    def __init__(self, config: dict[str, Any], config_path: Path) -> None:
        self.config, self.config_path = config, config_path
        self.directory = Path(config["directory"])
        self.journal = Journal(self.directory / "journal")
        self.idle = float(config["idle"])
        self.last_beat = time.monotonic()
        self.runs: dict[str, Run] = {}
        self.stopping = ""
        self.parent = os.getppid()
        self.engines = {rank: self._spawn(rank) for rank in range(config["nodes"])}
        self._last_memory = 0.0
        self.hub: Any = None
        self.stop_loop: Any = None

    def _spawn(self, rank: int) -> Engine:
        log = os.open(
            self.directory / f"engine-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        command = [sys.executable, "-m", "jupyter_sky.engines.engine"]
        process = subprocess.Popen(
            [*command, str(self.config_path), str(rank)],
            cwd=self.directory / "work",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # so that a signal reaches what the cell has started, too
        )
        os.close(log)
        return Engine(rank, process, time.monotonic())

    # -- every tick ------------------------------------------------------------------------

    def tick(self) -> None:
        """Look after the engines and the lease."""
        for engine in list(self.engines.values()):
            if engine.process.poll() is not None and not self.stopping:
                self._bury(engine)
        self.journal.flush()
        now = time.monotonic()
        if self.config.get("memory") and now - self._last_memory > MEMORY_SECONDS:
            self._last_memory = now
            self._check_memory()
        if os.getppid() != self.parent:
            self.stop("its guardian is gone")
        busy = any(run.status == "running" for run in self.runs.values())
        if busy:
            # a cell keeps the cluster, and the lease begins anew when it ends
            self.last_beat = max(self.last_beat, now - self.idle / 2)
        elif now - self.last_beat > self.idle:
            self.stop("idle")

    def _bury(self, engine: Engine) -> None:
        """Say why an engine ended, fail its cells, start another in its place."""
        words = engine.verdict or _cause_of_death(engine.process.returncode)
        self.killpg(engine, signal.SIGKILL)  # what its cells have left behind
        for run in self.runs.values():
            if run.status == "running" and engine.rank in run.facts["ranks"]:
                self._end_run(run, "lost")
        quick = time.monotonic() - engine.started < 5.0
        deaths = engine.deaths + 1 if quick else 0
        if deaths >= RAPID_DEATHS:
            self.stop(f"engine {engine.rank} keeps dying: {words}")
            return
        fresh = self._spawn(engine.rank)
        fresh.deaths, fresh.last_words = deaths, words
        self.engines[engine.rank] = fresh
        if self.hub is not None:  # its clients learn of it at once, not by missed heartbeats
            self.hub.unregister_engine(b"head", {"content": {"id": engine.rank}})

    def _check_memory(self) -> None:
        import psutil

        bound = self.config["memory"] * 2**30
        for engine in self.engines.values():
            try:
                process = psutil.Process(engine.process.pid)
                family = [process, *process.children(recursive=True)]
                used = sum(member.memory_info().rss for member in family)
            except psutil.Error:
                continue
            if used > bound:
                engine.verdict = (
                    f"it used {used / 2**30:.1f} GiB of the "
                    f"{self.config['memory']:g} GiB asked for with --memory"
                )
                engine.process.kill()

    def stop(self, reason: str) -> None:
        """End the cluster; what is left after that is the guardian's to kill."""
        if self.stopping:
            return
        self.stopping = reason
        partial = self.directory / "ended.json.partial"
        partial.write_text(json.dumps({"time": time.time(), "reason": reason}))
        partial.replace(self.directory / "ended.json")
        for engine in self.engines.values():
            self.killpg(engine, signal.SIGKILL)
        self.journal.flush()
        if self.stop_loop is not None:
            self.stop_loop()

    @staticmethod
    def killpg(engine: Engine, signum: int) -> None:
        """Send a signal to an engine and to the processes that its cells have started."""
        try:
            os.killpg(engine.process.pid, signum)
        except (ProcessLookupError, PermissionError):
            pass

    # -- what passes through the controller --------------------------------------------------

    def on_request(self, message: dict[str, Any]) -> None:
        """Note a cell on its way to an engine."""
        facts = _facts(message["header"])
        if facts and message["header"]["msg_type"] == "execute_request":
            run = self.runs.setdefault(facts["run"], Run(facts["run"], facts))
            run.pending.add(message["header"]["msg_id"])

    def on_reply(self, message: dict[str, Any]) -> None:
        """Note the end of a cell on one engine."""
        facts = _facts(message["parent_header"])
        run = self.runs.get(facts["run"]) if facts else None
        if run is None:
            return
        run.pending.discard(message["parent_header"]["msg_id"])
        status = message["content"].get("status", "ok")
        if status != "ok" and run.status == "running":
            run.status = "error"  # final once every rank has answered
        if not run.pending:
            self._end_run(run, "ok" if run.status == "running" else run.status)

    def _end_run(self, run: Run, status: str) -> None:
        run.status, run.ended = status, time.time()
        run.pending.clear()
        self.journal.flush()

    def on_output(self, message: dict[str, Any]) -> None:
        """Keep what a cell prints, and note which cell an engine runs."""
        facts = _facts(message["parent_header"])
        if not facts:
            return
        if message["header"]["msg_type"] == "status":
            engine = self.engines.get(facts["rank"])
            if engine is not None:
                busy = message["content"]["execution_state"] == "busy"
                engine.running = facts["run"] if busy else None
        else:
            self.journal.append(facts["run"], facts["rank"], message)

    # -- what notebooks ask -------------------------------------------------------------------

    def answer(self, content: dict[str, Any]) -> dict[str, Any]:
        """Answer one request of a notebook."""
        self.last_beat = time.monotonic()
        return getattr(self, f"_op_{content['op']}")(content) or {}

    def _op_hello(self, content: dict[str, Any]) -> dict[str, Any]:
        from .. import __version__

        return {
            "cluster": self.config["cluster"],
            "python": platform.python_version(),
            "version": __version__,
            "nodes": len(self.engines),
            "runs": self._op_runs({})["runs"],
        }

    def _op_beat(self, content: dict[str, Any]) -> dict[str, Any]:
        if content.get("idle"):
            self.idle = float(content["idle"])
        return {"stopping": self.stopping}

    def _op_runs(self, content: dict[str, Any]) -> dict[str, Any]:
        return {
            "runs": [
                {
                    "run": run.run,
                    "status": run.status if run.pending == set() else "running",
                    "ended": run.ended,
                    "printed": self.journal.counts.get(run.run, 0),
                    "facts": run.facts,
                }
                for run in self.runs.values()
            ]
        }

    def _op_journal(self, content: dict[str, Any]) -> dict[str, Any]:
        entries, following = self.journal.read(content["run"], content["start"])
        run = self.runs.get(content["run"])
        return {"entries": entries, "next": following, "status": run.status if run else "unknown"}

    def _op_interrupt(self, content: dict[str, Any]) -> dict[str, Any]:
        """Interrupt a run on the engines that execute it now; name those where it waits."""
        reached = []
        for engine in self.engines.values():
            if engine.running == content["run"] and engine.rank in content["ranks"]:
                self.killpg(engine, signal.SIGINT)
                reached.append(engine.rank)
        return {"interrupted": reached}

    def _op_kill(self, content: dict[str, Any]) -> dict[str, Any]:
        """Kill the engines that execute a run; new ones take their places."""
        killed = []
        for engine in self.engines.values():
            if engine.running == content["run"]:
                engine.verdict = content.get("why", "it was told to")
                self.killpg(engine, signal.SIGKILL)
                killed.append(engine.rank)
        return {"killed": killed}

    def _op_engines(self, content: dict[str, Any]) -> dict[str, Any]:
        return {
            "engines": [
                {
                    "rank": engine.rank,
                    "pid": engine.process.pid,
                    "running": engine.running,
                    "last_words": engine.last_words,
                }
                for engine in self.engines.values()
            ]
        }

    def _op_stop(self, content: dict[str, Any]) -> dict[str, Any]:
        # after the answer has left
        self.hub.loop.call_later(0.05, self.stop, content.get("reason", "down"))
        return {}


def _facts(header: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a notebook wrote into the header of a cell's messages."""
    text = header.get("sky") if header else None
    return json.loads(text) if text else None


def _cause_of_death(returncode: int) -> str:
    if returncode >= 0:
        return f"it ended with exit code {returncode}"
    name = signal.Signals(-returncode).name
    more = " (perhaps the machine ran out of memory)" if name == "SIGKILL" else ""
    return f"it was killed by {name}{more}"


def serve(head: Head) -> None:
    """Run ipyparallel's controller around `head` until it stops."""
    from ipyparallel.controller import app as controller_app
    from ipyparallel.controller import heartmonitor
    from ipyparallel.controller.hub import Hub
    from tornado.ioloop import PeriodicCallback

    class SkyHub(Hub):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            head.hub = self
            self.query_handlers["sky_request"] = self.sky_request
            self.monitor_handlers[b"iopub"] = self.sky_output

        def sky_request(self, idents: list[bytes], message: dict[str, Any]) -> None:
            try:
                content = {"status": "ok", **head.answer(message["content"])}
            except Exception as error:
                self.log.error("bad request", exc_info=True)
                content = {"status": "error", "evalue": f"{type(error).__name__}: {error}"}
            self.session.send(self.query, "sky_reply", content, ident=idents[0], parent=message)

        def sky_output(self, topics: list[bytes], frames: list) -> None:
            try:
                message = self.session.deserialize(frames, content=True)
            except Exception:
                self.log.error("invalid IOPub message", exc_info=True)
                return
            head.on_output(message)

        def save_queue_request(self, idents: list[bytes], msg: list) -> None:
            self._note(head.on_request, msg)

        def save_queue_result(self, idents: list[bytes], msg: list) -> None:
            self._note(head.on_reply, msg)

        def _note(self, handler: Any, frames: list) -> None:
            # Chunks of values pass here, too: only headers are read, nothing is kept.
            try:
                handler(self.session.deserialize(frames[:5], content=True))
            except Exception:
                self.log.error("invalid message", exc_info=True)

        def _handle_stranded_msgs(self, eid: int, uuid: str) -> None:
            """The head has ended the runs of a dead engine already."""

        def _save_engine_state(self) -> None:
            """Engines are the head's own children: there is no state to restore."""

    class SkyController(controller_app.IPController):
        def save_connection_dict(self, fname: str, cdict: dict[str, Any]) -> None:
            """Write a connection file whole and private from its first byte: it has the key."""
            name = "engine.json" if "engine" in fname else "client.json"
            path = head.directory / "security" / name
            partial = path.with_suffix(".partial")
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                json.dump(cdict, file)
            partial.replace(path)

        def cleanup_connection_files(self) -> None:
            for name in ("engine.json", "client.json"):
                (head.directory / "security" / name).unlink(missing_ok=True)

        def init_signal(self) -> None:
            for signum in (signal.SIGINT, signal.SIGTERM):
                signal.signal(
                    signum, lambda *_: self.loop.add_callback_from_signal(head.stop, "stopped")
                )

        def start(self) -> None:
            head.stop_loop = self.loop.stop
            PeriodicCallback(head.tick, TICK_SECONDS * 1000).start()
            super().start()

    class HeartMonitorThread(threading.Thread):
        """Stands for the Process that the controller would fork for its heart monitor."""

        def __init__(self, target: Any, kwargs: dict[str, Any], daemon: bool) -> None:
            super().__init__(target=target, kwargs=kwargs, daemon=True, name="heartmonitor")

    # ipyparallel names these classes in this module only; there are no traits for them.
    controller_app.Hub = SkyHub  # type: ignore[misc]
    controller_app.Process = HeartMonitorThread  # type: ignore[misc]
    assert heartmonitor.start_heartmonitor is controller_app.start_heartmonitor
    app = SkyController.instance(work_dir=str(head.directory / "work"))
    app.initialize(
        [
            "--IPController.use_threads=True",
            "--IPController.broadcast_scheduler_depth=0",
            "--IPController.location=127.0.0.1",
            "--IPController.log_level=30",
            f"--HeartMonitor.period={HEARTBEAT_MS}",
            f"--HeartMonitor.max_heartmonitor_misses={HEARTBEAT_MISSES}",
            f"--ProfileDir.location={head.directory / 'profile'}",
        ]
    )
    app.start()


def main(argv: list[str]) -> None:
    """Start the engines at once, and the controller while they load."""
    path = Path(argv[0])
    config = json.loads(path.read_text())
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    directory = Path(config["directory"])
    for name in ("security", "work", "profile"):
        (directory / name).mkdir(mode=0o700, exist_ok=True)
    head = Head(config, path)
    try:
        serve(head)
    finally:
        head.stop("ended")


if __name__ == "__main__":
    main(sys.argv[1:])
