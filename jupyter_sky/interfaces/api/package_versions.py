"""Versions of installed packages against those that are required."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from packaging.markers import Marker


def find_version_problems(requirements: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield packages that are missing or of another version, each with the command.

    Packages of an extra may be missing; those that are here have to fit as well.

    Examples
    --------
    >>> list(find_version_problems(["numpy>=1", "no-such-package>=2; python_version > '3'"]))
    [('no-such-package is missing', "pip install 'no-such-package>=2'")]
    """
    from importlib.metadata import PackageNotFoundError, version

    from packaging.requirements import Requirement

    for text in requirements:
        need = Requirement(text)
        marker = need.marker
        is_needed = marker is None or marker.evaluate({"extra": ""})
        command = f"pip install '{need.name}{need.specifier}'"
        try:
            found = version(need.name)
        except PackageNotFoundError:
            if is_needed:
                yield _("{name} is missing").format(name=need.name), command
            continue
        if marker is not None and not is_needed and not _is_for_here(marker):
            continue
        if not need.specifier.contains(found, prereleases=True):
            told = _("{name} is {found}, and {needed} is needed")
            yield told.format(name=need.name, found=found, needed=need.specifier), command


def _is_for_here(marker: Marker) -> bool:
    """Return whether a package is for this machine and Python, with any extra."""
    names = re.findall(r"""extra\s*==\s*["']([^"']+)["']""", str(marker))
    return any(marker.evaluate({"extra": name}) for name in names)
