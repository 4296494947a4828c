"""Statements of a document beside what this project does: read, filled in, shown.

Each document has a file `NAME.toml` here, with an entry for every figure, table, equation and
claim. The notebook of that name computes what takes seconds and shows the entries as tables.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from html import escape, unescape
from pathlib import Path
from typing import Any

import nbformat
from IPython import get_ipython
from IPython.display import display

from jupyter_sky.base.tables import LINE, NO_MATHJAX_CLASSES, TABLE, make_scrollable

HERE = Path(__file__).parent
NOTEBOOKS = HERE.parent

STATES = {
    "repeated": ("✓", "repeated", "repeated", "#009E73"),
    "emulated": ("≈", "repeated on emulated clouds", "repeated on emulated clouds", "#56B4E9"),
    "differs": ("≠", "differs", "differ", "#E69F00"),
    "not": ("–", "not repeated", "not repeated", "#CC79A7"),
}
"""Sign, words for one and for many, and colour of each state."""
REASONS = {
    "accounts": "Needs paid accounts, real clouds or their hardware",
    "unpublished": "The authors' data, code or values are not published",
    "years": "Prices, places and machines are those of 2026",
    "part": "A part of the data, or a smaller run",
    "errs": "The document does not hold on its own data, or contradicts itself",
    "design": "Solved in another way here, on purpose",
    "absent": "Not built",
    "opinion": "A forecast, a survey or work of others: no experiment to repeat",
}
"""Reasons for what differs or is not repeated."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of a document.

    Attributes
    ----------
    section : str
        Section of the document, under which it is shown.
    where : str
        Figure, table, equation or subject.
    says : str
        What the document says, in other words.
    ours : str
        What this project does or has measured; empty until the notebook has computed it.
    again : tuple of str
        How to repeat it, see `parse_way`.
    state : str
        One of `STATES`.
    reason : str
        One of `REASONS`, for what differs or is not repeated.
    why : str
        More about that.
    key : str
        Name under which the notebook fills in `ours`.
    holds : bool
        Whether what was computed agrees with the state.
    """

    section: str
    where: str
    says: str
    ours: str = ""
    again: tuple[str, ...] = ()
    state: str = "repeated"
    reason: str = ""
    why: str = ""
    key: str = ""
    holds: bool = True


@dataclass(frozen=True, slots=True)
class Way:
    """One way to repeat a statement: its kind, what it names, and a heading of a notebook."""

    kind: str
    target: str
    heading: str = ""

    def to_html(self) -> str:
        """Return a link, or the command as code."""
        if self.kind == "notebook":
            anchor = f"#{self.heading.replace(' ', '-')}" if self.heading else ""
            path = f"../{self.target}" if self.target else ""
            name = self.heading if not self.target else f"{self.target}: {self.heading}"
            return f'<a href="{escape(path + anchor)}">{escape(name.removesuffix(": "))}</a>'
        if self.kind == "file":
            return f'<a href="../../{escape(self.target)}">{_breakable(self.target)}</a>'
        command = {"test": "pytest ", "benchmark": "python tests/benchmarks/run.py "}
        text = _breakable(command.get(self.kind, "") + self.target)
        return f'<code style="font-size:0.9em;background:none;padding:0">{text}</code>'


def parse_way(text: str) -> Way:
    """Read one way to repeat a statement.

    ``tests/a/test_b.py::test_c`` is a test, ``run.py NAME`` a benchmark, ``a.ipynb#Heading`` a
    section of a notebook, ``#Heading`` one of the same notebook, ``%%sky --option`` an option of
    cells, ``jupyter sky VERB`` a verb, a path a file, and anything else a name of Python.

    Examples
    --------
    >>> parse_way("catalog.ipynb#Prices on the map")
    Way(kind='notebook', target='catalog.ipynb', heading='Prices on the map')
    >>> parse_way("sky.plan").kind
    'name'
    """
    if text.startswith("tests/"):
        return Way("test", text)
    for start, kind in (
        ("run.py ", "benchmark"),
        ("%%sky ", "option"),
        ("jupyter sky ", "verb"),
    ):
        if text.startswith(start):
            return Way(kind, text if kind in ("option", "verb") else text.removeprefix(start))
    path, mark, heading = text.partition("#")
    if mark or path.endswith(".ipynb"):
        return Way("notebook", path, heading)
    return Way("file" if "/" in text else "name", text)


@dataclass
class Document:
    """The statements of a document, some of which a notebook fills in."""

    title: str
    authors: str
    claims: list[Claim]
    _top: Any = field(default=None, repr=False)

    @classmethod
    def read(cls, name: str) -> Document:
        """Read the file of a document.

        Parameters
        ----------
        name
            Name of the file beside this one, without its ending.
        """
        found = tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))
        claims = [
            Claim(section=section["name"], **row | {"again": tuple(row.get("again", ()))})
            for section in found["section"]
            for row in section["claim"]
        ]
        return cls(found["title"], found["authors"], claims)

    def found(
        self, key: str, ours: str, holds: bool = True, state: str = "", why: str = ""
    ) -> None:
        """Fill in what was computed.

        Parameters
        ----------
        key
            Of the statement.
        ours
            What was found, in words.
        holds
            Whether that agrees with the state that the file gives.
        state, why
            In place of those of the file, where they depend on data or on what is built.
        """
        (place,) = [number for number, one in enumerate(self.claims) if one.key == key]
        one = replace(self.claims[place], ours=ours, holds=bool(holds))
        if state in ("repeated", "emulated"):
            one = replace(one, reason="", why="")
        self.claims[place] = replace(one, state=state or one.state, why=why or one.why)

    def summary(self) -> None:
        """Show how many statements there are, in which states, and why; again after `finish`."""
        self._top = display(Html(self._count()), display_id=True)

    def show(self, *sections: str) -> Html:
        """Return the statements of some sections as a table."""
        rows = [one for one in self.claims if one.section in sections]
        if not rows:
            raise KeyError(sections)
        return Html(_table(rows, f"{self.title}: {', '.join(sections)}"))

    def unfilled(self) -> list[str]:
        """Return the keys of statements that nothing was computed for yet."""
        return [one.key for one in self.claims if one.key and not one.ours]

    def finish(self) -> None:
        """Show the summary at the top again, and tell what no longer agrees with the file."""
        if self._top is not None:
            self._top.update(Html(self._count()))
        computed = [one for one in self.claims if one.key]
        changed = [one.where for one in computed if not one.holds]
        print(f"{len(computed)} of {len(self.claims)} computed here;", end=" ")
        print(f"no longer as said: {'; '.join(changed)}" if changed else "all as said")
        if left := self.unfilled():
            print("not computed:", ", ".join(left))

    def _count(self) -> str:
        states = {state: [one for one in self.claims if one.state == state] for state in STATES}
        parts = [f"{len(rows)} {STATES[state][2]}" for state, rows in states.items() if rows]
        head = f"<b>{len(self.claims)} statements</b>: {', '.join(parts)}."
        bar = "".join(
            f'<span style="flex:{len(rows)};background:{STATES[state][3]};color:black;'
            f'text-align:center" title="{STATES[state][1]}"> {STATES[state][0]} {len(rows)}</span>'
            for state, rows in states.items()
            if rows
        )
        reasons: dict[str, list[Claim]] = defaultdict(list)
        for one in self.claims:
            if one.reason:
                reasons[one.reason].append(one)
        body = "".join(
            f"<tr>{_cell(escape(text))}{_cell(str(len(reasons[reason])))}"
            f"{_cell(escape(_names(reasons[reason])))}</tr>"
            for reason, text in REASONS.items()
            if reason in reasons
        )
        table = _grid(("What differs or is not repeated, because", "number", "which"), body)
        return (
            f'<div style="{TABLE}"><div>{head}</div><div style="display:flex;margin:6px 0;'
            f'height:1.6em;line-height:1.6em;max-width:60em">{bar}</div>{table}</div>'
        )


@dataclass(frozen=True)
class Html:
    """HTML for a notebook; a terminal gets its text."""

    html: str

    def _repr_html_(self) -> str:
        return f'<div class="{NO_MATHJAX_CLASSES}">{self.html}</div>'

    def __str__(self) -> str:
        text = re.sub(r"<style>.*?</style>", "", self.html)
        for tags, sign in (("</tr>|</div>", "\n"), ("</t[dh]>", " | "), ("<br>", "; ")):
            text = re.sub(tags, sign, text)
        return unescape(re.sub(r"\n\s*\n+", "\n", re.sub(r"<[^>]+>", "", text))).strip()

    __repr__ = __str__


def count_lines(*patterns: str) -> int:
    """Return the number of lines of the checkout's files that match any of some patterns."""
    files = {path for pattern in patterns for path in NOTEBOOKS.parent.glob(pattern)}
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def run_cells(notebook: str, *ids: str) -> None:
    """Run cells of another notebook here, in its folder, with their outputs.

    So the figures here are computed by the same lines that the other notebook shows.

    Parameters
    ----------
    notebook
        Name of a notebook in the folder above.
    *ids
        Ids of its code cells, in the order in which they are to run.
    """
    cells = {cell.id: cell.source for cell in nbformat.read(NOTEBOOKS / notebook, 4).cells}
    shell, before = get_ipython(), os.getcwd()
    os.chdir(NOTEBOOKS)
    try:
        for name in ids:
            shell.run_cell(cells[name]).raise_error()
    finally:
        os.chdir(before)


def _table(rows: Iterable[Claim], name: str) -> str:
    body, section = "", ""
    for one in rows:
        if one.section != section:
            section = one.section
            body += f'<tr style="background:none">{_head(section, "row", 5)}</tr>'
        body += (
            f'<tr style="background:none">{_cell(_text(one.where), 9)}{_cell(_text(one.says), 14)}'
            f"{_cell(_text(one.ours), 14)}{_cell(_ways(one), 19)}{_cell(_state(one), 9)}</tr>"
        )
    heads = ("where", "the document", "here", "again by", "state")
    return make_scrollable(_grid(heads, body), name)


def _grid(heads: tuple[str, ...], body: str) -> str:
    row = "".join(_head(head, "col") for head in heads)
    return f'<table style="{TABLE}"><thead><tr>{row}</tr></thead><tbody>{body}</tbody></table>'


def _head(text: str, scope: str, columns: int = 1) -> str:
    style = f"text-align:left;padding:6px 8px 2px;border-bottom:{LINE};background:none"
    return f'<th scope="{scope}" colspan="{columns}" style="{style}">{escape(text)}</th>'


def _text(words: str) -> str:
    """Return escaped words, with what stands between two backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words))


def _cell(html: str, width: int = 0) -> str:
    style = f"text-align:left;vertical-align:top;padding:3px 8px;border-bottom:{LINE};"
    style += f"background:none;overflow-wrap:anywhere;min-width:{width}em" if width else ""
    return f'<td style="{style}">{html}</td>'


def _ways(one: Claim) -> str:
    return "<br>".join(parse_way(text).to_html() for text in one.again)


def _state(one: Claim) -> str:
    sign, words, _, colour = STATES[one.state]
    mark = f'<span style="background:{colour};color:black;padding:0 4px">{sign}</span> {words}'
    reason = REASONS[one.reason] if one.reason else ""
    more = ". ".join(filter(None, [reason, one.why]))
    wrong = "" if one.holds else " <b>(no longer)</b>"
    return f"{mark}{wrong}<br><small>{_text(more)}</small>" if more else f"{mark}{wrong}"


def _names(rows: Iterable[Claim]) -> str:
    return "; ".join(dict.fromkeys(one.where for one in rows))


def _breakable(text: str) -> str:
    return re.sub(r"(?<=[/_:.])(?=\w)", "<wbr>", escape(text))
