"""A small table that shows in a notebook, in a terminal and in a saved file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_sky.base.translation import _, format_count

if TYPE_CHECKING:
    from pandas import DataFrame

T = TypeVar("T")

# Amounts, clocks, rates, shares and differences: $0.41, 1:12, $1.01/h, 97 %, +$1.50 (+15 %)
_NUMBER = re.compile(r"[-+]?<?\$?\d[\d.,:\u202f]*( ?(%|s|/h|[kMGT]?i?B))?( \([-+]?\d[\d.,]* %\))?")
_BLANK = {"", "unknown", "same"}
_SHORT = 18  # characters that stay on one line, however narrow the page

_LONG_WORD = re.compile(r"[^\s<>&;]{19,}")
_JOINT = re.compile(r"(?<=\w[/_])(?=\w)")

_WRAPPED = "; min-width: 10em; overflow-wrap: normal"

NO_MATHJAX_CLASSES = "tex2jax_ignore mathjax_ignore"
"""Classes without which JupyterLab takes what stands between two dollar signs for mathematics."""
LINE = "1px solid rgba(128, 128, 128, 0.35)"
TABLE = (
    "color: var(--jp-ui-font-color1, inherit); border-collapse: collapse; "
    "font-size: var(--jp-ui-font-size1, 13px); font-variant-numeric: tabular-nums"
)
PAGE = "var(--jp-layout-color0, Canvas)"
"""Colour of the page, by JupyterLab's variable."""
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
        table = (
            f'<table class="{NO_MATHJAX_CLASSES}" style="{TABLE}">'
            f"<thead>{head}</thead><tbody>{body}</tbody></table>"
        )
        # the title outside, where it wraps: inside, it was cut off on narrow pages
        title = _block(self.title, CAPTION)
        return title + make_scrollable(table, self.title or _("table")) + note


# Scroll bars that systems hide until somebody scrolls are shown: else a picture seems cut off.
_SCROLL_BAR = (
    "<style>.jsky-scroll::-webkit-scrollbar { height: 10px } "
    ".jsky-scroll::-webkit-scrollbar-thumb { border-radius: 5px; "
    "background: rgba(128, 128, 128, 0.6) }</style>"
)


# A shadow at each edge beyond which there is more; the page's colour covers it at the ends.
_SHADOWS = (
    f"background: linear-gradient(to right, {PAGE} 30%, transparent) left / 40px 100% local, "
    f"linear-gradient(to left, {PAGE} 30%, transparent) right / 40px 100% local, "
    "linear-gradient(to right, rgba(128, 128, 128, 0.5), transparent) left / 10px 100% scroll, "
    "linear-gradient(to left, rgba(128, 128, 128, 0.5), transparent) right / 10px 100% scroll; "
    "background-repeat: no-repeat"
)


def make_scrollable(html: str, name: str) -> str:
    """Return HTML in a box that scrolls, with a bar and shadows, if its content is too wide."""
    return (
        f'{_SCROLL_BAR}<div class="{NO_MATHJAX_CLASSES} jsky-scroll" role="region" '
        f'aria-label="{escape(name)}" tabindex="0" '
        f'style="overflow-x: auto; padding: 2px 8px; {_SHADOWS}">{html}</div>'
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
        f"{_breakable(text)}</{tag.split()[0]}>"
        for tag, text, style in zip(tags, texts, styles, strict=True)
    )
    return f'<tr style="background: none">{"".join(cells)}</tr>'


def _breakable(text: str) -> str:
    """Return escaped text that may be broken in long words: paths, names of variables."""
    return _LONG_WORD.sub(lambda word: _JOINT.sub("<wbr>", word[0]), escape(text))


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return format_count(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _numeric(table: Table) -> list[bool]:
    """Whether each column holds numbers, to be aligned on the right."""
    columns = zip(*([_text(value) for value in row] for row in table.rows), strict=True)
    filled = ([text for text in column if text not in _BLANK] for column in columns)
    return [bool(texts) and all(map(_NUMBER.fullmatch, texts)) for texts in filled]


def view_bundle(make_view: Callable[[T], Any] | None, shown: T, **kwargs: Any) -> Any:
    """Return the MIME bundle of a live view, for ``_repr_mimebundle_``.

    Parameters
    ----------
    make_view
        Returns a widget that shows a value; None where there is none.
    shown
        The value.

    Returns
    -------
    dict or tuple
        Empty without a view, and in a terminal, which prints the text.
    """
    from IPython.core.getipython import get_ipython

    if make_view is None or getattr(get_ipython(), "kernel", None) is None:
        return {}
    return make_view(shown)._repr_mimebundle_(**kwargs)
