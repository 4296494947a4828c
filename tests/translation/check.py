"""Check of the texts for users, as a linter: ``python -m tests.translation.check``.

Each must pass the translation function, and the catalogues must be those of the sources.
"""

from __future__ import annotations

import sys

from babel.messages.pofile import read_po

from tests.benchmarks.newcomer_strings import list_untranslated
from tests.translation.catalogue import TEMPLATE, extract_catalogue, languages, untranslated


def main() -> int:
    """Print what is amiss; return the exit code."""
    passed_by = [f"{text}: passes no translation function" for text in list_untranslated()]
    with TEMPLATE.open("rb") as file:
        kept = {message.id for message in read_po(file)}
    changed = {message.id for message in extract_catalogue()} ^ kept
    amiss = passed_by + [f"{text!r}: python -m tests.translation.catalogue" for text in changed]
    for folder in languages():
        language = folder.parent.name
        amiss += [f"{text!r}: has no translation in {language}" for text in untranslated(language)]
    print("\n".join(amiss) or "each text passes the translation function and is in the catalogues")
    return int(bool(amiss))


if __name__ == "__main__":
    sys.exit(main())
