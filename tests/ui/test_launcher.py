"""Card of the example notebooks in JupyterLab's launcher."""

from __future__ import annotations

import pytest

from tests.ui.labs import ARTIFACTS, Lab, axe, change_theme

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.timeout(300)]


def test_card_of_the_launcher_opens_the_examples(lab: Lab, page) -> None:
    page.goto(f"{lab.url}/lab?token={lab.token}&reset")
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    page.wait_for_function("window.jupyterapp")
    page.evaluate("window.jupyterapp.restored.then(() => true)")
    card = page.locator(".jp-LauncherCard", has_text="Sky Examples")
    card.wait_for()
    icon = card.get_by_role("img", name="Sky Examples")
    assert icon.evaluate("image => image.naturalWidth") > 0
    for theme in ("Light", "Dark"):
        change_theme(page, theme)
        page.wait_for_timeout(500)  # icons are drawn anew
        page.screenshot(path=ARTIFACTS / f"launcher-{theme.lower()}.png")
        assert axe(page, ".jp-LauncherCard[title='Sky Examples']") == []

    card.click()
    page.locator(".jp-Notebook h1", has_text="A first cell").wait_for()
    picture = page.locator(".jp-Notebook img[alt^='A cell that has run']")
    picture.wait_for()
    assert page.locator(".jp-Launcher").count() == 0  # the notebook has its place
    page.wait_for_function(
        "() => document.querySelector('.jp-Notebook img').naturalWidth > 100"
    )  # it was copied, too
    assert page.get_by_role("dialog").count() == 0
    page.screenshot(path=ARTIFACTS / "examples-dark.png")
    change_theme(page, "Light")
    page.screenshot(path=ARTIFACTS / "examples-light.png")
    folder = lab.home / "work/sky-examples"
    assert len(list(folder.glob("*.ipynb"))) == 12
    assert len(list(folder.glob("guide/*.ipynb"))) == 10
