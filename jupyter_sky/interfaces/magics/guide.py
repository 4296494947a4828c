"""Guide: ten short notebooks that ship with the package, as help pages."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from textwrap import indent

from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.api.examples import GUIDE, examples_directory
from jupyter_sky.interfaces.magics.reference import HelpPage

_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_NAVIGATION = "Previous: ", "Next: "
"""Beginnings of paragraphs that lead to other pages."""


@cache
def list_guide() -> tuple[HelpPage, ...]:
    """Return the pages of the guide, in their order.

    Examples
    --------
    >>> [page.name for page in list_guide()][7]
    '08-when-things-fail'
    """
    return tuple(_read_page(path) for path in sorted(examples_directory(GUIDE).glob("*.ipynb")))


def find_guide(word: str) -> HelpPage | None:
    """Return the page of a name, with or without its number, or of a number.

    Examples
    --------
    >>> find_guide("money").name, find_guide("7").name, find_guide("07-money").name
    ('07-money', '07-money', '07-money')
    """
    wanted = word.removesuffix(".ipynb").lower()
    for page in list_guide():
        number, __, topic = page.name.partition("-")
        if wanted in (page.name, topic, number, number.lstrip("0")):
            return page
    return None


def _read_page(path: Path) -> HelpPage:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, *first = "".join(cells[0]["source"]).split("\n")
    sources = ["\n".join(first).strip()]
    for cell in cells[1:]:
        source = "".join(cell["source"])
        sources.append(indent(source, "    ") if cell["cell_type"] == "code" else source)
    text = _LINK.sub(r"\1", "\n\n".join(filter(None, sources))).replace("\\$", "$")
    paragraphs = [part for part in text.split("\n\n") if not part.startswith(_NAVIGATION)]
    summary = " ".join(re.split(r"(?<=[.:])\s", paragraphs[0])[0].split())
    text = "\n\n".join(paragraphs) + "\n\n" + _("notebook: {path}").format(path=path)
    return HelpPage("guide", path.stem, title.removeprefix("# "), summary, text)
