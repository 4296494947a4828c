"""``--timeout``: the cell ends in time, and its engine is free again."""

from __future__ import annotations

import pytest

from tests.conftest import Notebook, part

pytestmark = pytest.mark.slow


def test_a_cell_that_listens_is_interrupted_at_its_timeout(notebook: Notebook) -> None:
    assert notebook.run("%%sky\nkept = 41").status == "ok"
    ran = notebook.run("%%sky --timeout 1s\nimport time\nprint('begun')\ntime.sleep(60)")
    assert ran.ename == "SkyTimeout" and "--timeout 1 s" in ran.evalue.replace("0:01", "1 s")
    assert ran.stdout == "begun\n" and ran.status_line.startswith("☁ failed")
    assert 1.0 < ran.seconds < 30.0
    assert notebook.run("%%sky\nkept").result == "41"
    assert notebook.run("%%sky --timeout 5s\nkept").result == "41"


def test_one_that_does_not_listen_is_killed_soon_after(notebook: Notebook, data_dir) -> None:
    assert notebook.run("%%sky\nkept = 41").status == "ok"
    engine = part(data_dir, "engine")[0].pid
    ran = notebook.run("%%sky --timeout 1s\nsum(range(10**12))")
    assert ran.ename == "SkyTimeout" and "variables are gone" in ran.status_line
    assert notebook.run("%%sky\n1 + 1").result == "2"
    assert part(data_dir, "engine")[0].pid != engine


def test_one_in_the_background_too(notebook: Notebook) -> None:
    assert notebook.run("%%sky --bg late --timeout 1s\nimport time; time.sleep(60)").status == "ok"
    ran = notebook.run("late.result(50)")
    assert ran.ename == "SkyTimeout" and "--timeout" in ran.evalue
