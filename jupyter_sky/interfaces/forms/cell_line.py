"""A cell's ``%%sky`` line as fields, and back; unchanged options stay as they were written."""

from __future__ import annotations

import ast
import builtins
import io
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.parsing import (
    is_option,
    parse_cell_line,
    written_options,
)
from jupyter_sky.base.requests.cell_options.schema import BY_DEST, OPTIONS, Option
from jupyter_sky.base.translation import _

Value = str | bool
_NONE: Mapping[str, str] = MappingProxyType({})
_LINE = re.compile(r"([ \t]*%%sky)(?: (.*?))??([ \t\r]*)")


@dataclass(frozen=True, slots=True)
class Fields:
    """Options of a line, as they are typed into fields.

    Attributes
    ----------
    values : dict
        Text by key of the option, as it is typed into a field; True where an option has no value.
        Lists are separated by commas.
    alias : str
        Short name of options, with which the line begins.

    Examples
    --------
    >>> Fields({"cpus": "4+", "spot": True}).line()
    '--cpus 4+ --spot'
    """

    values: Mapping[str, Value] = field(default_factory=dict)
    alias: str = ""

    def line(self) -> str:
        """Return the text after ``%%sky``."""
        values = _drop_empty(self.values)
        return " ".join(filter(None, [self.alias.strip(), *_format_options(values)]))


@dataclass(frozen=True, slots=True)
class ParsedCell:
    """A cell, parsed into its line and its body.

    Attributes
    ----------
    fields : Fields
        Options of its line; none where it has no line.
    line : str or None
        The line after ``%%sky``, as it stands; None when the cell has none.
    errors : dict
        Message and hint on options that are not understood, by key; the empty key stands for the
        whole line.
    alias : dict
        Options that the line's alias stands for, by key.
    reads, makes : tuple of str
        Names that the body reads before it makes them, and such as it makes.
    """

    fields: Fields
    line: str | None
    errors: Mapping[str, tuple[str, str]]
    alias: Mapping[str, Value]
    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()


def read(source: str, aliases: Mapping[str, str] = _NONE) -> ParsedCell:
    r"""Read the ``%%sky`` line of a cell.

    Parameters
    ----------
    source : str
        The cell's text.
    aliases : mapping
        Options by their short names, as in the settings.

    Examples
    --------
    >>> dict(read("%%sky --cpus 4+ -i x,y\nx + y").fields.values)
    {'cpus': '4+', 'input': 'x,y'}
    """
    found = _find(source)
    reads, makes = _names(found.body)
    if found.text is None:
        return ParsedCell(Fields(), None, {}, {}, reads, makes)
    try:
        pieces = _split_parts(found.text)
    except SkyUsageError as error:
        return ParsedCell(Fields(), found.text, {"": _format_error(error)}, {}, reads, makes)
    fields = _fields(pieces)
    errors = check(fields, aliases)
    return ParsedCell(
        fields, found.text, errors, _expand_alias(fields.alias, aliases), reads, makes
    )


def write(source: str, fields: Fields | None) -> str:
    r"""Return the cell with these fields in its line; with None, without the line.

    A line that is there is changed where it says something else, and left alone where it does
    not; one that cannot be read is replaced.

    Examples
    --------
    >>> write("%%sky  --cpus 4+  -o m\nm = 1", Fields({"cpus": "8+", "output": "m"}))
    '%%sky  --cpus 8+  -o m\nm = 1'
    >>> write("m = 1", Fields({"spot": True}))
    '%%sky --spot\nm = 1'
    """
    found = _find(source)
    if fields is None:
        return source if found.text is None else found.before + found.after.removeprefix("\n")
    if found.text is None:
        return "\n".join([f"%%sky {fields.line()}".rstrip(), source])
    try:
        text = _edit_line(found.text, fields)
    except SkyUsageError:
        text = fields.line()
    head = f"{found.magic} {text}" if text else found.magic
    return f"{found.before}{head}{found.tail}{found.after}"


_NEEDED = {"allow_failures": "map"}
"""Fields that mean something only beside another."""


def check(fields: Fields, aliases: Mapping[str, str] = _NONE) -> dict[str, tuple[str, str]]:
    """Return mistakes in fields: message and hint by key.

    Examples
    --------
    >>> check(Fields({"cpus": "many"}))["cpus"][0]
    '--cpus many: not an amount'
    """
    values, errors = _drop_empty(fields.values), {}
    for key, value in values.items():
        needed = _NEEDED.get(key, "")
        alone = {key: value} | ({needed: values[needed]} if needed in values else {})
        if error := _find_line_errors(" ".join(_format_options(alone))):
            errors[key] = error
    if errors:
        return errors
    if fields.alias and fields.alias not in aliases:
        where = _("it is kept as it is, and what it stands for is not counted in here")
        return {
            "alias": (
                _("{alias!r} is not known outside of its notebook").format(alias=fields.alias),
                where,
            )
        }
    error = _find_line_errors(fields.line(), aliases)
    return {_find_contradiction(values): error} if error else {}


def _find_contradiction(values: Mapping[str, Value]) -> str:
    """Return the field that contradicts another."""
    for pair in (("on_demand", "spot"), ("no_auto", "auto"), ("name", "bg")):
        if all(key in values for key in pair):
            return pair[0]
    return "alias"


def _find_line_errors(line: str, aliases: Mapping[str, str] = _NONE) -> tuple[str, str] | None:
    try:
        parse_cell_line(line, aliases)
    except SkyUsageError as error:
        return _format_error(error)
    return None


def _format_error(error: SkyUsageError) -> tuple[str, str]:
    return error.message, error.hint or ""


# -- the line within the cell ------------------------------------------------------------------


class _CellParts(NamedTuple):
    """A cell around its line: `before`, `magic`, `text` and `tail` on the line itself, `after`."""

    before: str
    magic: str
    text: str | None
    tail: str
    after: str

    @property
    def body(self) -> str:
        return self.after if self.text is not None else self.before


def _find(source: str) -> _CellParts:
    """Return the index of the cell's ``%%sky`` line: its first text, or below other cell magics."""
    lines = source.split("\n")
    for number, line in enumerate(lines):
        match = _LINE.fullmatch(line)
        if match:
            before = "".join(f"{above}\n" for above in lines[:number])
            after = "".join(f"\n{below}" for below in lines[number + 1 :])
            return _CellParts(before, match[1], match[2] or "", match[3], after)
        if line.strip() and not line.lstrip().startswith("%%"):
            break
    return _CellParts(source, "", None, "", "")


def _names(body: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that a body reads before it assigns them, and those it assigns."""
    from jupyter_sky.execution.cells.cell_names import assigned_names, free_names
    from jupyter_sky.execution.cells.magic_code import parse_cell

    tree = parse_cell(body)
    if tree is None:
        return (), ()
    nodes = list(ast.walk(tree))
    known = {node.id: None for node in nodes if isinstance(node, ast.Name)}
    imports = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    imported = {(a.asname or a.name).partition(".")[0] for node in imports for a in node.names}
    free = (name for name in free_names(body, known) if not name.startswith("_"))
    reads = [name for name in free if not hasattr(builtins, name)]
    makes = sorted(n for n in assigned_names(body) - imported if not n.startswith("_"))
    return tuple(reads), tuple(makes)


# -- the line's words --------------------------------------------------------------------------


class _LinePart(NamedTuple):
    """Part of a line: one option with its value."""

    key: str
    flag: str
    value: Value
    start: int
    end: int


@lru_cache(maxsize=64)
def _split_parts(text: str) -> list[_LinePart]:
    words, spans = _split(text)
    pieces = []
    skip = 1 if words and not words[0].startswith("-") else 0
    if skip and not words[0].strip():
        raise SkyUsageError(
            _("{words!r} is not an option or an alias").format(words=words[0]),
            hint=_("take it away"),
        )
    if skip:
        pieces.append(_LinePart("alias", "", words[0], *spans[0]))
    for use in written_options(words[skip:]):
        start, end = spans[use.first + skip][0], spans[use.last + skip - 1][1]
        pieces.append(_LinePart(use.option.dest, use.flag, use.value or True, start, end))
    return pieces


def _split(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Words of a line as a shell reads them, with their positions."""
    stream = io.StringIO(text)
    lexer = shlex.shlex(stream, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words, spans, start = [], [], 0
    try:
        while (word := lexer.get_token()) is not None:
            end = stream.tell()
            raw = text[start:end]
            first = start + len(raw) - len(raw.lstrip(lexer.whitespace))
            words.append(word)
            spans.append((first, start + len(raw.rstrip(lexer.whitespace))))
            start = end
    except ValueError as error:
        raise SkyUsageError(
            _("%%sky {text}: {error}").format(text=text, error=str(error).lower()),
            hint=_("every quote needs its closing quote"),
        ) from None
    return words, spans


def _fields(pieces: Sequence[_LinePart]) -> Fields:
    values: dict[str, Value] = {}
    alias = ""
    for piece in pieces:
        if piece.key == "alias":
            alias = str(piece.value)
        elif BY_DEST[piece.key].kind == "names" and piece.key in values:
            values[piece.key] = f"{values[piece.key]}, {piece.value}"
        else:
            values[piece.key] = piece.value
    return Fields(values, alias)


def _expand_alias(alias: str, aliases: Mapping[str, str]) -> dict[str, Value]:
    """Return the options of an alias, with those of the aliases within it."""
    values: dict[str, Value] = {}
    seen = set[str]()
    while alias in aliases and alias not in seen:
        seen.add(alias)
        try:
            fields = _fields(_split_parts(aliases[alias]))
        except SkyUsageError:
            break
        values, alias = {**fields.values, **values}, fields.alias
    return values


def _edit_line(text: str, fields: Fields) -> str:
    """Return the line with changed options replaced, removed ones left out, new ones at its end."""
    pieces, values = _split_parts(text), _drop_empty(fields.values)
    said = _fields(pieces)
    old, alias = _drop_empty(said.values), fields.alias.strip()
    parts: list[str] = []
    done, position = set[str](), 0
    for piece in pieces:
        gap, raw = text[position : piece.start], text[piece.start : piece.end]
        position = piece.end
        if piece.key == "alias":
            new = alias
        elif piece.key not in values:
            new = ""
        elif values[piece.key] == old.get(piece.key):
            new = raw
        else:  # of a list that is given in several parts, the first has it all from now on
            new = (
                ""
                if piece.key in done
                else _format_option(piece.key, values[piece.key], piece.flag)
            )
        done.add(piece.key)
        if new:
            parts += [gap if parts else text[: pieces[0].start], new]
    if alias and not said.alias:
        parts = [alias, *([" ", *parts[1:]] if parts else [])]
    rest = _format_options({key: value for key, value in values.items() if key not in done})
    return " ".join(filter(None, ["".join(parts), *rest]))


def _format_options(values: Mapping[str, Value]) -> Iterator[str]:
    """Options in the order of the schema."""
    for option in OPTIONS:
        if option.dest in values:
            yield _format_option(option.dest, values[option.dest], option.flags[0])


def _format_option(key: str, value: Value, flag: str) -> str:
    if isinstance(value, bool) or BY_DEST[key].kind == "flag":
        return flag
    text = value if _is_one_word(value) else shlex.quote(value)
    return f"{flag}={text}" if is_option(value) else f"{flag} {text}"


def _is_one_word(text: str) -> bool:
    """Return whether a text needs no quotes to be one word of a line."""
    try:
        return shlex.split(text) == [text]
    except ValueError:
        return False


def _drop_empty(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values without empty texts, flags that are off, and unknown keys."""
    given: dict[str, Value] = {}
    for key, value in values.items():
        if key not in BY_DEST or value is False or value is None:
            continue
        text = value.strip() if isinstance(value, str) else value
        if BY_DEST[key].kind == "flag":
            text = True
        elif text is True and BY_DEST[key].kind != "optional":
            continue
        if text:
            given[key] = text
    return given


# -- Fields of the form: the options of ``%%sky`` with labels, the common ones first --------------

Kind = Literal["text", "list", "flag", "named", "choice"]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the form.

    Attributes
    ----------
    key : str
        Key that it sets: the `dest` of its option. A choice has a name of its own, and its
        choices are such keys.
    label, help, example : str
        Label beside it, meaning, and a value that may be written into it.
    kind : str
        ``text``, ``list`` (separated by commas), ``flag``, ``named`` (a flag that may have a
        value) or ``choice``.
    flag : str
        The option as it is written.
    group : str
        Heading below which it stands; empty for the common ones.
    complete : str
        Kind of names that complete it.
    choices : tuple of (str, str)
        Key to set, empty for none, and its words.
    """

    key: str
    label: str
    help: str
    example: str
    kind: Kind
    flag: str = ""
    group: str = ""
    complete: str = ""
    choices: tuple[tuple[str, str], ...] = ()


COMMON = (
    "gpus cpus memory nodes cloud region market max_hourly_cost timeout max_cost input output"
).split()
"""Fields at the top, in this order; the others are folded away below their group's heading."""

_CHOICES = {
    "market": (
        "Machines",
        "Spot machines are cheaper, and the cloud may take them back while the cell runs.",
        (("", "on demand"), ("spot", "spot"), ("on_demand", "on demand, written out")),
    ),
    "send": (
        "Send",
        "Whether the cell's variables are found by reading the cell.",
        (("", "as the settings say"), ("auto", "send what it reads"), ("no_auto", "only inputs")),
    ),
}
_LABELS = {
    "gpus": "GPU",
    "gpu_memory": "GPU memory",
    "cpus": "vCPUs",
    "cpu_vendor": "CPU maker",
    "arch": "Processor",
    "max_hourly_cost": "Max USD/h",
    "max_cost": "Stop after (USD)",
    "timeout": "Time limit",
    "input": "Inputs",
    "output": "Outputs",
    "intel_sgx": "Intel SGX",
    "pip": "Packages",
    "env": "Env variables",
    "sync": "Folders",
    "data": "Data",
    "mount": "Mounted data",
    "out": "Uploads",
    "on": "Engines",
    "idle": "Idle time",
    "bg": "Background",
    "dry_run": "Dry run",
    "retry_until_up": "Wait if full",
    "burst": "Rent when busy",
    "recover": "Go on elsewhere",
    "checkpoint": "Save every",
    "yes": "Large values",
    "untrusted": "Data only",
    "instance_type": "Machine type",
}
_UNITS = {
    "memory": "GiB",
    "gpu_memory": "GiB",
    "disk": "GiB",
}
"""Units of bare numbers in fields."""
_KINDS: dict[str, Kind] = {
    "value": "text",
    "names": "list",
    "flag": "flag",
    "optional": "named",
}


@cache
def schema() -> tuple[Field, ...]:
    """All fields, the common ones first.

    Examples
    --------
    >>> [field.label for field in schema()[:3]]
    ['GPU', 'vCPUs', 'Memory (GiB)']
    """
    found = {field.key: field for field in (*_choices(), *map(_field, OPTIONS))}
    merged = {key for field in found.values() for key, _ in field.choices}
    rest = [key for key in found if key not in merged and key not in COMMON]
    order = {group: place for place, group in enumerate(_groups())}
    rest.sort(key=lambda key: order[found[key].group])
    return (*(found[key] for key in COMMON), *(found[key] for key in rest))


def _groups() -> list[str]:
    return list(dict.fromkeys(option.group for option in OPTIONS))


def _field(option: Option) -> Field:
    key = option.dest
    label = _LABELS.get(key, key.replace("_", " ").capitalize())
    unit = f" ({_UNITS[key]})" if key in _UNITS else ""
    return Field(
        key=key,
        label=label + unit,
        help=option.help,
        example=option.example.partition(" ")[2].strip('"') if option.metavar else "",
        kind=_KINDS[option.kind],
        flag=option.flags[-1],
        group="" if key in COMMON else option.group,
        complete=option.complete,
    )


def _choices() -> list[Field]:
    return [
        Field(
            key=key,
            label=label,
            help=text,
            example="",
            kind="choice",
            group="" if key in COMMON else BY_DEST[choices[1][0]].group,
            choices=choices,
        )
        for key, (label, text, choices) in _CHOICES.items()
    ]
