"""Nobody is answered who is not let in: every verb of every handler."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

from jupyter_sky import server
from jupyter_sky.server import PREFIX
from jupyter_sky.server.handler import SkyHandler

VERBS = ("get", "post", "put", "delete", "patch")


def ours(app: Any) -> list[tuple[str, str]]:
    """The paths of this server's extension, with a name in each gap, and their verbs."""
    found = []
    for rule in app.web_app.wildcard_router.rules + app.web_app.default_router.rules:
        for inner in getattr(rule.target, "rules", ()):
            kind = inner.target
            if not (isinstance(kind, type) and issubclass(kind, SkyHandler)):
                continue
            path = inner.matcher.regex.pattern.rstrip("$").replace("[^/]+", "x")
            path = re.sub(r"\((\w+)[^)]*\)", r"\1", path).replace("\\", "")
            found += [(path, verb.upper()) for verb in VERBS if verb in vars(kind)]
    return found


async def test_every_handler_asks_who_is_there(
    desk: Any, jp_serverapp: Any, http_server_client: Any
) -> None:
    paths = ours(jp_serverapp)
    assert len(paths) >= 11 and all(PREFIX in path for path, _ in paths)
    for path, verb in paths:
        body = None if verb in ("GET", "DELETE") else "{}"
        with pytest.raises(HTTPClientError) as caught:
            await http_server_client.fetch(path, method=verb, body=body)
        assert caught.value.code == 403, (verb, path)


LOADED = """
import sys
import jupyter_server.serverapp
before = set(sys.modules)
from jupyter_sky.server import {names}
heavy = ["IPython", "ipykernel", "ipyparallel", "numpy", "psutil", "sqlite3", "jupyter_sky.store"]
print([name for name in heavy if name in set(sys.modules) - before])
"""


def test_the_start_of_a_server_loads_nothing_heavy() -> None:
    folder = Path(server.__file__).parent
    names = sorted(path.stem for path in folder.glob("*.py") if "HANDLERS" in path.read_text())
    code = LOADED.format(names=", ".join({*names, "desk", "news"} - {"__init__"}))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
