"""Machines that a cloud's emulator rents out: real ones to whoever reaches them by SSH.

Each is born as a cloud's machine is: from a document for cloud-init, with an address of its own, a
firewall, a console and a metadata service. Two ways to have one, behind one interface:

- isolated (root on Linux): namespaces of its own for processes, mounts, network and name; its files
  are a layer in memory over this machine's programs; port 22 of a private and a public address;
- beside us (anybody): processes of the present user behind an sshd on an address of the loopback
  network, in a folder of their own; no firewall.

Machines end with the process that made them, however that ends.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from .hosts import SSHD, answers, free_port, plays
from .isolation import ip

Rule = tuple[str, int]
"""Who may reach what: a network (CIDR) and a TCP port, 0 for every port and protocol."""

FLEETS = 250
NUMBERS = range(10, 250)
"""Of machines in one fleet, at the same time."""
END_SECONDS = 20.0
BARE = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
"""The environment of what runs on machines: nothing of ours goes there."""
MEMORY_BYTES = 2 << 30
_MACHINE = Path(__file__).with_name("machine.py")
_PROBE = """
ip rule add pref 9 iif lo ipproto tcp dport 1-2 lookup local && mount -t tmpfs probe /mnt &&
mkdir /mnt/upper /mnt/work /mnt/root &&
mount -t overlay probe -o lowerdir=/usr,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root &&
mount -t proc probe /mnt/work && mount -t sysfs probe /mnt/upper
"""


@cache
def isolation_works() -> bool:
    """Say whether machines can be isolated here: by root, with a kernel that has what it takes."""
    words = "unshare --mount --net --pid --fork sh -ec".split()
    tools = all(map(shutil.which, ("unshare", "ip", "nsenter")))
    return (
        sys.platform == "linux"
        and os.geteuid() == 0
        and tools
        and subprocess.run([*words, _PROBE], capture_output=True).returncode == 0
    )


class Fleet:
    """Machines of one test or one emulator; several fleets do not meet.

    Parameters
    ----------
    isolated
        Which kind: None takes the best there is, True insists, False takes the one for anybody.
    minute
        Seconds that a minute of ``shutdown -P +N`` takes on machines launched from now on.

    Attributes
    ----------
    isolated : bool
    user : str
        The only user that its machines know, where they are beside us; else empty.
    network : str
        The private network of all its machines (CIDR), for rules between nodes.
    gateway : str
        The address of this machine as its machines reach it: an emulator that listens there can
        be reached by them (Azure machines that delete their own group).

    Examples
    --------
    >>> with Fleet() as fleet:
    ...     host = fleet.launch("node-0", user_data, ingress=[("0.0.0.0/0", 22)])
    ...     host.ready(10)
    True
    """

    def __init__(self, *, isolated: bool | None = None, minute: float = 60.0) -> None:
        self.isolated = isolation_works() if isolated is None else isolated
        self.minute = minute
        self.user = "" if self.isolated else getpass.getuser()
        self._number, self._lock = _own_number()
        self._hosts: dict[int, Host] = {}
        self._next = iter(NUMBERS)
        self._changing, self._closed = threading.Lock(), False
        self._switch: Switch | None = None
        if self.isolated:
            self.network = f"10.213.{self._number}.0/24"
            self.gateway = f"198.18.{self._number}.1"
            self._switch = Switch(f"sky{self._number}", self.gateway)
        else:
            self.network, self.gateway = "127.0.0.0/8", "127.0.0.1"
            _sweep(self._number)

    def launch(
        self,
        name: str,
        user_data: str = "",
        *,
        ingress: Sequence[Rule] = (),
        spot: bool = False,
        metadata: Mapping[str, Any] | None = None,
        on_end: Callable[[str], None] | None = None,
        public_key: str = "",
        user: str = "",
        names: Mapping[str, str] | None = None,
        authority: str = "",
    ) -> Host:
        """Start a machine; returns at once, while it boots.

        Parameters
        ----------
        name
            Its host name.
        user_data
            As cloud-init takes it, decoded: JSON after ``#cloud-config``, or a script (``#!``).
        ingress
            Who may reach it; nobody else can, if it is isolated. See `Host.admit`.
        spot
            Whether its metadata service calls it a spot machine.
        metadata
            What its metadata service tells: ``cloud`` (``aws``, ``gcp`` or ``azure``: which
            service is there), ``id``, ``type``, ``region``, ``zone``, ``image``, ``account``
            (project, subscription), ``group`` (Azure), ``tags`` (dict), ``attributes`` (GCP's own
            metadata, a dict), ``identity_token`` (Azure and GCP: the token of the machine's own
            identity; without it the machine has none). Addresses are filled in.
        on_end
            Called once, from a thread of its own, when the machine ends without `Host.kill` and
            `close`: with ``shutdown`` (it powered itself off), ``preempted`` (after a notice)
            or ``crashed`` (it could not boot, say; see its console).
        public_key, user
            Whom the cloud itself lets in (an AWS key pair, GCP's ``ssh-keys``, Azure's osProfile),
            besides whom `user_data` names. The user alone is who ``default`` means there.
        names
            Further host names that it resolves, such as ``management.azure.com`` to `gateway`.
        authority
            A certificate authority (PEM) that it trusts besides its own.
        """
        with self._changing:
            if self._closed:
                raise RuntimeError("the fleet is closed")
            number = self._free()
            private = address = f"127.{self._number}.77.{number}"
            folder, port = "", 22
            if self.isolated:
                private = f"10.213.{self._number}.{number}"
                address = f"198.18.{self._number}.{number}"
            else:
                folder = tempfile.mkdtemp(prefix=f"sky-fleet{self._number}-", dir=scratch())
                port = 22 if _may_listen(address, 22) else free_port(address)
            known = dict(metadata or {})
            spec = {
                "address": address,
                "authority": authority,
                "cache": _uv_cache(),
                "folder": folder,
                "ingress": [list(rule) for rule in ingress],
                "isolated": self.isolated,
                "metadata": known | {"address": address, "private": private, "spot": spot},
                "minute": self.minute,
                "name": name,
                "names": dict(names or {}),
                "port": port,
                "prefix": os.path.realpath(sys.base_prefix),
                "private": private,
                "public_key": public_key.strip(),
                "python": _python(),
                "sshd": SSHD,
                "user": self.user or user or "ubuntu",
                "user_data": user_data,
            }
            spec["metadata"].setdefault("name", name)
            host = self._hosts[number] = Host(spec, self._switch, number, on_end)
        return host

    def _free(self) -> int:
        """Return a number that no machine has, one that was used long ago if there is any."""
        for _ in NUMBERS:
            number = next(self._next, None)
            if number is None:
                self._next = iter(NUMBERS)
                number = next(self._next)
            if number not in self._hosts or not self._hosts[number].running:
                return number
        raise RuntimeError(f"a fleet has {len(NUMBERS)} machines at most")

    def hosts(self) -> list[Host]:
        """List the machines that have not ended."""
        with self._changing:
            return [host for host in self._hosts.values() if host.running]

    def close(self) -> None:
        """End all machines and leave nothing of them; calls no `on_end`."""
        with self._changing:
            self._closed = True
        hosts = self.hosts()
        for host in hosts:
            host.kill(wait=False)
        for host in hosts:
            host.kill()
        if self._switch:
            self._switch.close()
        self._lock.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        self._orders, self._done, self._obeyed = 0, 0, threading.Condition()
        words = "unshare --mount --net --pid --uts --ipc --fork --kill-child".split()
        self._process = subprocess.Popen(
            [*(words if switch else []), spec["python"], "-I", "-S", str(_MACHINE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=BARE,
            cwd="/",
            start_new_session=True,
        )
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
        return self._console.decode(errors="replace")

    def kill(self, wait: bool = True) -> None:
        """Cut its power; when this returns, its processes and connections are gone."""
        self._on_end = None
        self._end("killed")
        if wait and not self._gone.wait(END_SECONDS):
            raise TimeoutError(f"{self.name} does not end: {self.console()}")

    def shutdown(self) -> None:
        """Press its power button: it powers itself off, and `on_end` is called."""
        self._tell({"do": "shutdown"})

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
        """Live processes of one part: ``guardian``, ``head``, ``gate``, ``nurse``, ``engine``."""
        return [process for process in self.processes() if plays(process, name)]

    def root(self, script: str, *words: str) -> str:
        """Run a shell script on it as root (beside us: as the present user); return its output.

        Raises
        ------
        subprocess.CalledProcessError
            It failed.
        """
        enter = []
        if self._switch:
            first = psutil.Process(self._process.pid).children()[0].pid
            enter = f"nsenter -t {first} -m -u -i -n -p -r -w".split()
        command = [*enter, "sh", "-c", script, "sh", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=BARE).stdout

    def _tell(self, order: dict[str, Any], wait: bool = True) -> None:
        """Give it an order, and wait until it is carried out or the machine has ended."""
        with self._changing, contextlib.suppress(OSError, ValueError):  # it may have ended
            self._orders += 1
            number = self._orders
            assert self._process.stdin
            self._process.stdin.write((json.dumps(order | {"number": number}) + "\n").encode())
            self._process.stdin.flush()
        if wait:
            with self._obeyed:
                self._obeyed.wait_for(lambda: self._done >= number, END_SECONDS)

    def _carried_out(self, number: int) -> None:
        with self._obeyed:
            self._done = number
            self._obeyed.notify_all()

    def _live(self) -> None:
        """Follow it from birth to end."""
        for event in self._events():
            match event["event"]:
                case "born":
                    self._born(event["pid"])
                case "done":
                    self._carried_out(event["number"])
                case "up":
                    self._up.set()
                case "booted":
                    self._booted.set()
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
        tell = self._on_end
        self._gone.set()
        if tell:
            tell(self._reason)

    def _events(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                yield json.loads(line)

    def _born(self, pid: int) -> None:
        with self._changing, contextlib.suppress(ProcessLookupError):
            self._first = os.pidfd_open(pid)
            if self._reason:
                self._cut()
        try:
            if self._switch:
                self._switch.plug(self._number, self._process.pid)
            self._tell({"do": "link"}, wait=False)
        except OSError as error:
            self._console += f"{error}\n".encode()
            self._end("crashed")

    def _end(self, reason: str) -> None:
        """Cut its power now, or as soon as it is born."""
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
        assert self._process.stderr
        with self._process.stderr as console:
            while chunk := console.read1(65536):  # pyright: ignore[reportAttributeAccessIssue]
                self._console += chunk


class Switch:
    """What the machines of a fleet are plugged into, in a network of its own.

    It is there as long as the process that holds it, and that as long as ours: a fleet whose
    owner was killed leaves no links behind. This machine's own packet filter is not on the way
    between its machines.

    Parameters
    ----------
    name
        Of the link on this machine.
    gateway
        This machine's address on it.
    """

    def __init__(self, name: str, gateway: str) -> None:
        self._name = name
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._holder.stdout
        self._holder.stdout.readline()
        with contextlib.suppress(OSError):
            ip(f"link del {name}")  # of one that was killed a moment ago
        ip(
            f"link add {name} type veth peer name way netns {self._holder.pid}",
            f"addr add {gateway}/24 dev {name}",
            f"link set {name} up",
        )
        self._ip("link add hub type bridge", "link set way master hub", "link set way up")
        self._ip("link set hub up")

    def plug(self, number: int, process: int) -> None:
        """Give a process's network a link, ``eth0`` there."""
        with contextlib.suppress(OSError):
            self._ip(f"link del h{number}")  # of a machine that has just ended
        self._ip(
            f"link add h{number} type veth peer name eth0 netns {process}",
            f"link set h{number} master hub up",
        )

    def turn(self, number: int, on: bool) -> None:
        """Let a machine's link carry packets, or not."""
        self._ip(f"link set h{number} {'up' if on else 'down'}")

    def close(self) -> None:
        """Take it down."""
        with contextlib.suppress(OSError):
            ip(f"link del {self._name}")  # the kernel would take a moment
        self._holder.kill()
        self._holder.communicate()

    def _ip(self, *lines: str) -> None:
        ip(*lines, within=self._holder.pid)


def _own_number() -> tuple[int, socket.socket]:
    """Return a number that no other fleet on this machine has; it is ours until the lock closes."""
    for step in range(FLEETS):
        number = 1 + (os.getpid() + step) % FLEETS
        if lock := _lock(number):
            return number, lock
    raise RuntimeError(f"there are {FLEETS} fleets on this machine")


def _lock(number: int) -> socket.socket | None:
    """Take a number; the kernel gives it back with our end, and knows it per network, as links."""
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind(f"\0jupyter_sky-fleet-{number}")
    except OSError:
        lock.close()
        return None
    return lock


def _sweep(own: int) -> None:
    """Remove folders of fleets whose owners, and machines, were killed."""
    for left in scratch().glob("sky-fleet*-*"):
        number = int(left.name.removeprefix("sky-fleet").partition("-")[0])
        lock = None if number == own else _lock(number)
        if number == own or lock:
            shutil.rmtree(left, ignore_errors=True)
        if lock:
            lock.close()


def scratch() -> Path:
    """Return where files of machines beside us are: in memory, if that has room for engines.

    On a disk, it takes seconds to remove an environment of Python.
    """
    memory = Path("/dev/shm")
    usable = os.access(memory, os.W_OK) and not os.statvfs(memory).f_flag & os.ST_NOEXEC
    roomy = usable and shutil.disk_usage(memory).free > MEMORY_BYTES
    return memory if roomy else Path(tempfile.gettempdir())


def _may_listen(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _uv_cache() -> str:
    """Return where uv keeps packages on this machine."""
    if given := os.environ.get("UV_CACHE_DIR"):
        return os.path.realpath(given)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return os.path.realpath(Path(base) / "uv")


def _python() -> str:
    """Return the Python that this one is built on, outside of any environment."""
    name = "python{}.{}".format(*sys.version_info)
    return str(Path(os.path.realpath(sys.base_prefix)) / "bin" / name)
