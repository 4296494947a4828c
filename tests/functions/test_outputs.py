"""Output of calls: live, by node, in order, filtered."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky.execution.functions.calls.output import OutputSink
from jupyter_sky.execution.functions.pools.pool import Pool
from tests.conftest import wait_until

pytestmark = pytest.mark.slow


@sky.function
def speak(lines: int = 2, wait: float = 0.0) -> None:
    for number in range(lines):
        print("line", number)
        time.sleep(wait)
    print("to stderr", file=sys.stderr)


def test_lines_are_prefixed_by_node(executors: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    speak() @ executors
    shown = capsys.readouterr()
    assert sorted(shown.out.splitlines()) == sorted(
        f"[{node}] line {number}" for node in (0, 1) for number in (0, 1)
    )
    assert sorted(shown.err.splitlines()) == ["[0] to stderr", "[1] to stderr"]


def test_all_is_shown_before_the_result(
    executors: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(5):
        speak(100) >> executors
        assert len(capsys.readouterr().out.splitlines()) == 100


def test_lines_come_while_the_call_runs(executors: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    class Watch:
        def write(self, text: str) -> int:
            seen.append(time.monotonic())
            return len(text)

        def flush(self) -> None: ...

    monkeypatch.setattr(sys, "stdout", Watch())
    speak(1, wait=1.0) >> executors
    assert time.monotonic() - seen[0] > 0.5


def test_output_of_a_generator(executors: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    @sky.function
    def steps() -> Iterator[int]:
        for i in range(3):
            print("step", i)
            yield i

    assert list(steps() >> executors) == [0, 1, 2]
    time.sleep(0.3)
    assert [line[4:] for line in capsys.readouterr().out.splitlines()] == [
        "step 0",
        "step 1",
        "step 2",
    ]


@pytest.mark.parametrize(
    ("only", "nodes"),
    [("head", {0}), (1, {1}), ((0, 1), {0, 1}), ((), set()), (lambda info: info.node > 0, {1})],
)
def test_some_nodes_only(
    executors: Pool, capsys: pytest.CaptureFixture[str], only: Any, nodes: set[int]
) -> None:
    sky.stdout(only=only)(speak)(1) @ executors
    shown = capsys.readouterr()
    assert {int(line[1]) for line in shown.out.splitlines()} == nodes
    assert len(shown.err.splitlines()) == 2


def test_silenced_output_returns(executors: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    sky.silent(speak)() @ executors
    assert capsys.readouterr() == ("", "")
    speak(1) @ executors
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_prefixes_of_lines_in_pieces(capsys: pytest.CaptureFixture[str]) -> None:
    sink = OutputSink(many=True)
    sink.write(0, "stdout", "a")
    sink.write(0, "stdout", "b\nc")
    sink.write(1, "stdout", "x\n")
    sink.write(0, "stdout", "d\n")
    sink.write(1, "stdout", "1%\r2%\r")
    assert capsys.readouterr().out == "[0] ab\n[0] c\n[1] x\n[0] d\n[1] 1%\r[1] 2%\r"


def test_one_node_needs_no_prefix(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sky.Compute(nodes=1) as pool:
        speak(1) >> pool
    assert capsys.readouterr().out == "line 0\n"


def test_outputs_are_recorded_on_the_cluster(compute: Pool) -> None:
    @sky.function
    def say(text: str) -> None:
        print(text)
        print(text.upper(), file=sys.stderr)

    say("recorded") @ compute
    wait_until(lambda: compute.logs().count("RECORDED") >= 2, "all have been recorded")
    lines = [line for line in compute.logs().splitlines() if "recorded" in line.lower()]
    assert sorted(lines) == ["[0] RECORDED", "[0] recorded", "[1] RECORDED", "[1] recorded"]
