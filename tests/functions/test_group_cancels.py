"""Automatic cancels after the failure of a neighbour: patience, and a line before a loss."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.execution.functions.calls.dispatch import restart_notice
from jupyter_sky.execution.functions.pools.pool import Pool
from tests.conftest import wait_until

MATCHES = 28
"""Letters of a match that takes a few seconds in C, deaf to signals, with the interpreter."""


@pytest.fixture(scope="module")
def compute(data: Path) -> Iterator[Pool]:
    """Two nodes, whose main threads run calls."""
    with sky.Compute(nodes=2) as pool:
        yield pool


@sky.function
def process() -> int:
    return os.getpid()


@sky.function
def match(begun: Path, letters: int) -> object:
    """Compute in C for long, and take no notice of signals."""
    begun.touch()
    return re.match(r"(a+)+$", "a" * letters + "b")


@sky.function
def fail_after(begun: Path) -> None:
    while not begun.exists():
        time.sleep(0.01)
    raise KeyError("its neighbour still computes")


def test_reasons_of_restarts() -> None:
    texts = {
        why: restart_notice("f(1)", 1, why, 60.0, "2 tasks of Dask")
        for why in ("group", "cancel", "timeout", "close")
    }
    assert len(set(texts.values())) == 4
    assert "within 1:00" in texts["group"] or "within 60" in texts["group"]
    assert all("f(1)" in t and "node 1" in t and "2 tasks of Dask" in t for t in texts.values())


def seconds_of_match(letters: int) -> float:
    begun = time.monotonic()
    re.match(r"(a+)+$", "a" * letters + "b")
    return time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.parametrize("how", ["gather", "stream"])
def test_neighbour_that_cannot_stop_at_once_keeps_its_engine(
    compute: Pool, tmp_path: Path, how: str
) -> None:
    letters, seconds = 22, 0.0
    while (seconds := seconds_of_match(letters)) < 3.0:  # longer than a cancel by hand would wait
        letters += 1 if seconds > 1.0 else 2
    before, begun = process() @ compute, tmp_path / "begun"
    calls = sky.gather(match(begun, letters), fail_after(begun), stream=how == "stream")
    with pytest.raises(KeyError):
        list(calls >> compute)
    assert process() @ compute == before


@pytest.mark.slow
def test_restart_after_the_grace_is_told(
    compute: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, begun, known = process() @ compute, tmp_path / "begun", compute.cancel_grace
    compute.cancel_grace = 0.5
    try:
        with pytest.raises(KeyError):
            sky.gather(match(begun, 60), fail_after(begun)) >> compute
        lines: list[str] = []

        def is_told() -> bool:
            lines.append(capsys.readouterr().err)
            return "is restarted" in "".join(lines)

        wait_until(is_told)
        assert "did not stop within 0.5 s after its group had ended" in "".join(lines)
        assert "variables of its cells" in "".join(lines)
        assert len(set(process() @ compute) - set(before)) == 1, "one engine is another"
    finally:
        compute.cancel_grace = known


@pytest.mark.slow
def test_grace_is_an_option(data: Path) -> None:
    with sky.Compute(nodes=1, options=sky.Options(cancel_grace=7.0)) as pool:
        assert pool.cancel_grace == 7.0
