"""Folders of packages, a home without settings, and the sources of a project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of installed packages."""
    path = tmp_path / "site"
    path.mkdir()
    monkeypatch.syspath_prepend(str(path))
    return path


@pytest.fixture
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home without settings of pip and uv."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
    return tmp_path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return the folder of a project with its package, its tests and secrets."""
    for name, text in {
        "src/acme_secret/__init__.py": "VALUE = 1\n",
        "src/acme_secret/data/table.csv": "1,2\n",
        "src/acme_secret/.env": "TOKEN=1\n",
        "src/acme_secret/__pycache__/x.pyc": "",
        "src/acme_extra.py": "",
        "tests/test_it.py": "",
        "id_rsa": "",
    }.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "project/src/acme_secret/leak").symlink_to("/etc/hostname")
    return tmp_path / "project"
