"""Origin of a price in words: publisher and date in short, and the whole source for a tooltip."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from jupyter_sky.base.clouds.index import BUILT_IN
from jupyter_sky.base.requests.offers import LIVE
from jupyter_sky.base.translation import _, ngettext
from jupyter_sky.knowledge.catalog.regions import days_since

_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_DATE = re.compile(r"(\d{4})(?:-(\d{2}))?(?:-(\d{2}))?")
_SLUG_DATE = re.compile(r"-?(\d{4}-\d{2}(?:-\d{2})?)")
_SLUG = re.compile(r"[a-z0-9.]+(-[a-z0-9.]+)+")
_CAPITALS = {"api": "API", "gpu": "GPU", "skus": "SKUs", "vantage": "Vantage"}


@dataclass(frozen=True, slots=True)
class PriceOrigin:
    """Origin of a price.

    Attributes
    ----------
    short : str
        Publisher and date; empty where nothing is known.
    detail : str
        All sources in words; empty where `short` says as much.
    publishers : tuple of str
        Clouds that published the price, as `short` names them.
    age : str
        How old the price is, in words; empty where its day is not known.
    """

    short: str
    detail: str = ""
    publishers: tuple[str, ...] = ()
    age: str = ""

    @property
    def text(self) -> str:
        """Publisher, date, age and all sources in a line."""
        return f"{self.aged} ({self.detail})" if self.detail else self.aged

    @property
    def aged(self) -> str:
        """Publisher, date and age."""
        return ", ".join(filter(None, (self.short, self.age)))

    @property
    def tooltip(self) -> str:
        """Age and all sources, for a place that shows `short`."""
        return "; ".join(filter(None, (self.age, self.detail)))


def describe_origin(source: str, day: str, today: date | None = None) -> PriceOrigin:
    """Return the origin of a price in words.

    Parameters
    ----------
    source : str
        Sources as the catalog names them, joined by ``+`` or a comma.
    day : str
        Date of the price as YYYY-MM-DD, shortened if the day is not known.
    today : date, optional
        Day from which its age is counted; the present unless given.

    Examples
    --------
    >>> describe_origin("vantage-aws-price-list-2026-07", "2026-07-05", date(2026, 7, 9)).text
    'AWS, 5 Jul 2026, 4 days old (Vantage AWS price list, Jul 2026)'
    >>> describe_origin("runpod-live", "").short
    'RunPod, live'
    >>> describe_origin("this machine", "").short
    'this machine'
    """
    names = [name for name in re.split(r", |\+", source) if name]
    age = format_age(day, today)
    if not names:
        return PriceOrigin(format_date(day) if day else "", age=age)
    if names == ["this machine"]:
        return PriceOrigin(_("this machine"))  # it is free, on whatever day
    if len(names) == 1 and names[0].endswith(LIVE) and (seller := _publisher(names[0])):
        return PriceOrigin(_("{cloud}, live").format(cloud=seller), publishers=(seller,))
    publishers = list(dict.fromkeys(filter(None, map(_publisher, names))))
    if not publishers and not day and not _SLUG.fullmatch(names[0]):
        return PriceOrigin(", ".join(names))
    short = " and ".join(publishers) or _words(names[0])
    detail = "; ".join(map(_expand, names))
    return PriceOrigin(f"{short}, {format_date(day)}", detail, tuple(publishers), age)


def format_age(day: str, today: date | None = None) -> str:
    """Return the age of a price in words; empty for a date that is not known to the day.

    Examples
    --------
    >>> [format_age("2026-07-05", date(2026, 7, day)) for day in (5, 6, 9)]
    ['of today', '1 day old', '4 days old']
    """
    days = days_since(day, today)
    if days is None or days < 0:
        return ""
    if days == 0:
        return _("of today")
    return ngettext("{days:,} day old", "{days:,} days old", days).format(days=days)


def format_date(text: str) -> str:
    """Return a date for people; it may lack the day, or the month.

    Examples
    --------
    >>> [format_date(text) for text in ("2026-07-05", "2026-07", "2026", "")]
    ['5 Jul 2026', 'Jul 2026', '2026', 'date unknown']
    """
    found = _DATE.fullmatch(text)
    if not found:
        return text or _("date unknown")
    year, month, day = (int(part) if part else 0 for part in found.groups())
    try:
        date(year, month or 1, day or 1)
    except ValueError:
        return text
    words = [str(day) if day else "", _MONTHS[month - 1] if month else "", str(year)]
    return " ".join(filter(None, words))


def _publisher(name: str) -> str:
    """Return the cloud in a source's name; empty without one."""
    facts = next((BUILT_IN[word] for word in name.split("-") if word in BUILT_IN), None)
    return facts.short_title or facts.title if facts and _SLUG.fullmatch(name) else ""


def _expand(name: str) -> str:
    """Return the name of a source as words, with the date in it."""
    day = _SLUG_DATE.search(name) if _SLUG.fullmatch(name) else None
    return _words(name) + (f", {format_date(day[1])}" if day else "")


def _words(name: str) -> str:
    """Return the name of a source as words, without the date in it."""
    if not _SLUG.fullmatch(name):
        return name
    words = [
        BUILT_IN[word].short_title or BUILT_IN[word].title
        if word in BUILT_IN
        else _CAPITALS.get(word, word)
        for word in _SLUG_DATE.sub("", name).split("-")
    ]
    return " ".join(words)
