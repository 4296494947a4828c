"""Fixtures: real kernels with the extension and one data directory per test file."""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest
from jupyter_client.manager import KernelManager

from jupyter_sky.base.remote.supervisor import unmount_below
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import Store
from tests.emulators import service_descriptions
from tests.leaks import nothing_left as nothing_left_of

os.environ["SKY_RENEW"] = "false"  # clouds are asked by the tests of it alone
os.environ["LANGUAGE"] = "en"  # the texts that tests expect, whoever runs them
# Tests start hundreds of processes: without compiled modules each compiles the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
hypothesis.settings.register_profile("tests", deadline=None)  # a busy machine is slow
hypothesis.settings.load_profile("tests")
# jsonschema would compile 38 grammars in each worker, two seconds, for formats that none asks for.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
service_descriptions.read_once()
WAIT = 100.0
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def _own_ports() -> Iterator[int]:
    """Yield free ports of this worker, below those that the system gives to connections.

    A port of the system's choice may be taken by a connection before a kernel listens on it.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 20_000 + worker % 12 * 1000
    for number in itertools.count(os.getpid()):  # another run begins elsewhere in the range
        port = first + number % 1000
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


_kernel_ports = _own_ports()
_choosing_port = threading.Lock()


@dataclass
class Ran:
    """Messages of one cell, as a front end has received them."""

    status: str = ""
    ename: str = ""
    evalue: str = ""
    traceback: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Contents of the messages of one type."""
        return [m["content"] for m in self.messages if m["header"]["msg_type"] == kind]

    @property
    def stdout(self) -> str:
        return "".join(c["text"] for c in self.of("stream") if c["name"] == "stdout")

    @property
    def stderr(self) -> str:
        return "".join(c["text"] for c in self.of("stream") if c["name"] == "stderr")

    @property
    def result(self) -> str:
        """Plain text of the execute_result."""
        return "".join(c["data"].get("text/plain", "") for c in self.of("execute_result"))

    @property
    def status_line(self) -> str:
        """The last state of the line above the outputs, as plain text."""
        shown = [*self.of("display_data"), *self.of("update_display_data")]
        lines = [c["data"].get("text/plain", "") for c in shown]
        return next((line for line in reversed(lines) if line.startswith("☁")), "")


class Notebook:
    """A real kernel, driven as a front end does it."""

    def __init__(
        self,
        directory: Path,
        env: dict[str, str],
        name: str | None = None,
        python: str = sys.executable,
    ) -> None:
        self.directory, self.python = directory, python
        self.other_messages: list[
            dict[str, Any]
        ] = []  # messages of other cells than the one waited for
        self.env = {**os.environ, **env}
        if name is not None:
            self.env["JPY_SESSION_NAME"] = str(directory / name)
        self.manager = KernelManager(kernel_name="python3")
        self.start()

    def start(self) -> None:
        assert self.manager.kernel_spec is not None
        self.manager.kernel_spec.argv[0] = self.python
        self.manager.cache_ports = False
        with _choosing_port:  # benchmarks start kernels in threads
            for channel in ("shell", "iopub", "stdin", "hb", "control"):
                setattr(self.manager, f"{channel}_port", next(_kernel_ports))
        self.manager.start_kernel(env=self.env, cwd=str(self.directory))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=WAIT)
        assert self.run("%load_ext jupyter_sky").status == "ok"

    def send(self, code: str) -> str:
        """Send a cell without waiting."""
        return self.client.execute(code)

    def collect(self, msg_id: str, timeout: float = WAIT, ran: Ran | None = None) -> Ran:
        """Wait for the end of a cell that was sent; `ran` has what was seen of it before."""
        ran, begun, idle = ran or Ran(), time.monotonic(), False
        while not idle:
            left = begun + timeout - time.monotonic()
            assert left > 0, f"no end within {timeout} s; so far: {ran}"
            try:
                message = self.client.get_iopub_msg(timeout=min(left, 1.0))
            except Exception:
                continue
            if message["parent_header"].get("msg_id") != msg_id:
                self.other_messages.append(message)
                continue
            ran.messages.append(message)
            if message["header"]["msg_type"] == "status":
                idle = message["content"]["execution_state"] == "idle"
        reply = self.client.get_shell_msg(timeout=10)
        while reply["parent_header"].get("msg_id") != msg_id:
            reply = self.client.get_shell_msg(timeout=10)
        content = reply["content"]
        ran.status, ran.seconds = content["status"], time.monotonic() - begun
        ran.ename, ran.evalue = content.get("ename", ""), content.get("evalue", "")
        ran.traceback = ANSI.sub("", "\n".join(content.get("traceback", [])))
        return ran

    def run(self, code: str, timeout: float = WAIT) -> Ran:
        """Run a cell to its end."""
        self.other_messages = []
        return self.collect(self.send(code), timeout)

    def wait_output(self, text: str, timeout: float = WAIT) -> str:
        """Read messages until some text has been printed; return all that was."""
        begun, seen = time.monotonic(), ""
        while text not in seen:
            assert time.monotonic() - begun < timeout, f"{text!r} has not been printed: {seen!r}"
            try:
                message = self.client.get_iopub_msg(timeout=1.0)
            except Exception:
                continue
            if message["header"]["msg_type"] == "stream":
                seen += message["content"]["text"]
        return seen

    def wait_display(self, text: str, timeout: float = WAIT) -> str:
        """Read messages until a display shows some text; return that display."""
        begun = time.monotonic()
        while time.monotonic() - begun < timeout:
            try:
                message = self.client.get_iopub_msg(timeout=1.0)
            except Exception:
                continue
            shown = message["content"].get("data", {}).get("text/plain", "")
            if text in shown:
                return shown
        raise AssertionError(f"{text!r} has not been shown")

    def crash(self) -> str:
        """Kill the kernel; return what its last messages printed. `start` makes a new one."""
        pid = self.manager.provisioner.pid  # type: ignore[union-attr]
        os.kill(pid, signal.SIGKILL)
        seen = ""
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=0.3)
            except Exception:
                break
            if message["header"]["msg_type"] == "stream":
                seen += message["content"]["text"]
        self.kill()
        return seen

    def restart(self) -> None:
        """Restart the kernel as the menu does."""
        self.manager.restart_kernel(now=False)
        self.client.wait_for_ready(timeout=WAIT)
        assert self.run("%load_ext jupyter_sky").status == "ok"

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def kill(self) -> None:
        """Kill the kernel as a crash of the machine would: nothing of it runs any more."""
        self.client.stop_channels()
        pid = self.manager.provisioner.pid  # type: ignore[union-attr]
        os.kill(pid, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=5)
        self.manager.cleanup_resources()
        self.manager = KernelManager(kernel_name="python3")

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)


def processes_of(data: Path) -> list[psutil.Process]:
    """Live processes of clusters below a data directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            # processes that a cell starts are found by the environment they inherited
            born = process.environ().get("IPYTHONDIR", "")
            if any(str(data) in word for word in [born, *process.cmdline()]):
                found.append(process)
        except psutil.Error:
            continue
    return found


def part(data: Path, name: str) -> list[psutil.Process]:
    """Live processes of one part: ``supervisor``, ``controller`` or ``engine``."""
    sign = {"supervisor": "supervisor.py", "controller": ".controller", "engine": ".engine"}[name]
    found = []
    for process in processes_of(data):
        words = process.cmdline()
        which = words[3:4] if "-S" in words else words[1:3]
        if any(word.endswith(sign) for word in which):
            found.append(process)
    return found


def wait_until(true: Any, what: str = "") -> float:
    """Wait for a condition; return the seconds it took.

    The limit is generous, as busy machines are slow; a test of speed compares the seconds.
    """
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < WAIT, f"not within {WAIT} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - begun


def nothing_left(data: Path) -> float:
    """Wait until no process of a cluster is left; return the seconds it took."""
    return wait_until(lambda: not processes_of(data), "processes are left")


def statuses(data: Path) -> list[str]:
    """Return how runs ended, the latest first; quick ones are recorded with the next heartbeat."""
    return [run.status for run in Store.open(data).runs()]


def clean(data: Path) -> None:
    """End whatever a test has left running."""
    for process in processes_of(data):
        try:
            process.kill()
        except psutil.Error:
            continue
    unmount_below(data)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with files of long limits, then those of many tests: workers end together.

    Of workers alone (see run.sh): one process takes the same time in any order.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    tests = Counter(item.path for item in items)
    limits = {item.path: 0.0 for item in items}
    for item in items:
        for mark in item.iter_markers("timeout"):
            limits[item.path] = max(limits[item.path], *mark.args)
    items.sort(key=lambda item: (-limits[item.path], -tests[item.path]))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave what was collected, a million objects, out of each later search for garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 10)


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Restore interrupts, which a shell disables for background jobs."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


_begun: list[tuple[float, str]] = []
"""Start of each test of the present file."""


@pytest.fixture(autouse=True)
def noted(request: pytest.FixtureRequest) -> None:
    """Know which test ran when, to name the one that leaves something behind."""
    _begun.append((time.time(), request.node.name))


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail a test file after which a process, thread, socket or folder of it is left."""
    _begun[:] = [(time.time(), "the fixtures of the file")]

    def started(at: float) -> str:
        # clocks differ: one that began with the file may seem to be older
        return next((name for begun, name in reversed(_begun) if begun <= at + 0.02), _begun[0][1])

    with nothing_left_of(tmp_path_factory.getbasetemp(), started):
        yield


@pytest.fixture(scope="session")
def sky_env() -> dict[str, str]:
    """Environment of kernels: this checkout, no colours of the machine's own settings."""
    return {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONWARNINGS": "default"}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the data directory of one test file."""
    path = tmp_path_factory.mktemp("sky")
    yield path
    clean(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the notebook's folder."""
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def notebook(data_dir: Path, folder: Path, sky_env: dict[str, str]) -> Iterator[Notebook]:
    """One kernel for a test file, with the extension loaded."""
    made = Notebook(folder, {**sky_env, "SKY_DATA_DIR": str(data_dir)}, "analysis.ipynb")
    yield made
    made.stop()


@pytest.fixture
def fresh(tmp_path: Path, sky_env: dict[str, str]) -> Iterator[Any]:
    """Make kernels with a data directory of this test alone: ``fresh(name)``."""
    data, made = tmp_path / "data", []

    def make(name: str | None = "analysis.ipynb", **env: str) -> Notebook:
        folder = tmp_path / "notebooks"
        folder.mkdir(exist_ok=True)
        book = Notebook(folder, {**sky_env, "SKY_DATA_DIR": str(data), **env}, name)
        made.append(book)
        return book

    make.data = data  # type: ignore[attr-defined]
    yield make
    for book in made:
        try:
            book.stop()
        except Exception:
            continue
    clean(data)


if sys.platform == "win32":
    collect_ignore_glob = ["*"]


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Yield a data directory of the test alone, whatever ran before it."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    yield
    Sky.clear_instance()
