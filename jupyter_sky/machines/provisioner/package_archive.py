"""Archives of the packages that engines on other machines need, made on this one.

The packages of engines are installed into a folder of this machine, with the bytecode that a new
machine would take longest to make, and packed once for each kind of machine.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from jupyter_sky.base.errors import SkyBootstrapError
from jupyter_sky.base.remote.environment_spec import environment_spec, package_archive
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.base.store.atomic_file import write_atomically
from jupyter_sky.clouds.launches.ssh_slot import Slot, slot_error
from jupyter_sky.machines.provisioner.uv import run_uv

KEPT_ARCHIVES = 4
"""Number of packed environments that are kept on this machine."""
ZSTD_LEVEL = 9
"""Level at which archives are a fifth smaller than with gzip, in less time."""
COMPILE_SECONDS = 120.0
UNUSED_FILES = "".join(
    f"{name} ; python_version < '3'\n" for name in "debugpy jedi prompt_toolkit".split()
)
"""More than half of all that IPython asks for; engines have no terminal and complete nothing."""


def build_archive(node: Slot) -> Path:
    """Return a compressed tar file with the packages of a node's environment, ours too.

    Further packages of the user are left out where the node can get them itself.

    Raises
    ------
    SkyBootstrapError
        They cannot be had here.
    """
    if not node.offline:
        node = replace(node, packages=())
    spec = environment_spec(node.python, node.packages)
    kind = f"{node.machine}-{node.libc}-{spec.python}"
    digest = hashlib.blake2b("\n".join(spec.requirements).encode(), digest_size=8)
    digest.update(package_archive())
    folder = Path.home() / ".cache" / "jupyter_sky" / "packed"
    path = folder / f"{kind}-{digest.hexdigest()}.tar.{'zst' if node.zstd else 'gz'}"
    with _pack_lock:
        if not path.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for old in sorted(folder.glob("*.tar.*"), key=os.path.getmtime)[:-KEPT_ARCHIVES]:
                old.unlink(missing_ok=True)  # those that were not used for longest
            data = _pack(node, spec.requirements, not node.packages)
            packed = _compress(data) if node.zstd else gzip.compress(data, 6)
            write_atomically(path, packed, durable=False)
        os.utime(path)
        return path


_pack_lock = threading.Lock()


def tar_option(node: Slot) -> str:
    """Return the option with which tar unpacks the archive of a node."""
    return "-Izstd" if node.zstd else "-z"


def _compress(data: bytes) -> bytes:
    import pyarrow

    return pyarrow.Codec("zstd", compression_level=ZSTD_LEVEL).compress(data, asbytes=True)


def prebuild() -> None:
    """Start packing for machines of this one's kind, before they are up."""
    kind = Slot(
        0,
        "",
        "this machine",
        Address("", ""),
        machine=platform.machine().lower(),
        libc="gnu",
        zstd="zstd",
    )

    def pack() -> None:
        with suppress(SkyBootstrapError, OSError):  # the launch itself tries again, and raises
            build_archive(kind)

    if kind.machine in ("x86_64", "aarch64"):
        threading.Thread(target=pack, name="sky-packing", daemon=True).start()


def _pack(node: Slot, requirements: Sequence[str], slim: bool) -> bytes:
    # a thread that goes on at the end of this process may be writing there
    with tempfile.TemporaryDirectory(prefix="sky-packed-", ignore_cleanup_errors=True) as folder:
        site = Path(folder) / "site"
        unused = Path(folder) / "unused.txt"
        unused.write_text(UNUSED_FILES if slim else "")
        install_locally(node, site, requirements, "--overrides", str(unused))
        with tarfile.open(fileobj=io.BytesIO(package_archive())) as ours:
            ours.extractall(site, filter="data")
        _compile_bytecode(site)
        shutil.rmtree(site / "bin", ignore_errors=True)  # programs that name a Python of ours
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            tar.add(site, ".", filter=_skip_tests if slim else _reset_owner)
        return buffer.getvalue()


def _reset_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = int(entry.mtime)  # bytecode knows no more of it
    return entry


def _skip_tests(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out the tests of packages."""
    return None if {"test", "tests"} & set(Path(entry.name).parts) else _reset_owner(entry)


def _compile_bytecode(site: Path) -> None:
    """Add the bytecode of modules that engines import: they start sooner with it."""
    command = [sys.executable, "-P", "-m", "jupyter_sky.machines.provisioner.bytecode", str(site)]
    package = str(Path(__file__).parents[3])
    paths = [path for path in (package, os.environ.get("PYTHONPATH")) if path]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    try:
        subprocess.run(command, env=env, capture_output=True, timeout=COMPILE_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return


def install_locally(node: Slot, target: Path, requirements: Sequence[str], *more: str) -> None:
    """Install packages for a node's kind of machine into a folder of this one.

    Parameters
    ----------
    more
        Options for uv.

    Raises
    ------
    SkyBootstrapError
        They cannot be had here.
    """
    spec = environment_spec(node.python, node.packages)
    libc = "unknown-linux-musl" if node.libc == "musl" else "unknown-linux-gnu"
    result = run_uv(
        *("install", "-q", "--target", str(target.absolute()), *more),
        *("--python-platform", f"{node.machine}-{libc}", "--python-version", spec.python),
        *("--only-binary", ":all:"),
        requirements=requirements,
    )
    if result.returncode:
        raise slot_error(
            replace(node, base=tempfile.gettempdir()),
            "its packages cannot be downloaded here either",
            result.stderr,
        )
