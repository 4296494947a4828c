"""File that describes where the session of a managed service is reached."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

_CERTIFICATES = ("SSL_CERT_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH")


def newest_headers(path: Path) -> Callable[[], list[tuple[str, str]]]:
    """Return a function that gives the metadata of a request, read again when the file changes."""
    known: tuple[int, list[tuple[str, str]]] = (0, [])

    def read() -> list[tuple[str, str]]:
        nonlocal known
        changed = path.stat().st_mtime_ns
        if changed != known[0]:
            known = (changed, list(json.loads(path.read_text())["headers"].items()))
        return known[1]

    return read


def trusted_certificates(named: str) -> bytes | None:
    """Return the certificates to trust; None for those of the client library."""
    names = (named, *(os.environ.get(name, "") for name in _CERTIFICATES))
    return next((Path(name).read_bytes() for name in names if name and Path(name).is_file()), None)
