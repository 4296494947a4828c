"""Commands on machines reached by SSH, through the OpenSSH client of this machine.

The client is used as it is rather than a library: it honours the user's own settings (jump hosts,
agents, hardware keys), and what we do can be repeated in a terminal. Host keys are pinned in a
file of our own; a machine that shows another key is refused.
"""

from __future__ import annotations

import os
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

from jupyter_sky.base.errors import SkyUnreachable
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.base.translation import _

TICK_SECONDS = 0.1
RETRY_SECONDS = 0.5
WRITE_BYTES = 2**18
RECONNECT_SECONDS = 20.0
"""Time for which a machine that has answered may be unreachable during its bootstrap."""


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
                    _("{name} has not done in {timeout:g} s what it was told").format(
                        name=address.name, timeout=timeout
                    ),
                    hint=_("see what it is doing: {address}").format(
                        address=manual_command(address)
                    ),
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
            _("machines are reached by the ssh command, and this machine has none"),
            hint=_("install OpenSSH's client"),
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
            _("{name}: there is no key file {path} ({strerror})").format(
                name=address.name, path=path, strerror=error.strerror
            ),
            hint=_("give the path of a private key, or make one: ssh-keygen -t ed25519"),
        ) from None
    if os.name != "nt" and stat.S_IMODE(mode) & 0o077:
        raise SkyUnreachable(
            _("{name}: the key file {path} can be read by others (mode {mode:04o})").format(
                name=address.name, path=path, mode=stat.S_IMODE(mode)
            ),
            hint=_("chmod 600 {path}").format(path=shlex.quote(str(path))),
        )


def explain_failure(address: Address, errors: str) -> SkyUnreachable:
    """Convert the output of the SSH client to an error with a hint."""
    name, low = address.name, errors.lower()
    last = errors.splitlines()[-1].strip() if errors else "the connection was closed"
    if "host identification has changed" in low or "host key verification failed" in low:
        return SkyUnreachable(
            _(
                "{name} answers with another host key than the one that is pinned: it "
                "is another machine, or somebody is in between"
            ).format(name=name),
            hint=_("if it was reinstalled: ssh-keygen -R {known_as} -f {known_hosts}").format(
                known_as=shlex.quote(address.known_as), known_hosts=shlex.quote(address.known_hosts)
            ),
        )
    if "permission denied" in low or "too many authentication failures" in low:
        with_key = f"with the key {address.key}" if address.key else "with the available keys"
        user = f"user {address.user!r}" if address.user else "us"
        return SkyUnreachable(
            _("{name} does not let {user} in {with_key}").format(
                name=name, user=user, with_key=with_key
            ),
            hint=_(
                "is the user right? let the key in: ssh-copy-id {words}-p {port} {user}@{host}"
            ).format(
                words=f"-i {address.key} " if address.key else "",
                port=address.port,
                user=address.user or _("$USER"),
                host=address.host,
            ),
        )
    if "could not resolve" in low:
        return SkyUnreachable(
            _("{name}: there is no machine of the name {host}").format(
                name=name, host=address.host
            ),
            hint=_("is it spelled right?"),
        )
    return SkyUnreachable(
        _("{name} does not answer: {last}").format(name=name, last=last),
        hint=_("is it up? try: {address}").format(address=manual_command(address)),
    )


def manual_command(address: Address) -> str:
    """Return the command with which a user logs in to a machine in the same way."""
    command = ["ssh"]
    for name, value in address.proxy_options.items():
        command += ["-o", f"{name}={value}"]
    if address.known_hosts:
        command += ["-o", f"UserKnownHostsFile={address.known_hosts}"]
    if address.key:
        command += ["-i", address.key]
    if address.port != 22 and not address.through:
        command += ["-p", str(address.port)]
    target = f"{address.user}@{address.host}" if address.user else address.host
    return shlex.join([*command, target])


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
