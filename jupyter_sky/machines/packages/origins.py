"""Origin of an installed distribution: whether an index may be asked for its name, and which."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyter_sky.machines.packages.indexes import IndexSettings

INSTALLERS = {"conda", "pdm", "pip", "poetry", "uv"}
"""Installers that take a package from an index (or channel) where ``direct_url.json`` is not."""
PUBLIC_CHANNELS = {"conda.anaconda.org/conda-forge", "repo.anaconda.com/pkgs/main"}


class PackageOrigin(Enum):
    """Source from which another machine gets a package."""

    PUBLIC = "asked of the default index, under the name that is known there"
    INDEX = "asked of the private index that this machine is set up with"
    SENT = "sent from here"


@dataclass(frozen=True, slots=True)
class InstallRecord:
    """Record of the installation of a distribution.

    Attributes
    ----------
    direct_url : dict or None
        As PEP 610 has it; empty where it cannot be read.
    marked_private : bool
        Whether it has a classifier that begins with ``Private ::``.
    channel : str
        The conda channel that it came from.
    """

    name: str
    installer: str = ""
    direct_url: dict[str, Any] | None = None
    marked_private: bool = False
    channel: str = ""

    @property
    def source(self) -> Path | None:
        """The folder that an editable installation points to."""
        direct_url = self.direct_url or {}
        info = direct_url.get("dir_info")
        if not isinstance(info, dict) or not info.get("editable"):
            return None
        return file_url_path(str(direct_url.get("url", "")))


def file_url_path(address: str) -> Path | None:
    """Return the path that a file address names."""
    from urllib.request import url2pathname

    parts = urlsplit(address)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def read_install_record(distribution: metadata.Distribution) -> InstallRecord:
    """Read the record of the installation of a distribution."""
    from packaging.utils import canonicalize_name

    text = distribution.read_text("direct_url.json")
    direct: dict[str, Any] | None = None
    if text is not None:
        try:
            loaded = json.loads(text)
        except ValueError:
            loaded = None
        direct = loaded if isinstance(loaded, dict) else {}
    lines = (distribution.read_text("INSTALLER") or "").split()
    installer = lines[0].lower() if lines else ""
    name = canonicalize_name(distribution.metadata["Name"])
    classifiers = distribution.metadata.get_all("Classifier") or []
    private = any(str(classifier).startswith("Private ::") for classifier in classifiers)
    channel = _channel(name) if installer == "conda" else ""
    return InstallRecord(name, installer, direct, private, channel)


def _channel(name: str) -> str:
    """Return the conda channel of a package of this environment, if its record is found."""
    for path in Path(sys.prefix, "conda-meta").glob(f"{name}-*.json"):
        try:
            record = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if isinstance(record, dict) and record.get("name") == name:
            parts = urlsplit(str(record.get("channel", "")))
            folders = [part for part in parts.path.split("/") if part]
            if folders and folders[-1] in ("noarch", str(record.get("subdir"))):
                folders.pop()
            return "/".join([parts.netloc, *folders])
    return ""


def decide_origin(
    record: InstallRecord,
    settings: IndexSettings,
    has: Callable[[str, str, bool], bool | None],
) -> PackageOrigin:
    """Decide the source of a distribution for other machines, by the rule in `package_sync`.

    Parameters
    ----------
    has
        Function that returns whether a private place has a name, None if it cannot be reached;
        its last argument is whether the place is an index.
    """
    if record.direct_url is not None or record.marked_private:
        return PackageOrigin.SENT
    if record.installer not in INSTALLERS:
        return PackageOrigin.SENT
    if record.installer == "conda":  # its packages are in no index of pip's
        return PackageOrigin.PUBLIC if record.channel in PUBLIC_CHANNELS else PackageOrigin.SENT
    if not settings.is_public:
        return PackageOrigin.INDEX if settings.environment() else PackageOrigin.SENT
    for place in settings.private_sources:
        if has(place, record.name, place in settings.extra) is not False:
            return PackageOrigin.SENT
    return PackageOrigin.PUBLIC
