"""python tests/benchmarks/limits.py: compare the counts of the source with their limits.

Prints each figure that exceeds its limit in `limits.toml`, with what it counts, and fails then.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import house

LIMITS = Path(__file__).with_name("limits.toml")


def read_limits(benchmark: str) -> dict[str, float]:
    """Return the limits of a benchmark's figures."""
    return tomllib.loads(LIMITS.read_text(encoding="utf-8")).get(benchmark, {})


def find_excesses(figures: Mapping[str, float], limits: Mapping[str, float]) -> list[str]:
    """Return a line for each figure above its limit, or without a value."""
    return [
        f"{name}: {figures.get(name, 'no figure')}, limit {limit}"
        for name, limit in limits.items()
        if name not in figures or figures[name] > limit
    ]


def main() -> int:
    """Check the counts; return the exit code."""
    counted = io.StringIO()
    with contextlib.redirect_stdout(counted):
        figures = house.count_structure()
    excesses = find_excesses(figures, read_limits("house"))
    if excesses:
        print(counted.getvalue(), *excesses, sep="\n")
    else:
        print("no count exceeds its limit")
    return bool(excesses)


if __name__ == "__main__":
    sys.exit(main())
