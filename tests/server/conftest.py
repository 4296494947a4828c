"""A real Jupyter server with the extension, and a data directory of each test's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# not `pytest_plugins`: its hooks are for the tests of this folder alone
from pytest_jupyter.jupyter_server import *  # noqa: F403
from tornado.httpclient import HTTPClientError

from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import Store
from jupyter_sky.interfaces.server.service import SkyService
from tests.conftest import clean


@pytest.fixture
def jp_server_config() -> dict[str, Any]:
    return {"ServerApp": {"jpserver_extensions": {"jupyter_sky": True}}}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The data directory that this process, and kernels of the test, use."""
    path = tmp_path / "sky"
    monkeypatch.setenv("SKY_DATA_DIR", str(path))
    Sky.clear_instance()
    yield path
    Sky.clear_instance()
    clean(path)


@pytest.fixture
def store(data: Path) -> Iterator[Store]:
    """The store, as another process has it."""
    opened = Store.open(data)
    yield opened
    opened.close()


@pytest.fixture
def service(data: Path, jp_serverapp: Any) -> Iterator[SkyService]:
    """Store that the server answers from."""
    opened = jp_serverapp.web_app.settings["jupyter_sky"]
    yield opened
    opened.close()


class Refused(Exception):
    """An answer that is an error: its status, and what it says."""

    def __init__(self, status: int, said: dict[str, Any]) -> None:
        super().__init__(status, said)
        self.status, self.said = status, said

    @property
    def kind(self) -> str:
        return self.said["kind"]


@pytest.fixture
def ask(service: SkyService, jp_fetch: Any) -> Callable[..., Any]:
    """Ask the server: ``await ask("state")``, ``await ask("clusters", "a", "down", body={})``."""

    async def asked(*path: str, body: Any = None, **params: Any) -> Any:
        how = {"method": "GET"}
        if body is not None:
            text = body if isinstance(body, str) else json.dumps(body)
            how = {"method": "POST", "body": text}
        try:
            answer = await jp_fetch("jupyter-sky", *path, params=params, request_timeout=60, **how)
        except HTTPClientError as error:
            assert error.response is not None, error
            raise Refused(error.code, json.loads(error.response.body or b"{}")) from None
        return json.loads(answer.body)

    return asked
