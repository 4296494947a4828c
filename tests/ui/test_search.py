"""Search of machines in JupyterLab: followed while it runs, its best written by a click."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.emulators.hosts import USABLE
from tests.emulators.loopback import Loopback, loopback
from tests.ui.labs import ARTIFACTS, Lab, Notebook, axe, change_theme, opened, run_cell, serve

pytestmark = [
    pytest.mark.ui,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]

BODY = "import time\ntime.sleep(1)\nprint('fitted')"
LINE = "%%sky --search cost --trials 2 --cpus 2+ --memory 2+ --cloud aws"
BUTTON = "Write the Best Machines into the Cell"


@pytest.fixture(scope="module")
def cloud() -> Iterator[Loopback]:
    with loopback("aws", minute=1.0) as opened:
        yield opened


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, installed: Any, cloud: Loopback) -> Iterator[Lab]:
    """Return a server whose kernels have an account of the cloud."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cloud.env.items():
            patch.setenv(name, value)
        with serve(tmp_path_factory.mktemp("lab"), installed, "jupyterlab") as lab:
            yield lab


@pytest.fixture(scope="module")
def book(lab: Lab, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    path = tmp_path_factory.mktemp("search") / "search.ipynb"
    with opened(lab, browser, path, "%load_ext jupyter_sky", f"{LINE}\n{BODY}") as notebook:
        yield notebook


def source(page: Any, cell: int) -> str:
    return page.evaluate(
        "cell => window.panel.content.widgets[cell].model.sharedModel.getSource()", cell
    )


def test_a_click_writes_the_best_machines_into_the_cell(book: Notebook, cloud: Loopback) -> None:
    page: Any = book.page
    run_cell(page, 0)
    output = run_cell(page, 1)
    output.get_by_text("running: aws").first.wait_for(timeout=120_000)
    button = output.get_by_role("button", name=BUTTON)
    button.wait_for(timeout=240_000)
    view = output.locator(".jsky-Search")
    assert "2 of 2 tries" in view.inner_text() and "1 in 10 reaches" in view.inner_text()
    assert not cloud.machines(), "the trials have given their machines back"
    for theme in ("Light", "Dark"):
        change_theme(page, theme)
        assert axe(page, ".jsky-Search") == []
        page.screenshot(path=ARTIFACTS / f"search-{theme.lower()}.png")
    change_theme(page, "Light")

    button.focus()
    page.keyboard.press("Enter")
    view.get_by_role("status").get_by_text("The line is written").wait_for()
    assert button.is_disabled()
    found = re.fullmatch(r"%%sky --cloud aws --instance-type (\S+)\n(.*)", source(page, 1), re.S)
    assert found and found[2] == BODY
    assert source(page, 2) == source(page, 1), "the same stands in a cell below"

    output = run_cell(page, 1)
    output.get_by_text("fitted").first.wait_for(timeout=120_000)
    (machine,) = cloud.machines()
    assert machine["instance_type"] == found[1], "the cell now runs on what was found"
