"""A data directory, a catalog that ships, and clouds on loopback that the real SDKs talk to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.clouds.prices.entries import make_table
from jupyter_sky.knowledge.catalog import files
from tests.emulators.server import trusted


@pytest.fixture(autouse=True, scope="module")
def _trust(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Environment in which the SDKs find the emulators' certificates, and no account of ours."""
    folder = tmp_path_factory.mktemp("trust")
    with pytest.MonkeyPatch.context() as patch, trusted(folder, patch):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "emulated")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AZURE_CONFIG_DIR"):
            patch.setenv(name, str(folder / "none"))
        for name in ("AWS_PROFILE", "AZURE_SUBSCRIPTION_ID", "GOOGLE_CLOUD_PROJECT"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The user's data directory."""
    return tmp_path / "data"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Directory of the catalog that ships; empty until `ship` fills it."""
    return tmp_path / "shipped"


@pytest.fixture
def ship(base: Path) -> Callable[..., None]:
    """Writes the catalog that ships: rows by table."""

    def write(**rows: list[dict[str, Any]]) -> None:
        tables = {name: make_table(name, listed) for name, listed in rows.items()}
        clouds = sorted({row["cloud"] for listed in rows.values() for row in listed})
        meta = files.PartMetadata(
            "shipped", tuple(clouds), sources={"a list of 2026": "2026-07-05"}
        )
        files.write(base, tables, meta)

    return write


@pytest.fixture
def stored(data: Path) -> Callable[..., list[dict[str, Any]]]:
    """Reads what a refresh has written, a list of rows of one table."""

    return partial(rows_of, data)


def rows_of(data: Path, cloud: str, name: str = "offers") -> list[dict[str, Any]]:
    """Rows of a table that a refresh of a cloud has written."""
    for meta in files.parts(data / "catalog"):
        if meta.part == cloud:
            rows = files.read(data / "catalog", meta, name)
            return rows.to_pylist() if rows is not None else []
    return []
