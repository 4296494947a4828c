"""The quickstart in JupyterLab: opened, run from top to bottom, and photographed."""

from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parent.parent.parent / "notebooks" / "quickstart.ipynb"


@pytest.mark.ui
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_quickstart_in_jupyterlab(lab, page):
    notebook = lab.open(page, QUICKSTART)
    notebook.run_all(seconds=180)

    code = [cell for cell in notebook.cells if cell["cell_type"] == "code"]
    counts = [cell["execution_count"] for cell in code]
    assert all(counts), f"Run All stopped on the way: {counts}"
    for cell in code:
        errors = [out for out in cell["outputs"] if out["output_type"] == "error"]
        meant = "raises-exception" in cell["metadata"].get("tags", [])
        assert bool(errors) == meant, "".join(cell["source"])

    outputs = page.locator(".jp-Cell-outputArea")
    picture = outputs.locator("img").first
    picture.scroll_into_view_if_needed()
    assert picture.is_visible()
    status = outputs.locator("[role=status]", has_text="done").first
    status.scroll_into_view_if_needed()
    assert status.is_visible()
    # two dollar signs in a line are mathematics to JupyterLab unless it is told otherwise
    assert "$0.00 this cell · $0.00 this notebook" in status.inner_text()

    for theme in ("Light", "Dark"):
        assert notebook.screenshot("quickstart", theme).stat().st_size > 10_000
