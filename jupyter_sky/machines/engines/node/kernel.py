"""Kernel inside an engine: execution of cells, transfer of values, commands of pools."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
import traceback
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache, wraps
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel
from ipyparallel.engine.kernel import IPythonParallelKernel
from IPython.core.error import InputRejected
from jupyter_client.session import DELIM

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.lazy_names import load_class
from jupyter_sky.base.messages import Buffers, Message
from jupyter_sky.machines.engines.node.current_cell import CurrentCellFile
from jupyter_sky.machines.engines.node.extensions import (
    CALLS,
    DATA_ENGINES,
    EngineExtension,
)
from jupyter_sky.machines.engines.node.namespace import EngineNamespace
from jupyter_sky.machines.engines.node.output_pacer import OutputPacer
from jupyter_sky.machines.engines.node.overlay import NOTE, PackageOverlay, refuse_conda
from jupyter_sky.machines.engines.node.streams import BoundedOutStream
from jupyter_sky.machines.engines.wire.data_requests import ServeMount
from jupyter_sky.machines.engines.wire.engine_requests import Ping, PingReply
from jupyter_sky.machines.engines.wire.error_serialization import describe_error, describe_origin
from jupyter_sky.machines.engines.wire.messages import COUNTED_TYPES, JupyterMessage
from jupyter_sky.machines.engines.wire.private_sockets import PrivateSockets

STATUS_MIN_SECONDS = 0.05
"""Longer cells publish their end, so that the controller knows that all output has passed."""


class _NoChannelThread:
    """Stand-in for ipykernel's shell channel thread, which an engine does not have.

    ipykernel 7.1 and later read ``shell_channel_thread.parent_thread`` in every cell with a
    top-level await, and never answer when it is None. This is false, as None was, and names the
    main thread.
    """

    parent_thread = threading.main_thread()

    def __bool__(self) -> bool:
        return False


Base: Any = IPythonParallelKernel
"""Its traits have no types that a checker could follow."""


class SkyKernel(Base):
    """ipyparallel kernel that knows which notebook cell it runs."""

    cell_file: CurrentCellFile
    overlay: PackageOverlay | None = None
    """Packages of cells, where the engine shares the environment of the notebook."""

    def __init__(self, **kwargs: Any) -> None:
        self._busy_since = 0.0
        super().__init__(**kwargs)
        if getattr(self, "shell_channel_thread", self) is None:
            self.shell_channel_thread = _NoChannelThread()
        self.shell_handlers["sky_value"] = self.sky_value
        self._ports: list[int | str] = []
        self.output_counter = OutputCounter(self.session)
        self.iopub_socket.on_forwarded = self.output_counter.count_forwarded
        self.output_counter.wait_for_room = self.iopub_socket.wait_for_room
        self._node_worker: EngineExtension | None = None
        self._data_engines: EngineExtension | None = None
        self.shell_handlers["sky_blob"] = lambda *request: self.node_worker.receive_blob(*request)
        self._started_ids: deque[str] = deque(maxlen=1000)
        self._abort_lock = threading.Lock()
        # IPython's own end the process, and with it every variable
        self.shell.user_ns.update(exit=sys.exit, quit=sys.exit)
        _set_module_attributes(self.shell)
        IPKernelApp.init_pdb(self)  # the debugger of a notebook's kernel, as that starts it
        if self.overlay is not None:
            refuse_conda(self.shell)
        self.engine_namespace = EngineNamespace(self.shell.user_ns, self.shell.displayhook)
        self.cell_history = CellHistory(self.shell)
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        shell = self.shell
        install_cell_transforms(shell)
        inherit_parents(
            lambda: (self, sys.stdout, sys.stderr, shell.displayhook, shell.display_pub)
        )
        self._errors = ShownErrors(shell)
        self.output_counter.describe_error = self._errors.describe
        shell.set_custom_exc((BaseExceptionGroup,), _show_group)
        # not the history of the machine's user: cells belong to a notebook somewhere else
        self.shell.history_manager.enabled = False

    @property
    def _supports_kernel_subshells(self) -> bool:
        return False

    def _publish_status(self, status: str, channel: str, parent: Any = None) -> None:
        """Write the cell to the current-cell file; publish only the end of one that lasts.

        The messages of a quick cell are not needed: its reply has the number of its outputs.
        """
        if channel != "shell":
            super()._publish_status(status, channel, parent)
        elif status == "busy":
            header = self.get_parent("shell")["header"]
            if header["msg_type"] == "execute_request" and "sky" in header:
                self.cell_file.write(header["msg_id"], header["sky"])
                self._busy_since = time.monotonic()
        elif self._busy_since:
            self.cell_file.clear()
            lasted, self._busy_since = time.monotonic() - self._busy_since, 0.0
            if lasted > STATUS_MIN_SECONDS:
                super()._publish_status(status, channel, parent)

    def _publish_execute_input(self, *args: object) -> None:
        """Publish nothing: the notebook knows its own cell."""

    def set_parent(self, ident: Any, parent: JupyterMessage, channel: str = "shell") -> None:
        """Set the message being handled; outputs still belong to the last cell."""
        if parent["header"]["msg_type"] == "sky_value":
            Kernel.set_parent(self, ident, parent, channel)
        else:
            super().set_parent(ident, parent, channel)

    # -- cells -----------------------------------------------------------------------------

    def should_handle(self, stream: Any, msg: JupyterMessage, idents: Any) -> bool:
        """Return whether a message was not aborted, and record that it has begun."""
        with self._abort_lock:
            begins = super().should_handle(stream, msg, idents)
            if begins:
                self._started_ids.append(msg["header"]["msg_id"])
        return begins

    def abort_request(self, stream: Any, ident: Any, parent: JupyterMessage) -> None:
        """Abort cells that have not begun, and reply at once with their ids."""
        with self._abort_lock:
            waiting = [
                msg_id for msg_id in parent["content"]["msg_ids"] if msg_id not in self._started_ids
            ]
            self.aborted |= set(waiting)
        content = {"status": "ok", "waiting": waiting}
        self.session.send(stream, "abort_reply", content=content, parent=parent, ident=ident)

    async def do_execute(self, *args: Any, **kwargs: Any) -> JsonObject:
        """Run a cell; with ``metadata['sky']`` also receive its inputs and return its outputs."""
        # taken out of the message, which cells and their hooks can see: it may hold secrets
        request = self.get_parent("shell").get("metadata", {}).pop("sky", None)
        if request is None:
            return await super().do_execute(*args, **kwargs)
        cell = self.get_parent("shell")["header"]["msg_id"]
        self.output_counter.begin(cell)
        self._errors.begin_cell(request.get("error_shown_by", "engine"))
        try:
            with self.shell.builtin_trap:  # packages ask for `get_ipython` when they are imported
                decisions = self.engine_namespace.bind_inputs(request.get("inputs", {}))
        except Exception as error:
            return self._refused_reply(error, self.output_counter.end(cell))
        before = self.engine_namespace.identities(name for name, _ in request.get("outputs", []))
        number = request.get("cell", self.shell.execution_count)
        self.shell.execution_count = number
        processes = _child_usage()
        session, texts = request.get("session", ""), request.get("history", {})
        numbered = self.cell_history.at_cell(number, session, texts)
        queries = self._around_queries(request, number)
        with _environment(request.get("env", {})), numbered, queries:
            reply = await super().do_execute(*args, **kwargs)
        has_ended_processes = _child_usage() != processes
        if has_ended_processes and self.overlay is not None and self.overlay.refresh():
            print(NOTE, file=sys.stderr)
        if has_ended_processes or BoundedOutStream.has_unread():
            BoundedOutStream.wait_for_processes()
        if has_ended_processes or _has_children():
            self.iopub_socket.wait_for_forks()
        reply["sky"] = self._outcome(request, reply, before) | {"decisions": decisions}
        _flush_streams()  # all that the cell has printed is on its way before it is counted
        reply["sky"]["printed"] = self.output_counter.end(cell)
        return reply

    def _around_queries(
        self, request: JsonObject, number: int
    ) -> contextlib.AbstractContextManager[None]:
        """Return the context of a cell beside data engines, from the first cell with one on."""
        engine = request.get("engine")
        if self._data_engines is None:
            if engine is None:
                return contextlib.nullcontext()
            self._data_engines = load_class(DATA_ENGINES)(self)
        return self._data_engines.around(engine, request.get("engine_page", ""), number)

    def _refused_reply(self, error: Exception, printed: int) -> JsonObject:
        return {
            "status": "error",
            "ename": type(error).__name__,
            "evalue": str(error),
            "traceback": [],
            "execution_count": self.shell.execution_count,
            "user_expressions": {},
            "payload": [],
            "engine_info": self.get_engine_info(method="execute"),
            "sky": {"refused": str(error), "printed": printed},
        }

    def _outcome(
        self, request: JsonObject, reply: JsonObject, before: Mapping[str, int | None]
    ) -> JsonObject:
        result = self.shell.last_execution_result
        if reply["status"] != "ok":
            error = result and (result.error_before_exec or result.error_in_exec)
            if final := self._errors.final:
                error, reply["ename"], reply["evalue"] = final.error, final.name, final.text
            # what the cell had made by then, as a cell of the notebook leaves it
            after = self.engine_namespace.identities(before)
            made = {name for name in before if after[name] not in (None, before[name])}
            outputs = self._describe_outputs(request, made)
            described = describe_error(error) if error else None
            return {"error": described, "shown": True, "outputs": outputs}
        outcome: JsonObject = {"outputs": self._describe_outputs(request)}
        value = result.result if result else None
        if value is not None:
            as_data = bool(request.get("as_data"))
            shown = self.output_counter.shown_result
            outcome["result"] = self.engine_namespace.describe_result(value, as_data, shown)
        return outcome

    def _describe_outputs(self, request: JsonObject, names: Set[str] | None = None) -> JsonObject:
        """Describe the variables of ``-o``; of a cell that failed those with these `names`."""
        as_data = bool(request.get("as_data"))
        return {
            name: self.engine_namespace.describe_output(name, keep, as_data)
            for name, keep in request.get("outputs", [])
            if names is None or name in names
        }

    def sky_value(self, stream: Any, ident: Any, parent: JupyterMessage) -> None:
        """Answer a ``sky_value`` request: move, name, list or release values and files."""
        content = parent["content"]
        buffers: Buffers = ()
        try:
            if content.get("op") == Ping.op:
                answer: Message = PingReply(self._direct_ports())
                super()._publish_status("idle", "shell", parent)  # heard, it proves the way
            else:
                with self.shell.builtin_trap:
                    answer = self.engine_namespace.handle_request(
                        content, parent.get("buffers", ())
                    )
            reply, buffers = {**answer.encode(), "status": "ok"}, answer.attached
        except Exception as error:
            reply = {"status": "error", "ename": type(error).__name__, "evalue": str(error)}
        self.session.send(
            stream, "sky_reply", reply, parent=parent, ident=ident, buffers=buffers or None
        )

    def _direct_ports(self) -> list[int | str]:
        """Return the ports at which notebooks on this machine reach this engine directly.

        The last one, of what it prints, is the name of a socket in the cluster's folder.
        """
        if not self._ports and not self.parent.curve_serverkey:
            outputs, commands = Future(), Future()
            thread = self.iopub_socket  # it is the thread that owns the socket of this name
            thread.schedule(lambda: outputs.set_result(self._bind_outputs(thread.socket)))
            control = self.control_stream
            control.io_loop.add_callback(lambda: commands.set_result(_bind(control.socket)))
            requests = _bind(self.shell_stream.socket)
            self._ports = [requests, commands.result(5.0), outputs.result(5.0)]
        return self._ports

    def _bind_outputs(self, source: Any) -> int | str:
        sockets = PrivateSockets(Path(self.cell_file.folder) / "security")
        if not sockets.is_usable:
            return _bind(source)
        name = f"engine-{self.engine_id}-{uuid.uuid4().hex[:8]}"
        source.bind(sockets.url(name))
        sockets.close()
        return name

    # -- functions -------------------------------------------------------------------------

    @property
    def node_worker(self) -> EngineExtension:
        """Worker that runs the calls of pools in this engine."""
        with self._abort_lock:
            worker: EngineExtension = self._node_worker or load_class(CALLS)(self)
            self._node_worker = worker
        return worker

    def dispatch_control(self, msg: list[Any]) -> Any:
        """Pass commands to the node worker, other messages to the kernel."""
        idents, frames = self.session.feed_identities(msg, copy=False)
        header = frames[1].bytes
        if b'"sky_commands"' not in header and b'"sky_mount"' not in header:
            return super().dispatch_control(msg)
        try:
            message = self.session.deserialize(frames, content=True, copy=False)
            if message["msg_type"] == "sky_mount":  # its answer may take a while
                return self._answer_mount(idents, message)
            self.node_worker.handle_commands(idents, message)
        except Exception:
            self.log.error("a command could not be carried out", exc_info=True)
        return None

    async def _answer_mount(self, ident: Any, parent: JupyterMessage) -> None:
        """Answer the notebook that signs the requests of a mounted dataset."""
        state = await self.engine_namespace.datasets.mounts.answer(
            ServeMount.decode(parent["content"])
        )
        reply = {**state.encode(), "status": "ok"}
        self.session.send(self.control_stream, "sky_reply", reply, parent=parent, ident=ident)


def _set_module_attributes(shell: Any) -> None:
    """Set the attributes that the module of a kernel's cells has, and that of an engine lacks."""
    doc = "Automatically created module for IPython interactive environment"
    for name, value in vars(ModuleType("__main__", doc)).items():
        shell.user_ns.setdefault(name, value)
    # past IPython's own, which puts attributes of the module among the variables
    object.__setattr__(shell.user_module, "__doc__", doc)


def _bind(source: Any) -> int:
    return source.bind_to_random_port("tcp://127.0.0.1")


def _flush_streams() -> None:
    """Wait until all text is on its way; an interrupt comes too late, for the cell is over."""
    for stream in (sys.stdout, sys.stderr):
        is_flushed = False
        while not is_flushed:
            with contextlib.suppress(KeyboardInterrupt):
                stream.flush()
                is_flushed = True


def _child_usage() -> object:
    """Return resource usage that changes when a child process ends."""
    try:
        import resource
    except ImportError:  # not everywhere
        return None
    return resource.getrusage(resource.RUSAGE_CHILDREN)


def _has_children() -> bool:
    """Return whether there are child processes, as far as the system tells."""
    if not hasattr(os, "waitid"):
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the length of one cell."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _show_group(shell: Any, _kind: Any, error: BaseException, trace: Any, **_: Any) -> list[str]:
    """Show an exception group with the cell's own lines; IPython prints it with frames of its own.

    Returns
    -------
    list of str
        The lines of the traceback.
    """

    def cell(match: re.Match) -> str:
        names = shell.compile.format_code_name(match[1])
        return f"{names[0]} {names[1]}" if names else match[0]

    text = "".join(traceback.format_exception(type(error), error, trace.tb_next))
    lines = re.sub(r'File "([^"\n]+)"', cell, text).splitlines()
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    shell._showtraceback(type(error), error, lines)
    return lines


# -- History of an engine's cells, by the numbers that they have in their notebook ----------------


class _NoOutputs(defaultdict[int, list[Any]]):
    """Outputs of cells that are not kept.

    IPython (9 and later) keeps every piece of text and every display for as long as the process
    lives, for ``%notebook``. An engine that prints for days would need ever more memory.
    """

    def __missing__(self, number: int) -> list[Any]:
        return []


class CellHistory:
    """The lists behind ``In``, ``%history`` and ``_i``, which IPython fills by appending.

    An engine runs some cells of a notebook only. Entries of the others are empty, but for those
    whose text has come with a cell that reads the history.

    Parameters
    ----------
    shell
        IPython's shell; attributes of its history that are not public are accessed here only.
    """

    def __init__(self, shell: Any) -> None:
        self._shell, self._manager = shell, shell.history_manager
        self._session = ""
        self._manager.outputs = _NoOutputs(list)
        # `%rerun`, `%history -l` and `-g` ask the database of the machine's user for these
        self._manager.get_tail = self._last_cells
        self._manager.search = self._search

    @contextmanager
    def at_cell(self, number: int, session: str, cells: Mapping[str, str]) -> Iterator[None]:
        """Let the cell that runs in this context be stored under its number.

        Parameters
        ----------
        number
            Number of the cell; 0 for code that is no cell, which is not stored.
        session
            Id of the notebook's kernel: another one counts its cells anew.
        cells
            Texts of cells that the notebook has run elsewhere, by their numbers.
        """
        histories = self._manager.input_hist_raw, self._manager.input_hist_parsed
        if session != self._session:
            self._session = session
            for history in histories:
                history[:] = [""]
        for told, text in cells.items():
            self._fill(int(told), text)
        # a cell that was sent in the background may run after one that has a higher number
        length = number or len(histories[0])
        later = [history[length:] for history in histories]
        for history in histories:
            del history[length:]
            history += [""] * (length - len(history))
        self._set_previous(histories[0])
        try:
            yield
        finally:
            for history, rest in zip(histories, later, strict=True):
                del history[length + (number > 0) :]
                history += rest[1:]

    def _fill(self, number: int, text: str) -> None:
        raw, parsed = self._manager.input_hist_raw, self._manager.input_hist_parsed
        for history in (raw, parsed):
            history += [""] * (number + 1 - len(history))
        if raw[number]:
            return
        try:
            code = self._shell.transform_cell(text)
        except SyntaxError:
            code = text
        raw[number], parsed[number] = text.rstrip("\n"), code.rstrip("\n")
        self._shell.user_ns[f"_i{number}"] = raw[number]

    def _set_previous(self, raw: list[str]) -> None:
        """Set the inputs that become ``_i``, ``_ii`` and ``_iii`` when the next is stored."""
        last = ["", "", "", *raw]
        self._manager._i00, self._manager._i, self._manager._ii = last[-1], last[-2], last[-3]

    def _last_cells(
        self,
        n: int | None = 10,
        raw: bool = True,
        output: bool = False,
        include_latest: bool = False,
    ) -> list[tuple[int, int, Any]]:
        """Stand in for ``HistoryManager.get_tail``: the last `n` cells, the latest at the end."""
        cells = self._cells(raw, output)
        cells = cells if include_latest else cells[:-1]
        return cells[max(0, len(cells) - (10 if n is None else n)) :]

    def _search(
        self,
        pattern: str = "*",
        raw: bool = True,
        search_raw: bool = True,
        output: bool = False,
        n: int | None = None,
        unique: bool = False,
    ) -> list[tuple[int, int, Any]]:
        """Stand in for ``HistoryManager.search``: cells whose text matches, as a shell matches."""
        texts = {number: text for __, number, text in self._cells(search_raw, False)}
        matching = [number for number, text in texts.items() if fnmatchcase(text, pattern)]
        if unique:
            matching = sorted({texts[number]: number for number in matching}.values())
        found = {cell[1]: cell for cell in self._cells(raw, output)}
        return [found[number] for number in matching][-n if n else 0 :]

    def _cells(self, raw: bool, output: bool) -> list[tuple[int, int, Any]]:
        """Return session (0, this one), number and text of each cell; with its value if asked."""
        texts = self._manager.input_hist_raw if raw else self._manager.input_hist_parsed
        values = self._manager.output_hist_reprs
        return [
            (0, number, (text, values.get(number)) if output else text)
            for number, text in enumerate(texts)
            if text
        ]


# -- IPython's transforms of cells, as the same cells without ``%%sky`` get them ------------------
#
# IPython looks at single lines more closely: the name of a macro runs it, and ``%autocall`` adds
# parentheses. On an engine, such a line stands below the comment that was a ``%%sky`` line.

_SKY_LINES = re.compile(r"\A(?:# .*\n)*?# *%%sky\b.*\n")


def install_cell_transforms(shell: Any) -> None:
    """Replace the method of a shell that transforms cells."""
    transform = shell.transform_cell

    # ipykernel transforms every cell twice: once to see whether it awaits, once to run it
    @lru_cache(maxsize=1)
    def transform_cell(text: str) -> str:
        code = transform(text)
        above = _SKY_LINES.match(code)
        line = code[above.end() :] if above else ""
        if above is None or len(line.splitlines()) != 1:
            return code
        with shell.builtin_trap:
            return f"{above[0]}{shell.prefilter_manager.prefilter_lines(line.rstrip())}\n"

    shell.transform_cell = transform_cell


# -- Errors that IPython shows while a cell runs: the exception that ends the cell, and -----------
#
# A notebook shows all of them where they stand among the outputs. Some it must tell apart: of
# several engines that fail, one error is enough, and an exception that the notebook's own code
# handles is not shown at all.

ShownBy = Literal["engine", "notebook"]


@dataclass(frozen=True, slots=True)
class FinalError:
    """Exception that ends a cell, with its name and its text as they were shown.

    The text of an exception may be another one each time that it is asked for.
    """

    error: BaseException
    name: str
    text: str


class ShownErrors:
    """Recognition of the exception that ends a cell, when an error is about to be shown.

    Parameters
    ----------
    shell
        The shell of the engine.

    Attributes
    ----------
    final : FinalError or None
        The exception that ends the current cell, once it has been shown.
    """

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.final: FinalError | None = None
        self._result: Any = None
        self._shown_by: ShownBy = "engine"
        self._show_usage_error = shell.show_usage_error
        shell.show_usage_error = self._show_usage
        # programs look at the name of the shell's class, so it is no subclass
        shell.run_code = BeforeCall(shell.run_code, self._note_result)

    def begin_cell(self, shown_by: ShownBy = "engine") -> None:
        """Forget the last cell.

        Parameters
        ----------
        shown_by
            Where the exception that ends the new one is shown.
        """
        self.final = self._result = None
        self._shown_by = shown_by

    def _show_usage(self, error: BaseException) -> None:
        """Print an error that IPython prints as text, which nobody could take back."""
        if self._shown_by == "engine" or not self._ends_cell(error):
            self._show_usage_error(error)

    def describe(self, content: JsonObject) -> JsonObject:
        """Return the metadata of an error message: whether it ends the cell, and its origin."""
        error = getattr(sys, "last_value", None)  # IPython sets it before it shows an error
        if not isinstance(error, BaseException):
            return {}
        is_final = self._ends_cell(error)
        if is_final:
            self.final = FinalError(error, content["ename"], content["evalue"])
        return {"sky": {"final": is_final, "error": describe_origin(error)}}

    def _note_result(self) -> None:
        """Note the result of the cell when its code begins; magics run further cells within it."""
        if self._result is None:
            self._result = self.shell.displayhook.exec_result

    def _ends_cell(self, error: BaseException) -> bool:
        if self._result is None:  # before the code of the cell has begun
            return isinstance(error, SyntaxError | InputRejected)
        hook = self.shell.displayhook
        is_displaying = getattr(hook, "msg", None) is not None
        return error is self._result.error_in_exec or (
            is_displaying and hook.exec_result is self._result
        )


# -- Attribution of output from threads to the cell that started them -----------------------------
#
# ipykernel remembers the parent of a message in context variables, which threads do not inherit
# before Python 3.14. Only those variables are handed on: a whole context would also carry the
# event loop's affairs into threads.


def inherit_parents(holders: Callable[[], Iterable[Any]]) -> None:
    """Let threads and the tasks of thread pools inherit the parents that `holders` keep.

    Parameters
    ----------
    holders
        Gives the streams, display hooks and the like whose context variables are handed on.
    """
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def carry(function: Callable, done: Callable[[], object] = lambda: None) -> Any:
        variables = [
            variable
            for holder in holders()
            for variable in getattr(holder, "__dict__", {}).values()
            if isinstance(variable, ContextVar)
        ]
        values = [(variable, variable.get(None)) for variable in variables]

        def set_values() -> None:
            done()
            for variable, value in values:
                if value is not None:
                    variable.set(value)

        return BeforeCall(function, set_values)

    @wraps(start)
    def carrying_start(self: threading.Thread) -> None:
        # once: afterwards it is the class's own method again
        own = vars(self)
        self.run = carry(self.run, lambda: own.pop("run", None))
        start(self)

    @wraps(submit)
    def carrying_submit(pool: ThreadPoolExecutor, task: Callable, /, *args: Any, **kwargs: Any):
        return submit(pool, carry(task), *args, **kwargs)

    threading.Thread.start = carrying_start  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = carrying_submit  # type: ignore[method-assign]


# -- Actions before calls of functions that leave no frame in the tracebacks of the functions -----


class BeforeCall:
    """Callable that carries out an action, in the thread that calls it, and then a function.

    ``__call__`` is a property: its code has returned when the function is called.
    """

    def __init__(self, function: Callable[..., Any], action: Callable[[], object]) -> None:
        self._function, self._action = function, action

    @property
    def __call__(self) -> Callable[..., Any]:
        """The function, once the action has been carried out."""
        self._action()
        return self._function


# -- Number of the messages that a cell publishes, by which its notebook knows when all have ------

PACED_TYPES = COUNTED_TYPES - {"stream", "error"}
"""Text is paced by its length, where it is written (`BoundedOutStream`)."""


class OutputCounter:
    """Counter of the messages of each cell on their way through a session.

    Parameters
    ----------
    session
        The kernel's session; its ``send`` is replaced by that of the counter.

    Attributes
    ----------
    describe_error : callable
        Gives the metadata of an error message, for its content.
    wait_for_room : callable
        Waits while more is to be sent than readers take.
    shown_result : str
        Text of the latest result of the cell that has begun last.
    """

    def __init__(self, session: Any) -> None:
        self._send = session.send
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._is_forked = False
        self._pacer = OutputPacer()
        self.describe_error: Callable[[JsonObject], JsonObject] = lambda content: {}
        self.wait_for_room: Callable[[], None] = lambda: None
        self.shown_result = ""
        os.register_at_fork(after_in_child=self._mark_forked)
        session.send = self.send

    def begin(self, cell: str) -> None:
        """Begin to count the messages of a cell."""
        self._counts[cell], self.shown_result = 0, ""

    def count(self, cell: str) -> int:
        """Return the number of messages of a cell so far."""
        return self._counts.get(cell, 0)

    def end(self, cell: str) -> int:
        """Return the number of messages of a cell that has ended."""
        with self._lock:
            return self._counts.pop(cell, 0)

    def send(self, stream: Any, msg_or_type: Any, *args: Any, **kwargs: Any) -> Any:
        """Send a message and count it, unless it is text that is not shown on this node."""
        if isinstance(msg_or_type, dict) and _is_muted(msg_or_type):
            return None
        if msg_or_type == "error":
            kwargs["metadata"] = self.describe_error(args[0] if args else kwargs["content"])
        message = self._send(stream, msg_or_type, *args, **kwargs)
        if message and not self._is_forked:  # the parent passes it on, and counts it
            self._count(message["header"], message["parent_header"])
            if message["header"]["msg_type"] in PACED_TYPES:
                self._pacer.wait()
                self.wait_for_room()
            if message["header"]["msg_type"] == "execute_result":
                self.shown_result = str(message["content"]["data"].get("text/plain", ""))
        return message

    def count_forwarded(self, frames: Sequence[bytes]) -> None:
        """Count a message of a forked process, which this one passes on."""
        start = frames.index(DELIM) + 2  # a signature is between
        self._count(json.loads(frames[start]), json.loads(frames[start + 1]))

    def _count(self, header: JsonObject, parent: JsonObject) -> None:
        if header["msg_type"] in COUNTED_TYPES:
            cell = parent.get("msg_id")
            with self._lock:  # threads publish, too
                if cell in self._counts:
                    self._counts[cell] += 1

    def _mark_forked(self) -> None:
        self._is_forked = True


def _is_muted(message: JupyterMessage) -> bool:
    """Return whether this is text that a function does not show on this node."""
    muted = message["parent_header"].get("sky_mute")
    return bool(muted) and message["content"].get("name") in muted.split()
