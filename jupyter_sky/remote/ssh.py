"""Commands on machines reached by SSH, through the OpenSSH client of this machine.

The client is used as it is rather than a library: it honours the user's own settings (jump hosts,
agents, hardware keys), and what we do can be repeated in a terminal. Host keys are pinned in a
file of our own; a machine that shows another key is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..errors import SkyUnreachable, SkyUsageError

CONNECT_SECONDS = 10
CONTROL_PERSIST_SECONDS = 20
"""Time for which a connection stays open for the next command."""
FAST_CIPHERS = "^aes128-gcm@openssh.com,aes256-gcm@openssh.com"
"""Tried before the client's own: with a processor's own AES they take a fifth of the time."""
TICK_SECONDS = 0.1
RETRY_SECONDS = 0.5
WRITE_BYTES = 2**18
RECONNECT_SECONDS = 20.0
"""Time for which a machine that has answered may be unreachable during its bootstrap."""


_UNSAFE_CHARACTERS = re.compile(r"[\s\0-\x1f\x7f'`\"$;&<>|(){}]|\\$")
"""OpenSSH since 9.6 refuses such names too: ProxyCommand and Match hand them to a shell."""
_UNSAFE_PATH_CHARACTERS = re.compile(r'[\0-\x1f\x7f"]')


@dataclass(frozen=True, slots=True)
class Address:
    """SSH address of a machine: user, host, port and keys.

    Attributes
    ----------
    known_hosts : str
        File with its pinned key.
    pinned : bool
        Whether its key must be in that file already; else it is written there at first contact.

    Examples
    --------
    >>> Address("ada", "box.example.org", 2222).name
    'ada@box.example.org:2222'
    """

    user: str
    host: str
    port: int = 22
    key: str = ""
    known_hosts: str = ""
    pinned: bool = True

    def __post_init__(self) -> None:
        for what, text in (("user", self.user), ("host", self.host)):
            if not isinstance(text, str) or text.startswith("-") or _UNSAFE_CHARACTERS.search(text):
                raise SkyUsageError(
                    f"{what} {text!r:.80} of a machine is refused: ssh could take it for an option "
                    "or a command",
                    hint="write user@host or user@host:port",
                )
        if isinstance(self.port, bool) or not isinstance(self.port, int) or self.port >> 16:
            raise SkyUsageError(f"port {self.port!r:.40} of {self.host} is not a port")
        for path in (self.key, self.known_hosts):
            if not isinstance(path, str) or _UNSAFE_PATH_CHARACTERS.search(path):
                raise SkyUsageError(f"{path!r:.80} is not the path of a file for ssh")

    @property
    def name(self) -> str:
        """Address as written by the user."""
        user = f"{self.user}@" if self.user else ""
        return f"{user}{self.host}" + (f":{self.port}" if self.port != 22 else "")

    @property
    def known_as(self) -> str:
        """Name in a known_hosts file."""
        return self.host if self.port == 22 else f"[{self.host}]:{self.port}"

    def command(self, shared: bool = False) -> list[str]:
        """Return the ``ssh`` command line up to and with the machine's name.

        Parameters
        ----------
        shared
            Take a connection that is open already, and leave it open for the next command.
        """
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": str(CONNECT_SECONDS),
            "LogLevel": "ERROR",
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "3",
            "StrictHostKeyChecking": "yes" if self.pinned else "accept-new",
            "UpdateHostKeys": "no",
            "ControlPath": "none",
            "Ciphers": FAST_CIPHERS,
        }
        if self.known_hosts:
            options["UserKnownHostsFile"] = f'"{self.known_hosts}"'
        if self.key:
            options["IdentitiesOnly"] = "yes"
        if shared and os.name != "nt":
            path = runtime_dir() / f"c-{self._digest()}"
            options |= {
                "ControlMaster": "auto",
                "ControlPath": str(path),
                "ControlPersist": str(CONTROL_PERSIST_SECONDS),
            }
        words = [f"-o{name}={value}" for name, value in options.items()]
        key = ["-i", self.key] if self.key else []
        target = f"{self.user}@{self.host}" if self.user else self.host
        return ["ssh", "-T", "-a", "-x", *words, *key, "-p", str(self.port), target]

    def _digest(self) -> str:
        return hashlib.blake2b(repr(self).encode(), digest_size=6).hexdigest()


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Exit code and output of a remote command."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode(errors="replace")


def run(
    address: Address,
    script: str,
    *arguments: str,
    data: bytes | Path = b"",
    timeout: float = 60.0,
    meanwhile: Callable[[], None] | None = None,
    patience: float = 0.0,
) -> CommandResult:
    """Run a shell script on a machine and wait for it.

    Parameters
    ----------
    script
        For ``sh``; its arguments are ``$1`` and so on. Neither is ever an argument of a process,
        on either machine, where any user could read it: both go by standard input.
    data
        Its standard input, or a file with it.
    timeout
        Seconds that it may take.
    meanwhile
        Called about ten times a second while waiting; it may raise to end the wait.
    patience
        Seconds during which it is run again where the connection is cut: for a script that does
        no harm the second time, on a machine that has answered before.

    Raises
    ------
    SkyUnreachable
        The machine cannot be reached; says why and how to mend it.
    """
    until = time.monotonic() + patience
    while True:
        try:
            return _run_once(address, script, arguments, data, timeout, meanwhile)
        except SkyUnreachable:
            if time.monotonic() > until:
                raise
            time.sleep(RETRY_SECONDS)


def _run_once(
    address: Address,
    script: str,
    arguments: Sequence[str],
    data: bytes | Path,
    timeout: float,
    meanwhile: Callable[[], None] | None,
) -> CommandResult:
    check_key(address)
    process = start(address, script, arguments, data)
    deadline = time.monotonic() + timeout
    try:
        while True:
            try:
                out, err = process.communicate(timeout=TICK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                pass
            if meanwhile is not None:
                meanwhile()
            if time.monotonic() > deadline:
                raise SkyUnreachable(
                    f"{address.name} has not done in {timeout:g} s what it was told",
                    hint=f"see what it is doing: {manual_command(address)}",
                )
    except BaseException:
        process.kill()
        process.wait()
        raise
    errors = err.decode(errors="replace").strip()
    if process.returncode == 255 or process.returncode < 0:  # the client was killed
        raise explain_failure(address, errors)
    return CommandResult(process.returncode, out, errors)


_READER_SCRIPT = 'IFS= read -r script && eval "$(printf %b "$script")"'
"""Runs the first line of its input: a shell reads it byte by byte, and leaves the rest unread."""
_SAFE_CHARACTERS = frozenset(range(0x20, 0x7F)) - {0x5C}


def encode_script_line(script: str, arguments: Sequence[str] = ()) -> bytes:
    r"""Return a script and its arguments as one line of ASCII, for ``printf %b``.

    Examples
    --------
    >>> encode_script_line('echo "$1"', ["a b"])
    b'set -- \'a b\'\\0012echo "$1"\n'
    """
    text = f"set -- {shlex.join(arguments)}\n{script}".encode()
    line = "".join(chr(byte) if byte in _SAFE_CHARACTERS else f"\\0{byte:03o}" for byte in text)
    return line.encode() + b"\n"


def start(
    address: Address, script: str, arguments: Sequence[str] = (), data: bytes | Path = b""
) -> subprocess.Popen[bytes]:
    """Start a shell script on a machine; its output and errors are pipes. See `run`."""
    remote = shlex.join(["exec", "sh", "-c", _READER_SCRIPT, "sky"])
    command, line = [*address.command(shared=True), remote], encode_script_line(script, arguments)
    if isinstance(data, Path):
        process = _popen(command, subprocess.PIPE)
        threading.Thread(target=_write_input, args=(process.stdin, line, data), daemon=True).start()
        process.stdin = None  # `communicate` must not close it
        return process
    with tempfile.TemporaryFile() as file:  # a file needs no thread to feed it
        file.write(line + data)
        file.seek(0)
        return _popen(command, file)


def _popen(command: Sequence[str], given: IO[bytes] | int) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            command, stdin=given, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except FileNotFoundError:
        raise SkyUnreachable(
            "machines are reached by the ssh command, and this machine has none",
            hint="install OpenSSH's client",
        ) from None


def _write_input(pipe: IO[bytes], line: bytes, data: Path) -> None:
    """Write a line and a file into a pipe, unless its reader has gone."""
    with suppress(OSError), pipe, data.open("rb") as file:
        pipe.write(line)
        shutil.copyfileobj(file, pipe, WRITE_BYTES)


def check_key(address: Address) -> None:
    """Raise SkyUnreachable for a key file that is missing or readable by others."""
    if not address.key:
        return
    path = Path(address.key)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise SkyUnreachable(
            f"{address.name}: there is no key file {path} ({error.strerror})",
            hint="give the path of a private key, or make one: ssh-keygen -t ed25519",
        ) from None
    if os.name != "nt" and stat.S_IMODE(mode) & 0o077:
        raise SkyUnreachable(
            f"{address.name}: the key file {path} can be read by others "
            f"(mode {stat.S_IMODE(mode):04o})",
            hint=f"chmod 600 {shlex.quote(str(path))}",
        )


def explain_failure(address: Address, errors: str) -> SkyUnreachable:
    """Convert the output of the SSH client to an error with a hint."""
    name, low = address.name, errors.lower()
    last = errors.splitlines()[-1].strip() if errors else "the connection was closed"
    if "host identification has changed" in low or "host key verification failed" in low:
        return SkyUnreachable(
            f"{name} answers with another host key than the one that is pinned: "
            "it is another machine, or somebody is in between",
            hint="if it was reinstalled: "
            f"ssh-keygen -R {shlex.quote(address.known_as)} -f {shlex.quote(address.known_hosts)}",
        )
    if "permission denied" in low or "too many authentication failures" in low:
        with_key = f"with the key {address.key}" if address.key else "with the available keys"
        user = f"user {address.user!r}" if address.user else "us"
        return SkyUnreachable(
            f"{name} does not let {user} in {with_key}",
            hint="is the user right? let the key in: "
            f"ssh-copy-id {f'-i {address.key} ' if address.key else ''}"
            f"-p {address.port} {address.user or '$USER'}@{address.host}",
        )
    if "could not resolve" in low:
        return SkyUnreachable(
            f"{name}: there is no machine of the name {address.host}", hint="is it spelled right?"
        )
    return SkyUnreachable(
        f"{name} does not answer: {last}", hint=f"is it up? try: {manual_command(address)}"
    )


def manual_command(address: Address) -> str:
    """Return the command with which a user logs in to a machine in the same way."""
    command = ["ssh"]
    if address.known_hosts:
        command += ["-o", f"UserKnownHostsFile={address.known_hosts}"]
    if address.key:
        command += ["-i", address.key]
    if address.port != 22:
        command += ["-p", str(address.port)]
    return shlex.join(
        [*command, f"{address.user}@{address.host}" if address.user else address.host]
    )


def pin_host_key(address: Address, into: Path, line: str = "") -> None:
    """Add the known host key of a machine to a file that has none of it.

    Parameters
    ----------
    line
        The key as its owner gives it (``ssh-ed25519 AAAA...``); without it, what the user's own
        file of known hosts has.
    """
    into.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if read_known_hosts(address, into):
        return
    if line:
        host_line = f"{address.known_as} {line.strip()}\n"
    else:
        host_line = read_known_hosts(address, Path.home() / ".ssh" / "known_hosts")
    if host_line:
        with open(os.open(into, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
            file.write(host_line)


def read_known_hosts(address: Address, path: Path) -> str:
    """Return the lines about a machine in a file of known hosts."""
    if not path.is_file():
        return ""
    result = subprocess.run(
        ["ssh-keygen", "-F", address.known_as, "-f", str(path)], capture_output=True, text=True
    )
    lines = [line for line in result.stdout.splitlines() if line and not line.startswith("#")]
    return "".join(f"{line}\n" for line in lines)


def runtime_dir() -> Path:
    """Return a private folder for sockets, whose paths must be short."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given and len(given) < 40 and os.access(given, os.W_OK):
        path = Path(given) / "jupyter_sky"
    else:
        user = os.getuid() if hasattr(os, "getuid") else "user"
        path = Path(tempfile.gettempdir()) / f"jupyter_sky-{user}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if hasattr(os, "getuid") and (
        status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077
    ):
        return Path(tempfile.mkdtemp(prefix="sky-"))  # another user has taken the name
    return path
