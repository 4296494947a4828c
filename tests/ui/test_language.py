"""JupyterLab in German: the panel, the form, and what the kernel says."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.translation import SETTING
from tests.ui.labs import ARTIFACTS, Lab, opened, run_cell, serve

pytestmark = [
    pytest.mark.ui,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        find_spec("jupyterlab_language_pack_de_DE") is None, reason="no German language pack"
    ),
]

CELLS = ("%load_ext jupyter_sky", "%%sky --cpsu 2\n1", "%%sky --dry-run --cpus 1\n1")


@pytest.fixture(scope="module")
def german_lab(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LANGUAGE", raising=False)
        with serve(tmp_path_factory.mktemp("german"), installed, "jupyterlab") as lab:
            setting = Path(lab.env["JUPYTERLAB_SETTINGS_DIR"], SETTING)
            setting.parent.mkdir(parents=True, exist_ok=True)
            setting.write_text('{"locale": "de_DE"}')
            yield lab


def test_panel_form_and_kernel_speak_german(german_lab: Lab, browser: Any, tmp_path: Path) -> None:
    with opened(german_lab, browser, tmp_path / "deutsch.ipynb", *CELLS) as notebook:
        page = notebook.page
        page.locator(".jsky-StatusItem-button", has_text="0 laufen").click()
        tabs = page.locator(".jsky-Panel [role=tab]").all_inner_texts()
        assert tabs == ["Cluster", "Läufe", "Pipelines", "Jobs", "Angebote", "Kosten", "?"]
        page.locator(".jsky-Panel", has_text="Kein Cluster läuft").wait_for()
        notebook.run_all()
        outputs = page.locator(".jp-OutputArea")
        outputs.get_by_text("ist keine Option von %%sky").first.wait_for()
        run_cell(page, 2)
        outputs.get_by_text("Probelauf von --cpus 1").first.wait_for()
        page.evaluate("window.panel.content.activate(); 0")
        page.keyboard.press("Alt+Shift+S")
        page.get_by_role("dialog", name="Was diese Zelle braucht").wait_for()
        page.screenshot(path=ARTIFACTS / "german.png")
