"""The kernel inside an engine: cells with the notebook's own numbers, values by chunks."""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import re
import sys
import threading
import traceback
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from ipykernel.iostream import OutStream
from ipykernel.kernelbase import Kernel
from ipyparallel.engine.kernel import IPythonParallelKernel
from IPython.lib.pretty import pretty

from ..errors import SkyTransferError
from . import environment, threads
from .files import Workspace
from .journal import KEPT
from .values import INLINE_BYTES, Parcel

PLAIN_ROOTS = {
    "builtins",
    "collections",
    "datetime",
    "decimal",
    "fractions",
    "numpy",
    "pandas",
    "pathlib",
    "polars",
    "pyarrow",
    "scipy",
    "uuid",
    "__main__",
}
"""Packages whose values are sent home as a cell's result without being asked for.

Others (figures, widgets, models) may do things when they are unpickled; they stay behind a
handle until fetched.
"""


PIECE_CHARS = 2**20


class _NoChannelThread:
    """Stands for ipykernel's shell channel thread, which an engine does not have.

    ipykernel 7.1 and later read ``shell_channel_thread.parent_thread`` in every cell with a
    top-level await, and never answer when it is None. This is false, as None was, and names the
    main thread.
    """

    parent_thread = threading.main_thread()

    def __bool__(self) -> bool:
        return False


class QuickStream(OutStream):
    """An output stream in pieces of bounded size, whose flush is free when nothing is buffered.

    ipykernel flushes both streams twice a cell, each time waiting for another thread; and it sends
    whatever was written within its interval as one message, of a size that every process on the
    way must hold several times.
    """

    _waiting = 0

    def write(self, string: str) -> int | None:
        """Write, and send at once what has grown to a piece."""
        if isinstance(string, str) and len(string) > PIECE_CHARS:
            for start in range(0, len(string), PIECE_CHARS):
                self.write(string[start : start + PIECE_CHARS])
            return len(string)
        written = super().write(string)
        self._waiting += len(string)
        if self._waiting >= PIECE_CHARS:
            self.flush()
        return written

    def flush(self) -> None:
        """Send what is buffered, if anything is."""
        self._waiting = 0
        if getattr(self, "_buffers", True):
            super().flush()


class SkyKernel(IPythonParallelKernel):
    """An ipyparallel kernel that knows which notebook cell it runs."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if getattr(self, "shell_channel_thread", self) is None:
            self.shell_channel_thread = _NoChannelThread()
        self.shell_handlers["sky_value"] = self.sky_value
        self.refs: dict[str, Any] = {}
        self.parcels: dict[str, Parcel] = {}
        self.sent: dict[str, tuple[str, int, str]] = {}
        self.workspace = Workspace()
        self._ports: list[int] = []
        self._count_printed()
        self._begun: deque[str] = deque(maxlen=1000)
        self._order = threading.Lock()
        self._numbers = itertools.count(1)
        self._life = uuid.uuid4().hex[:8]  # a reference of another engine must not be found here
        # IPython's own end the process, and with it every variable
        self.shell.user_ns.update(exit=sys.exit, quit=sys.exit)
        self.initial = set(self.shell.user_ns)
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        shell = self.shell
        threads.inherit(
            lambda: (self, sys.stdout, sys.stderr, shell.displayhook, shell.display_pub)
        )
        shell.set_custom_exc((BaseExceptionGroup,), _show_group)
        # not the history of the machine's user: cells belong to a notebook somewhere else
        self.shell.history_manager.enabled = False

    @property
    def _supports_kernel_subshells(self) -> bool:
        return False

    def _publish_execute_input(self, *args: Any) -> None:
        """Say nothing: the notebook knows its own cell."""

    def set_parent(self, ident: Any, parent: dict[str, Any], channel: str = "shell") -> None:
        """Note whose message is being handled; what is printed still belongs to the last cell."""
        if parent["header"]["msg_type"] == "sky_value":
            Kernel.set_parent(self, ident, parent, channel)
        else:
            super().set_parent(ident, parent, channel)

    # -- cells -----------------------------------------------------------------------------

    def should_handle(self, stream: Any, msg: dict[str, Any], idents: Any) -> bool:
        """Say whether a message was not taken back, and note that it has begun."""
        with self._order:
            begins = super().should_handle(stream, msg, idents)
            if begins:
                self._begun.append(msg["header"]["msg_id"])
        return begins

    def abort_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Take back cells that have not begun, and say at once which those are."""
        with self._order:
            waiting = [each for each in parent["content"]["msg_ids"] if each not in self._begun]
            self.aborted |= set(waiting)
        content = {"status": "ok", "waiting": waiting}
        self.session.send(stream, "abort_reply", content=content, parent=parent, ident=ident)

    async def do_execute(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Run a cell; with ``metadata['sky']`` also take its inputs and give its outcome."""
        request = self.get_parent("shell").get("metadata", {}).get("sky")
        if request is None:
            return await super().do_execute(*args, **kwargs)
        try:
            for name, value in request.get("inputs", {}).items():
                self.shell.user_ns[name] = self._unpack(name, value)
        except Exception as error:
            return self._refusal(error)
        self.shell.execution_count = request.get("cell", self.shell.execution_count)
        with _environment(request.get("env", {})):
            reply = await super().do_execute(*args, **kwargs)
        reply["sky"] = self._outcome(request, reply)
        # all that the cell has printed is on its way before it is counted
        sys.stdout.flush()
        sys.stderr.flush()
        reply["sky"]["printed"] = self._printed.pop(self.get_parent("shell")["header"]["msg_id"], 0)
        return reply

    def _count_printed(self) -> None:
        """Count what each cell prints, so that its notebook knows when it has it all."""
        send = self.session.send

        def counted(stream: Any, msg_or_type: Any, *args: Any, **kwargs: Any) -> Any:
            message = send(stream, msg_or_type, *args, **kwargs)
            if message and message["header"]["msg_type"] in KEPT:
                cell = message["parent_header"].get("msg_id")
                self._printed[cell] = self._printed.get(cell, 0) + 1
            return message

        self.session.send = counted
        self._printed: dict[str, int] = {}

    def _refusal(self, error: Exception) -> dict[str, Any]:
        return {
            "status": "error",
            "ename": type(error).__name__,
            "evalue": str(error),
            "traceback": [],
            "execution_count": self.shell.execution_count,
            "user_expressions": {},
            "payload": [],
            "engine_info": self.get_engine_info(method="execute"),
            "sky": {"refused": str(error)},
        }

    def _outcome(self, request: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        result = self.shell.last_execution_result
        if reply["status"] != "ok":
            error = result and (result.error_before_exec or result.error_in_exec)
            return {"error": describe_error(error) if error else None}
        outcome: dict[str, Any] = {"outputs": {}}
        for name, keep in request.get("outputs", []):
            outcome["outputs"][name] = self._output(name, keep)
        value = result.result if result else None
        if value is not None:
            outcome["result"] = self._result(value)
        return outcome

    def _output(self, name: str, keep: bool) -> dict[str, Any]:
        if name not in self.shell.user_ns:
            return {"missing": True}
        value = self.shell.user_ns[name]
        return self._hold(value) if keep else self._pack(value, name)

    def _result(self, value: Any) -> dict[str, Any]:
        root = type(value).__module__.partition(".")[0]
        small = getattr(value, "nbytes", 0)
        if root in PLAIN_ROOTS and isinstance(small, int) and small <= INLINE_BYTES:
            parcel = Parcel.small(value, INLINE_BYTES)
            if parcel is not None:
                return _inline(parcel)
        return self._hold(value)

    # -- values ----------------------------------------------------------------------------

    def _hold(self, value: Any) -> dict[str, Any]:
        """Keep `value` here under a number, and describe it."""
        ref = f"{self._life}-{next(self._numbers)}"
        self.refs[ref] = value
        text = _short_repr(value)
        return {"ref": ref, "type": type(value).__qualname__, "repr": text}

    def _held(self, ref: str, name: str) -> Any:
        if ref in self.refs:
            return self.refs[ref]
        raise SkyTransferError(
            f"{name} is gone: the engine that held it was restarted",
            hint="run the cell that made it again",
        )

    def _pack(self, value: Any, name: str) -> dict[str, Any]:
        try:
            parcel = Parcel.of(value, name)
        except SkyTransferError as error:
            return {"unpicklable": str(error)}
        if parcel.nbytes <= INLINE_BYTES:
            return _inline(parcel)
        held = self._hold(value)
        self.parcels[held["ref"]] = parcel
        return held | {"sizes": parcel.sizes}

    def _unpack(self, name: str, value: dict[str, Any]) -> Any:
        data = base64.b64decode(value["inline"])
        return self._load(Parcel.from_bytes(value["sizes"], data), name)

    def _load(self, parcel: Parcel, name: str) -> Any:
        try:
            return parcel.load()
        except ModuleNotFoundError as error:
            raise SkyTransferError(
                f"{name} cannot be opened on the engine: it needs the module {error.name!r}",
                hint=f"add --pip {error.name}, or --sync the file that defines it",
            ) from error
        except Exception as error:
            raise SkyTransferError(
                f"{name} cannot be opened on the engine: {type(error).__name__}: {error}"
            ) from error

    def sky_value(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Answer a ``sky_value`` request: move, name, list or release values and files."""
        content = parent["content"]
        buffers: list[memoryview] = []
        try:
            handler = getattr(self, f"_op_{content['op']}")
            reply = handler(content, parent.get("buffers", []), buffers) or {}
            reply["status"] = "ok"
        except Exception as error:
            reply = {"status": "error", "ename": type(error).__name__, "evalue": str(error)}
        self.session.send(
            stream, "sky_reply", reply, parent=parent, ident=ident, buffers=buffers or None
        )

    def _op_ping(self, *_: Any) -> dict:
        """Answer, with the ports at which notebooks on this machine reach this engine directly."""
        if not self._ports and not self.parent.curve_serverkey:
            bound: Future = Future()
            thread = self.iopub_socket  # it is the thread that owns the socket of this name
            thread.schedule(lambda: bound.set_result(_bind(thread.socket)))
            self._ports = [_bind(self.shell_stream.socket), bound.result(5.0)]
        return {"ports": self._ports}

    def _op_same(self, content: dict, *_: Any) -> dict:
        """Is the content sent before under this name still what the name holds?"""
        value = self.shell.user_ns.get(content["name"])
        digest, identity, here = self.sent.get(content["name"], ("", 0, ""))
        if (digest, identity) != (content["digest"], id(value)):
            return {"same": False}
        try:
            return {"same": here == Parcel.of(value).digest()}  # it may have changed in place
        except SkyTransferError:
            return {"same": False}

    def _op_begin(self, content: dict, *_: Any) -> None:
        self.parcels[content["id"]] = Parcel.empty(content["sizes"])

    def _op_chunk(self, content: dict, received: list, *_: Any) -> None:
        self.parcels[content["id"]].fill(content["start"], received)

    def _op_end(self, content: dict, *_: Any) -> None:
        name, parcel = content["name"], self.parcels.pop(content["id"])
        value = self._load(parcel, name)
        self.shell.user_ns[name] = value
        self.sent[name] = (content["digest"], id(value), Parcel.of(value).digest())

    def _op_pack(self, content: dict, *_: Any) -> dict:
        """Pack the value behind a name or a reference for fetching."""
        name = content["name"]
        if "ref" in content:
            value = self._held(content["ref"], name)
        elif name in self.shell.user_ns:
            value = self.shell.user_ns[name]
        else:
            return {"missing": True}
        return self._pack(value, name)

    def _op_fetch(self, content: dict, _received: list, buffers: list) -> dict:
        buffers += self.parcels[content["ref"]].views(content["start"], content["stop"])
        return {}

    def _op_packed(self, content: dict, *_: Any) -> None:
        """Drop a parcel that has been fetched (the value itself stays)."""
        self.parcels.pop(content["ref"], None)
        if content.get("release", True):
            self.refs.pop(content["ref"], None)

    def _op_bind(self, content: dict, *_: Any) -> None:
        self.shell.user_ns[content["name"]] = self._held(content["ref"], content["name"])

    def _op_result(self, content: dict, *_: Any) -> dict:
        """Hold the result of a cell that could not be opened by the notebook."""
        return self._hold(self.shell.user_ns["_oh"][content["cell"]])

    def _op_names(self, *_: Any) -> dict:
        """List the variables that cells have made, with type, size and a short repr."""
        found = []
        for name, value in list(self.shell.user_ns.items()):
            if name in self.initial or name.startswith("_") or name in ("In", "Out"):
                continue
            if type(value).__name__ == "module":
                continue
            size = getattr(value, "nbytes", None)
            size = size if isinstance(size, int) else sys.getsizeof(value, 0)
            found.append([name, type(value).__qualname__, size, _short_repr(value, 60)])
        return {"names": found}

    def _op_packages(self, content: dict, *_: Any) -> None:
        """Install packages over the engine's own, and import from there first."""
        self.workspace.add_paths([environment.ensure(content["packages"])])

    def _op_files(self, content: dict, *_: Any) -> dict:
        return {"missing": self.workspace.missing(content["manifest"])}

    def _op_file(self, content: dict, received: list, *_: Any) -> None:
        self.workspace.write(content["path"], content["start"], content["mode"], received)

    def _op_synced(self, content: dict, *_: Any) -> dict:
        paths = content.get("paths", ())
        forgotten = self.workspace.settle(content["manifest"], content["written"], paths)
        return {"forgotten": forgotten}


def _bind(source: Any) -> int:
    return source.bind_to_random_port("tcp://127.0.0.1")


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


def _inline(parcel: Parcel) -> dict[str, Any]:
    return {"inline": base64.b64encode(parcel.to_bytes()).decode(), "sizes": parcel.sizes}


def _short_repr(value: Any, limit: int = 2000) -> str:
    """Return how IPython shows `value`, which spells out no more than a thousand items."""
    try:
        text = pretty(value)
    except Exception as error:
        text = f"<{type(value).__qualname__}: repr failed with {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


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
    shell._showtraceback(type(error), error, lines)
    return lines


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return what a client needs to raise `error` under its own class.

    ``classes`` names the class and its bases as (module, qualified name), nearest first;
    ``inline`` is a parcel of what the exception carries, where that travels. The exception itself
    does not: it may be of a class that is not there, or whose ``__init__`` wants anything.
    """
    classes = [
        [base.__module__, base.__qualname__]
        for base in type(error).__mro__
        if issubclass(base, BaseException)
    ]
    described: dict[str, Any] = {"classes": classes}
    if isinstance(error, NameError):
        described["name"] = error.name
    if isinstance(error, ModuleNotFoundError):
        described["module"] = error.name
    if isinstance(error, FileNotFoundError) and isinstance(error.filename, str):
        described["filename"] = error.filename
    more = {name: getattr(error, name) for name in _MORE if getattr(error, name, None) is not None}
    state = {"args": error.args, "dict": vars(error), "more": more}
    for kept in (state, state | {"dict": {}}):
        if parcel := Parcel.small(kept, INLINE_BYTES):
            return described | _inline(parcel)
    return described


_MORE = (
    "name path msg errno strerror filename filename2 lineno offset text end_lineno end_offset code "
    "value"
).split()
"""What builtin exceptions carry beside their arguments and attributes."""
