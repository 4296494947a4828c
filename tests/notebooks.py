"""Headless runs of example notebooks, and the texts of their outputs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
from bs4 import BeautifulSoup
from nbclient import NotebookClient

from tests.conftest import clean, processes_of, wait_until
from tests.emulators.hosts import SshHost

ON_PURPOSE = "raises-exception"
"""Tag of cells that fail, as Jupyter has it."""


def read(path: Path) -> Any:
    """Return a notebook that can be changed before it is run."""
    return nbformat.read(path, as_version=4)


def outside() -> dict[str, str]:
    """Return the environment of this process, but for the notebook that it may belong to."""
    return {name: value for name, value in os.environ.items() if name != "JPY_SESSION_NAME"}


def execute(
    notebook: Any,
    keys: Mapping[str, str],
    env: Mapping[str, str],
    cwd: Path | None = None,
    timeout: int = 180,
) -> dict[str, Any]:
    """Run a notebook; return its code cells by the names that `keys` give to a word of each."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    client = NotebookClient(notebook, timeout=timeout, kernel_name="python3")
    client.execute(env=outside() | dict(env), **({"cwd": str(cwd)} if cwd else {}))
    found = {keys[word]: cell for word in keys for cell in code if word in cell.source}
    assert len(found) == len(code) == len(keys)
    return found


def run_shipped(path: Path, folder: Path, env: Mapping[str, str], host: SshHost | None) -> str:
    """Run a notebook that ships in an empty folder; return what is wrong, or nothing.

    Cells that are tagged so must raise an error that the text above them names, no other may, and
    no cluster may be left.

    Parameters
    ----------
    host
        Machine of the user's own, which the notebook finds in its `hosts.toml`.
    """
    data = folder / "data"
    data.mkdir()
    if host:
        (data / "hosts.toml").write_text(host.toml("lab"))
    notebook = read(Path(shutil.copy(path, folder)))
    client = NotebookClient(notebook, timeout=180, kernel_name="python3", allow_errors=True)
    client.execute(env=outside() | dict(env) | {"SKY_DATA_DIR": str(data)}, cwd=str(folder))
    text = ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            text = cell.source
            continue
        raised = [f"`{each.ename}`" for each in cell.outputs if each.output_type == "error"]
        is_announced = bool(raised) and raised[0] in text
        if is_announced != (ON_PURPOSE in cell.metadata.get("tags", [])):
            clean(data)
            return f"{raised[0] if raised else 'no error'} in\n{cell.source}"
    if not any(cell.get("outputs") for cell in notebook.cells):
        return "it shows nothing"
    wait_until(lambda: not processes_of(data), f"{path.stem} ends its clusters itself")
    return ""


def printed(cell: Any) -> str:
    """All that a cell has printed."""
    return "".join(out.text for out in cell.outputs if out.output_type == "stream")


def texts(row: Any, cells: str = "th, td") -> list[str]:
    """Texts of the cells of a table's row; one that spans several columns stands in each."""
    return [cell.text for cell in row.select(cells) for _ in range(int(cell.get("colspan", 1)))]


def table(cell: Any) -> pd.DataFrame:
    """Return the table that a cell ends with, as a reader of its HTML sees it."""
    (html,) = [out.data["text/html"] for out in cell.outputs if out.output_type == "execute_result"]
    soup = BeautifulSoup(html, "html.parser")
    heads = [texts(row)[1:] for row in soup.select("thead tr")]
    heads = [head for head in heads if any(head)]
    body = [texts(row) for row in soup.select("tbody tr")]
    columns = heads[0] if len(heads) == 1 else pd.MultiIndex.from_arrays(heads)
    frame = pd.DataFrame([row[1:] for row in body], [row[0] for row in body], columns)
    return frame.apply(lambda column: pd.to_numeric(column, errors="coerce"))
