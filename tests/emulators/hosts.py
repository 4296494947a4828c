"""Machines reached by SSH: a real sshd each, on an address of its own of the loopback network.

They share this machine's processors and programs; each has a home, keys, slots and a host key of
its own. Nothing here needs root.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

PASSED = "UV_DEFAULT_INDEX UV_INDEX_URL UV_EXTRA_INDEX_URL SSL_CERT_FILE SSL_CERT_DIR".split()
"""Environment by which this machine reaches a package index, where one is set."""
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
USABLE = os.path.exists(SSHD) and shutil.which("ssh") is not None and sys.platform == "linux"


class SshHost:
    """One machine.

    Parameters
    ----------
    number
        The last part of its address.
    setenv
        Environment of what is started on it.
    """

    def __init__(self, number: int, **setenv: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"sky-host{number}-"))
        self.ip, self.port = f"127.0.0.{number}", free_port(f"127.0.0.{number}")
        self.home, self.slots = self.folder / "home", self.folder / "slots"
        self.home.mkdir()
        self.key = self.folder / "id"
        self.setenv = {
            "HOME": str(self.home),
            "JUPYTER_SKY_SLOTS": str(self.slots),
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv")),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            **{name: value for name, value in os.environ.items() if name in PASSED},
            **setenv,
        }
        keygen(self.key)
        keygen(self.folder / "host")
        (self.folder / "authorized").write_text((self.folder / "id.pub").read_text())
        self.start()

    @property
    def address(self) -> str:
        """Its address as the pool has it."""
        return f"{getpass.getuser()}@{self.ip}:{self.port}"

    def start(self) -> None:
        """Start its sshd and wait for it."""
        settings = {
            "ListenAddress": f"{self.ip}:{self.port}",
            "HostKey": self.folder / "host",
            "AuthorizedKeysFile": self.folder / "authorized",
            "PidFile": "none",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "StrictModes": "no",
            "MaxStartups": "100",
            "PrintMotd": "no",
            "SetEnv": " ".join(f'"{name}={value}"' for name, value in self.setenv.items()),
        }
        config = self.folder / "sshd_config"
        config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.log = self.folder / "sshd.log"
        with self.log.open("ab") as log:
            self.sshd = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(config)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + 10
        while not answers(self.ip, self.port):
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)

    def stop(self, connections: bool = False) -> None:
        """End its sshd; with `connections` also what that has open, as a pulled cable would."""
        if connections:
            with contextlib.suppress(psutil.Error):
                psutil.Process(self.sshd.pid).suspend()  # nobody comes in meanwhile
                self.cut()
        with contextlib.suppress(ProcessLookupError):
            self.sshd.kill()
        self.sshd.wait()

    def cut(self) -> int:
        """Kill every connection to it; return how many there were."""
        sessions = psutil.Process(self.sshd.pid).children()
        for process in sessions:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return len(sessions)

    def change_key(self) -> None:
        """Let it answer with another host key, as another machine would."""
        self.stop(connections=True)
        for path in (self.folder / "host", self.folder / "host.pub"):
            path.unlink()
        keygen(self.folder / "host")
        self.start()

    def processes(self) -> list[psutil.Process]:
        """Live processes that were started on it."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.status() == psutil.STATUS_ZOMBIE or process.pid == self.sshd.pid:
                    continue
                if process.environ().get("HOME") == str(self.home):
                    found.append(process)
        return found

    def part(self, name: str) -> list[psutil.Process]:
        """List live processes of one part: ``supervisor``, ``controller``, ``node_agent``..."""
        return [process for process in self.processes() if plays(process, name)]

    def own(self) -> list[psutil.Process]:
        """Live processes that were started on it, but for its SSH server's."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if "sshd" not in process.name():
                    found.append(process)
        return found

    def running(self) -> bool:
        """Whether its sshd runs."""
        return self.sshd.poll() is None

    def held(self) -> bool:
        """Whether some process still holds a cluster's folder."""
        return bool(self.own())

    def clusters(self) -> list[Path]:
        """Folders of clusters on it."""
        return list(self.home.glob(".cache/jupyter_sky/run/*/*"))

    def taken(self) -> list[Path]:
        """Slots of it that are noted as taken."""
        return list(self.slots.glob("*"))

    def toml(self, name: str, **settings: object) -> str:
        """Return its table in a list of machines."""
        given: dict[str, object] = {
            "address": self.address,
            "key": str(self.key),
            "vcpus": 2,
            "memory": 4,
            "python": sys.executable,
            **settings,
        }
        lines = [f"{key} = {toml(value)}" for key, value in given.items() if value is not None]
        return "\n".join([f"[{name}]", *lines, ""])

    def close(self) -> None:
        """Leave nothing of it."""
        self.stop(connections=True)
        for process in self.processes():
            if process.pid != os.getpid():
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def plays(process: psutil.Process, part: str) -> bool:
    """Whether a process is one part of a cluster, such as ``supervisor`` or ``engine``."""
    sign = {"supervisor": "supervisor.py"}.get(part, f".{part}")
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return any(word.endswith(sign) for word in (words[3:4] if "-S" in words else words[1:3]))


def toml(value: object) -> str:
    """Write a value as TOML does."""
    import json

    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def free_port(ip: str) -> int:
    """Return a free port; this module also runs where jupyter_sky is not installed."""
    with socket.socket() as probe:
        probe.bind((ip, 0))
        return probe.getsockname()[1]


def answers(ip: str, port: int) -> bool:
    try:
        with socket.create_connection((ip, port), 1) as probe:
            return probe.recv(3) == b"SSH"
    except OSError:
        return False
