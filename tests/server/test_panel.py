"""Whether the panel that these answers are for is there at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky.base.settings.paths import missing_panel_reason


def test_a_panel_that_was_not_built_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda *_: ["/nowhere", str(tmp_path)])
    assert "without npm" in missing_panel_reason()
    (tmp_path / "jupyter-sky").mkdir()
    (tmp_path / "jupyter-sky/package.json").write_text("{}")
    assert missing_panel_reason() == ""
