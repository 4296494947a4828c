"""The times of a launch, as they are written down and shown."""

from __future__ import annotations

from pathlib import Path

from jupyter_sky.machines.provisioner.launch_stages import LaunchStages, format_stages


def test_stages_are_shown_in_their_order(tmp_path: Path) -> None:
    stages = LaunchStages(tmp_path / "stages.jsonl")
    shown: list[str] = []
    say = stages.report_callback(lambda stage, what: shown.append(what))
    for what in ("slot", "packages", "packages (3 of 4 nodes)"):
        say(what)
    stages.end()
    lines = format_stages(stages.path).splitlines()
    assert [line.split()[-1] for line in lines] == ["slot", "packages"]
    assert shown == ["slot", "packages", "packages (3 of 4 nodes)"]


def test_disk_that_is_full_costs_the_times_and_not_the_launch() -> None:
    stages = LaunchStages(Path("/dev/full"))
    stages.begin("slot")
    stages.end()
