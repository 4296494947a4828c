"""Notebooks as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_notebook(folder: Path, *sources: str, tags: dict[int, list[str]] | None = None) -> str:
    """Write a notebook of cells of code; return its path as text in code."""
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": f"c{number}",
            "source": source,
            "metadata": {"tags": (tags or {}).get(number, [])},
            "outputs": [],
            "execution_count": None,
        }
        for number, source in enumerate(sources, 1)
    ]
    path = folder / "work.ipynb"
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook))
    return repr(str(path))
