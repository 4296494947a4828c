"""A machine's own files, network and name, for a process that is in namespaces of its own.

Its files are a layer in memory over this machine's programs and settings; of the rest it sees
nothing but a Python and, below a layer too, the packages that uv has kept. Everything ends with
its last process: nothing needs to be taken down. It runs under a bare Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

PROGRAMS = "bin etc lib lib32 lib64 libx32 opt sbin usr".split()
DEVICES = "full fuse null random tty urandom zero".split()
BARE_MOUNTS = ("/mnt", "/media", "/srv")
"""Folder of the new root: not one that anything of it comes from."""
OWN_PORTS = (50000, 60999)
"""From where its connections start, so that the firewall knows answers to them."""
SECRETS = "ssh/ssh_host_* ssh/sshd_config.d/* pip.conf uv/* sudoers.d/* environment".split()
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
"""Files in which systems keep the authorities that they trust."""
CACHE = "/var/cache/uv"
KEPT = ("archive-", "simple-", "wheels-")
"""Parts of its cache that uv only reads; the rest it writes, and makes anew."""

_RDONLY, _REMOUNT, _BIND, _REC = 1, 32, 4096, 16384
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount, or raise OSError."""
    words = [word.encode() for word in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), data.encode()):
        code = ctypes.get_errno()
        raise OSError(code, f"mount {source} ({kind or 'bind'}): {os.strerror(code)}", target)


def enter(prefix: str, cache: str) -> None:
    """Make a root of one's own and go there.

    Parameters
    ----------
    prefix
        Folder of the Python to be seen there.
    cache
        uv's cache on this machine.
    """
    taken = (prefix, cache)
    root = next(at for at in BARE_MOUNTS if os.path.isdir(at) and not _below(taken, at))
    mount("machine", root, "tmpfs", 0, "size=4g,mode=755")
    for name in PROGRAMS:
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
        elif os.path.isdir(f"/{name}"):
            _layer(f"/{name}", root, f"{root}/{name}")
    for name, mode in {"root": 0o711, "run/sshd": 0o755, "tmp": 0o1777, "var/tmp": 0o1777}.items():
        _folder(root, name, mode)
    for name in ("home", "mnt", "srv", "var/cache", "var/empty", "var/lib", "var/log", "var/spool"):
        _folder(root, name)
    if not _below((prefix,), "/usr", "/opt"):
        _folder(root, prefix)
        mount(prefix, f"{root}{prefix}", "", _BIND | _REC)
        mount(prefix, f"{root}{prefix}", "", _BIND | _REMOUNT | _RDONLY)
    _folder(root, CACHE)
    for name in os.listdir(cache) if os.path.isdir(cache) else ():
        if name.startswith(KEPT):
            _layer(f"{cache}/{name}", root, f"{root}{CACHE}/{name}")
    _kernel(root)
    os.chroot(root)
    os.chdir("/")


def _below(paths: Iterable[str], *folders: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for path in paths for each in folders)


def _folder(root: str, name: str, mode: int = 0o755) -> str:
    path = f"{root}/{name.strip('/')}"
    os.makedirs(path, exist_ok=True)
    os.chmod(path, mode)
    return path


def _layer(lower: str, root: str, target: str) -> None:
    """Show a folder of this machine, with changes kept in memory."""
    name = lower.strip("/").replace("/", "-")
    upper, work = (_folder(root, f".layers/{name}/{part}") for part in ("upper", "work"))
    os.chmod(f"{root}/.layers", 0o700)
    os.makedirs(target, exist_ok=True)
    mount("machine", target, "overlay", 0, f"lowerdir={lower},upperdir={upper},workdir={work}")


def _kernel(root: str) -> None:
    """Mount what the kernel tells, and the devices that are safe to have."""
    mount("proc", _folder(root, "proc"), "proc")
    mount("sysfs", _folder(root, "sys"), "sysfs", _RDONLY)
    mount("dev", _folder(root, "dev"), "tmpfs", 0, "size=64k,mode=755")
    for name in DEVICES:
        if os.path.exists(f"/dev/{name}"):
            Path(f"{root}/dev/{name}").touch()
            mount(f"/dev/{name}", f"{root}/dev/{name}", "", _BIND)
    mount("shm", _folder(root, "dev/shm"), "tmpfs", 0, "mode=1777")
    mount("pts", _folder(root, "dev/pts"), "devpts", 0, "newinstance,ptmxmode=0666,mode=620")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1"}
    for name, target in links.items():
        os.symlink(target, f"{root}/dev/{name}")


def settle(spec: dict[str, Any]) -> None:
    """Give it a name, accounts of the system alone, and whom it knows and trusts."""
    socket.sethostname(spec["name"])
    for pattern in SECRETS:
        for path in Path("/etc").glob(pattern):
            if not path.is_dir():
                path.unlink()
    _accounts()
    names = {"localhost": "127.0.0.1", spec["name"]: "127.0.1.1"} | spec["names"]
    lines = [f"{address} {name}" for name, address in names.items()]
    _write("/etc/hosts", "\n".join([*lines, ""]))
    _write("/etc/hostname", spec["name"] + "\n")
    _write("/etc/resolv.conf", "")
    _write("/etc/machine-id", os.urandom(16).hex() + "\n")
    if spec["authority"]:
        _trust(spec["authority"])


def new_boot() -> None:
    """Show another id of this boot than that of the machine below, and than before."""
    path = f"/.boot_id-{os.urandom(4).hex()}"
    _write(path, f"{uuid.uuid4()}\n")
    mount(path, "/proc/sys/kernel/random/boot_id", "", _BIND)


def _trust(authority: str) -> None:
    """Add to both forms in which programs look for authorities: one file, and files by hash."""
    for path in BUNDLES:
        if os.path.exists(path):
            with open(path, "a") as bundle:
                bundle.write(f"\n{authority}")
    if os.path.isdir("/etc/ssl/certs"):
        own = "/etc/ssl/certs/emulator.pem"
        _write(own, authority)
        words = ["openssl", "x509", "-noout", "-subject_hash", "-in", own]
        with contextlib.suppress(OSError):  # without openssl, what reads the one file has it
            found = subprocess.run(words, capture_output=True, text=True)
            os.symlink(own, f"/etc/ssl/certs/{found.stdout.strip()}.0")


def _accounts() -> None:
    """Leave the accounts that programs need; people of this machine have none there."""
    for name in ("passwd", "group"):
        table = [line.split(":") for line in Path(f"/etc/{name}").read_text().splitlines()]
        kept = [row for row in table if len(row) > 3 and not 1000 <= int(row[2]) < 60000]
        _write(f"/etc/{name}", "".join(":".join(row) + "\n" for row in kept))
        if name == "passwd":
            _write("/etc/shadow", "".join(f"{row[0]}:*:20000:0:99999:7:::\n" for row in kept))
    os.chmod("/etc/shadow", 0o600)


def _write(path: str, text: str) -> None:
    if os.path.islink(path):
        os.unlink(path)
    Path(path).write_text(text)


def lend_cache(user: int) -> None:
    """Let a user keep packages beside those that are there."""
    for path in (CACHE, *(entry.path for entry in os.scandir(CACHE))):
        os.chown(path, user, user)


# -- network ----------------------------------------------------------------------------------


def connect(spec: dict[str, Any]) -> None:
    """Take the link that has been plugged in: addresses, and a firewall of routing rules.

    Rules by port need no program but ``ip``. They keep no track of connections: a packet passes
    when its sender may reach its port, or when the port is one where only answers arrive.
    """
    for path, text in {
        "ipv4/ip_local_port_range": "{} {}".format(*OWN_PORTS),
        "ipv6/conf/all/disable_ipv6": "1",
    }.items():
        if os.path.exists(f"/proc/sys/net/{path}"):
            Path(f"/proc/sys/net/{path}").write_text(text)
    rest = [
        f"rule add pref 900 iif eth0 ipproto {name} blackhole" for name in ("tcp", "udp", "icmp")
    ]
    ip(
        "link set lo up",
        "addr add 169.254.169.254/32 dev lo",
        "rule add pref 100 iif eth0 ipproto tcp dport {}-{} lookup local".format(*OWN_PORTS),
        *_passes(spec["ingress"]),
        *rest,
        "rule add pref 901 lookup local",
        "rule del pref 0",
        f"addr add {spec['private']}/24 dev eth0",
        f"addr add {spec['address']}/24 dev eth0",
        "link set eth0 up",
    )


def admit(old: Sequence[list[Any]], new: Sequence[list[Any]]) -> None:
    """Change who may reach it."""
    ip(*["rule del pref 500"] * len(_passes(old)), *_passes(new))


def _passes(ingress: Sequence[list[Any]]) -> list[str]:
    lines = []
    for network, port in ingress:
        if ":" not in network:
            only = f"ipproto tcp dport {port} " if port else ""
            lines.append(f"rule add pref 500 iif eth0 from {network} {only}lookup local")
    return list(dict.fromkeys(lines))


def ip(*lines: str, within: int = 0) -> None:
    """Run lines of ``ip -batch``, in the network of another process if one is given."""
    nsenter = ["nsenter", "-t", str(within), "-n"] if within else []
    found = subprocess.run(
        [*nsenter, shutil.which("ip") or "/usr/sbin/ip", "-batch", "-"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
    )
    if found.stderr or found.returncode:  # who reaps all may have taken the code
        raise OSError(f"ip: {found.stderr.strip()}")
