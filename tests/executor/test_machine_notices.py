"""Notices of a cloud about the machines of a cluster, as its notebook takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky.execution.clusters.machine_notices import MachineNotices, Notices, leaving_ranks
from jupyter_sky.machines.engines.node.notices import NoticeKind
from jupyter_sky.machines.provisioner.launch_stages import LaunchStages, format_stages, record_event

PREEMPT = {"kind": "preempt", "id": "terminate", "seen": 100.0, "ends": 220.0}
AT_RISK = {"kind": "at risk", "id": "rebalance", "seen": 100.0, "ends": None}


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def notices(told: list[str]) -> MachineNotices:
    return MachineNotices(told.append)


def test_a_notice_comes_and_is_withdrawn(notices: MachineNotices, told: list[str]) -> None:
    heard = list[Notices]()
    notices.listeners.append(heard.append)
    for _ in range(2):
        notices.update({"1": [PREEMPT]}, 100.0)
    assert told == ["node 1 is taken away by its cloud in 120 s"]
    assert leaving_ranks(heard[0]) == {1}
    assert notices.describe(190.0) == "node 1 is taken away by its cloud in 30 s"
    notices.update({"1": []}, 130.0)
    assert told[1:] == ["node 1 stays: the notice of its cloud was withdrawn"]
    assert [leaving_ranks(each) for each in heard] == [{1}, frozenset()]
    assert notices.describe(130.0) == ""


def test_a_node_at_risk_still_takes_calls(notices: MachineNotices, told: list[str]) -> None:
    notices.update({"0": [AT_RISK], "2": [PREEMPT, AT_RISK]}, 100.0)
    assert leaving_ranks(notices.current) == {2}
    assert told[0] == "node 0 is likely to be taken away by its cloud soon"
    assert [found[0].kind for found in notices.current.values()] == [
        NoticeKind.AT_RISK,
        NoticeKind.PREEMPT,
    ]


def test_events_follow_the_stages_of_the_launch(tmp_path: Path) -> None:
    path = tmp_path / "stages.jsonl"
    stages = LaunchStages(path)
    stages.begin("controller")
    stages.end()
    record_event(path, "node 1 is lost")
    lines = format_stages(path).splitlines()
    assert lines[0].endswith("controller")
    assert lines[1].endswith("0.0 s  node 1 is lost")
