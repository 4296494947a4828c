"""First boot of a machine by cloud-init, as far as our documents ask for it.

The order is its own: files, users and keys before SSH answers, the commands after that. What it
would only warn about is a warning on the console here too. It runs on the machine, under a bare
Python: the standard library alone, and none of our packages.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FIRST_UID = 1000
DONE = "users ssh_authorized_keys ssh_keys ssh_deletekeys ssh_pwauth disable_root".split()
DONE += "write_files bootcmd runcmd".split()
"""Keys of a document that are carried out; any other is reported and left."""


@dataclass(frozen=True, slots=True)
class Guest:
    """The machine that a document is carried out on.

    Attributes
    ----------
    say : callable
        Writes a line to the console.
    run : callable
        Runs a command to its end, its output on the console, and returns its code.
    place : callable
        Where a path, or a text that has paths in it, leads on this machine.
    own : bool
        Whether files and accounts are the machine's own, and we are root there.
    user : str
        Who ``default`` is, and who the only user is where accounts are not its own.
    public_key : str
        What the cloud itself lets in.
    state : Path
        A folder for what is told to the SSH server.
    """

    say: Callable[[str], None]
    run: Callable[[list[str]], int]
    place: Callable[[str], str]
    own: bool
    user: str
    public_key: str
    state: Path

    @property
    def host_key(self) -> Path:
        """Private host keys are beside this one."""
        return self.state / "ssh_host_ed25519_key"


@dataclass(frozen=True, slots=True)
class Document:
    """User data: a configuration, a script, or neither."""

    config: dict[str, Any] = field(default_factory=dict)
    script: str = ""


def read(text: str, say: Callable[[str], None]) -> Document:
    """Read user data; what cannot be read is said, and the machine boots without it."""
    first = text.partition("\n")[0].strip()
    if first.startswith("#!"):
        return Document(script=text)
    if first != "#cloud-config":
        if text.strip():
            say(f"[WARNING]: Unhandled non-multipart (text/x-not-multipart) userdata: {first!r}")
        return Document()
    try:
        config = json.loads(text.partition("\n")[2] or "{}")
        if not isinstance(config, dict):
            raise TypeError(f"it is a {type(config).__name__}")
    except (ValueError, TypeError) as error:
        say(f"[WARNING]: Failed loading yaml blob. {error}")
        return Document()
    for name in config.keys() - set(DONE):
        say(f"[WARNING]: {name!r} is not done by this emulator")
    return Document(config)


def before_ssh(document: Document, guest: Guest) -> None:
    """Do what is done before the SSH server starts: files, users, keys."""
    config = document.config
    guest.say("Cloud-init v. 24.1 running 'init'")
    if config.get("bootcmd"):
        _script(config["bootcmd"], "bootcmd", guest)
    _files((entry for entry in config.get("write_files", []) if not entry.get("defer")), guest)
    for user in _users(config, guest):
        _user(user, guest)
    _host_keys(config, guest)


def after_ssh(document: Document, guest: Guest) -> None:
    """Do the rest: files that wait for users, the commands, and the keys on the console."""
    config = document.config
    guest.say("Cloud-init v. 24.1 running 'modules:final'")
    _files((entry for entry in config.get("write_files", []) if entry.get("defer")), guest)
    each_boot(guest)
    if config.get("runcmd"):
        _script(config["runcmd"], "runcmd", guest)
    if document.script:
        _run(document.script, "part-001", guest)
    _show_keys(guest)
    finished = Path(guest.place("/var/lib/cloud/instance/boot-finished"))
    finished.parent.mkdir(parents=True, exist_ok=True)
    finished.touch()
    guest.say("Cloud-init v. 24.1 finished")


def before_ssh_again(document: Document, guest: Guest) -> None:
    """Do what a later boot does before the SSH server starts."""
    if document.config.get("bootcmd"):
        _script(document.config["bootcmd"], "bootcmd", guest)


def each_boot(guest: Guest) -> None:
    """Run the scripts that are there for each boot, as ``run-parts`` does."""
    for path in sorted(Path(guest.place("/var/lib/cloud/scripts/per-boot")).glob("*")):
        if os.access(path, os.X_OK) and (code := guest.run([str(path)])):
            guest.say(f"[WARNING]: Failed running {path} [{code}]")


# -- files ------------------------------------------------------------------------------------


def _files(entries: Iterable[dict[str, Any]], guest: Guest) -> None:
    for entry in entries:
        try:
            _file(entry, guest)
        except (OSError, LookupError, ValueError) as error:
            guest.say(f"[WARNING]: write_files failed: {entry.get('path')}: {error}")


def _file(entry: dict[str, Any], guest: Guest) -> None:
    path, content = Path(guest.place(entry["path"])), entry.get("content", "")
    encoding = str(entry.get("encoding", "")).lower()
    data = content if isinstance(content, bytes) else content.encode()
    if "64" in encoding:
        data = base64.b64decode(data)
    if encoding.startswith("gz"):
        data = gzip.decompress(data)
    if not guest.own:
        data = guest.place(data.decode()).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab" if entry.get("append") else "wb") as file:
        file.write(data)
    path.chmod(int(str(entry.get("permissions", "0644")), 8))
    if guest.own:
        owner, _, group = str(entry.get("owner", "root:root")).partition(":")
        shutil.chown(path, owner, group or owner)


# -- users ------------------------------------------------------------------------------------


def _users(config: dict[str, Any], guest: Guest) -> list[dict[str, Any]]:
    """Return who is to be there; the cloud's own key belongs to the default user."""
    keys = [guest.public_key] if guest.public_key else []
    default = {
        "name": guest.user,
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "ssh_authorized_keys": [*keys, *config.get("ssh_authorized_keys", [])],
    }
    found: list[dict[str, Any]] = []
    for user in config.get("users", ["default"]):
        found.append(
            default if user == "default" else {"name": user} if isinstance(user, str) else user
        )
    named = [user for user in found if user["name"] == guest.user]
    if keys and not named:
        found.append(default)
    return [
        user | {"ssh_authorized_keys": [*user.get("ssh_authorized_keys", []), *keys]}
        if user["name"] == guest.user and user is not default
        else user
        for user in found
    ]


def _user(user: dict[str, Any], guest: Guest) -> None:
    name, keys = user["name"], user.get("ssh_authorized_keys", [])
    if not guest.own:
        if name == guest.user:
            _lines(guest.state / "authorized", keys)
        else:
            guest.say(f"[WARNING]: accounts here are this machine's: there is no user {name!r}")
        return
    home = _account(name, user.get("shell", "/bin/sh"))
    _lines(home / ".ssh" / "authorized_keys", keys)
    (home / ".ssh").chmod(0o700)
    for path in (home, *home.rglob("*")):
        shutil.chown(path, name, name)
    rules = user.get("sudo")
    if rules:
        folder = Path("/etc/sudoers.d")
        if not folder.is_dir():
            guest.say("[WARNING]: there is no sudo on this machine")
            return
        file = folder / "90-cloud-init-users"
        _lines(file, [f"{name} {rule}" for rule in ([rules] if isinstance(rules, str) else rules)])
        file.chmod(0o440)


def _account(name: str, shell: str) -> Path:
    """Make an account that no password opens; return its home."""
    known = dict(line.split(":", 1) for line in Path("/etc/passwd").read_text().splitlines())
    if name in known:
        return Path(known[name].split(":")[4])
    uids = {int(entry.split(":")[1]) for entry in known.values()}
    uid = next(uid for uid in range(FIRST_UID, 2 * FIRST_UID) if uid not in uids)
    home = Path("/home") / name
    # '*' opens to no password; '!' would be a locked account, which sshd refuses without PAM
    for file, line in (
        ("passwd", f"{name}:x:{uid}:{uid}::{home}:{shell}"),
        ("group", f"{name}:x:{uid}:"),
        ("shadow", f"{name}:*:20000:0:99999:7:::"),
    ):
        with open(f"/etc/{file}", "a") as table:
            table.write(f"{line}\n")
    if os.path.isdir("/etc/skel"):
        shutil.copytree("/etc/skel", home)
    home.mkdir(exist_ok=True)
    home.chmod(0o750)
    return home


def _lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
        file.write("".join(f"{line}\n" for line in lines))


# -- keys -------------------------------------------------------------------------------------


def _host_keys(config: dict[str, Any], guest: Guest) -> None:
    """Install the host keys that are given; make one if none is."""
    given = config.get("ssh_keys", {})
    for name, text in given.items():
        kind, _, part = name.partition("_")
        path = guest.state / f"ssh_host_{kind}_key"
        if part == "public":
            path.with_suffix(".pub").write_text(text.rstrip("\n") + "\n")
        elif part == "private":
            _lines(path, [text.rstrip("\n")])
    if not list(guest.state.glob("ssh_host_*_key")):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(guest.host_key)]
        guest.run(words)


def _show_keys(guest: Guest) -> None:
    """Write the host keys to the console, where a cloud's customer can read them."""
    line, publics = "#" * 61, sorted(guest.state.glob("ssh_host_*_key.pub"))
    guest.say(f"{line}\n-----BEGIN SSH HOST KEY FINGERPRINTS-----")
    for path in publics:
        found = subprocess.run(["ssh-keygen", "-l", "-f", path], capture_output=True, text=True)
        guest.say(found.stdout.strip() or found.stderr.strip())
    guest.say(f"-----END SSH HOST KEY FINGERPRINTS-----\n{line}")
    guest.say("-----BEGIN SSH HOST KEY KEYS-----")
    for path in publics:
        with suppress(FileNotFoundError):  # whoever launched the machine gives it another key
            guest.say(path.read_text().strip())
    guest.say("-----END SSH HOST KEY KEYS-----")


# -- commands ---------------------------------------------------------------------------------


def _script(commands: Iterable[str | list[str]], name: str, guest: Guest) -> None:
    """Run commands as the lines of one script; one that fails does not keep back the next."""
    lines = [each if isinstance(each, str) else shlex.join(map(str, each)) for each in commands]
    _run("\n".join(["#!/bin/sh", *lines, ""]), name, guest)


def _run(text: str, name: str, guest: Guest) -> None:
    path = Path(guest.place(f"/var/lib/cloud/instance/scripts/{name}"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if guest.own else guest.place(text))
    path.chmod(0o700)
    code = guest.run([str(path)])
    if code:
        guest.say(f"[WARNING]: Failed running {path} [{code}]")
