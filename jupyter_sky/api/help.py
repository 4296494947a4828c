"""Help about verbs, public names and the guide, and its search."""

from __future__ import annotations

from functools import cache

from ..errors import SkyUsageError, suggest
from ..magics.declaration import NOTEBOOK
from ..tables import Table
from ..translation import _
from .guide import find_guide, list_guide
from .reference import HelpPage, describe_name, is_public, list_names, strip_package

_KINDS = ("guide", "verb", "name")
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


def find_page(words: list[str], command: str = NOTEBOOK) -> HelpPage:
    """Return the page of a verb, a public name or a page of the guide, in this order.

    Parameters
    ----------
    words
        One word, or the two of a command such as ``catalog refresh``.
    command
        What a verb follows in the text: ``%sky`` or ``jupyter sky``.

    Raises
    ------
    SkyUsageError
        Nothing has that name.
    """
    from ..magics.verbs import find_verb, list_verbs

    verbs = {each.name for each in list_verbs(command)}
    first = words[0]
    if first in verbs:
        found, extra = find_verb(words, command)
        if extra:
            text = _("{command} help {verbs}: {extra!r} is not understood").format(
                command=command, verbs=" ".join(words), extra=extra[0]
            )
            raise SkyUsageError(
                text, hint=_("{command} help {name}").format(command=command, name=found.name)
            )
        return _verb_page(found.name, command)
    if len(words) == 1:
        if is_public(first):
            return describe_name(first)
        if page := find_guide(first):
            return page
    known = [*(each for each in verbs if " " not in each), *list_names()]
    raise SkyUsageError(
        _("{command} help {words}: there is no such verb, name or page").format(
            command=command, words=" ".join(words)
        ),
        hint=suggest(first, [*known, *(page.name.partition("-")[2] for page in list_guide())]),
    )


def _verb_page(name: str, command: str) -> HelpPage:
    """Return the help of a verb, with a pointer to the Python name that is spelled like it."""
    from ..magics.verbs import VERBS, describe_verb

    title, __, text = describe_verb(VERBS[name], command).partition("\n")
    if name in list_names():
        pointer = _("In Python: sky.{name}(), see {command} help sky.{name}")
        text += "\n\n" + pointer.format(name=name, command=command)
    return HelpPage("verb", name, title, _(VERBS[name].help), text)


@cache
def list_pages() -> tuple[HelpPage, ...]:
    """Return all pages: those of the guide, the verbs, the public names."""
    from ..magics.verbs import VERBS

    verbs = [_verb_page(name, each.only or NOTEBOOK) for name, each in sorted(VERBS.items())]
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
    ranked = [
        (max(ranks), _KINDS.index(page.kind), page.name, page)
        for page in list_pages()
        if None not in (ranks := [_rank(word, page) for word in words])
    ]
    return [page for *__, page in sorted(ranked, key=lambda each: each[:3])[:MOST_RESULTS]]


def _rank(word: str, page: HelpPage) -> int | None:
    """Return how far a word is from the name of a page: 0 is the name; None, not there."""
    name = strip_package(page.name).lower()
    places = (name == word, name.startswith(word), word in name, word in page.title.lower())
    every = (*places, word in page.summary.lower(), word in page.text.lower())
    return next((rank for rank, is_there in enumerate(every) if is_there), None)
