"""Help about verbs, public names and the guide, and its search."""

from __future__ import annotations

from functools import cache

from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.magics.guide import list_guide
from jupyter_sky.interfaces.magics.reference import (
    HelpPage,
    describe_name,
    is_public,
    list_names,
    strip_package,
)
from jupyter_sky.interfaces.magics.verbs import NOTEBOOK, VERBS, describe_verb_page, find_page

_KINDS = ("guide", "verb", "name")
_NOWHERE = 6
MOST_RESULTS = 30


def help(name: str = "") -> HelpPage | Table:
    """Describe a public name, a verb or a page of the guide; without one, list them all.

    Parameters
    ----------
    name
        Such as ``"plan"``, ``"preemption.fit"``, ``"down"`` or ``"money"``. A public name comes
        before a verb of the same spelling.

    Returns
    -------
    HelpPage or Table
        Shows as text.

    Raises
    ------
    SkyUsageError
        Nothing has that name; the hint has the nearest.

    Examples
    --------
    >>> import jupyter_sky as sky
    >>> sky.help("extend").name
    'sky.extend'
    """
    if not name:
        rows = tuple((page.name, page.summary) for page in list_pages())
        return Table(_("help"), (_("name"), _("about")), rows)
    return describe_name(name) if is_public(name) else find_page([name])


@cache
def list_pages() -> tuple[HelpPage, ...]:
    """Return all pages: those of the guide, the verbs, the public names."""
    verbs = [describe_verb_page(each, each.only or NOTEBOOK) for __, each in sorted(VERBS.items())]
    return *list_guide(), *verbs, *(describe_name(name) for name in list_names())


def get_page(kind: str, name: str) -> HelpPage | None:
    """Return one of the pages of a search; None if there is none."""
    if kind == "name" and is_public(name):
        return describe_name(name)
    return next((page for page in list_pages() if (page.kind, page.name) == (kind, name)), None)


def search_help(query: str) -> list[HelpPage]:
    """Return the pages that have every word of a query, the best first.

    Parameters
    ----------
    query
        Words in any order and case; none give the pages of the guide.

    Examples
    --------
    >>> [page.name for page in search_help("plan") if page.kind == "name"][0]
    'sky.plan'
    """
    words = query.lower().split()
    if not words:
        return list(list_guide())
    ranks = {page: max(_rank(word, page) for word in words) for page in list_pages()}
    found = [page for page, rank in ranks.items() if rank < _NOWHERE]
    found.sort(key=lambda page: (ranks[page], _KINDS.index(page.kind), page.name))
    return found[:MOST_RESULTS]


def _rank(word: str, page: HelpPage) -> int:
    """Return how far a word is from the name of a page: 0 is the name, `_NOWHERE` not there."""
    name = strip_package(page.name).lower()
    places = (name == word, name.startswith(word), word in name, word in page.title.lower())
    every = (*places, word in page.summary.lower(), word in page.text.lower())
    return next((rank for rank, is_there in enumerate(every) if is_there), _NOWHERE)
