"""Reports of streams that nobody reads while calls wait for their nodes."""

from __future__ import annotations

import time

import pytest

import jupyter_sky as sky
from jupyter_sky.execution.functions.calls.dispatch import UnreadStreams
from jupyter_sky.execution.functions.calls.output import OutputSink
from jupyter_sky.execution.functions.calls.streams import ItemBuffer
from jupyter_sky.execution.functions.calls.tasks import CallTask, PackedCall, RemoteFuture


def task(number: int, items: int = 0) -> CallTask:
    packed = PackedCall((), (), (), [], {})
    made = CallTask(sky.function(abs)(number), packed, RemoteFuture(), OutputSink(many=False))
    if items:
        made.stream = ItemBuffer()
        made.stream.add([0] * items)
        made.stream.unread_on = 0
    return made


def reported(capsys: pytest.CaptureFixture[str], expected: int) -> str:
    """Return what was written, once it has so many lines or some time has passed."""
    text, until = "", time.monotonic() + (5 if expected else 0.2)
    while text.count("\n") < max(expected, 1) and time.monotonic() < until:
        text += capsys.readouterr().err
        time.sleep(0.01)
    assert text.count("\n") == expected
    return text


def test_unread_stream_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    streams, unread = UnreadStreams(), task(1, items=3)
    streams.add(unread)
    streams.add(unread)
    streams.report(task(2))
    assert "abs(2) waits for a node, and node 0 waits until items of abs(1)" in reported(capsys, 1)
    streams.add(unread)
    streams.report(task(3))
    reported(capsys, 0)


def test_stream_that_was_read_is_reported_when_it_waits_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    streams, unread = UnreadStreams(), task(1, items=3)
    assert unread.stream is not None
    streams.add(unread)
    unread.stream.take()
    streams.report(task(2))
    reported(capsys, 0)
    unread.stream.unread_on = 0
    streams.add(unread)
    streams.report(task(3))
    assert "abs(3) waits" in reported(capsys, 1)
