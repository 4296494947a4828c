"""Texts of the notebooks in `notebooks`."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_dollars_are_no_formulas(path: Path) -> None:
    """JupyterLab typesets what stands between two dollar signs."""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            text = re.sub(r"`[^`]*`", "", cell.source)
            assert not re.search(r"(?<!\\)\$\d", text), text
