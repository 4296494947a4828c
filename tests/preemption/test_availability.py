"""Recorded availability: reading, states, and what bad files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.knowledge.lifetimes.availability import LOSS, Availability, read_traces

HEADER = "trace,zone,instance,gap_seconds,start_index,up_down_runs\n"


def test_runs_become_changes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + "one,a,v100,1800,2,0x2 1x3 1x1 0x4\none,b,v100,1800,0,1x4\n")
    first, second = read_traces(path)["one"]
    assert first == Availability("a", (2.0, 4.0), is_up_first=False, end=6.0)
    assert [first.is_up(at) for at in (1.5, 2.0, 3.9, 4.0)] == [False, True, True, False]
    assert first.until_change(2.5) == 1.5
    assert first.until_change(4.5) == 1.5, "to the end of the record"
    assert list(first.periods(1.5, 5.0)) == [(1.5, 2.0, False), (2.0, 4.0, True), (4.0, 5.0, False)]
    assert second.is_up(1.9) and second.end == 2.0


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("trace,zone\none,a\n", "line 2: no gap_seconds, start_index, up_down_runs"),
        (HEADER + "one,a,v,195,0,1x\n", "line 2"),
        (HEADER + "one,a,v,195,0,1y4\n", "line 2"),
        (HEADER + "one,a,v,fast,0,1x4\n", "line 2"),
    ],
)
def test_bad_files_name_their_line(tmp_path: Path, text: str, piece: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(SkyUsageError, match=piece):
        read_traces(path)


def test_a_folder_without_files(tmp_path: Path) -> None:
    with pytest.raises(SkyUsageError, match="no CSV file"):
        read_traces(tmp_path)


def test_the_hazard_falls_with_age() -> None:
    losses = [float(LOSS.integral(age + 1) - LOSS.integral(age)) for age in (0, 1, 4, 24)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] > LOSS.floor
