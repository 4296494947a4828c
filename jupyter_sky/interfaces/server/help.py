"""Help of the panel: ``GET help?q=WORDS`` finds pages, ``GET help/KIND/NAME`` is one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from jupyter_sky.base.translation import _
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


HANDLERS = [(r"help", HelpHandler), (r"help/(guide|verb|name)/([^/]+)", HelpPageHandler)]
