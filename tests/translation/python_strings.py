"""Texts for users in the Python sources, found without running them.

A text is for users when its own words (two letters in a row, outside of values that are filled in)
stand in one of these places:

* an argument of a `SkyError` or a subclass: a message or its hint;
* an argument of ``print`` or ``warnings.warn``, a caption of a table (``heading``, ``caption``);
* a keyword argument ``help``, ``hint``, ``label``, ``title``, ``tooltip`` or ``description``;
* in a room that shows things (`SHOWING`), any text of two words or more that a function makes.

Not for users are: docstrings, what is compared with or looked up, split into words, matched as a
pattern, executed as SQL or written to a log, other exceptions (they tell a programmer of a mistake
in a program, and stay English as Python's own), and texts without a word (``f"{a}: {b}"``).

A text is translated when it is an argument of `_`, `N_` or `ngettext`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "jupyter_sky"
SHOWING = frozenset(
    ("magics", "widgets", "forms", "server", "executor", "functions", "api", "ledger", "cli.py")
)
TRANSLATORS = frozenset(("_", "N_", "ngettext"))
PRINTING = frozenset(("print", "warn"))
KEYWORDS = frozenset(("help", "hint", "label", "title", "tooltip", "description", "message"))
INTERNAL = frozenset(
    "compile match search sub finditer findall fullmatch split execute executemany executescript"
    " debug info warning exception error getLogger TypeVar NewType Path get pop getattr setattr"
    " hasattr startswith endswith partition rpartition removeprefix removesuffix index find"
    " replace encode strip count import_module join_query run Popen namedtuple field".split()
)
_WORD = re.compile(r"[^\W\d_]{2,}")
_WORDS = re.compile(r"[^\W\d_]{2,}[,.:;]? [^\W\d_]+")
_TECHNICAL = re.compile(
    "|".join(
        (
            r"^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|ALTER|DROP|BEGIN|WHERE|AND|CAST)\b",
            r"^\s*(ORDER BY|GROUP BY)| WHERE ",  # SQL
            r"^\s*(#!|import |from \w+ import|def |class |python)|=\{|\$\{|\\[sdwb]",  # programs
            r"^%?%?sky |^ *--?\w+[ -]",  # lines of options
            r"^(jupyter sky|pip install|sudo) [\w{}' -]+$",  # commands
            r"^\s*<|</|jsky-|var\(--|padding:|white-space|^\s*\.?[\w-]+\s*\{",  # HTML and CSS
            r"\w+;\s*\w+:|[\w-]+:\s?[\w#.-]+;|^(fill|stroke): ",
            r"^\w+/\w+;|^attachment|^\{\"| rc=",  # headers, JSON, PMI
            r"^[a-z_ ]*[a-z]_[a-z][a-z_ ]*$",  # lists of names
        )
    )
)


@dataclass(frozen=True, slots=True)
class Text:
    """A text for users.

    Attributes
    ----------
    path : Path
        File of the package.
    node : ast.Constant or ast.JoinedStr
        The literal in its source.
    words : str
        Its own words; ``{}`` where a value is filled in.
    in_function : bool
        Whether it is made each time a function runs, and not once as the module is imported.
    in_text : bool
        Whether it stands within an f-string.
    """

    path: Path
    node: ast.Constant | ast.JoinedStr
    words: str
    in_function: bool
    in_text: bool

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.node.lineno}: {self.words!r}"


def literal_words(node: ast.AST) -> str | None:
    """Return the words of a literal, None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
    return None


def called_name(call: ast.Call) -> str:
    """Return the last name of what is called."""
    return getattr(call.func, "id", None) or getattr(call.func, "attr", "")


def sources() -> list[Path]:
    """Return the Python files of the package."""
    return sorted(PACKAGE.rglob("*.py"))


@cache
def error_classes() -> frozenset[str]:
    """Return the names of `SkyError` and of all classes that derive from it."""
    bases: dict[str, set[str]] = {}
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = {getattr(b, "id", None) or getattr(b, "attr", "") for b in node.bases}
                bases[node.name] = names
    errors = {"SkyError"}
    while more := {name for name, of in bases.items() if of & errors} - errors:
        errors |= more
    return frozenset(errors)


def texts(path: Path, tree: ast.Module) -> Iterator[Text]:
    """Yield the texts for users of one file that are not translated."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    room = path.relative_to(PACKAGE).parts[0]
    for node in ast.walk(tree):
        words = literal_words(node)
        if words is None or not _WORD.search(words) or isinstance(parents[node], ast.JoinedStr):
            continue
        place = _place(node, parents, error_classes())
        is_shown = place == "shown" and not _is_identifier(words)
        if is_shown or (place == "" and room in SHOWING and _reads_as_words(words, node, parents)):
            in_text = _enclosing(node, parents, ast.FormattedValue) is not None
            yield Text(path, node, words, _in_function(node, parents), in_text)  # type: ignore[arg-type]


def _is_identifier(words: str) -> bool:
    """Whether a text is one name, option or address rather than words."""
    return not _WORDS.search(words) and bool(
        re.fullmatch(r"[\w.%/:{}=<>-]*[._/{}=:%-][^ ]*", words)
    )


def _reads_as_words(words: str, node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    plain = words.replace("{}", "xx")
    return (
        _in_function(node, parents) and bool(_WORDS.search(plain)) and not _TECHNICAL.search(words)
    )


def _in_function(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether a node is evaluated each time a function runs: not its decorators and defaults."""
    while node in parents:
        child, node = node, parents[node]
        if isinstance(node, ast.Lambda) and child is node.body:
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and child in node.body:
            return True
    return False


def _enclosing(
    node: ast.AST, parents: dict[ast.AST, ast.AST], *kinds: type[ast.AST]
) -> ast.AST | None:
    """Return the innermost node of a kind around another."""
    while node in parents:
        node = parents[node]
        if isinstance(node, kinds):
            return node
    return None


def _place(node: ast.AST, parents: dict[ast.AST, ast.AST], errors: Iterable[str]) -> str:
    """Return "shown", "hidden", or nothing where the place does not tell."""
    keyword = ""
    while node in parents:
        child, node = node, parents[node]
        if isinstance(node, ast.keyword):
            keyword = node.arg or ""
        elif isinstance(node, ast.Call):
            if child is node.func:
                return (
                    "hidden" if isinstance(child, ast.Attribute) and child.attr in INTERNAL else ""
                )
            name = called_name(node)
            if name in TRANSLATORS or name in INTERNAL:
                return "hidden"
            if name in errors or name in PRINTING or keyword in KEYWORDS:
                return "shown"
            if re.search(r"(Error|Exception|Warning)$", name):
                return "hidden"
            if name not in ("join", "format", "str", "append", "extend", "filter", "tuple", "list"):
                return ""
        elif (
            isinstance(node, ast.Compare | ast.Subscript | ast.arguments | ast.Assert)
            or (isinstance(node, ast.AnnAssign) and child is node.annotation)
            or (isinstance(node, ast.Dict) and child in node.keys)
        ):
            return "hidden"
        elif isinstance(node, ast.Attribute):
            if node.attr in INTERNAL:
                return "hidden"
        elif isinstance(node, ast.FormattedValue):
            return "hidden" if child is node.format_spec else ""
        elif isinstance(node, ast.Expr):
            return "hidden" if child is node.value and literal_words(child) is not None else ""
        elif isinstance(node, ast.stmt):
            return ""
    return ""


def untranslated() -> list[Text]:
    """Return the texts for users of the package that are not translated."""
    found = []
    for path in sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += sorted(texts(path, tree), key=lambda text: text.node.lineno)
    return found


if __name__ == "__main__":
    print("\n".join(map(str, untranslated())))
