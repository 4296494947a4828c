"""Packages that cells install by themselves on the notebook's own machine, for their cluster alone.

``%pip``, ``!pip`` and ``uv pip`` in a cell work on a virtual environment in the cluster's folder,
which sees the user's packages and is imported from first. The user's environment stays as it is.
Machines that are rented are the cluster's own: there, nothing is set.
"""

from __future__ import annotations

import importlib
import os
import site
import sys
import sysconfig
from pathlib import Path
from typing import Any

NOTE = (
    "Note: installed for this cluster only; the environment of the notebook is unchanged. With "
    "%%sky --pip NAME the next cluster has it, too."
)
FOLDER = "packages"
PATHS_FILE = "engine.pth"
OWN_FILES = (PATHS_FILE, "__pycache__")
CONDA_MAGICS = ("conda", "mamba", "micromamba")
_active: list[str] = []


def shared_package_folders() -> list[str]:
    """Return the package folders on the import path that are not of one cluster alone."""
    ends = ("site-packages", "dist-packages")
    return [path for path in sys.path if path.endswith(ends) and path not in _active]


def refuse_conda(shell: Any) -> None:
    """Replace the magics of conda, which would change the notebook's own environment."""
    from IPython.core.error import UsageError

    def refuse(line: str) -> None:
        raise UsageError(
            "conda would change the environment of the notebook, not that of the cluster: "
            "%pip install here, or %conda in a cell without %%sky"
        )

    for name in CONDA_MAGICS:
        shell.register_magic_function(refuse, "line", name)


class PackageOverlay:
    """Virtual environment of a cluster above the environment that its engines run in.

    Parameters
    ----------
    home
        Its folder; `create` makes it.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        scheme = "nt_venv" if os.name == "nt" else "posix_venv"
        base = {"base": str(home), "platbase": str(home)}
        self._scripts = sysconfig.get_path("scripts", scheme, vars=base)
        self._site_packages = Path(sysconfig.get_path("purelib", scheme, vars=base))
        self._seen: frozenset[tuple[str, int]] = frozenset()

    @property
    def python(self) -> str:
        """Path of its interpreter."""
        return str(Path(self._scripts, "python.exe" if os.name == "nt" else "python"))

    def create(self) -> None:
        """Make it, unless it is there."""
        if (self.home / "pyvenv.cfg").exists():
            return
        import venv

        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        venv.EnvBuilder(with_pip=False, symlinks=os.name != "nt").create(self.home)
        # with their own .pth files, by which packages under development are found
        lines = [f"import site; site.addsitedir({path!r})" for path in shared_package_folders()]
        (self._site_packages / PATHS_FILE).write_text("\n".join(lines) + "\n")

    def activate(self) -> None:
        """Have installers of this process and its children work on it, and import from it."""
        os.environ |= {"PIP_PYTHON": self.python, "UV_PYTHON": self.python}
        os.environ.pop("UV_SYSTEM_PYTHON", None)
        os.environ.pop("PIP_USER", None)
        first = next(iter(shared_package_folders()), None)
        position = sys.path.index(first) if first else len(sys.path)
        sys.path.insert(position, str(self._site_packages))
        _active.append(str(self._site_packages))
        self._seen = self._state()
        if self._has_packages():  # an engine that was started again
            self._use()

    def refresh(self) -> bool:
        """Return whether a cell has installed something; the next import finds it."""
        state = self._state()
        if state == self._seen:
            return False
        self._seen = state
        self._use()
        return True

    def _use(self) -> None:
        site.addsitedir(str(self._site_packages))  # .pth files of what was installed
        path = os.environ.get("PATH", "")
        if self._scripts not in path.split(os.pathsep):
            os.environ["PATH"] = self._scripts + os.pathsep + path
        importlib.invalidate_caches()

    def _has_packages(self) -> bool:
        return any(self._site_packages.glob("*.dist-info"))

    def _state(self) -> frozenset[tuple[str, int]]:
        """Return what is installed, with times: other engines make the folder at the same time."""
        try:
            with os.scandir(self._site_packages) as entries:
                installed = [entry for entry in entries if entry.name not in OWN_FILES]
                return frozenset((entry.name, entry.stat().st_mtime_ns) for entry in installed)
        except OSError:
            return frozenset()
