"""Fixtures: a real JupyterLab server with its own folders, and a real browser."""

import shutil
from pathlib import Path

import pytest

from tests.benchmarks.installed import NotBuilt, install
from tests.ui.labs import FLAGS, WAIT_MS, serve


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Path:
    """Return the Python that has jupyter_sky from its built wheel."""
    try:
        return install(tmp_path_factory.mktemp("installed"))
    except NotBuilt as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")  # what one file leaves running is nothing to the next
def lab(tmp_path_factory, installed):
    with serve(tmp_path_factory.mktemp("lab"), installed, "jupyterlab") as lab:
        yield lab


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    names = "chromium", "chromium-browser", "google-chrome"
    chromium = next(filter(None, map(shutil.which, names)), None)
    if not chromium:
        pytest.skip("no chromium on PATH: the user interface is not tested")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.set_default_timeout(WAIT_MS)
    yield page
    page.close()
