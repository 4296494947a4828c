"""Example notebooks that ship with the package."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import SkyUsageError
from ..translation import _

if TYPE_CHECKING:
    from ..tables import Table

FOLDER = "sky-examples"
"""Folder to which the notebooks are copied unless another one is named."""


@dataclass(frozen=True, slots=True)
class Example:
    """Example notebook.

    Attributes
    ----------
    path : Path
        Its file.
    title : str
        The heading of its first cell.
    """

    path: Path
    title: str


def examples_directory() -> Path:
    """Return the directory of the notebooks that ship with the package.

    In an installed package it lies inside; in a checkout of the sources, beside the package.
    """
    package = Path(__file__).resolve().parents[1]
    inside = package / "gallery"
    return inside if inside.is_dir() else package.parent / "notebooks" / "gallery"


def list_examples(directory: Path | None = None) -> list[Example]:
    """Return the example notebooks of a directory, in their order.

    Examples
    --------
    >>> list_examples()[0].title
    'A first cell'
    """
    paths = sorted((directory or examples_directory()).glob("*.ipynb"))
    return [Example(path, _read_title(path)) for path in paths]


def _read_title(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "".join(cells[0]["source"]).partition("\n")[0].removeprefix("# ") if cells else path.stem


def copy_examples(folder: Path) -> list[Example]:
    """Copy the example notebooks and their pictures to a folder; keep files that exist there.

    Parameters
    ----------
    folder
        Made if need be.

    Returns
    -------
    list of Example
        The notebooks in the folder.

    Raises
    ------
    SkyUsageError
        The folder cannot be written.
    """
    source = examples_directory()
    try:
        for path in sorted(source.rglob("*")):
            target = folder / path.relative_to(source)
            if path.is_file() and path.suffix in (".ipynb", ".png") and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    except OSError as error:
        raise SkyUsageError(
            _("{folder}: cannot be written: {error}").format(folder=folder, error=error),
            hint=_("name another folder, such as ~/{folder}").format(folder=FOLDER),
        ) from None
    shipped = {example.path.name for example in list_examples(source)}
    return [example for example in list_examples(folder) if example.path.name in shipped]


def examples(folder: str | Path = FOLDER) -> Table:
    """Copy the example notebooks to a folder, and list them.

    Notebooks that are there already stay as they are: delete one to get it anew.

    Parameters
    ----------
    folder
        Path, relative to the current one.

    Returns
    -------
    Table
        File and title of each notebook.

    Examples
    --------
    >>> import jupyter_sky as sky
    >>> sky.examples("sky-examples")  # doctest: +SKIP
    """
    from ..tables import Table

    rows = tuple((str(each.path), each.title) for each in copy_examples(Path(folder).expanduser()))
    return Table(_("example notebooks"), (_("notebook"), _("title")), rows)
