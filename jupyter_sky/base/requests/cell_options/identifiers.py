"""Names of variables, cells and tasks in options."""

from __future__ import annotations

import keyword
import re

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _


def check_identifier(name: str, flag: str, hint: str) -> str:
    """Return a name that Python takes.

    Parameters
    ----------
    name
        The text.
    flag, hint
        Option that it is written after, and what to write instead.

    Raises
    ------
    SkyUsageError
        It is not a name.

    Examples
    --------
    >>> check_identifier("lr", "-i", "such as -i x")
    'lr'
    """
    if keyword.iskeyword(name):
        raise SkyUsageError(
            _("{flag} {name}: not a name, but a word of Python's").format(flag=flag, name=name),
            hint=hint,
        )
    if not name.isidentifier():
        raise SkyUsageError(
            _(
                "{flag} {name}: not a name; names have letters, digits and _, and do not begin "
                "with a digit"
            ).format(flag=flag, name=name),
            hint=hint,
        )
    return name


def nearest_identifier(text: str) -> str:
    """Return the name that resembles a text most; empty for one without letters and digits.

    Examples
    --------
    >>> [nearest_identifier(text) for text in ("my-name", "3x", "class", "++")]
    ['my_name', '_3x', 'class_', '']
    """
    name = re.sub(r"\W+", "_", text).strip("_")
    if name[:1].isdigit():
        return f"_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name
