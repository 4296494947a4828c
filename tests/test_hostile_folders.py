"""Hostile settings, files and messages, as `run.py trust` tries them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parent / "benchmarks" / "trust_hostile.py"


@pytest.fixture(scope="module")
def trials() -> ModuleType:
    """Return the module with the tries."""
    spec = importlib.util.spec_from_file_location("trust_hostile", PATH)
    assert spec and spec.loader
    sys.modules["trust_hostile"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_canaries_notice_harm(trials: ModuleType, tmp_path: Path) -> None:
    def harm(here) -> None:
        here.run("-c", here.code)
        here.run("-c", f"import socket; socket.create_connection(('127.0.0.2', {here.port}))")
        here.sleeper.kill()
        here.sleeper.wait()
        here.run("-c", "print('evil-7d'); 1 / 0")

    found = trials.judge(trials.Try("harm", harm, "evil-7d", "a sentence"), tmp_path / "try")
    assert len(found) == 6


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_hostile_has_an_effect(trials: ModuleType) -> None:
    figures = trials.hostile()
    assert figures["hostile_effects"] == 0 and figures["hostile_folders"] >= 50
