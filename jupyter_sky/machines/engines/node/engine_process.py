"""Engine processes, started and measured by the controller or by a node agent."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from jupyter_sky.base.remote.supervisor import (
    ENGINE_VARIABLE,
    PR_SET_PDEATHSIG,
    SUPERVISOR_VARIABLE,
    prctl,
)
from jupyter_sky.machines.engines.node import current_cell
from jupyter_sky.machines.engines.wire.messages import ClusterConfig


def load_config(path: Path) -> ClusterConfig:
    """Read the configuration, make its folders, and end with its supervisor.

    Raises
    ------
    SystemExit
        The supervisor has ended already, while this process imported its modules.
    """
    config: ClusterConfig = json.loads(path.read_text())
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    supervisor = os.environ.pop(SUPERVISOR_VARIABLE, "")
    if supervisor and os.getppid() != int(supervisor):
        raise SystemExit("its supervisor was killed")
    for name in ("security", "work", "profile"):
        (Path(config["directory"]) / name).mkdir(mode=0o700, exist_ok=True)
    return config


class ForkedProcess:
    """Forked process with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


Process = subprocess.Popen | ForkedProcess


def start_engine(
    directory: Path, config: Path, rank: int, serial: int, loaded: bool = False
) -> tuple[Process, tuple[str, str], int]:
    """Start an engine.

    Parameters
    ----------
    loaded
        This process has loaded what engines need, and has no threads or sockets yet: the engine is
        forked from it, which takes a quarter of the time.

    Returns
    -------
    tuple
        Its process, the mark of its descendants (see
        `base.remote.supervisor.processes_with_env`), and where its part of the log begins.
    """
    current_cell.cell_file_path(directory, rank).unlink(missing_ok=True)
    path = directory / f"engine-{rank}.log"
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    name, value = ENGINE_VARIABLE, f"{directory}:{serial}"
    command = [
        sys.executable,
        "-m",
        "jupyter_sky.machines.engines.node.engine",
        str(config),
        str(rank),
    ]
    more = {name: value}
    process: Process
    size = os.fstat(log).st_size  # before the start: one that fails at once writes why
    try:
        if loaded and sys.platform == "linux":  # elsewhere copies of a process may not do all
            process = _fork(command, log, directory / "work", more)
        else:
            process = subprocess.Popen(
                command,
                cwd=directory / "work",
                env=os.environ | more,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that a signal reaches what the cell has started, too
            )
    finally:
        os.close(log)
    return process, (f"{name}={value}", "\0".join(_process_title(command))), size


def _fork(command: list[str], log: int, folder: Path, more: dict[str, str]) -> ForkedProcess:
    """Fork an engine from this process, as if `command` had been started."""
    from jupyter_sky.machines.engines.node import engine

    if pid := os.fork():
        return ForkedProcess(pid)
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for end, source in enumerate((null, log, log)):
            os.dup2(source, end)
        for spare in {null, log} - {0, 1, 2}:
            os.close(spare)
        os.chdir(folder)
        os.environ.update(more)
        _set_process_title(command)
        sys.argv = [str(engine.__file__), *command[3:]]
        engine.main(command[3:])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:
        traceback.print_exc()
    finally:  # never back into what it is a copy of
        atexit._run_exitfuncs()
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _process_title(command: list[str]) -> list[str]:
    """Shorten a command, so that it fits in place of the parent's."""
    return [Path(command[0]).name, *command[1:]]


def _set_process_title(command: list[str]) -> None:
    """Set the title of this forked process, as shown by ps.

    Its arguments are written over. The library for it, setproctitle, writes over the environment
    as well, by which processes are told here.
    """
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, see proc(5)
        text = "\0".join(_process_title(command)).encode()[: end - start - 1]
        if start:
            ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def memory_usage(pid: int, bound: float) -> float:
    """Return the memory of a process and its descendants in bytes.

    What they share counts once, as long as it matters: to find that out is slow.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0.0
    used = shared = 0.0
    for member in family:
        with suppress(psutil.Error):
            used += member.memory_info().rss
    if used <= bound or len(family) == 1:
        return used
    for member in family:
        with suppress(psutil.Error):
            info = member.memory_full_info()
            shared += getattr(info, "pss", info.uss)
    return shared
