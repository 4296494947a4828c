"""The machines of the ``ssh`` cloud, as their owner lists them in a TOML file.

[gpu-box]
address = "ada@10.0.0.5:2222"
key = "~/.ssh/id_ed25519"
vcpus = 16
memory = 64
gpus = "A100:2"
price = 0.5
slots = 2
"""

from __future__ import annotations

import getpass
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyError, SkyUsageError, suggest
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.base.requests.resources import parse_gpus, parse_usd
from jupyter_sky.base.translation import _

_ADDRESS = re.compile(r"(?:([^@\s]+)@)?(\[[0-9A-Fa-f:.]+\]|[^@:\s\[\]]+)(?::(\d{1,5}))?")
_EXAMPLE = '[gpu-box]\naddress = "ada@10.0.0.5"\nvcpus = 16\nmemory = 64'


@dataclass(frozen=True, slots=True)
class SshHost:
    """One machine of the pool.

    Attributes
    ----------
    vcpus, memory, gpu_count : float
        Of the whole machine; memory in GiB.
    price : float
        USD/h of the whole machine.
    slots : int
        How many clusters may share it, each with an equal part.
    host_key : str
        Its public key, such as ``ssh-ed25519 AAAA...``; without it, the one that it shows first.
    private : str
        Where the other machines of the pool reach it; its address unless given.
    python : str
        A Python there whose packages cells see beside ours.
    packages : tuple of str
        Requirements that engines there have from the start.
    offline : bool
        It cannot reach a package index: what it needs comes through the connection.
    env : dict
        Environment of what we start there.
    """

    name: str
    user: str
    host: str
    port: int
    vcpus: float
    memory: float
    key: str = ""
    gpu: str | None = None
    gpu_count: int = 0
    price: float = 0.0
    slots: int = 1
    host_key: str = ""
    private: str = ""
    python: str = ""
    packages: tuple[str, ...] = ()
    offline: bool = False
    env: dict[str, str] = field(default_factory=dict, hash=False)

    def address(self, known_hosts: Path, pinned: bool = False) -> Address:
        """Return where it is; its key is pinned in `known_hosts`."""
        return Address(self.user, self.host, self.port, self.key, str(known_hosts), pinned)


def read_hosts(path: Path) -> dict[str, SshHost]:
    """Read the pool; without a file it is empty.

    Raises
    ------
    SkyUsageError
        The file cannot be understood; names the file and the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SkyUsageError(
            _("{path}: cannot be read: {error}").format(path=path, error=error)
        ) from None
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SkyUsageError(
            _("{path}: not TOML: {error}").format(path=path, error=error),
            hint=_("such as\n{example}").format(example=_EXAMPLE),
        ) from None
    return {name: _parse_host(path, text, name, table) for name, table in tables.items()}


def _parse_host(path: Path, text: str, name: str, table: Any) -> SshHost:
    def wrong(what: str, key: str = "", hint: str | None = None) -> SkyUsageError:
        line = _line_number(text, name, key)
        return SkyUsageError(
            _("{path}, line {line}: [{name}] {what}").format(
                path=path, line=line, name=name, what=what
            ),
            hint=hint,
        )

    if not isinstance(table, dict):
        raise wrong(
            "is not a table",
            hint=_("each machine is one, such as\n{example}").format(example=_EXAMPLE),
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise wrong("is not a name", hint=_("letters, digits, dots and hyphens"))
    fields: dict[str, Any] = {"name": name}
    for key, value in table.items():
        if key not in _PARSERS:
            raise wrong(f"has no setting {key!r}", key, suggest(key, _PARSERS))
        try:
            fields |= _PARSERS[key](value)
        except (SkyError, ValueError, TypeError) as error:
            first = str(error).splitlines()[0]
            raise wrong(f"{key} = {value!r}: {first}", key, getattr(error, "hint", None)) from None
    for key, needed in (("address", "host"), ("vcpus", "vcpus"), ("memory", "memory")):
        if needed not in fields:
            raise wrong(f"has no {key}", hint=_("such as\n{example}").format(example=_EXAMPLE))
    return SshHost(**fields)


def _line_number(text: str, name: str, key: str) -> int:
    """Return the number of the line where a machine, or one of its settings, is written."""
    lines = text.splitlines()
    word = rf"[\"']?{re.escape(name)}[\"']?"
    header = re.compile(rf"\s*(\[\s*{word}\s*[\].]|{word}\s*=)")
    start = next((at for at, line in enumerate(lines) if header.match(line)), 0)
    if key:
        setting = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]")
        for at in range(start, len(lines)):
            if setting.match(lines[at]):
                return at + 1
            if at > start and lines[at].lstrip().startswith("[") and f"{name}." not in lines[at]:
                break
    return start + 1


def parse_address(value: Any) -> dict[str, Any]:
    """Return user, host and port of an address; ValueError for what is none."""
    match = _ADDRESS.fullmatch(_parse_text(value))
    port = int(match[3] or 22) if match else 0
    if not match or not 0 < port < 65536:
        raise ValueError("not an address; write user@host or user@host:port")
    host = match[2].strip("[]")
    if host.startswith("-") or (match[1] or "").startswith("-"):  # ssh would take it as an option
        raise ValueError("not an address; write user@host or user@host:port")
    Address(match[1] or "", host, port)  # refuses characters that a shell would interpret
    return {"user": match[1] or getpass.getuser(), "host": host, "port": port}


def _parse_positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        raise ValueError("not a positive number")
    return float(value)


def _parse_count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1000:
        raise ValueError("not a whole number from 1")
    return value


def _parse_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def _parse_true(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _parse_gpus(value: Any) -> dict[str, Any]:
    gpu, amount = parse_gpus(_parse_text(value), "gpus")
    count = int(amount.value)
    if amount.at_least or count != amount.value:
        raise SkyUsageError(
            _("gpus {value}: not a whole number").format(value=value),
            hint=_('such as gpus = "A100:4"'),
        )
    return {"gpu": gpu, "gpu_count": count}


def _parse_price(value: Any) -> float:
    return parse_usd(value if isinstance(value, str) else str(float(value)), "price")


def _parse_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("not a list of texts")
    return tuple(_parse_text(each) for each in value)


def _parse_environment(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("not a table of texts")
    for name in value:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name!r} is not the name of a variable")
    return {name: _parse_text(each) for name, each in value.items()}


_PARSERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "address": parse_address,
    "gpus": _parse_gpus,
    "key": lambda value: {"key": str(Path(_parse_text(value)).expanduser())},
    "vcpus": lambda value: {"vcpus": _parse_positive(value)},
    "memory": lambda value: {"memory": _parse_positive(value)},
    "price": lambda value: {"price": _parse_price(value)},
    "slots": lambda value: {"slots": _parse_count(value)},
    "host_key": lambda value: {"host_key": _parse_text(value)},
    "private": lambda value: {"private": _parse_text(value)},
    "python": lambda value: {"python": _parse_text(value)},
    "packages": lambda value: {"packages": _parse_texts(value)},
    "offline": lambda value: {"offline": _parse_true(value)},
    "env": lambda value: {"env": _parse_environment(value)},
}
