"""Package indexes that pip and uv are set up with on this machine."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from jupyter_sky.base.remote.package_names import without_credentials

PYPI = "https://pypi.org/simple"
PUBLIC_HOSTS = {"download.pytorch.org", "files.pythonhosted.org", "pypi.nvidia.com", "pypi.org"}
"""Hosts that serve packages to everybody, by publishers of their own choice."""
LOCAL_HOSTS = re.compile(r"localhost|127\.[\d.]+|::1|0\.0\.0\.0")
PIP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Package indexes of this machine, by the settings of pip and uv together.

    Attributes
    ----------
    default : str
        Address of the default index; empty where none may be asked (``no-index``).
    extra, find_links : tuple of str
        Further indexes, and pages or folders with files; credentials may be part of addresses.
    local_only : tuple of str
        Names of settings whose values mean something on this machine alone, such as ``pip cert``.
    """

    default: str = PYPI
    extra: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    local_only: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shown = [without_credentials(each) for each in (self.default, *self.private_sources)]
        return f"IndexSettings({', '.join(shown)})"

    @property
    def is_public(self) -> bool:
        """Whether the default index is a public one."""
        return is_public(self.default)

    @property
    def private_sources(self) -> tuple[str, ...]:
        """Indexes, pages and folders beside the default that are not public."""
        return tuple(each for each in (*self.extra, *self.find_links) if not is_public(each))

    def environment(self, public_only: bool = False) -> dict[str, str]:
        """Return variables that have pip and uv on another machine ask the same places.

        They hold credentials: they are for an installer's environment, and nothing else.

        Parameters
        ----------
        public_only
            Leave out private places beside a public default index: for packages that have been
            looked for there in vain.
        """

        def is_used(place: str) -> bool:
            if not self.is_public:  # a private default index: no public one is asked
                return is_reachable(place) and not is_public(place)
            return is_reachable(place) and (is_public(place) or not public_only)

        extra, links = [*filter(is_used, self.extra)], [*filter(is_used, self.find_links)]
        variables: dict[str, str] = {}
        if self.default and self.default.rstrip("/") != PYPI and is_reachable(self.default):
            variables |= {"UV_DEFAULT_INDEX": self.default, "PIP_INDEX_URL": self.default}
        if extra:
            variables |= {"UV_INDEX": " ".join(extra), "PIP_EXTRA_INDEX_URL": " ".join(extra)}
        if links:
            variables |= {"UV_FIND_LINKS": ",".join(links), "PIP_FIND_LINKS": " ".join(links)}
        return variables

    @property
    def withheld_settings(self) -> tuple[str, ...]:
        """Places and settings of this machine alone, which are not passed on."""
        places = (self.default, *self.extra, *self.find_links)
        local = [without_credentials(each) for each in places if each and not is_reachable(each)]
        return (*local, *self.local_only)


def is_public(address: str) -> bool:
    """Return whether an address is that of an index for everybody.

    Examples
    --------
    >>> is_public("https://pypi.org/simple/"), is_public("https://me:secret@pypi.org/simple")
    (True, False)
    """
    parts = urlsplit(address)
    return parts.scheme == "https" and parts.netloc in PUBLIC_HOSTS


def is_reachable(address: str) -> bool:
    """Return whether an address may mean the same place on another machine."""
    parts = urlsplit(address)
    return parts.scheme in ("http", "https") and not LOCAL_HOSTS.fullmatch(parts.hostname or "")


def read_settings() -> IndexSettings:
    """Read the settings of pip and uv on this machine: variables, project, user, system."""
    defaults: list[str] = []
    extra: list[str] = []
    links: list[str] = []
    local_only: list[str] = []
    for tool, name, value in (*_uv_settings(), *_pip_settings()):
        if name in ("default-index", "index-url"):
            defaults.append(value)
        elif name == "no-index" and value.lower() in ("1", "true", "yes", "on"):
            defaults.append("")
        elif name in ("extra-index-url", "index"):
            extra.append(value)
        elif name == "find-links":
            links.append(value)
        elif name in ("cert", "client-cert", "trusted-host", "allow-insecure-host"):
            local_only.append(f"{tool} {name}")
    private = [each for each in defaults if not is_public(each)]
    default = (private or defaults or [PYPI])[0]
    unique = dict.fromkeys
    return IndexSettings(
        default,
        tuple(unique(each for each in extra if each.rstrip("/") != default.rstrip("/"))),
        tuple(unique(links)),
        tuple(unique(local_only)),
    )


Setting = tuple[str, str, str]
"""Tool, name, value."""


def _pip_settings() -> Iterator[Setting]:
    """Yield the settings that pip lists."""
    if any(Path(entry, "pip").is_dir() for entry in sys.path if entry):
        pip = [sys.executable, "-P", "-m", "pip"]  # not one of the notebook's folder
    elif executable := shutil.which("pip3") or shutil.which("pip"):
        pip = [executable]
    else:
        return
    listing = [*pip, "--disable-pip-version-check", "config", "list"]
    try:
        result = subprocess.run(listing, capture_output=True, text=True, timeout=PIP_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return
    for line in result.stdout.splitlines():
        name, equals, text = line.partition("=")
        with suppress(ValueError, SyntaxError):
            values = str(ast.literal_eval(text)).split() if equals else []
            for value in values:
                yield "pip", name.rpartition(".")[2], value


def _uv_settings() -> Iterator[Setting]:
    """Yield the settings of uv's variables and files, in the order of precedence."""
    variables = {
        "UV_DEFAULT_INDEX": "default-index",
        "UV_INDEX_URL": "index-url",
        "UV_INDEX": "index",
        "UV_EXTRA_INDEX_URL": "extra-index-url",
        "UV_FIND_LINKS": "find-links",
        "UV_NO_INDEX": "no-index",
        "UV_INSECURE_HOST": "allow-insecure-host",
    }
    for variable, name in variables.items():
        for value in re.split(r"[\s,]+", os.environ.get(variable, "")):
            if value:
                yield "uv", name, _split_name(value)[1]
    for path in _uv_files():
        with suppress(OSError, tomllib.TOMLDecodeError):
            table = tomllib.loads(path.read_text())
            if path.name == "pyproject.toml":
                table = table.get("tool", {}).get("uv", {})
            if isinstance(table, dict):
                yield from _uv_table(table)


def _uv_table(table: Mapping[str, Any]) -> Iterator[Setting]:
    indexes = table.get("index", ())
    for index in indexes if isinstance(indexes, list) else ():
        if isinstance(index, dict) and isinstance(index.get("url"), str):
            name = "default-index" if index.get("default") else "index"
            flat = index.get("format") == "flat"
            address = _with_credentials(str(index.get("name", "")), index["url"])
            yield "uv", "find-links" if flat else name, address
    pip = table.get("pip", {})
    for section in (table, pip if isinstance(pip, dict) else {}):
        for name in ("index-url", "extra-index-url", "find-links", "no-index"):
            values = section.get(name, ())
            for value in values if isinstance(values, list) else [values] if values else []:
                yield "uv", name, str(value)
        if section.get("allow-insecure-host"):
            yield "uv", "allow-insecure-host", ""


def _uv_files() -> Iterable[Path]:
    """Return uv's files of settings: of this environment's project, the user, the system."""
    if config_file := os.environ.get("UV_CONFIG_FILE"):
        return [Path(config_file)]
    files: list[Path] = []
    if not os.environ.get("UV_NO_CONFIG"):
        # not those of the notebook's folder: its author must not choose the index
        project = Path(sys.prefix).parent  # PROJECT/.venv
        files += [project / "uv.toml", project / "pyproject.toml"]
        home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        if os.name == "nt":
            home = Path(os.environ.get("APPDATA", str(home)))
        system = os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep)
        files += [folder / "uv" / "uv.toml" for folder in (home, *map(Path, system), Path("/etc"))]
    return files


def _split_name(value: str) -> tuple[str, str]:
    """Split ``name=address``, as uv allows it; an address alone has no name."""
    name, equals, address = value.partition("=")
    if equals and re.fullmatch(r"[\w.-]+", name):
        return name, _with_credentials(name, address)
    return "", value


def _with_credentials(name: str, address: str) -> str:
    """Add the credentials that uv takes from variables for an index of a name."""
    key = re.sub(r"[^A-Z0-9]", "_", name.upper())
    user = os.environ.get(f"UV_INDEX_{key}_USERNAME") if name else None
    password = os.environ.get(f"UV_INDEX_{key}_PASSWORD") if name else None
    parts = urlsplit(address)
    if not (user or password) or "@" in parts.netloc:
        return address
    login = f"{quote(user or '', safe='')}:{quote(password or '', safe='')}"
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))
