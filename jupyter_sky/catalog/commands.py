"""``jupyter sky catalog``: fetch prices anew, check one's own, build what ships."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..errors import SkyUsageError, suggest

USAGE = """Commands
  (none)                       what the catalog holds, from where, how old
  refresh [CLOUD ...]          fetch prices from the clouds' own interfaces
    --dry-run                  compare only
    --force                    take fewer offers, or prices far off, all the same
  check [FILE]                 check your own offers and discounts. E.g. check offers.csv
  build [SOURCE_DIR] [-o DIR]  build the catalog that ships, from CSV files. E.g. build facts/"""


def call(words: Sequence[str]) -> Any:
    """Carry out one command; without one, say what the catalog holds."""
    if not words:
        from .refresh import show

        return show()
    if words[0] == "help":
        print(USAGE)
        return None
    if words[0] not in COMMANDS:
        raise SkyUsageError(
            f"catalog {words[0]}: there is no such command", hint=suggest(words[0], COMMANDS)
        )
    return COMMANDS[words[0]](list(words[1:]))


def _refresh(words: list[str]) -> Any:
    from .refresh import command

    return command(words)


def _check(words: list[str]) -> None:
    from .loader import user_offer_files
    from .user_offers import check_file

    if len(words) > 1:
        raise SkyUsageError(f"catalog check: one file at most, not {' '.join(words)}")
    paths = [Path(word) for word in words] or user_offer_files()
    if not paths:
        print("there is no file of your own: see Sky.offers in %sky config")
    for path in paths:
        found = check_file(path)
        print(f"{path}: {len(found.rows)} offers, {len(found.discounts)} discounts")


def _build(words: list[str]) -> None:
    from .loader import shipped_directory

    target = shipped_directory()
    if "-o" in words:
        at = words.index("-o")
        if at + 1 == len(words):
            raise SkyUsageError("catalog build: -o needs a directory")
        target = Path(words[at + 1])
        del words[at : at + 2]
    if len(words) > 1 or any(word.startswith("-") for word in words):
        raise SkyUsageError(
            f"catalog build: one directory, not {' '.join(words)}", hint="catalog build SOURCE_DIR"
        )
    source = Path(words[0]) if words else Path.cwd()
    if not source.is_dir():
        raise SkyUsageError(f"catalog build: {source} is not a directory")
    try:
        from .builder import build

        print(build(source, target))
    except ImportError as error:
        raise SkyUsageError(
            f"catalog build: {error.name} is missing", hint="pip install pandas"
        ) from None
    print(f"written to {target}")


COMMANDS: Mapping[str, Callable[[list[str]], Any]] = MappingProxyType(
    {"refresh": _refresh, "check": _check, "build": _build}
)
