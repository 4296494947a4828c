"""Stores with one cluster, and a short wait for locks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.base.store import database
from jupyter_sky.base.store.store import Store
from tests.store.rows import CLUSTER


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "data")
    store.save_cluster(CLUSTER)
    yield store
    store.close()


@pytest.fixture
def short_lock_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LOCK_TIMEOUT_SECONDS", 0.3)
