"""Figures of trust: losses after kills, and effects of hostile folders.

    python tests/benchmarks/run.py trust

Two parts: processes that are killed at every step of launch, use, end and reap (`trust_crash`), and
prepared folders, stores, files and messages that are to have no effect (`trust_hostile`).
"""

from __future__ import annotations

from importlib import import_module

QUICK = 3
"""Crash points of each scenario where only is to be seen that it runs."""


def main(quick: bool = False, **_: object) -> dict[str, float]:
    """Return the figures of both parts."""
    crashes, hostile = _part("trust_crash", "crashes"), _part("trust_hostile", "hostile")
    return {**crashes(QUICK if quick else 0), **hostile()}


def _part(module: str, name: str):
    """Return a function of a module beside this one, or say that there is none."""
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise SystemExit(f"run.py trust needs {module}.{name}(), which is not there") from None
