"""Verb for the example notebooks."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..translation import _
from .arguments import option, word
from .declaration import SHELL, verb


@verb(
    "examples",
    "examples",
    word("[FOLDER]", "Folder to copy them to; sky-examples unless given.", "path"),
    option("--copy", "", "Copy and list them only."),
    only=SHELL,
    needs_session=False,
)
def examples(folder: str | None, copy: bool) -> Any:
    """Copy the example notebooks to a folder, and open them in JupyterLab."""
    from ..api import examples as gallery

    table = gallery.examples(folder or gallery.FOLDER)
    if copy:
        return table
    first = Path(str(table.rows[0][0]))
    if importlib.util.find_spec("jupyterlab") is None:
        print(table)
        return _('To open them: pip install "jupyter_sky[lab]", then jupyter lab {path}').format(
            path=first
        )
    print(table, flush=True)
    subprocess.run([sys.executable, "-m", "jupyterlab", str(first)], check=False)
    return None
