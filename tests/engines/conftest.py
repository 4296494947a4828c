"""Controllers with scripts for engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import clean
from tests.engines.scripted_controller import ScriptedController, Start


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    made: list[ScriptedController] = []

    def make(**config: Any) -> ScriptedController:
        made.append(ScriptedController(tmp_path, monkeypatch, **config))
        return made[-1]

    yield make
    for each in made:
        each.close()
    clean(tmp_path)
