"""The tracker in a kernel: a cell's launch shows in ``%sky tracker``."""

from __future__ import annotations

import pytest

from tests.conftest import Notebook

pytestmark = pytest.mark.slow


def test_a_launch_is_seen_in_the_notebook_and_by_the_command_line(fresh) -> None:
    book: Notebook = fresh()
    before = book.run("%sky tracker")
    assert "nothing has been seen of the clouds yet" in before.result
    assert book.run("%%sky --cpus 1\n1 + 1").result == "2"
    after = book.run("%sky tracker")
    (shown,) = after.of("execute_result")
    assert "<table" in shown["data"]["text/html"]
    (line,) = [text for text in after.result.splitlines() if text.startswith("this machine")]
    assert line.split()[:3] == ["this", "machine", "1"], line
    assert "no place is blocked" in after.result
    asked = book.run("import jupyter_sky as sky; sky.tracker.knowledge().tallies")
    assert "worked=" in asked.result, asked.result
    refused = book.run("%sky tracker clear moon")
    assert refused.ename == "SkyUsageError" and "nothing is blocked" in refused.evalue
    book.run("%sky down all")
