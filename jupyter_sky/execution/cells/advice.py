"""Advice below a remote error: the line that would mend it."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_sky.base.translation import _

_KNOWN_DISTRIBUTIONS = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "distutils": "setuptools",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Distributions of modules that are named otherwise, for modules that are not installed here."""


def mending_line(described: Mapping[str, Any], local_names: Mapping[str, Any], line: str) -> str:
    """Return the line that would mend a remote error, or an empty string.

    Parameters
    ----------
    described
        The engine's description of the error.
    local_names
        The notebook's variables.
    line
        The cell's own ``%%sky`` line.
    """
    if ["IPython.core.error", "StdinNotImplementedError"] in described.get("classes", ()):
        return _("nobody can answer input() on a cluster: ask here, and send the answer with -i")
    said = (described.get(key) for key in ("name", "module", "filename"))
    name, module, filename = (each if isinstance(each, str) else "" for each in said)
    if module and all(part.isidentifier() for part in module.split(".")):
        return _advise_on_module(module, line)
    if name in local_names:
        return _line(
            _("{name} is a local variable: add -i {name}").format(name=name), line, "-i", name
        )
    return _advise_on_file(filename, line) if filename else ""


def _line(why: str, line: str, option: str, value: str) -> str:
    """Return a reason and the cell's line with one more option; nothing where it has it."""
    if value in re.split(r"[\s,]+", line):
        return ""
    return f"{why}\n    {f'%%sky {line}'.strip()} {option} {shlex.quote(value)}"


def _advise_on_module(module: str, line: str) -> str:
    top = module.partition(".")[0]
    if file := next((file for file in (f"{top}.py", top) if Path(file).exists()), None):
        return _line(
            _("{top} is in the notebook's folder: add --sync").format(top=top), line, "--sync", file
        )
    if top != module:  # the package itself was found
        return _advise_on_version(module, top, line)
    if top in sys.stdlib_module_names:
        return _("{top} belongs to Python, and the engine's Python was built without it").format(
            top=top
        )
    package = _distribution(top) or _KNOWN_DISTRIBUTIONS.get(top, top)
    why = _("{top} is not installed on the engine: add --pip {package}").format(
        top=top, package=package
    )
    return _line(why, line, "--pip", package)


def _advise_on_version(module: str, top: str, line: str) -> str:
    """Advise on a module that a package here has, and that on the engine has not."""
    from importlib import metadata

    package = _distribution(top)
    if not package or not _has_module(module):
        return ""
    version = metadata.version(package)
    why = _("{package} on the engine has no {module}, unlike {version} here: add --pip").format(
        package=package, module=module, version=version
    )
    return _line(why, line, "--pip", f"{package}=={version}")


def _has_module(module: str) -> bool:
    """Return whether a module is installed here, without an import of its packages."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return False
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    for part in module.split(".")[1:]:
        found = [path for folder in folders for path in folder.glob(f"{part}*")]
        if not any(path.name.partition(".")[0] == part for path in found):
            return False
        folders = [path for path in found if path.name == part]
    return True


def _distribution(module: str) -> str:
    """Return the installed distribution of a module here, or nothing."""
    from jupyter_sky.machines.packages.plan import distributions_of

    return distributions_of([module]).get(module, "")


def _advise_on_file(filename: str, line: str) -> str:
    path = Path(filename)
    if path.is_absolute() or not path.exists():
        return ""
    if not path.resolve().is_relative_to(Path.cwd().resolve()):
        return _(
            "{filename} lies outside the notebook's folder, and only files below "
            "it are sent: copy it there, or read it here and send the value with -i"
        ).format(filename=filename)
    why = _("{filename} is in the notebook's folder, not on the cluster: add --sync").format(
        filename=filename
    )
    return _line(why, line, "--sync", filename)
