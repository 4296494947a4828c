"""One cell on its way: placed, sent, run, watched, brought home, billed."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ipyparallel.error import EngineError

from ..errors import (
    SkyBudget,
    SkyCancelled,
    SkyClusterLost,
    SkyEngineLost,
    SkyError,
    SkyTimeout,
    SkyTransferError,
    SkyUsageError,
)
from ..ledger import run_usd
from ..resources import format_duration
from ..store import RunRow
from . import transfer
from .display import Display, Stage, Status
from .failures import advice, rebuild
from .inputs import Sending, collect
from .relay import Relay
from .request import CellOptions
from .transfer import RemoteValue

if TYPE_CHECKING:
    from ..engines.link import Cell
    from .clusters import Cluster
    from .session import Session

TICK_SECONDS = 1.0
STOPPING_TICK_SECONDS = 0.1
GRACE_SECONDS = 5.0
"""How long an interrupted cell may take to end before the next step is offered or taken."""


class SkyRun:
    """A cell on a cluster: what ``--bg`` returns, and what a cell in the foreground is inside.

    Attributes
    ----------
    status : str
        ``placing``, ``booting``, ``syncing``, ``queued``, ``running``, then ``done``,
        ``failed``, ``interrupted`` or ``cancelled``.

    Examples
    --------
    >>> run = sky.run("train()", background=True)  # doctest: +SKIP
    >>> run.result()  # doctest: +SKIP
    """

    def __init__(
        self,
        session: Session,
        code: str,
        options: CellOptions,
        display: Display,
        cell: Origin,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self.session, self.code, self.options, self.display = session, code, options, display
        self.cell = cell
        self._values = session.namespace if values is None else values
        self.id = f"{int(time.time())}-{uuid.uuid4().hex[:8]}"
        self.name = options.name
        self.status: Stage = "placing"
        self.started = time.time()
        self.cluster: Cluster | None = None
        self.ranks: list[int] = []
        self._cells: list[Cell] = []
        self._row: RunRow | None = None
        self._detail, self._notes = "", list[str]()
        self._shown_at = 0.0
        self._future: concurrent.futures.Future = concurrent.futures.Future()
        self._stop_reason: SkyError | None = None
        self._stop_at = 0.0
        self._cancelled = threading.Event()
        self._presses = 0
        self._reached: set[int] = set()
        self._relay: Relay | None = None

    # -- for users -------------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end and return the value of the last expression, or raise its error.

        Parameters
        ----------
        timeout
            Seconds to wait.

        Raises
        ------
        SkyTimeout
            It has not ended by then; it goes on.
        """
        try:
            return self._future.result(timeout)
        except concurrent.futures.TimeoutError:
            if self._future.done():
                raise
            raise SkyTimeout(f"{self.label} is still {self.status} after {timeout:g} s") from None

    def done(self) -> bool:
        """Whether it has ended, one way or another."""
        return self._future.done()

    def cancel(self) -> None:
        """Interrupt it; an engine that does not listen is killed after a few seconds."""
        if not self.done():
            self._cancelled.set()

    def logs(self) -> str:
        """Return everything that it has printed so far, from the journal on the cluster."""
        return self.session.log_text(self.id)

    def __await__(self) -> Any:
        import asyncio

        return asyncio.wrap_future(self._future).__await__()

    def __repr__(self) -> str:
        where = f" on {self.cluster.row.name}" if self.cluster else ""
        spent = format_duration(self.seconds)
        return f"<{self.label}: {self.status} {spent}{where}>"

    @property
    def label(self) -> str:
        """How it is called in messages."""
        return self.name or f"cell {self.cell.number}"

    @property
    def seconds(self) -> float:
        """Seconds since it began, or that it took."""
        end = self._row.ended if self._row and self._row.ended else time.time()
        return end - self.started

    # -- the way of a cell -----------------------------------------------------------------

    def execute(self) -> Any:
        """Go all the way; return the value of the last expression."""
        try:
            value = self._execute()
        except BaseException as error:
            self._settle(error)
            raise
        self._future.set_result(value)
        return value

    def start(self) -> None:
        """Go all the way in a thread of its own."""

        def go() -> None:
            with contextlib.suppress(BaseException):
                self.execute()

        threading.Thread(target=go, name=f"sky-run-{self.label}", daemon=True).start()

    def _settle(self, error: BaseException) -> None:
        if self._cancelled.is_set() or isinstance(error, SkyCancelled):
            stage: Stage = "cancelled"
        elif isinstance(error, KeyboardInterrupt):
            stage = "interrupted"
        else:
            stage = "failed"
        if self._relay is not None:
            self._relay.finish()
        self._end({"failed": "error"}.get(stage, stage))
        self._show(stage, force=True)
        if not self._future.done():
            self._future.set_exception(error)

    def _execute(self) -> Any:
        self._show("placing", force=True)
        sending = collect(self.options, self.code, self._values, self.session.config)  # fails before money is spent
        self.cluster, notes = self.session.clusters.obtain(
            self.options.resources, self.options.cluster, self.options.idle, self._report
        )
        self._notes += notes
        self.session.after_connect(self.cluster, notes, self.display)
        self._check_budget()
        self.ranks = _ranks(self.options.on, self.cluster.row.nodes)
        self.cluster.heal(self.ranks)
        self._prepare(sending)
        self._begin()
        self._send(sending)
        replies = self._watch()
        return self._bring_home(replies)

    def _report(self, stage: str, detail: str) -> None:
        if self._cancelled.is_set():
            raise SkyCancelled(f"{self.label} was cancelled")
        self._detail = detail
        self._show(stage)  # type: ignore[arg-type]

    def _prepare(self, sending: Sending) -> None:
        """Bring packages, files and large values to the engines."""
        assert self.cluster is not None
        link = self.cluster.link
        if self.options.pip:
            self._report("syncing", f"installing {' '.join(self.options.pip)}")
            for rank in self.ranks:
                future = link.value(rank, "packages", packages=list(self.options.pip))
                link.content(self._wait(future))
        if self.options.sync:
            root = self.session.folder
            transfer.sync(self.cluster, self.ranks, root, self.options.sync, self._progress("files"))
        for name, value in sending.handles.items():
            self._bind(name, value)
        for name, parcel in sending.large.items():
            self._announce(name, parcel.nbytes, "to")
            if not transfer.send(self.cluster, self.ranks, name, parcel, self._progress(name)):
                self._notes.append(f"{name} is there already ({_size(parcel.nbytes)}): not sent")
        self._notes += sending.notes

    def _bind(self, name: str, value: RemoteValue) -> None:
        """Let a value that is on the cluster pass into a cell without moving it."""
        assert self.cluster is not None
        if value.cluster is self.cluster and self.ranks == [value.rank]:
            self.cluster.link.ask(value.rank, "bind", name=name, ref=value.ref)
            return
        parcel = transfer.Parcel.of(value.fetch(self._progress(name)), name)
        transfer.send(self.cluster, self.ranks, name, parcel, self._progress(name))

    def _announce(self, name: str, nbytes: int, way: str) -> None:
        config = self.session.config
        if nbytes > config.refuse_gb * 1e9 and not self.options.yes:
            keep = "" if way == "to" else f", or keep it there: -o {name}!"
            raise SkyTransferError(
                f"{name} has {_size(nbytes)}, more than {config.refuse_gb:g} GB: not sent",
                hint=f"add --yes to send it all the same{keep}",
            )
        if nbytes > config.announce_mb * 1e6:
            self._notes.append(f"{name}: {_size(nbytes)} {way} the cluster")

    def _progress(self, what: str) -> Callable[[int, int], None]:
        def progress(done: int, total: int) -> None:
            self._report("syncing", f"{what} {_size(done)} of {_size(total)}")

        return progress

    def _begin(self) -> None:
        assert self.cluster is not None
        row = self.cluster.row
        self._row = RunRow(
            run_id=self.id,
            notebook=self.session.notebook,
            session=self.session.id,
            cell=self.cell.number,
            name=self.name,
            cluster=row.name,
            code=self.code[:200],
            price=row.price,
            nodes=row.nodes,
            started=time.time(),
            ended=None,
            last_beat=time.time(),
            status="running",
            shown=0,
            owner_pid=os.getpid(),
        )
        self.session.store.begin_run(self._row)

    def _send(self, sending: Sending) -> None:
        assert self.cluster is not None
        link, client = self.cluster.link, self.cluster.link.client
        cap = int(self.session.config.browser_mb * 1e6)
        where = f"%sky logs {self.name or self.cell.number}"
        self._relay = relay = Relay(self.display, self.ranks, cap, where)
        self.cluster.running[self.id] = lambda: relay.shown
        self.session.live[self.id] = self
        facts = {
            "run": self.id,
            "ranks": self.ranks,
            "cell": self.cell.number,
            "notebook": self.session.notebook,
            "name": self.name,
        }
        request = {
            "cell": self.cell.number,
            "inputs": sending.inline,
            "outputs": [[output.name, output.keep] for output in self.options.outputs],
            "env": sending.env,
        }
        code = self.cell.numbered(self.code)
        with self._interrupts_counted():  # a cell that has been sent must be watched
            for rank in self.ranks:
                sink = relay.sink(rank, client._engines.get(rank, ""), client)
                self._cells.append(link.execute(rank, code, facts, request, sink))
            self._show("running", force=True)

    # -- watching --------------------------------------------------------------------------

    @contextlib.contextmanager
    def _interrupts_counted(self) -> Iterator[None]:
        """Count interrupts instead of letting them break in."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def count(*_: Any) -> None:
            self._presses += 1

        before = signal.signal(signal.SIGINT, count)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _watch(self) -> list[dict[str, Any]]:
        """Wait for every engine's reply, through interrupts, time and budget."""
        assert self.cluster is not None
        futures = [future for cell in self._cells for future in (cell.reply, cell.output)]
        acted = 0
        while True:
            try:
                if self._presses > acted:
                    acted = self._presses
                    self._stop_reason = self._stop_reason or _Interrupted("interrupted")
                    (self._interrupt if acted == 1 else self._kill)()
                if self._wait_all(futures):
                    break
                self._check_limits()
            except KeyboardInterrupt:
                self._presses += 1
        replies = []
        for cell in self._cells:
            reply = self._reply(cell)
            replies.append(reply)
        assert self._relay is not None
        self._relay.finish()
        if isinstance(self._stop_reason, _Interrupted):
            raise self._interrupted(replies)
        if self._cancelled.is_set():
            raise SkyCancelled(f"{self.label} was cancelled")
        if self._stop_reason is not None:
            raise self._stop_reason
        return replies

    def _wait_all(self, futures: Sequence[concurrent.futures.Future]) -> bool:
        """Wait a tick for `futures`; say whether all are done."""
        tick = STOPPING_TICK_SECONDS if self._stop_at or self._presses else TICK_SECONDS
        deadline = time.monotonic() + tick
        for future in futures:
            try:
                future.exception(max(deadline - time.monotonic(), 0))
            except concurrent.futures.TimeoutError:
                return False
        return True

    def _reply(self, cell: Cell) -> dict[str, Any]:
        assert self.cluster is not None
        reply = cell.reply.result()  # raises SkyClusterLost when it is gone
        if not isinstance(reply, EngineError):
            return reply["content"]
        if self._stop_reason is not None or self._cancelled.is_set():
            return {"status": "killed"}
        why = self.cluster.last_words(cell.rank)
        raise SkyEngineLost(
            f"engine {cell.rank} of cluster {self.cluster.row.name} died while it ran {self.label}:"
            f" {why}",
            hint="its variables are gone; a new engine takes its place for the next cell",
        )

    def _check_limits(self) -> None:
        """Once a tick: time, money, a cancellation; then the status line."""
        now = time.monotonic()
        if self._stop_reason is None and not self._cancelled.is_set():
            options = self.options
            spent = self._cell_usd()
            if options.timeout and self.seconds > options.timeout:
                limit = format_duration(options.timeout)
                self._stop(SkyTimeout(f"{self.label} was stopped: --timeout {limit} has passed"))
            elif options.max_cost is not None and spent is not None and spent > options.max_cost:
                self._stop(SkyBudget(
                    f"{self.label} was stopped: it has cost more than --max-cost {options.max_cost:g}"
                ))
        elif len(self._reached) < len(self._cells):
            self._interrupt()
        elif now - self._stop_at > GRACE_SECONDS and not isinstance(
            self._stop_reason, _Interrupted
        ):
            self._kill()
            self._stop_at = now
        self._show("interrupting" if self._stop_at else self._stage_now())

    def _stage_now(self) -> Stage:
        """Say whether the cell runs or waits behind another on its engine."""
        assert self.cluster is not None
        before = [
            run.label
            for run in self.session.live.values()
            if run is not self
            and run.cluster is self.cluster
            and run.started < self.started
            and set(run.ranks) & set(self.ranks)
        ]
        self._detail = f"behind {before[0]}" if before else ""
        return "queued" if before else "running"

    def _stop(self, reason: SkyError) -> None:
        self._stop_reason = reason
        self._interrupt()

    def _interrupt(self) -> None:
        """Interrupt the cell on engines that run it; take it back where it waits.

        Called again every tick for the engines that it has not reached: a cell that is between
        the two when the first call comes would go on otherwise.
        """
        assert self.cluster is not None
        self._stop_at = self._stop_at or time.monotonic()
        if isinstance(self._stop_reason, _Interrupted):
            self._detail = "interrupt again to kill the engine"
        self._show("interrupting")
        left = [cell for cell in self._cells if cell.rank not in self._reached]
        with contextlib.suppress(SkyClusterLost):
            link, ranks = self.cluster.link, [cell.rank for cell in left]
            self._reached |= set(link.head("interrupt", run=self.id, ranks=ranks)["interrupted"])
            link.abort(cell for cell in left if cell.rank not in self._reached)

    def _kill(self) -> None:
        """Kill the engines that do not listen; their variables go with them."""
        assert self.cluster is not None
        with contextlib.suppress(SkyClusterLost):
            why = f"{self.label} did not stop when it was interrupted"
            killed = self.cluster.link.head("kill", run=self.id, why=why)["killed"]
            if killed:
                names = ", ".join(map(str, killed))
                self._notes.append(f"engine {names} was restarted: its variables are gone")

    def _interrupted(self, replies: Sequence[dict[str, Any]]) -> BaseException:
        for rank, reply in zip(self.ranks, replies, strict=True):
            if reply["status"] == "error" and reply["ename"] == "KeyboardInterrupt":
                return rebuild(reply, rank, self.session.namespace)
        gone = any(reply["status"] == "killed" for reply in replies)
        text = "the engine was restarted: its variables are gone" if gone else "interrupted"
        return rebuild(
            {"ename": "KeyboardInterrupt", "evalue": text, "traceback": [f"KeyboardInterrupt: {text}"],
             "sky": {"error": {"classes": [["builtins", "KeyboardInterrupt"]]}}},
            self.ranks[0], {},
        )

    # -- coming home -----------------------------------------------------------------------

    def _bring_home(self, replies: Sequence[dict[str, Any]]) -> Any:
        for rank, reply in zip(self.ranks, replies, strict=True):
            if reply["status"] in ("aborted", "killed"):
                raise SkyCancelled(f"{self.label} was cancelled")
            if reply["status"] != "ok":
                self._raise(reply, rank)
        self._bind_outputs([reply["sky"] for reply in replies])
        values = [
            self._result(rank, reply["sky"].get("result"))
            for rank, reply in zip(self.ranks, replies, strict=True)
        ]
        self._end("ok")
        self._show("done", force=True)
        if len(values) == 1:
            return values[0]
        return None if all(value is None for value in values) else values

    def _raise(self, reply: dict[str, Any], rank: int) -> None:
        described = reply.get("sky") or {}
        if "refused" in described:  # an input could not be opened on the engine
            raise SkyTransferError(described["refused"])
        described = described.get("error") or {}
        hint = advice(described, self.session.namespace, self.cell.line)
        raise rebuild(reply, rank, self.session.namespace, hint)

    def _bind_outputs(self, outcomes: Sequence[dict[str, Any]]) -> None:
        """Bind ``-o`` names here: every one that can, then say which could not."""
        failed: list[SkyError] = []
        for output in self.options.outputs:
            values = []
            for rank, outcome in zip(self.ranks, outcomes, strict=True):
                try:
                    values.append(self._output(rank, output.name, output.keep, outcome))
                except SkyError as error:
                    failed.append(error)
                    break
            else:
                value = values[0] if len(values) == 1 else values
                self.session.namespace[output.name] = value
        if failed:
            raise failed[0]

    def _output(self, rank: int, name: str, keep: bool, outcome: dict[str, Any]) -> Any:
        assert self.cluster is not None
        described = outcome["outputs"][name]
        if described.get("missing"):
            raise SkyUsageError(
                f"-o {name}: the cell has not made a variable {name!r}",
                hint="what else it made is still on the cluster: %sky vars",
            )
        if keep:
            return RemoteValue(self.cluster, rank, name, described)
        self._announce(name, transfer.size_of(described), "from")
        return transfer.receive(self.cluster, rank, name, described, self._progress(name))

    def _result(self, rank: int, described: dict[str, Any] | None) -> Any:
        assert self.cluster is not None
        if described is None:
            return None
        if "ref" in described:
            return RemoteValue(self.cluster, rank, "the result", described)
        try:
            return transfer.receive(self.cluster, rank, "the result", described)
        except SkyTransferError:
            return None  # it has been shown; only ``_`` goes without it

    # -- account ---------------------------------------------------------------------------

    def _check_budget(self) -> None:
        assert self.cluster is not None
        price, most = self.cluster.row.price, self.options.max_cost
        if most is not None and price is None:
            raise SkyBudget(
                f"--max-cost {most:g}: the price of {self.cluster.row.instance_type} is not known"
            )

    def _end(self, status: str) -> None:
        self.session.live.pop(self.id, None)
        if self.cluster is not None:
            self.cluster.running.pop(self.id, None)
        if self._row is not None and self._row.ended is None:
            from dataclasses import replace

            self._row = replace(self._row, ended=time.time(), status=status)
            assert self._row.ended is not None
            self.session.store.end_run(self.id, status, self._row.ended)

    def _cell_usd(self) -> float | None:
        return run_usd(self._row, time.time()) if self._row else 0.0

    def _show(self, stage: Stage, force: bool = False) -> None:
        now = time.monotonic()
        if not force and stage == self.status and now - self._shown_at < TICK_SECONDS * 0.9:
            return
        self.status, self._shown_at = stage, now
        row = self.cluster.row if self.cluster else None
        self.display.status(
            Status(
                stage=stage,
                seconds=self.seconds,
                cluster=row.name if row else None,
                place=self.session.place(row) if row else None,
                price=row.price if row else None,
                cell_usd=self._cell_usd() if row else None,
                notebook_usd=self.session.notebook_usd() if row else None,
                detail=self._detail if stage in ("syncing", "queued", "interrupting") else "",
                notes=tuple(self._notes),
            )
        )

    def _wait(self, future: concurrent.futures.Future) -> Any:
        """Wait for a long request, keeping the status line alive."""
        while not self._wait_all([future]):
            self._report(self.status, self._detail)
        return future.result()


class _Interrupted(SkyError):
    """The user has pressed interrupt."""


class Origin:
    """Where a cell stands in its notebook.

    Parameters
    ----------
    number
        The number in its prompt.
    line
        What follows ``%%sky``.
    above
        The cell's lines before the body.
    """

    __slots__ = ("above", "line", "number")

    def __init__(self, number: int, line: str = "", above: Sequence[str] = ()) -> None:
        self.number, self.line, self.above = number, line, tuple(above)

    def numbered(self, body: str) -> str:
        """Return the body below its lines as comments: line numbers are the notebook's own."""
        if body.startswith("%%"):
            return body  # a cell magic must stand first
        return "".join(f"# {line}\n" for line in self.above) + body


def _ranks(on: str | None, nodes: int) -> list[int]:
    """Return the ranks that ``--on`` names; without it, all of them.

    Raises
    ------
    SkyUsageError
        A rank that the cluster does not have.
    """
    if on is None or on == "all":
        return list(range(nodes))
    ranks: list[int] = []
    for part in on.split(","):
        first, colon, last = part.partition(":")
        ranks += range(int(first or 0), int(last or nodes)) if colon else [int(first)]
    bad = [rank for rank in ranks if not 0 <= rank < nodes]
    if bad or not ranks:
        raise SkyUsageError(f"--on {on}: the cluster has ranks 0 to {nodes - 1}")
    return sorted(set(ranks))


def _size(nbytes: float) -> str:
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} GB"
