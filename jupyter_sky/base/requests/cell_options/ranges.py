"""Ranges of parameters as options write them: ``lr=0.1,0.01``, ``seed=0:5``, ``salt=0.1..0.9``."""

from __future__ import annotations

import ast
import re
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.identifiers import check_identifier
from jupyter_sky.base.requests.cell_options.sweep import read_written
from jupyter_sky.base.translation import _

SWEEP_HINT = "such as --sweep lr=0.1,0.01,seed=0:5, or with -n 50 --sweep salt=0.1..0.9"
_STEPS = re.compile(r"(-?\d+):(-?\d+)(?::(-?\d+))?")
_INTERVAL = re.compile(r"([-+.\deE]+)\.\.([-+.\deE]+)")
_NAME = re.compile(r"(?:^|,)\s*([A-Za-z_]\w*)\s*=")


def read_ranges(text: str | None, seed: str | None = None) -> dict[str, Any]:
    """Return the ranges of parameters that options give.

    Parameters
    ----------
    text
        Value of ``--sweep``: for each name a list of choices, whole numbers ``first:end`` or
        ``first:end:step`` as a slice has them, or an interval ``low..high``.
    seed
        Value of ``--seed``: that of the parameter ``seed``.

    Returns
    -------
    dict
        As `bags.queue.parameters.make_sweep` takes it: choices as lists, intervals as tuples.

    Raises
    ------
    SkyUsageError
        One is not understood, or a name is given twice.

    Examples
    --------
    >>> read_ranges("lr=0.1,0.01,kind=adam", "0:3")
    {'lr': [0.1, 0.01], 'kind': ['adam'], 'seed': [0, 1, 2]}
    >>> read_ranges("salt=0.1..0.9,z=1:4")
    {'salt': (0.1, 0.9), 'z': [1, 2, 3]}
    """
    ranges: dict[str, Any] = {}
    written = _split(text) if text is not None else []
    if seed is not None:
        written.append(("seed", seed))
    for name, values in written:
        check_identifier(name, "--sweep", SWEEP_HINT)
        if name in ranges:
            raise SkyUsageError(
                _("--sweep: {name} is given twice").format(name=name), hint=_("give it once")
            )
        ranges[name] = _read_values(name, values.strip())
    return ranges


def _split(text: str) -> list[tuple[str, str]]:
    """Return the names of a text with their values: a comma is within a list or before a name."""
    starts = list(_NAME.finditer(text))
    if not starts or starts[0].start() != 0:
        raise SkyUsageError(
            _("--sweep {text}: not a name with values").format(text=text), hint=SWEEP_HINT
        )
    ends = [match.start() for match in starts[1:]] + [len(text)]
    return [(match[1], text[match.end() : end]) for match, end in zip(starts, ends, strict=True)]


def _read_values(name: str, text: str) -> Any:
    if match := _STEPS.fullmatch(text):
        first, end, step = (int(each) if each else 1 for each in match.groups())
        return list(range(first, end, step or 1))
    try:
        if match := _INTERVAL.fullmatch(text):
            return float(match[1]), float(match[2])
        found = read_written(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError):
        raise SkyUsageError(
            _("--sweep {name}={text}: not understood").format(name=name, text=text),
            hint=SWEEP_HINT,
        ) from None
    return list(found) if isinstance(found, list | tuple) else [found]
