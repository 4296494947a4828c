"""Status lines of a command that goes on by itself, read from its log while it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky.interfaces.api.launches import print_status


def test_each_line_is_shown_once_and_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, read = tmp_path / "log", 0
    first = "☁ placing 0.0 s\n 10 %\r 90 %\rdone\n".encode()
    log.write_bytes(first + "☁ boot".encode())
    read += print_status(log, read)
    assert read == len(first), "up to the end of the last whole line"
    whole = first + "☁ booting 0.1 s\n".encode()
    log.write_bytes(whole)
    read += print_status(log, read)
    assert read == len(whole) and print_status(log, read) == 0
    assert capsys.readouterr().out == "☁ placing 0.0 s\n☁ booting 0.1 s\n"
