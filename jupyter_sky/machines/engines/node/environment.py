"""Packages requested by cells and images, installed above the engine's own.

They go into a virtual environment of their own, which sees the engine's packages through a
``.pth`` file: only what is missing is installed, the user's environment is never changed, and
the same list is never installed twice on a machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.remote.package_names import without_credentials
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.node.overlay import shared_package_folders

SHOWN_LINES = 12


def install_packages(
    packages: Sequence[str],
    what: str = "--pip",
    without: Sequence[str] = (),
    settings: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Install `packages` once on this machine; return the folder to import them from.

    Parameters
    ----------
    what
        Option or object that requests them, for messages.
    without
        Names that no index is asked for, though packages depend on them.
    settings
        Variables for the installer that say which indexes to ask. They may hold credentials: they
        are passed in its environment, and kept nowhere.

    Raises
    ------
    SkyError
        They cannot be installed; has the installer's last lines.
    """
    for package in packages:
        if package.lstrip().startswith("-"):
            raise SkyError(
                _("{what} {package}: an option of the installer, not a package").format(
                    what=what, package=package
                )
            )
    parts = [sys.executable, sys.version, *sorted(map(_package_identity, packages))]
    parts += [f"without {name}" for name in without]
    parts += [without_credentials(f"{name}={settings[name]}") for name in sorted(settings)]
    text = "\n".join(parts)
    key = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    home = Path.home() / ".cache" / "jupyter_sky" / f"env-{key}"
    site_packages = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(home)}))
    complete = home / "complete"
    if not complete.exists():
        with exclusive_lock(home.with_suffix(".lock")):
            if not complete.exists():
                _build(home, site_packages)
                install_into(home, packages, what, without, settings)
                complete.write_text(json.dumps(list(packages)))
    return str(site_packages)


def _package_identity(package: str) -> str:
    """Return a requirement, with the state of the file where it names one."""
    path = Path(package)
    if not path.exists():
        return package
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold a lock against other engines of this machine that install the same."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(home: Path, site_packages: Path) -> None:
    venv.EnvBuilder(with_pip=False, clear=True).create(home)
    (site_packages / "engine.pth").write_text("\n".join(shared_package_folders()))


def install_into(
    home: Path,
    packages: Sequence[str],
    what: str,
    without: Sequence[str],
    settings: Mapping[str, str],
) -> None:
    """Install packages into a virtual environment.

    Raises
    ------
    SkyError
        They cannot be installed; has the installer's last lines.
    """
    python = str(home / ("Scripts" if os.name == "nt" else "bin") / "python")
    commands = []
    if uv := find_uv():
        commands.append([uv, "pip", "install", "--quiet", "--python", python])
        if without:
            file = home / "without.txt"
            file.write_text(dependency_overrides(without))
            commands[0] += ["--overrides", str(file)]
    # pip may know an index from files that uv does not read. But it mixes all indexes that it
    # knows, where uv asks the next one only for names that the first one has not.
    if importlib.util.find_spec("pip") and not without and not (commands and settings):
        pip = [sys.executable, "-P", "-m", "pip", "--python", python, "install", "--quiet"]
        commands.append([*pip, "--disable-pip-version-check", "--no-input"])
    if not commands:
        raise SkyError(
            _("{what} needs uv or pip on the engine, and neither is there").format(what=what)
        )
    output = ""
    for command in commands:
        result = subprocess.run(
            [*command, *packages],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "NO_COLOR": "1", "PIP_NO_COLOR": "1", **settings},
        )
        if result.returncode == 0:
            return
        output = result.stdout
    last = "\n".join(output.strip().splitlines()[-SHOWN_LINES:])
    requirements = " ".join(packages)
    raise SkyError(without_credentials(f"{what} {requirements} cannot be installed:\n{last}"))


def dependency_overrides(names: Sequence[str]) -> str:
    """Return overrides for uv that let no package depend on some names."""
    return "".join(f"{name} ; python_version < '3'\n" for name in names)


def find_uv() -> str | None:
    """Return the path of uv, ten times faster than pip, or None."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        return shutil.which("uv")
