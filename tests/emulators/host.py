"""One machine that a cloud's emulator rents out, from outside: see `fleet`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from .cpus import Cpus
from .hosts import answers, plays
from .network_switch import Switch

Rule = tuple[str, int]
"""Rule of access: a network (CIDR) and a TCP port, 0 for every port and protocol."""
END_SECONDS = 20.0
BARE = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
"""The environment of what runs on machines: nothing of ours goes there."""
_NOISE = "unshare: sigprocmask unblock failed: Invalid argument\n"
"""Message of some versions of ``unshare`` when the machine was killed."""
_MACHINE = Path(__file__).with_name("machine.py")


class Host:
    """One machine of a fleet.

    Attributes
    ----------
    name : str
    address, private : str
        Where it is reached from here, and by the other machines of the fleet. Known at once.
    port : int
        Of its SSH server; 22 where that is possible.
    folder : Path or None
        Where its files are, if it is beside us.
    cpus : Cpus or None
        What it has of its own.
    """

    def __init__(
        self,
        spec: dict[str, Any],
        switch: Switch | None,
        number: int,
        on_end: Callable[[str], None] | None,
    ) -> None:
        self.name, self.address, self.private = spec["name"], spec["address"], spec["private"]
        self.port = spec["port"]
        self.folder = Path(spec["folder"]) if spec["folder"] else None
        self._switch, self._number, self._on_end = switch, number, on_end
        self._up, self._booted, self._gone = (threading.Event() for _ in range(3))
        self._console, self._first = bytearray(), 0
        self._reason, self._changing = "", threading.RLock()
        self._reading, self._open = threading.Lock(), True
        self._orders, self._done, self._obeyed = 0, 0, threading.Condition()
        words = "unshare --mount --net --pid --uts --ipc --fork --kill-child".split()
        command = [*(words if switch else []), spec["python"], "-I", "-S", str(_MACHINE)]
        self.cpus = Cpus(spec["cpus"]) if spec["cpus"] else None
        self._process = subprocess.Popen(
            self.cpus.command(command) if self.cpus else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=BARE,
            cwd="/",
            start_new_session=True,
        )
        assert self._process.stderr
        os.set_blocking(self._process.stderr.fileno(), False)
        self._tell(spec, wait=False)
        self._reader = threading.Thread(target=self._read, name=f"{self.name}-console", daemon=True)
        self._reader.start()
        threading.Thread(target=self._live, name=self.name, daemon=True).start()

    @property
    def running(self) -> bool:
        """Whether it has not ended; it may still boot."""
        return not self._gone.is_set()

    def ready(self, timeout: float = 0.0) -> bool:
        """Say whether its SSH server answers, waiting at most so many seconds for it."""
        deadline = time.monotonic() + timeout
        self._up.wait(timeout)  # a packet sent earlier is sent again only after a second
        while self._up.is_set() and self.running:
            if answers(self.address, self.port):
                return True
            if time.monotonic() >= deadline:
                break
            time.sleep(0.01)
        return False

    def booted(self, timeout: float = 0.0) -> bool:
        """Say whether cloud-init has done all, ``runcmd`` too; that is later, as in the clouds."""
        return self._booted.wait(timeout)

    def console(self) -> str:
        """Return what it has written to its console; kept after its end."""
        self._drain()
        return self._console.decode(errors="replace").replace(_NOISE, "")

    def kill(self, wait: bool = True) -> None:
        """Cut its power; when this returns, its processes and connections are gone."""
        self._on_end = None
        self._end("killed")
        if wait and not self._gone.wait(END_SECONDS):
            raise TimeoutError(f"{self.name} does not end: {self.console()}")

    def shutdown(self) -> None:
        """Press its power button: it powers itself off, and `on_end` is called."""
        self._tell({"do": "shutdown"})

    def reboot(self) -> None:
        """Restart it, as its cloud may: it keeps its disk and addresses, and nothing else."""
        self._booted.wait(END_SECONDS)
        self._tell({"do": "reboot"})
        self.ready(END_SECONDS)

    def halt(self) -> None:
        """Power it off as its cloud does on request: it keeps its disk, and can be started."""
        self._booted.wait(END_SECONDS)
        self._tell({"do": "halt"})

    def start(self) -> None:
        """Start it after `halt`; it answers a moment later."""
        self._tell({"do": "start"})

    def notice(self, seconds: float) -> None:
        """Announce by its metadata service that the cloud takes it back, and do so then."""
        self.describe(notice=time.time() + seconds)
        timer = threading.Timer(seconds, self._end, ["preempted"])
        timer.daemon = True
        timer.start()

    def describe(self, **metadata: Any) -> None:
        """Change what its metadata service tells."""
        self._tell({"do": "metadata", "facts": metadata})

    def admit(self, ingress: Sequence[Rule]) -> None:
        """Change who may reach it; connections that are open and no longer allowed fall silent."""
        if self._switch:
            self._tell({"do": "admit", "ingress": [list(rule) for rule in ingress]})

    def unplug(self, silent: bool = True) -> None:
        """Let its network fall silent, or come back (False)."""
        if self._switch:
            self._switch.turn(self._number, not silent)
        else:
            self._tell({"do": "silent", "silent": silent})

    def processes(self) -> list[psutil.Process]:
        """Live processes on it, but for the first one, which is ours."""
        found = []
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    ours = str(_MACHINE) in process.cmdline()
                    if not ours and process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found

    def part(self, name: str) -> list[psutil.Process]:
        """List live processes of one part: ``supervisor``, ``controller``, ``node_agent``..."""
        return [process for process in self.processes() if plays(process, name)]

    def root(self, script: str, *words: str) -> str:
        """Run a shell script on it as root (beside us: as the present user); return its output.

        Raises
        ------
        subprocess.CalledProcessError
            It failed.
        """
        command = [*self.enter(), "sh", "-c", script, "sh", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=BARE).stdout

    def enter(self) -> list[str]:
        """Return the start of a command that runs on it as root; empty beside us."""
        if not self._switch:
            return []
        first = psutil.Process(self._process.pid).children()[0].pid
        return f"nsenter -t {first} -m -u -i -n -p -r -w".split()

    def _tell(self, order: dict[str, Any], wait: bool = True) -> None:
        """Give it an order, and wait until it is carried out or the machine has ended."""
        with self._changing:
            self._orders += 1
            number = self._orders
            line = json.dumps(order | {"number": number}) + "\n"
            with contextlib.suppress(OSError, ValueError):  # it may have ended
                assert self._process.stdin
                self._process.stdin.write(line.encode())
                self._process.stdin.flush()
        if wait:
            with self._obeyed:
                self._obeyed.wait_for(lambda: self._done >= number, END_SECONDS)

    def _carried_out(self, number: int) -> None:
        with self._obeyed:
            self._done = number
            self._obeyed.notify_all()

    def _live(self) -> None:
        """Follow it from its boot to its end."""
        for event in self._events():
            match event["event"]:
                case "booting":
                    self._on_boot(event["pid"])
                case "done":
                    self._carried_out(event["number"])
                case "up":
                    self._up.set()
                case "booted":
                    self._booted.set()
                case "approved":
                    self._end("preempted")
                case "shutdown" | "crashed":
                    self._reason = self._reason or event["event"]
        self._process.wait()
        with self._changing:
            self._reason = self._reason or "crashed"
            self._up.set()
            self._carried_out(sys.maxsize)
            if self._first:
                os.close(self._first)
                self._first = 0
            with contextlib.suppress(OSError):
                self._process.stdin.close()  # pyright: ignore[reportOptionalMemberAccess]
        self._reader.join()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.cpus:
            self.cpus.close()
        tell = self._on_end
        self._gone.set()
        if tell:
            tell(self._reason)

    def _events(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                yield json.loads(line)

    def _on_boot(self, pid: int) -> None:
        with self._changing, contextlib.suppress(ProcessLookupError):
            self._first = os.pidfd_open(pid)
            if self._reason:
                self._cut()
        try:
            if self._switch:
                self._switch.plug(self._number, self._process.pid)
            self._tell({"do": "link"}, wait=False)
        except OSError as error:
            with self._reading:
                self._console += f"{error}\n".encode()
            self._end("crashed")

    def _end(self, reason: str) -> None:
        """Cut its power now, or as soon as it boots."""
        with self._changing:
            self._reason = self._reason or reason
            self._cut()

    def _cut(self) -> None:
        if not self._first:
            return
        if self._switch:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
        else:
            with contextlib.suppress(OSError):  # at the end of its input it takes all with it
                self._process.stdin.close()  # pyright: ignore[reportOptionalMemberAccess]

    def _read(self) -> None:
        """Take what comes to the console, until all who could write there have ended."""
        assert self._process.stderr
        with self._process.stderr as console:
            written = select.poll()
            written.register(console, select.POLLIN)
            while self._drain():
                written.poll()

    def _drain(self) -> bool:
        """Take what is on the console by now; return whether more may come."""
        with self._reading:
            try:
                while self._open:
                    assert self._process.stderr
                    if chunk := os.read(self._process.stderr.fileno(), 65536):
                        self._console += chunk
                    else:
                        self._open = False
            except BlockingIOError:
                pass
            return self._open
