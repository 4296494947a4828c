"""Python that IPython's magics run in the namespace of a cell, for the analysis of its names."""

from __future__ import annotations

import ast
import getopt
import re
import string
from collections.abc import Sequence

_CODE_MAGICS = {
    "time": "",
    "timeit": "n:r:tcp:qov",
    "prun": "D:l:rs:T:q",
    "debug": "b:",
    "memit": "r:t:i:c:o",
    "mprun": "T:f:c",
    "lprun": "rsf:m:D:T:u:z",
}
"""Magics that run their line or their body, with their options as `getopt` has them."""
_NAME_MAGICS = frozenset("pinfo pinfo2 pdoc psource pdef pfile psearch store xdel".split())
"""Magics whose line is the name of an object."""
_SCRIPT_RESULT = re.compile(r"--(?:out|err|proc)[ =]+([^\W\d]\w*)")
_DOLLAR_NAME = re.compile(r"\$([^\W\d]\w*)")
_LEADING_NAME = re.compile(r"\s*([^\W\d]\w*)")


def parse_cell(code: str) -> ast.Module | None:
    """Return the syntax tree of a cell with magics replaced by the Python that they run.

    Bodies of magics that do not run in the namespace of the cell, such as ``%%bash``, are left out.
    None where the code has errors.

    Examples
    --------
    >>> ast.unparse(parse_cell("%time y = f(x)"))
    'y = f(x)'
    """
    try:
        return _MagicReplacer().visit(ast.parse(to_plain_python(code)))
    except SyntaxError:
        return None


def to_plain_python(code: str) -> str:
    """Return the code with IPython's own syntax turned into Python."""
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager().transform_cell(code)


def shell_call(node: ast.AST) -> tuple[str, list[str]] | None:
    """Return the method of IPython's shell that an expression calls, and its texts, or None."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return None
    shell = node.func.value
    if not (isinstance(shell, ast.Call) and isinstance(shell.func, ast.Name)):
        return None
    texts = [part.value for part in node.args if isinstance(part, ast.Constant)]
    if shell.func.id != "get_ipython" or len(texts) != len(node.args):
        return None
    return node.func.attr, [str(text) for text in texts]


class _MagicReplacer(ast.NodeTransformer):
    """Replace calls of ``get_ipython()`` that run magics and commands."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        call = shell_call(node.value)
        return self.generic_visit(node) if call is None else _statements(*call)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        call = shell_call(node)
        if call is None:
            return self.generic_visit(node)
        statements = _statements(*call)
        values = [each.value for each in statements if isinstance(each, ast.Expr)]
        return values[0] if len(values) == 1 else ast.Tuple(values, ast.Load())


def _statements(method: str, texts: Sequence[str]) -> list[ast.stmt]:
    """Return the statements that a method of the shell runs."""
    if method == "run_cell_magic" and len(texts) == 3:
        return _cell_magic(*texts)
    if method == "run_line_magic" and len(texts) == 2:
        return _line_magic(*texts)
    if method in ("system", "getoutput") and texts:
        return _interpolated(texts[0])
    return []


def _line_magic(name: str, line: str) -> list[ast.stmt]:
    if name in _CODE_MAGICS:
        return _timed(name, [line])
    if name in _NAME_MAGICS:
        return _parse(match[1]) if (match := _LEADING_NAME.match(line)) else []
    return _interpolated(line)


def _cell_magic(name: str, line: str, body: str) -> list[ast.stmt]:
    if name in _CODE_MAGICS:
        return _timed(name, [line, body])
    if name == "capture":
        names = [word for word in line.split() if word.isidentifier()]
        return _parse("\n".join([*(f"{word} = None" for word in names), body]))
    made = [f"{word} = None" for word in _SCRIPT_RESULT.findall(line)]
    return _interpolated(line) + _parse("\n".join(made))


def _timed(name: str, parts: Sequence[str]) -> list[ast.stmt]:
    """Return the code of a magic that measures or debugs it, with its options taken off."""
    words = parts[0].split(" ")
    while words and (not words[0] or words[0].startswith("--")):
        del words[0]
    functions: list[str] = []
    try:
        options, rest = getopt.getopt(words, _CODE_MAGICS[name])
        functions = [value for key, value in options if key == "-f"]
    except getopt.GetoptError:
        rest = words
    code = "\n".join([*functions, " ".join(rest), *parts[1:]])
    statements = _parse(code)
    if name != "timeit":
        return statements
    # as in a branch: names that it makes are its own
    return [ast.If(ast.Constant(True), statements, [])] if statements else []


def _interpolated(text: str) -> list[ast.stmt]:
    """Return the expressions in ``{braces}`` and the names after a ``$`` in a command or line."""
    names = _DOLLAR_NAME.findall(text)
    try:
        names += [field for _, field, _, _ in string.Formatter().parse(text) if field]
    except ValueError:  # braces of the command's own
        pass
    return [statement for name in names for statement in _parse(name)]


def _parse(code: str) -> list[ast.stmt]:
    tree = parse_cell(code)
    return [] if tree is None else tree.body
