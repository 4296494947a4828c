"""Hostile settings: prepared project files, of this user and of others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from jupyter_sky.base.remote.processes import identity
from jupyter_sky.base.settings.settings import Sky
from tests.benchmarks.hostile_scene import STRANGER, Scene, Try
from tests.emulators.hostile import prepare


def _forbidden_setting(name: str) -> Try:
    trait = Sky.class_own_traits(config=True)[name]
    value = {"Bool": str(not trait.default_value).lower(), "Integer": "2222"}
    text = value.get(type(trait).__name__, "1e6" if "Float" in str(trait) else '"evil-7d"')

    def do(here: Scene) -> None:
        value = text
        if name == "budget_usd_day":
            value = "1e6"
        elif name == "data_dir":
            prepare(here.folder / "notes", here.evil.port, supervisor=identity(here.sleeper.pid))
            value = f'"{here.folder}/notes"'
        elif name == "hosts":
            write_hosts(here.folder / "hosts.toml", f"-oProxyCommand={here.touch}")
            value = f'"{here.folder}/hosts.toml"'
        here.project(f"{name} = {value}")
        here.call("config")
        if name in ("data_dir", "hosts"):
            here.serve()

    return Try(f"pyproject sets {name}", do, "evil-7d", f"may not set {name}")


def write_hosts(path: Path, address: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[box]\naddress = {json.dumps(address)}\nvcpus = 1\nmemory = 1\n")


def _alias(text: str, expected: str) -> Try:
    def do(here: Scene) -> None:
        line = text.replace("CODE", here.code).replace("ADDRESS", here.address)
        here.project(f"aliases = {{big = {json.dumps(line)}}}")
        here.cells("%%sky big --dry-run\n1")

    return Try(f"alias {text}", do, expected=expected)


def _ignored(what: str, spoil: Callable[[Scene, Path], None]) -> Try:
    def do(here: Scene) -> None:
        spoil(here, here.project('cluster = "evil-7d"'))
        here.call("config")

    return Try(f"pyproject {what}", do, "'evil-7d'")


def _chown(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


def _linked(here: Scene, path: Path) -> None:
    path.rename(here.root / "theirs.toml")
    path.symlink_to(here.root / "theirs.toml")
    _chown(path)


def _fifo(here: Scene, path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _above(here: Scene, path: Path) -> None:
    path.rename(here.root / "pyproject.toml")
    here.root.chmod(0o777)


SETTINGS = [
    *(
        _forbidden_setting(name)
        for name, trait in Sky.class_own_traits(config=True).items()
        if not trait.metadata.get("project")
    ),
    _alias('-i "CODE->x"', "evaluates an expression"),
    _alias("--env AWS_SECRET_ACCESS_KEY", "sends environment variables"),
    _alias("--cpus 1 ; touch x", "not an option"),
    _alias("--pip=--index-url=ADDRESS", "option of the installer"),
    _alias("-c $(touch.x)", "not understood"),
    _ignored("that everybody may write", lambda here, path: path.chmod(0o666)),
    _ignored("in a folder that everybody may write", lambda here, path: path.parent.chmod(0o777)),
    _ignored("above, where everybody may write", _above),
    _ignored("that is a pipe", _fifo),
    _ignored("that nests without end", lambda here, path: path.write_text("x=" + "[" * 100_000)),
    _ignored("of a gigabyte", lambda here, path: os.truncate(path, 2**30)),
]
BY_ROOT = [
    _ignored("of another user", lambda here, path: _chown(path)),
    _ignored("in a folder of another user", lambda here, path: _chown(path.parent)),
    _ignored("that is a link of another user", _linked),
]
"""Only root can give files away."""
