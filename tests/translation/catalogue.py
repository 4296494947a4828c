"""Catalogues of the texts for users: ``python -m tests.translation.catalogue``.

Writes the template ``locale/jupyter_sky.pot`` from the sources in Python, TypeScript and
JavaScript, updates each language's ``.po`` with it, and compiles those: to ``.mo`` for Python, to
``.json`` (as JupyterLab's language packs have it) for the browser. ``--untranslated LANGUAGE``
prints what has no translation yet.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from babel.messages import Catalog, Message
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from jupyter_sky.base.translation import DOMAIN, LOCALES
from tests.translation.python_strings import PACKAGE, ROOT

TEMPLATE = LOCALES / f"{DOMAIN}.pot"
KEYWORDS = {"_": None, "__": None, "N_": None, "ngettext": (1, 2)}
SCRIPTS = ("labextension/src/*.ts*", "jupyter_sky/interfaces/widgets/static/*.js")
TABLES = "tables of options"
WIDTH = 100
HEADER = "# Texts of jupyter_sky for users: python -m tests.translation.catalogue writes this file."
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)  # the same sources give the same file


def scripts() -> list[Path]:
    """Return the sources of what runs in the browser."""
    found = sorted(path for pattern in SCRIPTS for path in ROOT.glob(pattern))
    return [path for path in found if not path.name.endswith(".d.ts")]


def extract_catalogue() -> Catalog:
    """Return all texts for users, in English."""
    catalogue = Catalog(project=DOMAIN, charset="utf-8", fuzzy=False, header_comment=HEADER)
    catalogue.creation_date = EPOCH
    for path in (*sorted(PACKAGE.rglob("*.py")), *scripts()):
        method = "python" if path.suffix == ".py" else "javascript"
        options = {"jsx": "True"} if path.suffix == ".tsx" else {}
        with path.open("rb") as file:
            for _line, message, _comments, context in extract(
                method, file, keywords=KEYWORDS, options={**options, "encoding": "utf-8"}
            ):
                place = (str(path.relative_to(ROOT)), 0)
                catalogue.add(message, locations=[place], context=context)
    for text in table_texts():
        catalogue.add(text, locations=[(TABLES, 0)])
    for message in catalogue:
        message.flags -= {"python-format"}  # % stands for itself, or is JupyterLab's
    return catalogue


def table_texts() -> Iterator[str]:
    """Yield the texts of the tables of options, fields, verbs and settings."""
    from jupyter_sky.base.requests.cell_options.schema import OPTIONS
    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.interfaces.forms.cell_line import schema
    from jupyter_sky.interfaces.magics import verbs

    texts = [text for option in OPTIONS for text in (option.group, option.help)]
    for field in schema():
        texts += [field.label, field.help, field.group, *(words for _key, words in field.choices)]
    for verb in verbs.VERBS.values():
        texts += [verb.help, *(argument.help for argument in verb.arguments)]
    texts += [trait.help for trait in Sky.class_own_traits(config=True).values()]
    yield from dict.fromkeys(filter(None, texts))


def write(path: Path, catalogue: Catalog) -> None:
    """Write a template or the texts of a language."""
    with path.open("wb") as file:
        write_po(
            file, catalogue, width=WIDTH, omit_header=False, sort_output=True, include_lineno=False
        )


def compile_language(folder: Path, catalogue: Catalog) -> None:
    """Write what Python and the browser read."""
    with (folder / f"{DOMAIN}.mo").open("wb") as file:
        write_mo(file, catalogue)
    language = str(catalogue.locale).replace("_", "-")  # as JupyterLab writes it in the browser
    head = {"domain": DOMAIN, "language": language, "version": "0.1.0"}
    head["plural_forms"] = catalogue.plural_forms
    texts = {
        str(message.id): [str(message.string)]
        for message in sorted(catalogue, key=lambda message: str(message.id))
        if message.id and message.string and isinstance(message.id, str) and _in_browser(message)
    }
    text = json.dumps({"": head, **texts}, ensure_ascii=False, indent=1)
    (folder / f"{DOMAIN}.json").write_text(text + "\n", encoding="utf-8")


def _in_browser(message: object) -> bool:
    places = [place for place, _line in message.locations]  # type: ignore[attr-defined]
    return any(place == TABLES or place.endswith((".ts", ".tsx", ".js")) for place in places)


def read_language(folder: Path) -> Catalog:
    """Return the texts of a language."""
    with (folder / f"{DOMAIN}.po").open("rb") as file:
        return read_po(file, locale=folder.parent.name)


def languages() -> list[Path]:
    """Return the folders of all languages."""
    return sorted(path.parent for path in LOCALES.glob(f"*/LC_MESSAGES/{DOMAIN}.po"))


def untranslated(language: str) -> list[Any]:
    """Return the texts that a language lacks."""
    catalogue = read_language(LOCALES / language / "LC_MESSAGES")
    texts = [m.id for m in extract_catalogue() if m.id]
    return [text for text in texts if not is_translated(catalogue.get(text))]


def is_translated(message: Message | None) -> bool:
    """Return whether a text, or each of its plurals, has a translation."""
    if message is None or message.fuzzy:
        return False
    strings = message.string if isinstance(message.string, tuple | list) else (message.string,)
    return all(strings)


def main() -> None:
    """Write template and languages; list what is missing."""
    template = extract_catalogue()
    write(TEMPLATE, template)
    for folder in languages():
        catalogue = read_language(folder)
        catalogue.update(template, no_fuzzy_matching=True)
        catalogue.obsolete.clear()
        write(folder / f"{DOMAIN}.po", catalogue)
        compile_language(folder, catalogue)
        missing = [m for m in catalogue if m.id and not is_translated(m)]
        print(f"{folder.parent.name}: {len(catalogue)} texts, {len(missing)} untranslated")
    if sys.argv[1:2] == ["--untranslated"]:
        print("\n".join(map(repr, untranslated(sys.argv[2]))))


if __name__ == "__main__":
    main()
