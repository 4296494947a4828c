"""Python environment with jupyter_sky from its wheel and all else from this environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
PANEL = "share/jupyter/labextensions/jupyter-sky"
CONFIG = "etc/jupyter/jupyter_server_config.d"
OURS = {"labextensions", "jupyter-sky", "jupyter_sky.json"}


class NotBuilt(RuntimeError):
    """The wheel came without the panel, as there is no npm."""


def install(home: Path) -> Path:
    """Build the wheel and install it below `home`; answers the Python that has it."""
    wheel = build_wheel(home / "dist")
    venv = home / "venv"
    _run(sys.executable, "-m", "venv", "--without-pip", str(venv))
    python = venv / "bin/python"
    _see_packages_of_this_python(venv)
    options = "--no-deps", "--no-index", "--no-compile", "--quiet"
    _run(sys.executable, "-m", "pip", "--python", str(python), "install", *options, str(wheel))
    if not (venv / PANEL / "package.json").exists():
        raise NotBuilt("no panel in the wheel: is npm on PATH?")
    return python


def environment(python: Path, folders: dict[str, str]) -> dict[str, str]:
    """Return the environment variables of a server on that Python, free of the checkout."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return env | folders | {"PATH": f"{python.parent}{os.pathsep}{env['PATH']}"}


def build_wheel(out: Path) -> Path:
    """Build the wheel of this checkout below `out`; return its path."""
    _run(*(sys.executable, "-m", "build", "--wheel", "--no-isolation"), "--outdir", str(out), ROOT)
    [wheel] = out.glob("*.whl")
    return wheel


def _see_packages_of_this_python(venv: Path) -> None:
    [own] = venv.glob("lib/python*/site-packages")
    # After its own, so that the wheel wins over an editable install.
    line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
    (own / "packages_of_another_python.pth").write_text(line + "\n")
    # JupyterLab itself, kernels, other extensions and what enables them lie beside the packages.
    for folder in ("share/jupyter", "share/jupyter/labextensions", CONFIG):
        (venv / folder).mkdir(parents=True, exist_ok=True)
        for found in Path(sys.prefix, folder).iterdir():
            if found.name not in OURS:
                (venv / folder / found.name).symlink_to(found)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[:4]}… failed:\n{(done.stdout + done.stderr)[-3000:]}")
