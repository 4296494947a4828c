"""Options that let a cell run only if something holds: ``--if`` and ``--default``."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.identifiers import check_identifier
from jupyter_sky.base.requests.cell_options.sweep import read_written
from jupyter_sky.base.requests.cell_options.values import CellDefault, CellOptions
from jupyter_sky.base.translation import _

IF_HINT = 'comparisons of values, such as --if "acc > .9 and epochs >= 3"'
DEFAULT_HINT = "such as --default model=None"
_COMPARED = (ast.cmpop, ast.Compare, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.USub)
_COMPUTED = (ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.IfExp)
_READ = (ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Subscript, ast.Slice)
_ALLOWED = (*_COMPARED, *_COMPUTED, *_READ, ast.List, ast.Tuple, ast.Set, ast.Dict)
"""What a condition is made of: it calls nothing and changes nothing."""
_LONGEST = 80
"""Characters of a value that are shown."""


def parse_condition(text: str, name: str = "--if") -> str:
    """Check the condition of ``--if``, or of an option of another name, and return it.

    Raises
    ------
    SkyUsageError
        It is not an expression, or has calls, attributes or other parts that are not allowed.

    Examples
    --------
    >>> parse_condition("acc > .9")
    'acc > .9'
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        raise SkyUsageError(
            _("{name} {text}: not an expression").format(name=name, text=text),
            hint=IF_HINT.replace("--if", name),
        ) from None
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise SkyUsageError(
                _("{name} {text}: {part} is not allowed in a condition").format(
                    name=name,
                    text=text,
                    part=ast.unparse(node) if isinstance(node, ast.expr) else text,
                ),
                hint=IF_HINT.replace("--if", name),
            )
    return text.strip()


def condition_names(condition: str) -> tuple[str, ...]:
    """Return the names that a condition reads.

    Examples
    --------
    >>> condition_names("acc > .9 and scores[best] < acc")
    ('acc', 'scores', 'best')
    """
    nodes = ast.walk(ast.parse(condition, mode="eval"))
    names = sorted(
        (node for node in nodes if isinstance(node, ast.Name)), key=lambda node: node.col_offset
    )
    return tuple(dict.fromkeys(node.id for node in names))


def is_met(condition: str, values: Mapping[str, Any], name: str = "--if") -> bool:
    """Return whether a condition holds.

    Parameters
    ----------
    condition
        As `parse_condition` returns it.
    values
        Of its names: what JSON can hold, and numbers of NumPy.
    name
        Of the option, for messages.

    Raises
    ------
    SkyUsageError
        A name has no value, or one of another kind; or the values cannot be compared so.

    Examples
    --------
    >>> is_met("acc > .9", {"acc": 0.93}), is_met("'loss' in row", {"row": {"acc": 1}})
    (True, False)
    """
    code = compile(parse_condition(condition, name), name, "eval")
    known = {each: _plain(each, values) for each in condition_names(condition)}
    try:
        return bool(eval(code, {"__builtins__": {}}, known))
    except Exception as error:
        raise SkyUsageError(
            _("{name} {condition}: {kind}: {error}").format(
                name=name, condition=condition, kind=type(error).__name__, error=error
            )
        ) from None


def describe_unmet(condition: str, values: Mapping[str, Any]) -> str:
    """Return the sentence that a condition does not hold, with its values.

    Examples
    --------
    >>> describe_unmet("acc > .9", {"acc": 0.5})
    'acc > .9 is false: acc = 0.5'
    """
    shown = []
    for name in condition_names(condition):
        text = repr(_plain(name, values))
        shown.append(f"{name} = {text if len(text) <= _LONGEST else text[: _LONGEST - 3] + '...'}")
    text = _("{condition} is false").format(condition=condition)
    return f"{text}: {', '.join(shown)}" if shown else text


def _plain(name: str, values: Mapping[str, Any]) -> Any:
    """Return a value as JSON holds it.

    Raises
    ------
    SkyUsageError
        There is none, or it is of another kind.
    """
    if name not in values:
        raise SkyUsageError(_("--if: there is no value of {name}").format(name=name))
    try:
        return _as_json(values[name])
    except TypeError:
        kind = type(values[name]).__name__
        raise SkyUsageError(
            _("--if: {name} is a {kind}").format(name=name, kind=kind),
            hint=_("compare numbers, texts, True, False, None, and lists and dicts of these"),
        ) from None


def _as_json(value: Any) -> Any:
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _as_json(each) for key, each in value.items()}
    raise TypeError(type(value))


def check_defaults(options: CellOptions) -> None:
    """Refuse a ``--default`` that is never taken.

    Raises
    ------
    SkyUsageError
        There is no condition, or ``-o`` does not give the name.
    """
    outputs = {output.name for output in options.outputs}
    for name in (each.name for each in options.defaults):
        if not options.condition:
            text = _("--default: without --if the cell gives {name} itself").format(name=name)
            raise SkyUsageError(text, hint=IF_HINT)
        if name not in outputs:
            raise SkyUsageError(
                _("--default: -o does not give {name}").format(name=name),
                hint=_("such as -o {name}").format(name=name),
            )


def parse_defaults(items: Sequence[str]) -> tuple[CellDefault, ...]:
    """Parse the values of ``--default``: ``NAME=VALUE``.

    Raises
    ------
    SkyUsageError
        A value is not understood, or a name is given twice.

    Examples
    --------
    >>> parse_defaults(["model=None"])
    (CellDefault(name='model', expression='None'),)
    """
    found: dict[str, CellDefault] = {}
    for item in items:
        name, equals, expression = (part.strip() for part in item.partition("="))
        if not equals or not expression:
            raise SkyUsageError(
                _("--default {item}: not a name with a value").format(item=item), hint=DEFAULT_HINT
            )
        check_identifier(name, "--default", DEFAULT_HINT)
        default = CellDefault(name, expression)
        try:
            default_value(default)
        except (SyntaxError, ValueError):
            raise SkyUsageError(
                _("--default {item}: not a value as it is written").format(item=item),
                hint=DEFAULT_HINT,
            ) from None
        if found.setdefault(name, default) != default:
            raise SkyUsageError(
                _("--default: {name} is given twice").format(name=name), hint=_("give it once")
            )
    return tuple(found.values())


def default_value(default: CellDefault) -> Any:
    """Return the value of ``--default``.

    Examples
    --------
    >>> default_value(CellDefault("scores", "[0.5, none]"))
    [0.5, 'none']
    """
    return read_written(ast.parse(default.expression, mode="eval").body)
