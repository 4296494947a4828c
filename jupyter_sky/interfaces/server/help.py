"""Help of the panel: ``GET help?q=WORDS`` finds pages, ``GET help/KIND/NAME`` is one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.api.examples import FOLDER, copy_examples
from jupyter_sky.interfaces.server.handler import SkyHandler, authorized
from jupyter_sky.interfaces.server.service import NotFound


def search(query: str) -> dict[str, Any]:
    """Return kind, name, title and summary of the pages that have the words of a query."""
    from jupyter_sky.interfaces.magics.help import search_help

    shown = ("kind", "name", "title", "summary")
    return {"pages": [{key: getattr(page, key) for key in shown} for page in search_help(query)]}


def read_page(kind: str, name: str) -> dict[str, Any]:
    """Return a page with its text.

    Raises
    ------
    NotFound
        There is no such page.
    """
    from jupyter_sky.interfaces.magics.help import get_page

    page = get_page(kind, name)
    if page is None:
        raise NotFound(
            _("there is no help about {name}").format(name=name), hint=_("search for another word")
        )
    return asdict(page)


class HelpHandler(SkyHandler):
    """Handler of searches of the help."""

    @authorized
    async def get(self) -> None:
        """Answer the pages that have the words of the query; without words, the guide."""
        await self.answer(search, self.get_query_argument("q", ""))


class HelpPageHandler(SkyHandler):
    """Handler of single pages."""

    @authorized
    async def get(self, kind: str, name: str) -> None:
        """Answer a page."""
        await self.answer(read_page, kind, name)


# -- ``POST examples``: the example notebooks, copied below the folder of the server --------------


def copy_below(root: Path) -> dict[str, Any]:
    """Copy the example notebooks; return their paths, relative to the folder of the server."""
    copied = copy_examples(root / FOLDER)
    return {"paths": [each.path.relative_to(root).as_posix() for each in copied]}


class ExamplesHandler(SkyHandler):
    """Handler that copies the example notebooks."""

    @authorized
    async def post(self) -> None:
        """Copy those that are not there; return the paths of all."""
        root = Path(self.settings["server_root_dir"]).expanduser()
        await self.answer(copy_below, root)


HANDLERS = [
    (r"help", HelpHandler),
    (r"help/(guide|verb|name)/([^/]+)", HelpPageHandler),
    (r"examples", ExamplesHandler),
]
