"""IPython's transforms of cells, as the same cells without ``%%sky`` get them.

IPython looks at single lines more closely: the name of a macro runs it, and ``%autocall`` adds
parentheses. On an engine, such a line stands below the comment that was a ``%%sky`` line.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_SKY_LINES = re.compile(r"\A(?:# .*\n)*?# *%%sky\b.*\n")


def install_cell_transforms(shell: Any) -> None:
    """Replace the method of a shell that transforms cells."""
    transform = shell.transform_cell

    # ipykernel transforms every cell twice: once to see whether it awaits, once to run it
    @lru_cache(maxsize=1)
    def transform_cell(text: str) -> str:
        code = transform(text)
        above = _SKY_LINES.match(code)
        line = code[above.end() :] if above else ""
        if above is None or len(line.splitlines()) != 1:
            return code
        with shell.builtin_trap:
            return f"{above[0]}{shell.prefilter_manager.prefilter_lines(line.rstrip())}\n"

    shell.transform_cell = transform_cell
