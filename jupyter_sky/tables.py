"""A small table that shows in a notebook, in a terminal and in a saved file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

# Amounts, clocks, rates, shares and differences: $0.41, 1:12, $1.01/h, 97 %, +$1.50 (+15 %)
_NUMBER = re.compile(r"[-+]?<?\$?\d[\d.,:]*( ?(%|s|/h|[kMGT]?i?B))?( \([-+]?\d[\d.,]* %\))?")
_BLANK = {"", "unknown", "same"}
_SHORT = 18  # characters that stay on one line, however narrow the page

_WRAPPED = "; min-width: 10em; overflow-wrap: normal"

NO_MATHJAX_CLASSES = "tex2jax_ignore mathjax_ignore"
"""Classes without which JupyterLab takes what stands between two dollar signs for mathematics."""
LINE = "1px solid rgba(128, 128, 128, 0.35)"
TABLE = (
    "color: var(--jp-ui-font-color1, inherit); border-collapse: collapse; "
    "font-size: var(--jp-ui-font-size1, 13px); font-variant-numeric: tabular-nums"
)
CAPTION = "caption-side: top; text-align: left; font-weight: 600; padding: 2px 8px"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns.

    Attributes
    ----------
    title : str
        What the table is about.
    columns : tuple of str
        Their names.
    rows : tuple of tuple
        The values, as many in each row as there are columns.
    note : str
        A sentence below the table.
    empty : str
        What is said in place of a table without rows.
    heads : bool
        Whether the first column names its row, which screen readers then say.

    Examples
    --------
    >>> print(Table("clusters", ("name", "USD/h"), (("train", "$1.01"), ("try", "$0.00"))))
    clusters
    name   USD/h
    -----  -----
    train  $1.01
    try    $0.00
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    note: str = ""
    empty: str = ""
    heads: bool = False

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_dicts(self) -> list[dict[str, object]]:
        """Each row as a dict from column to value."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_pandas(self) -> DataFrame:
        """Return the table as a pandas DataFrame."""
        from pandas import DataFrame

        return DataFrame(list(self.rows), columns=list(self.columns))

    def __str__(self) -> str:
        if not self.rows:
            return "\n".join(filter(None, [self.title, self.empty, self.note]))
        cells = [[_text(value).replace("\n", " ") for value in row] for row in self.rows]
        grid = list(zip(self.columns, *cells, strict=True))
        widths = [max(map(len, column)) for column in grid]
        right = _numeric(self)

        def line(values: tuple[str, ...] | list[str]) -> str:
            padded = (
                value.rjust(width) if numeric else value.ljust(width)
                for value, width, numeric in zip(values, widths, right, strict=True)
            )
            return "  ".join(padded).rstrip()

        rule = ["-" * width for width in widths]
        body = [line(self.columns), line(rule), *map(line, cells)]
        return "\n".join(filter(None, [self.title, *body, self.note]))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        note = _block(self.note, "padding: 2px 8px")
        if not self.rows:
            empty = _block(self.empty, "padding: 2px 8px")
            return _block(self.title, CAPTION) + empty + note
        styles = [
            f"padding: 2px 8px; text-align: {'right' if numeric else 'left'}; background: none"
            for numeric in _numeric(self)
        ]
        head = _html_row(
            'th scope="col"', self.columns, [f"{s}; border-bottom: {LINE}" for s in styles]
        )
        body = "".join(_html_row("td", row, styles, self.heads) for row in self.rows)
        caption = f'<caption style="{CAPTION}">{escape(self.title)}</caption>'
        return (
            f'<table class="{NO_MATHJAX_CLASSES}" style="{TABLE}">{caption if self.title else ""}'
            f"<thead>{head}</thead><tbody>{body}</tbody></table>{note}"
        )


def _block(text: str, style: str) -> str:
    return (
        f'<div class="{NO_MATHJAX_CLASSES}" style="{TABLE}; {style}">{escape(text)}</div>'
        if text
        else ""
    )


def _html_row(tag: str, values: tuple[object, ...], styles: list[str], heads: bool = False) -> str:
    tags = [tag] * len(values)
    if heads:
        tags[0] = 'th scope="row"'
        styles = [f"{styles[0]}; font-weight: inherit", *styles[1:]]
    texts = [_text(value) for value in values]
    cells = (
        f'<{tag} style="{style}{"; white-space: nowrap" if len(text) <= _SHORT else _WRAPPED}">'
        f"{escape(text)}</{tag.split()[0]}>"
        for tag, text, style in zip(tags, texts, styles, strict=True)
    )
    return f'<tr style="background: none">{"".join(cells)}</tr>'


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _numeric(table: Table) -> list[bool]:
    """Whether each column holds numbers, to be aligned on the right."""
    columns = zip(*([_text(value) for value in row] for row in table.rows), strict=True)
    filled = ([text for text in column if text not in _BLANK] for column in columns)
    return [bool(texts) and all(map(_NUMBER.fullmatch, texts)) for texts in filled]
