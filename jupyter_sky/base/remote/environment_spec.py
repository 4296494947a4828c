"""Environment of engines on other machines: this package and its dependencies."""

from __future__ import annotations

import gzip
import hashlib
import io
import platform
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ENGINE_PACKAGES = (
    "cloudpickle google-crc32c ipykernel ipyparallel ipython jupyter_client jupyter_core psutil "
    "pyzmq tornado traitlets xxhash"
).split()
"""Packages that an engine imports, in the notebook's versions, so that messages agree."""
MOUNT_PACKAGE = "mfusepy"
"""Package that mounts need and nothing else: engines do without where the notebook does."""


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """Python environment of engines.

    Attributes
    ----------
    python : str
        Minor version, such as ``3.12``: values travel between equal ones only.
    key : str
        Tells it from every other; made again from the same parts, it is the same.
    """

    python: str
    requirements: tuple[str, ...]
    key: str


def python_minor_version() -> str:
    """Return the minor version of this notebook's Python, such as ``3.12``."""
    return ".".join(platform.python_version_tuple()[:2])


def environment_spec(base: str = "", packages: Sequence[str] = ()) -> EnvironmentSpec:
    """Return the environment that a machine needs for this notebook.

    Parameters
    ----------
    base
        A Python there whose packages are seen beside ours.
    packages
        Requirements that its owner wants besides.
    """
    python = python_minor_version()
    requirements = (*engine_pins(), *packages)
    parts = [python, base, *requirements, hashlib.blake2b(package_archive()).hexdigest()]
    key = hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
    return EnvironmentSpec(python, requirements, key)


@cache
def engine_pins() -> tuple[str, ...]:
    """Return the packages of engines as requirements, in the versions that are installed here."""
    from importlib import metadata  # which imports much

    pins = [f"{name}=={metadata.version(name)}" for name in ENGINE_PACKAGES]
    with suppress(metadata.PackageNotFoundError):
        pins.append(f"{MOUNT_PACKAGE}=={metadata.version(MOUNT_PACKAGE)}")
    return tuple(pins)


_CODE = (".py", ".pyi", ".txt")
"""Suffixes of the files that engines read: modules, lists of names."""


@cache
def package_archive() -> bytes:
    """Return the running version of this package as a reproducible tar.gz file."""
    root = Path(__file__).parents[2]
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=1, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in sorted(root.rglob("*.*")):
            if path.suffix not in _CODE:
                continue
            data = path.read_bytes()
            entry = tarfile.TarInfo(path.relative_to(root.parent).as_posix())
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
