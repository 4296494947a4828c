"""Installed packages and a package index, made for tests."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.machines.packages.indexes import IndexSettings

DEFAULT = IndexSettings()
CORPORATE = IndexSettings("https://ada:s3cr3t@pypi.acme.com/simple")


class Index(http.server.ThreadingHTTPServer):
    """A package index on loopback that has some names, and notes what it is asked."""

    def __init__(self, *names: str, status: int = 404) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self.names, self.status, self.asked = names, status, list[str]()
        self.logins = list[str | None]()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple"

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Page(http.server.BaseHTTPRequestHandler):
    server: Index  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        name = self.path.strip("/").rpartition("/")[2]
        self.server.asked.append(name)
        self.server.logins.append(self.headers.get("Authorization"))
        self.send_response(200 if name in self.server.names else self.server.status)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def install(
    site: Path,
    name: str,
    *,
    version: str = "1.4.2",
    requires: tuple[str, ...] = (),
    direct_url: dict[str, Any] | None = None,
    installer: str = "pip",
    files: dict[str, str] | None = None,
    more: str = "",
    wheel: str = "py3-none-any",
) -> str:
    """Install a package as an installer would; return its module."""
    module = name.replace("-", "_")
    written = {f"{module}/__init__.py": f"NAME = {name!r}\n"} if files is None else dict(files)
    info = f"{module}-{version}.dist-info"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    lines += [f"Requires-Dist: {each}" for each in requires]
    written[f"{info}/METADATA"] = "\n".join(lines) + f"\n{more}\n"
    written[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nTag: {wheel}\n"
    if installer:
        written[f"{info}/INSTALLER"] = f"{installer}\n"
    if direct_url is not None:
        written[f"{info}/direct_url.json"] = json.dumps(direct_url)
    written[f"{info}/RECORD"] = "".join(f"{each},,\n" for each in [*written, f"{info}/RECORD"])
    for path, text in written.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    return module


def editable(source: Path) -> dict[str, Any]:
    return {"url": source.as_uri(), "dir_info": {"editable": True}}


def refuse_lookup(place: str, name: str, is_index: bool) -> bool | None:
    pytest.fail(f"{place} was asked for {name}")
