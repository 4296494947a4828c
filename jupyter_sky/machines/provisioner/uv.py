"""The uv executable: this machine's own, or a pinned one for machines of another kind."""

from __future__ import annotations

import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyBootstrapError
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.ssh_slot import Slot

VERSION = "0.13.9"
SHA256 = (
    "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe",  # aarch64
    "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",  # x86_64, glibc
    "2c45530751517d6c3bbc69a19473f6effe47cce047bede01ffd8af7ea7b36b25",  # x86_64, musl
)
"""Digests of that version's wheels for Linux, from its release on PyPI."""


def local_uv() -> str:
    """Return the path of this machine's uv.

    Raises
    ------
    SkyBootstrapError
        There is none.
    """
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        path = shutil.which("uv")
    if path is None:
        raise SkyBootstrapError(
            _("machines reached by SSH are made ready by uv, and it is not installed here"),
            hint=_('pip install "jupyter_sky[ssh]"'),
        )
    return path


def run_uv(
    *arguments: str, requirements: Sequence[str] = (), **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run uv with some requirements; return its result.

    It runs in the home folder: uv takes indexes from a uv.toml or pyproject.toml of the folder that
    it runs in and of those above, and the author of the open folder must not choose the index.
    """
    packages = (
        str(Path(requirement).resolve()) if Path(requirement).exists() else requirement
        for requirement in requirements
    )
    command = [local_uv(), "pip", *arguments, *packages]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path.home(), **options)


def uv_for_slot(node: Slot) -> Path:
    """Return a uv that runs on a node: this machine's, or a pinned one that is kept here.

    Raises
    ------
    SkyBootstrapError
        It cannot be downloaded, or is not the released file.
    """
    here = (platform.system(), platform.machine())
    if here == (node.system, node.machine) and node.libc == "gnu":
        return Path(local_uv())
    folder = Path.home() / ".cache" / "jupyter_sky" / "uv"
    path = folder / f"uv-{VERSION}-{node.machine}-{node.libc}"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            _download(node, Path(work))
            (Path(work) / "target" / "bin" / "uv").replace(path)
    return path


def _download(node: Slot, work: Path) -> None:
    """Install the pinned uv for a node's kind of machine below a folder, checking its digest."""
    requirements = work / "requirements.txt"
    requirements.write_text(
        f"uv=={VERSION} {' '.join(f'--hash=sha256:{digest}' for digest in SHA256)}\n"
    )
    libc = "unknown-linux-musl" if node.libc == "musl" else "unknown-linux-gnu"
    result = run_uv(
        *("install", "-q", "--no-deps", "--only-binary", ":all:"),
        *("--require-hashes", "--target", str(work / "target")),
        *("--python-platform", f"{node.machine}-{libc}", "-r", str(requirements)),
    )
    if result.returncode:
        raise SkyBootstrapError(
            _("uv {version} for {host} ({machine}, {libc}) cannot be downloaded:\n").format(
                version=VERSION, host=node.host, machine=node.machine, libc=node.libc
            )
            + result.stderr.strip()[-1000:],
            hint=_("install uv on {host}, or check this machine's package index").format(
                host=node.host
            ),
        )
