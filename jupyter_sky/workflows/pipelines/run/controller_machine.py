"""Runs of notebooks that another machine carries out, so that this one may be switched off.

A folder has what goes there: the notebook with the modules that it imports, this package, and a
script that begins the run. The script is a command as ``jupyter sky launch`` runs it; the results
lie in the store of `Sky.results`, where later runs here find them.
"""

from __future__ import annotations

import io
import shlex
import shutil
import tarfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.settings.layers import as_environment
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.catalog.loader import shipped_directory
from jupyter_sky.machines.storage.stores.uri import StorageUri

if TYPE_CHECKING:
    from jupyter_sky.base.settings.settings import Sky

FOLDER = "controllers"
"""Folder of what goes to such machines, below that of the user's data."""
PACKAGE, SCRIPT, EXECUTED = "jupyter_sky.tar", "controller.py", "executed.ipynb"
_UNNEEDED = frozenset({"__pycache__", "labextension"})
LEFT_HERE = ("SKY_DATA_DIR", "SKY_HOSTS", "SKY_OFFERS", "SKY_CLUSTER", "SKY_KEEP_CLUSTERS")
"""Settings that name files or clusters of this machine."""
_SCRIPT = '''"""Carry out the run {name}: jupyter sky pipeline run {notebook}"""

import os
import shlex
import subprocess
import sys
import tarfile

here = os.getcwd()
with tarfile.open({package!r}) as archive:
    archive.extractall("package", filter="data")
settings = {settings!r}
settings["SKY_DATA_DIR"] = os.path.join(here, "sky-data")
settings["PYTHONPATH"] = os.path.join(here, "package")
settings = {{**os.environ, **settings}}
sky = [sys.executable, "-u", "-m", "jupyter_sky.cli"]
run = shlex.join([*sky, "pipeline", *{words!r}])
keep = shlex.join([*sky, "storage", "cp", {executed!r}, {store!r}])
# in a group of its own, so that what stops this script leaves it the time to give machines back
steps = ["sh", "-c", f"{{run}}; code=$?; {{keep}}; exit $code"]
process = subprocess.Popen(steps, env=settings, start_new_session=True)
try:
    sys.exit(process.wait())
except KeyboardInterrupt:
    stop = [*sky, "pipeline", "cancel", {name!r}]
    subprocess.Popen(stop, env=settings, start_new_session=True)
'''


def check_results(config: Sky) -> None:
    """Raise SkyUsageError unless results go to a store that other machines reach."""
    if not config.results or StorageUri.parse(config.results, Path.cwd()).is_local:
        raise SkyUsageError(
            _("--controller: results must lie where this machine finds them later"),
            hint=_("name a bucket: Sky.results = 's3://mine/results/', or SKY_RESULTS"),
        )


def check_here(name: str, config: Sky) -> None:
    """Raise SkyUsageError for a run that another machine carries out."""
    if (Path(config.data_dir) / FOLDER / name / SCRIPT).is_file():
        raise SkyUsageError(
            _("run {name} is carried out by another machine").format(name=name),
            hint=_(
                "what it prints: %sky logs {name}; to stop it: %sky cancel {name}; once it has "
                "ended, run its notebook here, which takes the results"
            ).format(name=name),
        )


def write_folder(
    notebook: Path, name: str, words: Sequence[str], config: Sky, modules: Sequence[Path] = ()
) -> Path:
    """Write what goes to the machine; return the folder.

    Parameters
    ----------
    notebook
        To be run.
    name
        Of the run.
    words
        Options of ``pipeline run`` that say how.
    config
        Settings, most of which hold there, too.
    modules
        Files and folders beside the notebook that it imports.
    """
    folder = Path(config.data_dir) / FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    shutil.copy(notebook, folder)
    for path in modules:
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, folder / path.name)
    (folder / PACKAGE).write_bytes(_package())
    settings = {k: v for k, v in as_environment(config).items() if k not in LEFT_HERE}
    command = ["run", notebook.name, "--name", name, "-o", EXECUTED, *words]
    store = StorageUri.parse(config.results).child(f"runs/{name}/{EXECUTED}")
    facts = {"name": name, "notebook": notebook.name, "package": PACKAGE, "settings": settings}
    facts |= {"executed": EXECUTED, "store": str(store)}
    (folder / SCRIPT).write_text(_SCRIPT.format(words=command, **facts))
    return folder


def launch_words(folder: Path, name: str, options: str, clouds: Collection[str] = ()) -> list[str]:
    """Return the words of ``launch`` by which the machine gets the folder and runs its script.

    Parameters
    ----------
    options
        Of the machine, as after ``%%sky``.
    clouds
        Those that it uses.
    """
    files = sorted(path.name for path in folder.iterdir())
    return [
        "--name",
        name,
        *shlex.split(options),
        "--sync",
        ",".join(files),
        "--pip",
        ",".join(controller_requirements(clouds)),
        SCRIPT,
    ]


def controller_requirements(clouds: Collection[str] = ()) -> list[str]:
    """Return what this package needs for some clouds, in the versions that are installed here."""
    extras = metadata.metadata("jupyter_sky").get_all("Provides-Extra") or []
    used = ["", *(extra for extra in extras if extra in clouds)]  # an extra is named like its cloud
    names = {
        needed.name
        for needed in map(Requirement, metadata.requires("jupyter_sky") or ())
        if not needed.marker or any(needed.marker.evaluate({"extra": extra}) for extra in used)
    }
    pins: list[str] = []
    for name in sorted(names):
        with suppress(metadata.PackageNotFoundError):
            pins.append(f"{name}=={metadata.version(name)}")
    return pins


def _package() -> bytes:
    """Return this package with its catalog as a tar file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, name in _package_files():
            archive.add(path, name, recursive=False)
    return buffer.getvalue()


def _package_files() -> Iterator[tuple[Path, str]]:
    root = Path(__file__).parents[3]
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        if path.is_file() and not _UNNEEDED.intersection(inside.parts):
            yield path, f"{root.name}/{inside.as_posix()}"
    if not (root / "knowledge" / "catalog" / "data").is_dir():
        for path in sorted(shipped_directory().iterdir()):
            yield path, f"{root.name}/knowledge/catalog/data/{path.name}"
