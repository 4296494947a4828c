"""Client of a real kernel with its own folders, like a front end."""

import contextlib
import json
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from jupyter_client import KernelManager

FOLDERS = (
    "IPYTHONDIR JUPYTER_CONFIG_DIR JUPYTER_DATA_DIR JUPYTER_RUNTIME_DIR SKY_DATA_DIR"
).split()
MARK = "IPYTHONDIR"  # all that a kernel starts has it, below the kernel's home: how we find it

# Words of a command line that tell what a process is, for jupyter_sky and for ipyparallel; the
# first that fits decides, as a supervisor's and a nanny's line hold that of what they guard.
ROLES = {
    "supervisor": "other",
    "nanny": "other",
    "engines.head": "controller",
    "controller": "controller",
    "engine": "engine",
}


@dataclass
class Cell:
    """Messages of one cell to the front end, with their times (seconds after the request)."""

    messages: list = field(default_factory=list)  # (seconds, message), in order of arrival

    @property
    def seconds(self) -> float:
        return self.messages[-1][0]

    @property
    def first_stream(self) -> float:
        return next(at for at, m in self.messages if m["msg_type"] == "stream")

    @property
    def text(self) -> str:
        return "".join(m["content"]["text"] for _, m in self.messages if m["msg_type"] == "stream")

    @property
    def megabytes(self) -> float:
        """The contents as JSON: what travels on to the browser, without the envelopes."""
        return sum(len(json.dumps(m["content"], default=str)) for _, m in self.messages) / 1e6


class Kernel:
    """`with Kernel() as kernel: kernel.run("1").seconds`; nothing is left when the block ends."""

    def __enter__(self):
        self.home = Path(tempfile.mkdtemp(prefix="sky-bench-"))
        folders = own_folders(self.home)
        self.manager = KernelManager(kernel_name="python3")
        # The kernel's folder is its own too: a pyproject.toml nearby would configure %%sky.
        self.manager.start_kernel(
            env=os.environ | folders, cwd=str(self.home), extra_arguments=["--log-level=40"]
        )
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        return self

    def __exit__(self, *exc):
        self.client.stop_channels()
        self.manager.shutdown_kernel()
        end_processes(self.home)
        shutil.rmtree(self.home, ignore_errors=True)

    def run(self, code: str, timeout: float = 300, allow_error: bool = False) -> Cell:
        """Run a cell and wait for its idle. Reads the socket itself: a blocking client's own
        get_iopub_msg costs more than a small cell does."""
        client, socket, cell = self.client, self.client.iopub_channel.socket, Cell()
        start = time.perf_counter()
        request = client.execute(code)
        while True:
            left = timeout - (time.perf_counter() - start)
            if left < 0 or not socket.poll(left * 1000):
                raise TimeoutError(f"no idle within {timeout} s of: {code}")
            _, message = client.session.recv(socket, mode=0)
            if message["parent_header"].get("msg_id") != request:
                continue
            cell.messages.append((time.perf_counter() - start, message))
            if message["msg_type"] == "error" and not allow_error:
                raise RuntimeError("\n".join(message["content"]["traceback"]))
            if message["content"].get("execution_state") == "idle":
                client.get_shell_msg(timeout=10)
                return cell

    def peaks(self) -> dict[str, float]:
        """Peak GB of memory by role: client (this kernel), controller, engine, other."""
        peaks = dict.fromkeys(("client", "controller", "engine", "other"), 0.0)
        for process in processes(self.home):
            with contextlib.suppress(psutil.Error, OSError):
                peaks[self._role(process)] += _peak(process.pid)
        return peaks

    def _role(self, process) -> str:
        if process.pid == self.manager.provisioner.pid:
            return "client"
        command = " ".join(process.cmdline())
        return next((role for word, role in ROLES.items() if word in command), "other")


def own_folders(home: Path) -> dict[str, str]:
    """Environment that keeps everything a kernel or a server writes below `home`."""
    folders = {name: str(home / name.lower()) for name in FOLDERS}
    for folder in folders.values():
        Path(folder).mkdir()
    return folders


def processes(home: Path) -> list[psutil.Process]:
    """Every living process of a kernel or a cluster that has its folders below `home`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK, "").startswith(str(home)):
                found.append(process)
    return found


def end_processes(home: Path) -> None:
    for process in processes(home):
        with contextlib.suppress(psutil.Error):
            process.kill()


def _peak(pid: int) -> float:
    """Return the kernel's own high-water mark, so that no sample can miss it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e9


def spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return f"median {statistics.median(ordered) * 1e3:.1f} ms, p95 {p95 * 1e3:.1f} ms"
