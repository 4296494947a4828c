"""Texts for users in the user's language: found, translated, and complete in German."""

from __future__ import annotations

import ast
import json
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.base import translation
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.schema import help_text
from jupyter_sky.base.requests.resources import parse_duration
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import (
    DOMAIN,
    LOCALES,
    SETTING,
    _,
    browser_texts,
    format_count,
    ngettext,
)
from tests.translation.catalogue import is_translated
from tests.translation.python_strings import PACKAGE, texts
from tests.translation.wrap_strings import wrap

GERMAN = LOCALES / "de_DE" / "LC_MESSAGES"


@pytest.fixture
def language(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Forget the language before and after; none is set."""
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG", "JUPYTERLAB_SETTINGS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(translation, "_current", None)
    yield monkeypatch
    translation._current = None


def test_texts_stay_english_without_a_language(
    language: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    language.setenv("JUPYTERLAB_SETTINGS_DIR", str(tmp_path))
    language.setenv("LANG", "C.UTF-8")
    assert _("no cell has run yet") == "no cell has run yet"
    assert not browser_texts()


@pytest.mark.parametrize("name", ["LANGUAGE", "LC_ALL", "LANG"])
def test_language_of_the_environment(
    language: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    language.setenv("JUPYTERLAB_SETTINGS_DIR", str(tmp_path))
    language.setenv(name, "de_AT.UTF-8")
    assert _("no cell has run yet") == "Es ist noch keine Zelle gelaufen"
    assert browser_texts()["Clusters"] == "Cluster"


def test_language_of_jupyterlab_wins_over_the_system(
    language: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / SETTING
    path.parent.mkdir(parents=True)
    path.write_text('{\n    // Language\n    "locale": "de_DE"\n}')
    language.setenv("JUPYTERLAB_SETTINGS_DIR", str(tmp_path))
    language.setenv("LANG", "fr_FR.UTF-8")
    assert _("no cell has run yet") == "Es ist noch keine Zelle gelaufen"


def test_errors_and_help_are_german(language: pytest.MonkeyPatch) -> None:
    language.setenv("LANGUAGE", "de")
    with pytest.raises(SkyUsageError) as caught:
        parse_duration("soon", "--timeout")
    assert "Zeit" in str(caught.value) or "Dauer" in str(caught.value)
    assert "Zahl der Maschinen" in help_text()


def test_plural(language: pytest.MonkeyPatch) -> None:
    language.setenv("LANGUAGE", "de")
    said = [ngettext("{calls} call", "{calls} calls", n).format(calls=n) for n in (1, 2)]
    assert said == ["1 Aufruf", "2 Aufrufe"]


def test_thousands_are_apart_as_the_language_has_them(language: pytest.MonkeyPatch) -> None:
    language.setenv("LANGUAGE", "de")
    assert format_count(1234567) == "1\u202f234\u202f567"  # a point stands before decimals
    html = Table("", ("offers",), ((123456,), (835,)))._repr_html_()
    assert "123\u202f456</td>" in html and html.count("text-align: right") == 3


def _fields(text: str) -> set[str | None]:
    try:
        return {name for _text, name, _spec, _conversion in string.Formatter().parse(text) if name}
    except ValueError:  # braces that stand for themselves
        return set()


def test_german_is_complete_and_fills_in_the_same_values() -> None:
    from babel.messages.pofile import read_po

    with (GERMAN / f"{DOMAIN}.po").open("rb") as file:
        catalogue = read_po(file, locale="de_DE")
    with (LOCALES / f"{DOMAIN}.pot").open("rb") as file:
        template = read_po(file)
    assert not [m.id for m in template if m.id and not is_translated(catalogue.get(m.id))]
    for message in catalogue:
        if isinstance(message.id, str) and message.id:
            assert _fields(message.id) == _fields(str(message.string)), message.id
            for place in ("%1", "%2", "%3"):
                assert (place in message.id) == (place in str(message.string)), message.id


def test_browser_gets_its_texts_as_language_packs_have_them() -> None:
    found = json.loads((GERMAN / f"{DOMAIN}.json").read_text(encoding="utf-8"))
    assert found[""]["language"] == "de-DE" and "plural" in found[""]["plural_forms"]
    assert found["Clusters"] == ["Cluster"]


SOURCE = '''"""A module."""

from ..errors import SkyUsageError

TABLE = "not found here"


def check(name: str, sizes: list[int], how: str) -> None:
    """Check it."""
    for number, _ in enumerate(sizes):
        if how == "not for users":
            raise SkyUsageError(f"{name!r}: {len(sizes):,} sizes {{}}", hint="give one less")
    raise ValueError(f"{how} is a mistake of the program")
'''


def test_texts_for_users_are_found_and_wrapped() -> None:
    path = PACKAGE / "magics" / "example.py"
    found = [text.words for text in texts(path, ast.parse(SOURCE))]
    assert found == ["{}: {} sizes {}", "give one less"]
    wrapped, left = wrap(path, SOURCE)
    assert not left
    assert (
        '_("{name!r}: {sizes_count:,} sizes {{}}").format(name=name, sizes_count=len(sizes))'
        in (wrapped)
    )
    assert 'hint=_("give one less")' in wrapped
    assert "for number, __ in" in wrapped and "from ..translation import _\n" in wrapped
    assert not list(texts(path, ast.parse(wrapped)))
    assert wrap(path, wrapped) == (wrapped, [])
