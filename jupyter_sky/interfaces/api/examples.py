"""Example notebooks and the guide, which ship with the package."""

from __future__ import annotations

import json
import posixpath
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.base.tables import Table

FOLDER = "sky-examples"
"""Folder to which the notebooks are copied unless another one is named."""
GALLERY, GUIDE = "gallery", "guide"
"""Folders of notebooks that ship: the examples, and the guide in its order."""
_COPIES = {GALLERY: "", GUIDE: "guide"}
"""Folder of each in a copy."""
_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s#]+)")


@dataclass(frozen=True, slots=True)
class Example:
    """Example notebook, or page of the guide.

    Attributes
    ----------
    path : Path
        Its file.
    title : str
        The heading of its first cell.
    """

    path: Path
    title: str


def examples_directory(name: str = GALLERY) -> Path:
    """Return the directory of notebooks that ship with the package.

    In an installed package it lies inside; in a checkout of the sources, beside the package.
    """
    package = Path(__file__).resolve().parents[2]
    inside = package / name
    return inside if inside.is_dir() else package.parent / "notebooks" / name


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
    """Copy examples, their pictures and the guide to a folder; keep files that exist there.

    Links to files that are not copied become links to the project's pages.

    Parameters
    ----------
    folder
        Made if need be.

    Returns
    -------
    list of Example
        The notebooks in the folder: the examples, then the guide.

    Raises
    ------
    SkyUsageError
        The folder cannot be written.
    """
    copied = []
    try:
        for name, below in _COPIES.items():
            source = examples_directory(name)
            for path in sorted(source.rglob("*")):
                target = folder / below / path.relative_to(source)
                if not path.is_file() or path.suffix not in (".ipynb", ".png"):
                    continue
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    _copy(path, target, name)
                if path.suffix == ".ipynb":
                    copied.append(Example(target, _read_title(target)))
    except OSError as error:
        raise SkyUsageError(
            _("{folder}: cannot be written: {error}").format(folder=folder, error=error),
            hint=_("name another folder, such as ~/{folder}").format(folder=FOLDER),
        ) from None
    return copied


def _copy(path: Path, target: Path, name: str) -> None:
    if path.suffix != ".ipynb":
        shutil.copyfile(path, target)
        return
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = "".join(cell["source"])
            text = _LINK.sub(lambda link: copied_link(link[1], name), text)
            cell["source"] = text.splitlines(keepends=True)
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    target.write_text(text, encoding="utf-8")


def copied_link(link: str, name: str) -> str:
    """Return a relative link of a notebook as its copy has it.

    Parameters
    ----------
    link
        Path, relative to the folder of the notebook.
    name
        `GALLERY` or `GUIDE`.

    Examples
    --------
    >>> copied_link("../gallery/03-sweep.ipynb", "guide")
    '../03-sweep.ipynb'
    >>> copied_link("02-b.ipynb", "guide")
    '02-b.ipynb'
    >>> copied_link("../jobs.ipynb", "gallery").endswith("/blob/main/notebooks/jobs.ipynb")
    True
    """
    path = posixpath.normpath(posixpath.join("notebooks", name, link))
    for other, below in _COPIES.items():
        if path.startswith(f"notebooks/{other}/"):
            inside = posixpath.join(below, path.removeprefix(f"notebooks/{other}/"))
            return posixpath.relpath(inside, _COPIES[name] or ".")
    return f"{_home_page()}/blob/main/{path}"


def _home_page() -> str:
    from importlib.metadata import metadata

    urls = dict(each.split(", ", 1) for each in metadata("jupyter_sky").get_all("Project-URL", []))
    return urls["Homepage"]


def examples(folder: str | Path = FOLDER) -> Table:
    """Copy the example notebooks and the guide to a folder, and list them.

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
    from jupyter_sky.base.tables import Table

    rows = tuple((str(each.path), each.title) for each in copy_examples(Path(folder).expanduser()))
    return Table(_("example notebooks"), (_("notebook"), _("title")), rows)
