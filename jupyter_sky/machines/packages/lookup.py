"""Lookup of a name in a private index, page or folder that this machine is set up with.

Only places that are not public are asked: installing from here, pip and uv ask them for every name
anyway.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

CONNECT_SECONDS = 3.0
READ_SECONDS = 10.0
UNREACHABLE_SECONDS = 60.0
"""A place that has not answered is not asked again for so long."""
SIMPLE_API_TYPES = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html"
)
_LINK = re.compile(r"""href\s*=\s*["']([^"'#]+)""", re.IGNORECASE)


class IndexLookup:
    """Answers of private places, each asked once for a name."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], bool] = {}
        self._unreachable: dict[str, float] = {}
        self._lock = threading.Lock()

    def has(self, place: str, name: str, is_index: bool) -> bool | None:
        """Return whether a place has a package; None if it cannot be reached.

        Parameters
        ----------
        place
            Address of an index or page, or path of a folder.
        name
            Normalized name of the package.
        """
        key = place, name
        with self._lock:
            if key in self._known:
                return self._known[key]
            if self._unreachable.get(place, 0.0) > time.monotonic():
                return None
        is_listed = _has(place, name, is_index)
        with self._lock:
            if is_listed is None:
                self._unreachable[place] = time.monotonic() + UNREACHABLE_SECONDS
            else:
                self._known[key] = is_listed
        return is_listed


def _has(place: str, name: str, is_index: bool) -> bool | None:
    parts = urlsplit(place)
    if parts.scheme in ("http", "https"):
        return _page_lists(f"{place.rstrip('/')}/{name}/" if is_index else place, name, is_index)
    folder = Path(unquote(parts.path)) if parts.scheme == "file" else Path(place).expanduser()
    try:
        if is_index:
            return (folder / name).is_dir()
        return any(package_of(path.name) == name for path in folder.iterdir())
    except FileNotFoundError:
        return False
    except OSError:
        return None


def _page_lists(address: str, name: str, is_index: bool) -> bool | None:
    import requests

    try:
        response = requests.get(
            address, headers={"Accept": SIMPLE_API_TYPES}, timeout=(CONNECT_SECONDS, READ_SECONDS)
        )
    except (requests.RequestException, OSError):
        return None
    if response.status_code in (404, 410):
        return False
    if response.status_code != 200:
        return None
    if is_index:
        return True
    paths = (urlsplit(urljoin(address, link)).path for link in _LINK.findall(response.text))
    return any(package_of(unquote(path.rpartition("/")[2])) == name for path in paths)


def package_of(file: str) -> str:
    """Return the normalized name of the package that a wheel or source archive is of.

    Examples
    --------
    >>> package_of("Acme_Secret-1.4.2-py3-none-any.whl"), package_of("acme-secret-1.4.2.tar.gz")
    ('acme-secret', 'acme-secret')
    """
    from packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        parse_sdist_filename,
        parse_wheel_filename,
    )

    try:
        if file.endswith(".whl"):
            return parse_wheel_filename(file)[0]
        return parse_sdist_filename(file)[0]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return ""
