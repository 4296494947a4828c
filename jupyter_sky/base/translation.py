"""Translation of texts for users: gettext with the domain ``jupyter_sky``.

Texts with values are translated before the values are filled in:
``_("{count} offers").format(count=3)``. Constants of a module are marked with `N_` and translated
by `_` where they are shown: a module may be imported before the language is known.

The language is that of ``LANGUAGE``, else the one chosen in JupyterLab's settings, else the
system's. Without translations for it, texts stay in English.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gettext import NullTranslations

DOMAIN = "jupyter_sky"
LOCALES = Path(__file__).parents[1] / "locale"
SETTING = Path("@jupyterlab", "translation-extension", "plugin.jupyterlab-settings")
_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
_FRESH_SECONDS = 5.0  # a language chosen in a running JupyterLab is used without a restart

_current: tuple[float, NullTranslations] | None = None


def _(text: str) -> str:
    """Return a text in the user's language.

    Examples
    --------
    >>> _("{count} offers").format(count=3)
    '3 offers'
    """
    return _translations().gettext(text) if text else text


def ngettext(one: str, several: str, count: int) -> str:
    """Return the singular or plural of a text in the user's language.

    Examples
    --------
    >>> ngettext("{n} offer", "{n} offers", 1).format(n=1)
    '1 offer'
    """
    return _translations().ngettext(one, several, count)


def format_count(count: int) -> str:
    """Return a whole number with its thousands apart, as the user's language has them.

    Examples
    --------
    >>> format_count(1234567), format_count(835)
    ('1,234,567', '835')
    """
    separator = _("1,234")[1:-3]
    return f"{count:,}".replace(",", separator)


def N_(text: str) -> str:
    """Mark a text that is translated where it is shown."""
    return text


def find_locale(wanted: str) -> str | None:
    """Return the folder of `LOCALES` for a language such as ``de_DE.UTF-8``; None without one.

    Examples
    --------
    >>> find_locale("de_AT.UTF-8"), find_locale("C.UTF-8")
    ('de_DE', None)
    """
    name = wanted.split(".")[0].split("@")[0].replace("-", "_").lower()
    known = _known_locales()
    return known.get(name) or known.get(name.split("_")[0])


def user_locale() -> str | None:
    """Return the folder of `LOCALES` for the user's language; None for English."""
    named = os.environ.get("LANGUAGE", "").split(":")[0]
    chosen = named or _jupyterlab_locale()
    if not chosen:
        chosen = next(filter(None, map(os.environ.get, _VARIABLES)), "")
    return find_locale(chosen)


def browser_texts() -> Mapping[str, str]:
    """Return the translations of texts in the browser; empty for English."""
    name = user_locale()
    return _read_browser_texts(name) if name else MappingProxyType({})


@cache
def _read_browser_texts(name: str) -> Mapping[str, str]:
    import json

    path = LOCALES / name / "LC_MESSAGES" / f"{DOMAIN}.json"
    entries = json.loads(path.read_text(encoding="utf-8"))
    return MappingProxyType({text: said[0] for text, said in entries.items() if text})


@cache
def _known_locales() -> Mapping[str, str]:
    """Return folders of `LOCALES` by language, with and without country."""
    names = [path.name for path in LOCALES.iterdir() if path.is_dir()] if LOCALES.is_dir() else []
    languages = {name.split("_")[0].lower(): name for name in names}
    return MappingProxyType(languages | {name.lower(): name for name in names})


def _jupyterlab_locale() -> str:
    """Return the language chosen in JupyterLab; empty where none is."""
    import re

    try:
        text = (_jupyterlab_settings() / SETTING).read_text(encoding="utf-8")
    except (ImportError, OSError, RuntimeError, ValueError):  # no Jupyter, no home, no setting
        return ""
    found = re.search(r'^\s*[{,]?\s*"locale":\s*"([\w-]+)"', text, re.MULTILINE)
    return found[1] if found and found[1] != "default" else ""


def _jupyterlab_settings() -> Path:
    if given := os.environ.get("JUPYTERLAB_SETTINGS_DIR"):
        return Path(given)
    from jupyter_core.paths import jupyter_config_dir

    return Path(jupyter_config_dir(), "lab", "user-settings")


def _translations() -> NullTranslations:
    global _current
    now = time.monotonic()
    if _current is None or now - _current[0] > _FRESH_SECONDS:
        _current = now, _load(user_locale())
    return _current[1]


@cache
def _load(name: str | None) -> NullTranslations:
    from gettext import NullTranslations, translation

    if name is None:
        return NullTranslations()
    return translation(DOMAIN, LOCALES, languages=[name], fallback=True)
