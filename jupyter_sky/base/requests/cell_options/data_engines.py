"""Data engines that a cluster can run beside its own engines: ``--engine NAME``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.cell_options.spark_version import spark_version
from jupyter_sky.base.requests.geography import parse_clause
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

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
    clause = parse_clause(match[2] or "", option, text, "ray==2.60.*")
    if name == "spark" and clause:
        from packaging.specifiers import SpecifierSet

        _check_spark(SpecifierSet(clause), option, text)
        return name
    return name + clause


def _check_spark(wanted: SpecifierSet, option: str, text: str) -> None:
    """Raise SkyUsageError where Spark of the client's version is not what is wanted."""
    ours = spark_version()
    if wanted.contains(ours, prereleases=True):
        return
    if any(wanted.contains(f"3.{minor}.{patch}") for minor in range(6) for patch in range(10)):
        raise SkyUsageError(
            _("{option} {name}: a server of Spark 3 would take queries from anyone").format(
                option=option, name=text
            ),
            hint=_(
                '--service "{name}" takes a managed one; or --engine spark, which is {version}: '
                "spark.sql.ansi.enabled=false returns what 3 returned for overflows and casts"
            ).format(name=text, version=ours),
        )
    raise SkyUsageError(
        _("{option} {name}: Spark runs in the version of the client here, {version}").format(
            option=option, name=text, version=ours
        ),
        hint=_('choose that: pip install "pyspark-client{clause}"').format(clause=wanted),
    )


def split_engine(engine: str) -> tuple[str, str]:
    """Return the name of a data engine that has been read, and what its version must meet.

    Examples
    --------
    >>> split_engine("ray==2.60.*"), split_engine("dask")
    (('ray', '==2.60.*'), ('dask', ''))
    """
    name = re.split(r"[<>=!~]", engine, maxsplit=1)[0]
    return name, engine[len(name) :]
