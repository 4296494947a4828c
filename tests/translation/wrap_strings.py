"""Make texts of the package translatable: ``python -m tests.translation.wrap_strings [PATH...]``.

Each text that `python_strings` finds becomes an argument of ``_``; an f-string becomes a text with
names, translated before its values are filled in. Texts of a module that are made as it is imported
are listed and left to a person: mark them with ``N_`` and translate them where they are shown.
Names of files or folders limit the change to them. Format the result with ruff.
"""

from __future__ import annotations

import ast
import keyword
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.translation.python_strings import PACKAGE, Text, sources, texts

WIDTH = 70
PLAIN_METHODS = frozenset(
    "lower upper splitlines strip rstrip lstrip title capitalize decode get split replace".split()
)


def wrapped(text: Text) -> str:
    """Return the source of a translated text."""
    node = text.node
    if isinstance(node, ast.Constant):
        return f"_({_literal(str(node.value))})"
    words, values = "", dict[str, str]()
    for part in node.values:
        if isinstance(part, ast.Constant):
            words += str(part.value).replace("{", "{{").replace("}", "}}")
        elif isinstance(part, ast.FormattedValue):
            words += _field(part, values)
    if not values:
        return f"_({_literal(words.replace('{{', '{').replace('}}', '}'))})"
    arguments = ", ".join(f"{name}={source}" for name, source in values.items())
    return f"_({_literal(words)}).format({arguments})"


def _field(part: ast.FormattedValue, values: dict[str, str]) -> str:
    """Return a replacement field; add its value, and those of its format, to `values`."""
    field = _name(part.value, values)
    if part.conversion != -1:
        field += f"!{chr(part.conversion)}"
    if isinstance(part.format_spec, ast.JoinedStr):
        spec = ""
        for piece in part.format_spec.values:
            nested = isinstance(piece, ast.FormattedValue)
            spec += f"{{{_name(piece.value, values)}}}" if nested else str(piece.value)  # type: ignore[attr-defined]
        field += f":{spec}"
    return f"{{{field}}}"


def _name(value: ast.expr, values: dict[str, str]) -> str:
    """Return a name for a value, unique among those of the text, and add it to `values`."""
    source = ast.unparse(value)
    for written, shorter in (("1000000000.0", "1e9"), ("1000000.0", "1e6"), ("1000.0", "1e3")):
        source = source.replace(written, shorter)
    base = re.sub(r"\W|^_+|_+$", "", _noun(value)).lower() or "value"
    if keyword.iskeyword(base) or base == "self":
        base = f"{base}_value"
    name, number = base, 2
    while values.get(name, source) != source:
        name, number = f"{base}{number}", number + 1
    values[name] = source
    return name


def _noun(value: ast.expr) -> str:
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=of) | ast.Starred(value=of) | ast.Await(value=of):
            return _noun(of)
        case ast.Call(func=ast.Name(id="len"), args=[of]):
            return f"{_noun(of)}_count"
        case ast.Call(func=ast.Attribute(attr="join"), args=[of, *_]):
            return _noun(of)
        case ast.Call(func=ast.Name(id="type")):
            return "type_name"
        case ast.Call(func=ast.Attribute(value=of, attr=attr)) if attr in PLAIN_METHODS:
            return _noun(of)
        case ast.Call(args=[of, *_]) if isinstance(of, ast.Name | ast.Attribute | ast.Call):
            return _noun(of)
        case ast.Call(args=[ast.BinOp() as of]):
            return _noun(of)
        case ast.Call(func=of):
            return _noun(of)
        case ast.BinOp(left=ast.Constant(), right=of):
            return _noun(of)
        case ast.BinOp(left=of) | ast.BoolOp(values=[of, *_]) | ast.UnaryOp(operand=of):
            return _noun(of)
        case ast.IfExp(body=of):
            return _noun(of) if not isinstance(of, ast.Constant) else "words"
        case ast.GeneratorExp(elt=of) | ast.ListComp(elt=of):
            return _noun(of)
        case ast.JoinedStr():
            return "words"
    return "value"


def _literal(words: str) -> str:
    """Return a text as string literals of at most `WIDTH` characters each."""
    pieces = [piece for line in words.splitlines(keepends=True) for piece in _pieces(line)]
    return " ".join(map(_quoted, pieces or [""]))


def _pieces(line: str) -> Iterator[str]:
    while len(line) > WIDTH and " " in line[:WIDTH].strip():
        at = line.rfind(" ", 0, WIDTH) + 1
        yield line[:at]
        line = line[at:]
    yield line


def _quoted(piece: str) -> str:
    body = piece.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
    body = body.replace("\x1b", "\\x1b").replace("\r", "\\r")
    if '"' in body and "'" not in body:
        return f"'{body}'"
    return '"' + body.replace('"', '\\"') + '"'


def wrap(path: Path, source: str) -> tuple[str, list[Text]]:
    """Return the source with its texts translated, and the texts that are left to a person."""
    tree = ast.parse(source)
    found = list(texts(path, tree))
    left = [text for text in found if not text.in_function]
    inner = [text for text in found if text.in_function]
    if not inner:
        return source, left
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data, last = source.encode(), len(source.encode()) + 1
    place = {text: starts[text.node.lineno - 1] + text.node.col_offset for text in inner}
    for text in sorted(inner, key=lambda text: -place[text]):
        node = text.node
        begin = place[text]
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        if end > last or not _is_source_of(data[begin:end], node):
            continue  # it holds a text that has just been changed: the next pass finds it
        new = wrapped(text)
        if text.in_text:
            if "\\" in new or "'" in new:
                left.append(text)
                continue
            new = new.replace('"', "'")  # the text around it has double quotes
        data, last = data[:begin] + new.encode() + data[end:], begin
    return _import(path, _rename_ignored(data.decode())), left


def _is_source_of(data: bytes, node: ast.AST) -> bool:
    """Whether a part of the source is that of a node; Python 3.11 misplaces parts of f-strings."""
    try:
        return ast.dump(ast.parse(b"(" + data + b")", mode="eval").body) == ast.dump(node)
    except SyntaxError:
        return False


def _rename_ignored(source: str) -> str:
    """Rename names ``_`` that hold what is not used: they would hide the function."""
    lines = source.splitlines(keepends=True)
    nodes = [
        node
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Name) and node.id == "_" and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.arg) and node.arg == "_")
    ]
    for node in sorted(nodes, key=lambda node: (-node.lineno, -node.col_offset)):
        line = lines[node.lineno - 1].encode()
        at = node.col_offset
        lines[node.lineno - 1] = (line[:at] + b"__" + line[at + 1 :]).decode()
    return "".join(lines)


def _import(path: Path, source: str) -> str:
    """Import the function where it is not yet; ruff sorts the imports."""
    tree = ast.parse(source)
    for node in tree.body:
        names = [name.name for name in node.names] if isinstance(node, ast.ImportFrom) else []
        if "_" in names:
            return source
    dots = "." * len(path.relative_to(PACKAGE).parts)
    lines = source.splitlines(keepends=True)
    at = 0
    for node in tree.body:
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (is_future or is_docstring):
            break
        at = node.end_lineno or 0
    lines.insert(at, f"\nfrom {dots}translation import _\n")
    return "".join(lines)


def main(names: list[str]) -> None:
    """Wrap the texts of the files named, or of all."""
    wanted = [Path(name).resolve() for name in names] or [PACKAGE]
    for path in sources():
        if not any(path.is_relative_to(folder) for folder in wanted):
            continue
        for _ in range(4):  # texts within texts, the inner ones first
            before = path.read_text(encoding="utf-8")
            after, left = wrap(path, before)
            if after == before:
                break
            path.write_text(after, encoding="utf-8")
        for text in left:
            print(f"by hand: {text}")


if __name__ == "__main__":
    main(sys.argv[1:])
