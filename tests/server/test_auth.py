"""Access to every verb of every handler: strangers, users who may only look, owners."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.auth import Authorizer as Base
from tornado.httpclient import HTTPClientError

from jupyter_sky.interfaces import server
from jupyter_sky.interfaces.server import PREFIX
from jupyter_sky.interfaces.server.handler import AUTH_RESOURCE, SkyHandler, authorized

VERBS = ("get", "head", "post", "put", "delete", "patch", "options")
WRITES = {"POST", "PUT", "DELETE", "PATCH"}


class Authorizer(Base):
    """Lets users do some actions, and notes what it is asked."""

    actions: tuple[str, ...] = ("read",)
    asked: list[tuple[str, str]]

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        if isinstance(handler, SkyHandler):
            self.asked.append((action, resource))
        return action in self.actions


@pytest.fixture
def authorizer(jp_serverapp: Any) -> Authorizer:
    """The server's authorizer from now on: users may look, and no more."""
    made = Authorizer(parent=jp_serverapp)
    made.asked = []
    jp_serverapp.web_app.settings["authorizer"] = made
    return made


def ours(app: Any) -> list[tuple[str, str]]:
    """The paths of this server's extension, with a name in each gap, and their verbs."""
    found = []
    for rule in app.web_app.wildcard_router.rules + app.web_app.default_router.rules:
        for inner in getattr(rule.target, "rules", ()):
            path = inner.matcher.regex.pattern.rstrip("$").replace("[^/]+", "x")
            path = re.sub(r"\((\w+)[^)]*\)", r"\1", path).replace("\\", "")
            if PREFIX not in path:
                continue
            assert issubclass(inner.target, SkyHandler), path
            kinds = [kind for kind in inner.target.__mro__ if issubclass(kind, SkyHandler)]
            verbs = {verb for kind in kinds for verb in VERBS if verb in vars(kind)}
            found += [(path, verb.upper()) for verb in sorted(verbs)]
    return found


async def fetch(client: Any, path: str, verb: str, headers: dict[str, str]) -> int:
    """Ask for a path; return the status of the answer."""
    body = "{}" if verb in WRITES else None
    try:
        answer = await client.fetch(
            path, method=verb, body=body, headers=headers, request_timeout=60
        )
    except HTTPClientError as error:
        return error.code
    return answer.code


async def test_strangers_are_refused(
    service: Any, jp_serverapp: Any, http_server_client: Any
) -> None:
    paths = ours(jp_serverapp)
    assert len(paths) >= 16 and {"GET", "POST", "PUT"} <= {verb for _, verb in paths}
    for path, verb in paths:
        assert await fetch(http_server_client, path, verb, {}) == 403, (verb, path)


async def test_users_who_may_only_read_change_nothing(
    service: Any,
    jp_serverapp: Any,
    http_server_client: Any,
    jp_auth_header: dict[str, str],
    authorizer: Authorizer,
) -> None:
    for path, verb in ours(jp_serverapp):
        authorizer.asked.clear()
        status = await fetch(http_server_client, path, verb, jp_auth_header)
        action = "write" if verb in WRITES else "read"
        assert authorizer.asked == [(action, AUTH_RESOURCE)], (verb, path)
        assert (status == 403) == (verb in WRITES), (verb, path, status)


async def test_users_without_any_right_see_nothing(
    service: Any,
    jp_serverapp: Any,
    http_server_client: Any,
    jp_auth_header: dict[str, str],
    authorizer: Authorizer,
) -> None:
    authorizer.actions = ()
    for path, verb in ours(jp_serverapp):
        assert await fetch(http_server_client, path, verb, jp_auth_header) == 403, (verb, path)


def test_handler_without_authorization_cannot_be_defined() -> None:
    with pytest.raises(TypeError, match=r"Open\.post is not @authorized"):

        class Open(SkyHandler):
            @authorized
            async def get(self) -> None:
                """Answer."""

            async def post(self) -> None:
                """Answer anybody."""


LOADED = """
import sys
import jupyter_server.serverapp
before = set(sys.modules)
from jupyter_sky.interfaces.server import {names}
heavy = ["IPython", "ipykernel", "ipyparallel", "numpy", "psutil", "sqlite3"]
heavy.append("jupyter_sky.base.store.store")
print([name for name in heavy if name in set(sys.modules) - before])
"""


def test_the_start_of_a_server_loads_nothing_heavy() -> None:
    folder = Path(server.__file__).parent
    names = sorted(path.stem for path in folder.glob("*.py") if "HANDLERS" in path.read_text())
    code = LOADED.format(names=", ".join({*names, "service", "poller"} - {"__init__"}))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
