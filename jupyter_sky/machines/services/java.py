"""Java on a machine: found, installed where this process may, or asked for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _

MIN_VERSION = 17
"""Oldest Java that Spark 4 runs on."""
PACKAGE = "openjdk-17-jre-headless"
INSTALLED_BELOW = Path("/usr/lib/jvm")
INSTALL_SECONDS = 600.0


def parse_version(text: str) -> int | None:
    """Return the major version in the output of ``java -version``; None without any.

    Examples
    --------
    >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('version "1.8.0_392"')
    (17, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def find_java() -> Path | None:
    """Return the home of a Java of this machine that is new enough; None without any."""
    for command in _candidates():
        try:
            told = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if (parse_version(told.stderr) or 0) >= MIN_VERSION:
            return command.resolve().parent.parent
    return None


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        yield Path(found)
    yield from sorted(INSTALLED_BELOW.glob("*/bin/java"))


def ensure_java() -> Path:
    """Return the home of Java, which is installed by apt where this process is root.

    Raises
    ------
    SkyError
        There is none, and it cannot be installed.
    """
    if home := find_java():
        return home
    lines = _install() if os.geteuid() == 0 and shutil.which("apt-get") else ""
    if lines is None and (home := find_java()):
        return home
    raise SkyError(
        _("Spark needs Java {version} or later, and this machine has none{lines}").format(
            version=MIN_VERSION, lines=lines or ""
        ),
        hint=_("sudo apt-get install {package}; or set JAVA_HOME").format(package=PACKAGE),
    )


def _install() -> str | None:
    """Install Java by apt; return the last lines of what fails, None when all went well."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "-qq", "install", "-y", "--no-install-recommends", PACKAGE]
    for command in (["apt-get", "-qq", "update"], install):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
        if done.returncode:
            return "".join(f"\n    {line}" for line in done.stderr.strip().splitlines()[-4:])
    return None
