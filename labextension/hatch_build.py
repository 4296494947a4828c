"""Builds the panel for JupyterLab into the wheel: with npm where sources are, without where built.

A release is built from the sdist, which holds the built panel and cannot be made without it. A
wheel built straight from a checkout, as by ``pip install .``, goes on without the panel where npm
is missing or fails, and says so: cells, widgets and the command work without it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from hatch_jupyter_builder import npm_builder
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = (
    *("labextension/package.json", "labextension/package-lock.json"),
    *("labextension/rspack.config.js", "labextension/schema", "labextension/src"),
    *("labextension/style", "jupyter_sky/interfaces/widgets/static"),
)
BUILT = "jupyter_sky/labextension"
INSTALLED = "share/jupyter/labextensions/jupyter-sky"
IMPATIENT = ("--fetch-timeout=30000", "--fetch-retries=1")  # nobody waits minutes for a panel
HINT = (
    "The rest works without it. For the panel: install Node.js 20 or later with npm, see that "
    "npm's registry can be reached, and install again; or install a released wheel."
)


class PanelHook(BuildHookInterface):
    """Adds the panel to what is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the panel unless it is newer than its sources; tell hatchling where it goes."""
        built = Path(self.root, BUILT)
        problem = self._build(version) if self._stale() else ""
        if not (built / "package.json").exists():
            if self.target_name == "sdist":
                raise RuntimeError(f"An sdist needs the panel for JupyterLab: {problem}. {HINT}")
            self.app.display_warning(f"Without the panel for JupyterLab: {problem}. {HINT}")
            return
        if problem:
            self.app.display_warning(f"With an OLDER panel for JupyterLab: {problem}. {HINT}")
        if self.target_name == "wheel":
            build_data["shared_data"][BUILT] = INSTALLED
            build_data["shared_data"]["labextension/install.json"] = f"{INSTALLED}/install.json"

    def _stale(self) -> bool:
        """Whether a source is newer than what was built; in an sdist all have one age."""
        if not Path(self.root, BUILT, "package.json").exists():
            return True
        ages = {name: _newest(Path(self.root, name)) for name in (*SOURCES, BUILT)}
        built = ages.pop(BUILT)
        return max(ages.values()) > built

    def _build(self, version: str) -> str:
        """Run npm; answers why there is no panel, or nothing."""
        if os.environ.get("HATCH_JUPYTER_BUILDER_SKIP_NPM") == "1":
            return "HATCH_JUPYTER_BUILDER_SKIP_NPM is set"
        if not shutil.which("npm"):
            return "npm is not on PATH"
        folder = Path(self.root, "labextension")
        # What a build needs is a fifth of what the tests need; but take nothing from a developer.
        developing = (folder / "node_modules/typescript").exists()
        npm = ["npm"] if developing else ["npm", "--omit=dev", *IMPATIENT]
        try:
            npm_builder(self.target_name, version, str(folder), npm=npm, build_cmd="build")
        except (CalledProcessError, OSError) as error:
            return f"npm failed ({error})"
        return ""


def _newest(path: Path) -> float:
    return max((file.stat().st_mtime for file in _files(path)), default=0.0)


def _files(path: Path) -> Iterator[Path]:
    return (file for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())
