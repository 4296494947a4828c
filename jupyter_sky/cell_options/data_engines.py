"""Data engines that a cluster can run beside its own engines: ``--engine NAME``."""

from __future__ import annotations

import re

from ..errors import SkyUsageError, suggest
from ..translation import _

DATA_ENGINES = ("spark", "dask", "ray")
_PATTERN = re.compile(r"(?i:([a-z]+)\s*((?:[<>=!~]=?|===).*)?)")


def parse_engine(text: str, option: str) -> str:
    """Read a data engine, with the version that it must have: ``ray``, ``ray==2.60.*``.

    Parameters
    ----------
    option
        Name of the option or of the parameter, for messages.

    Raises
    ------
    SkyUsageError
        There is none of that name, or the version cannot be read or chosen.

    Examples
    --------
    >>> parse_engine("Ray >= 2.60, <3", "--engine")
    'ray>=2.60,<3'
    """
    match = _PATTERN.fullmatch(text.strip())
    name = match[1].lower() if match else text
    if match is None or name not in DATA_ENGINES:
        raise SkyUsageError(
            _("{option} {name}: there is no such data engine").format(option=option, name=text),
            hint=suggest(name, DATA_ENGINES),
        )
    clause = re.sub(r"\s+", "", match[2] or "")
    if not clause:
        return name
    if name == "spark":
        raise SkyUsageError(
            _("{option} {name}: Spark runs in the version of the client on this machine").format(
                option=option, name=text
            ),
            hint=_('choose that: pip install "pyspark-client{clause}"').format(clause=clause),
        )
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(clause)
    except InvalidSpecifier:
        raise SkyUsageError(
            _("{option} {name}: {clause} is not a version").format(
                option=option, name=text, clause=clause
            ),
            hint=_('such as {option} "ray==2.60.*"').format(option=option),
        ) from None
    return name + clause


def split_engine(engine: str) -> tuple[str, str]:
    """Return the name of a data engine that has been read, and what its version must meet.

    Examples
    --------
    >>> split_engine("ray==2.60.*"), split_engine("dask")
    (('ray', '==2.60.*'), ('dask', ''))
    """
    name = re.split(r"[<>=!~]", engine, maxsplit=1)[0]
    return name, engine[len(name) :]
