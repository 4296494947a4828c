"""Platforms: the compiled packages that a Python can import."""

from __future__ import annotations

import platform
import re
import sysconfig
from typing import NamedTuple


class Platform(NamedTuple):
    """Python interpreter and its machine.

    Attributes
    ----------
    name : str
        For messages, such as ``linux-x86_64``.
    suffix : str
        Of extension modules: has the interpreter, its version and the machine.
    libc, libc_version : str
        Its C library; empty where that is not known.
    tags : list of str
        Of wheels that can be installed.
    """

    name: str
    suffix: str
    libc: str
    libc_version: str
    tags: list[str]

    @classmethod
    def current(cls) -> Platform:
        """Describe this Python."""
        from packaging.tags import sys_tags

        suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
        tags = [str(tag) for tag in sys_tags()]
        return cls(sysconfig.get_platform(), suffix, *platform.libc_ver(), tags)


def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version.

    Examples
    --------
    >>> parse_version("2.36") < parse_version("2.4")
    False
    """
    return tuple(int(number) for number in re.findall(r"\d+", text))
