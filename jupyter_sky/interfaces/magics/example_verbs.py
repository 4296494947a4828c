"""Verb for the example notebooks and the guide."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.magics.arguments import option, word
from jupyter_sky.interfaces.magics.declaration import SHELL, verb


@verb(
    "examples",
    "examples",
    word("[FOLDER]", "Folder to copy them to; sky-examples unless given.", "path"),
    option("--copy", "", "Copy and list them only."),
    option("--guide", "", "Open the first page of the guide in place of the first example."),
    only=SHELL,
    needs_session=False,
)
def examples(folder: str | None, copy: bool, guide: bool) -> Any:
    """Copy the example notebooks and the guide to a folder, and open them in JupyterLab."""
    from jupyter_sky.interfaces.api import examples as gallery

    table = gallery.examples(folder or gallery.FOLDER)
    if copy:
        return table
    paths = [Path(str(row[0])) for row in table.rows]
    first = next(path for path in paths if not guide or path.parent.name == gallery.GUIDE)
    if importlib.util.find_spec("jupyterlab") is None:
        print(table)
        return _('To open them: pip install "jupyter_sky[lab]", then jupyter lab {path}').format(
            path=first
        )
    print(table, flush=True)
    subprocess.run([sys.executable, "-m", "jupyterlab", str(first)], check=False)
    return None
