"""Line that shows how far a transfer is: nothing for a quick one, its end for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky.execution.cells.fetching import FetchedPaths, FetchedValue
from jupyter_sky.interfaces.magics import cluster_verbs
from jupyter_sky.interfaces.magics.cluster_verbs import TransferLine, describe


def test_only_a_slow_transfer_shows_its_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(cluster_verbs.time, "monotonic", lambda: now)
    with TransferLine() as line:
        now = 0.9
        line.show(10_000_000, 100_000_000)
        assert capsys.readouterr().err == ""
        now = 2.0
        line.show(20_000_000, 100_000_000)
        assert "20.0 MB of 100.0 MB, 10.0 MB/s, 0:08 left" in capsys.readouterr().err
        now = 2.1
        line.show(21_000_000, 100_000_000)
        assert capsys.readouterr().err == "", "not more often than it can be read"
    with pytest.raises(ValueError, match="cut"), TransferLine() as line:
        now = 5.0
        line.show(1, 2)
        raise ValueError("cut")
    assert "not all has come" in capsys.readouterr().err


def test_what_has_come_is_said_by_its_place(tmp_path: Path) -> None:
    copied = (tmp_path / "out" / "a.csv", tmp_path / "out" / "b.csv")
    found = FetchedPaths("out", copied, (Path("/else/c.csv"),), False, 2_400_000)
    assert describe([FetchedValue("x", 1), found], tmp_path) == [
        "x: a variable here now",
        "out: 2 files, 2.4 MB brought to out/a.csv, out/b.csv",
        "out: here already, as it is there: /else/c.csv",
    ]
