"""Name of an installation, made by several launches at once."""

from __future__ import annotations

import threading
from pathlib import Path

from jupyter_sky.base.concurrency import run_parallel
from jupyter_sky.clouds.launches.launch_records import installation_id


def test_launches_side_by_side_agree_on_one_name(tmp_path: Path) -> None:
    for turn in range(40):
        barrier = threading.Barrier(8)

        def name(
            folder: Path = tmp_path / str(turn), all_there: threading.Barrier = barrier
        ) -> str:
            all_there.wait()
            return installation_id(folder)

        assert len(set(run_parallel([name] * 8))) == 1
        assert [path.name for path in (tmp_path / str(turn)).iterdir()] == ["identity"]
