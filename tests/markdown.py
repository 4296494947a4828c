"""Links and headings of Markdown pages and of the texts of notebooks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

_LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")


def read_text(page: Path) -> str:
    """Return the text of a page, or of the Markdown cells of a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", read_text(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


def links(page: Path) -> Iterator[str]:
    """Yield the links of a page to other files and headings of this repository."""
    for link in map("".join, _LINK.findall(read_text(page))):
        if not link.startswith("http"):
            yield link


def is_dead(page: Path, link: str) -> bool:
    """Whether a link of a page leads to no file, or to no heading of one."""
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return not target.exists() or (bool(anchor) and anchor not in anchors(target))
