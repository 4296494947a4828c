"""The form of a cell in a real JupyterLab: there and back, by keys alone, and without a kernel."""

from __future__ import annotations

import pytest

from tests.ui.labs import ARTIFACTS, COMMANDS, axe, change_theme, opened

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.timeout(600)]

PANEL = ".jsky-NeedsPanel"
OFFERS = f"{PANEL} .jsky-Needs-offers"
LINE = "%%sky  --gpus=V100:7 -i data --cloud aws"
CELLS = (
    "%load_ext jupyter_sky\nimport jupyter_sky as sky",
    "",
    f"{LINE}\nscore = sum(data)",
    "sky.form('--gpus T4:1 --cloud aws')",
)


@pytest.fixture(scope="module")
def notebook(lab, browser, tmp_path_factory):
    path = tmp_path_factory.mktemp("notebooks") / "form.ipynb"
    with opened(lab, browser, path, *CELLS) as notebook:
        yield notebook


def source(page, cell: int) -> str:
    return page.evaluate(
        "cell => window.panel.content.widgets[cell].model.sharedModel.getSource()", cell
    )


def choose(page, cell: int) -> None:
    page.evaluate(
        "cell => { window.panel.content.activeCellIndex = cell; window.panel.content.activate(); }",
        cell,
    )


def field(page, label: str, within: str = PANEL):
    labelled = page.locator(within).get_by_label(label, exact=True)
    return labelled.and_(page.locator("input, select"))  # its list has the same name


def test_form_is_operated_by_keyboard_alone(notebook):
    page = notebook.page
    choose(page, 0)
    page.keyboard.press("Shift+Enter")  # runs it, and goes to the next
    page.keyboard.press("Alt+Shift+S")
    page.locator(OFFERS).wait_for()
    page.keyboard.press("Tab")
    assert field(page, "vCPUs").evaluate("input => input === document.activeElement")
    page.keyboard.type("1")
    page.locator(PANEL, has_text="Would run on this machine").wait_for()
    page.locator(f"{PANEL} tbody tr", has_text="on this machine").get_by_text("$0.00/h").wait_for()
    page.keyboard.press("Enter")
    page.locator(PANEL).wait_for(state="detached")
    assert source(page, 1) == "%%sky --cpus 1\n"

    page.keyboard.type("print('on', 6 * 7)")  # the cursor stands below the line
    page.keyboard.press("Alt+Shift+S")
    page.locator(OFFERS).wait_for()
    assert field(page, "vCPUs").input_value() == "1"
    field(page, "Time limit").focus()
    page.keyboard.type("5m")
    page.locator(PANEL).get_by_role("button", name="Apply and run").focus()
    page.keyboard.press("Enter")
    page.locator(".jp-OutputArea", has_text="on 42").first.wait_for()
    assert source(page, 1) == "%%sky --cpus 1 --timeout 5m\nprint('on', 6 * 7)"

    page.keyboard.press("Alt+Shift+S")
    page.locator(OFFERS).wait_for()
    page.locator(PANEL, has_text="Would run on cluster form-").wait_for()  # it is up by now
    page.keyboard.press("Escape")
    page.locator(PANEL).wait_for(state="detached")
    assert page.evaluate("window.panel.content.node.contains(document.activeElement)")

    page.route("**/jupyter-sky/form/**", lambda route: None)  # a server that does not answer yet
    page.keyboard.press("Alt+Shift+S")
    page.locator(PANEL, has_text="Loading").wait_for()
    page.keyboard.press("Escape")
    page.locator(PANEL).wait_for(state="detached")
    page.unroute("**/jupyter-sky/form/**")


def test_a_new_cluster_is_another_one_than_that_which_is_up(notebook):
    page = notebook.page
    choose(page, 1)
    page.evaluate(f"{COMMANDS}.execute('jupyter-sky:new-cluster').then(() => true)")
    page.locator(PANEL, has_text="Would start on this machine").wait_for()
    assert field(page, "Name").input_value() == "form-2"
    assert not field(page, "Time limit").count()  # that is for cells
    field(page, "Name").fill("")
    page.locator(PANEL, has_text="give another name to start a new one").wait_for()
    field(page, "Name").fill("form-2")
    page.locator(PANEL, has_text="Would start on this machine").wait_for()
    page.locator(PANEL).get_by_role("button", name="Insert cell").click()
    page.locator(PANEL).wait_for(state="detached")
    assert source(page, 2) == "%sky up -c form-2"
    page.evaluate(f"{COMMANDS}.execute('notebook:delete-cell').then(() => true)")


def test_form_names_the_field_without_offers_and_keeps_the_rest(notebook):
    page = notebook.page
    choose(page, 2)
    page.locator('.jp-cell-toolbar [data-jp-item-name="sky-needs"]').click()
    assert field(page, "Inputs").input_value() == "data"
    page.locator(PANEL, has_text="Nothing on sale has all of this").wait_for()
    assert field(page, "GPU").get_attribute("aria-invalid") == "true"
    for theme in ("Dark", "Light"):
        change_theme(page, theme)
        assert axe(page, PANEL) == []
        page.screenshot(path=ARTIFACTS / f"form-nothing-{theme.lower()}.png")
    page.get_by_role("button", name="Use V100:8").click()
    page.locator(f"{OFFERS} tbody tr").first.wait_for()
    assert "p3.16xlarge" in page.locator(OFFERS).inner_text()

    gpu = field(page, "GPU")
    gpu.fill("")
    gpu.press_sequentially("v1")
    # what was asked for "" may still be shown for a moment
    page.locator(".jsky-List-option:first-child", has_text="V100").wait_for()
    gpu.press("ArrowDown")
    gpu.press("Enter")  # takes it; the form stays
    assert gpu.input_value() == "V100" and page.locator(PANEL).count() == 1
    page.locator(f"{PANEL} tbody tr", has_text="p3.2xlarge").first.wait_for()
    page.set_viewport_size({"width": 360, "height": 800})
    page.wait_for_timeout(300)
    beyond = page.locator(PANEL).evaluate("panel => panel.scrollWidth - panel.clientWidth")
    assert beyond <= 0 and axe(page, PANEL) == []
    page.screenshot(path=ARTIFACTS / "form-narrow.png")
    page.set_viewport_size({"width": 1200, "height": 900})
    page.locator(PANEL).get_by_role("button", name="Apply", exact=True).click()
    page.locator(PANEL).wait_for(state="detached")
    assert source(page, 2) == "%%sky  --gpus V100 -i data --cloud aws\nscore = sum(data)"

    page.keyboard.press("Alt+Shift+S")
    page.locator(PANEL).get_by_role("button", name="Remove").click()
    page.locator(PANEL).wait_for(state="detached")
    assert source(page, 2) == "score = sum(data)"


def test_the_widget_lives_in_an_opened_notebook_without_its_kernel(notebook, lab):
    page = notebook.page
    choose(page, 3)
    page.evaluate(f"() => {{ {COMMANDS}.execute('notebook:run-cell'); }}")
    form = ".jp-OutputArea .jsky-Needs"
    page.locator(f"{form} tbody tr").first.wait_for()
    field(page, "vCPUs", form).fill("8+")
    page.locator(f"{form} tbody tr", has_text="g4dn.2xlarge").first.wait_for()
    data = notebook.cells[3]["outputs"][0]["data"]
    assert data["text/plain"].startswith("%%sky --gpus T4:1 --cloud aws --cpus 8+\n")
    assert "offers match, the cheapest $" in data["text/html"]
    page.evaluate(f"{COMMANDS}.execute('docmanager:save').then(() => true)")
    page.evaluate("window.panel.sessionContext.shutdown().then(() => true)")

    page.reload()
    page.locator(f"{form} tbody tr").first.wait_for()
    assert field(page, "vCPUs", form).input_value() == "8+"
    assert axe(page, form) == []
    field(page, "vCPUs", form).fill("16+")
    page.locator(f"{form} tbody tr", has_text="g4dn.4xlarge").first.wait_for()
    page.locator(form).get_by_role("button", name="Insert cell").click()
    page.get_by_text("%%sky --gpus T4:1 --cloud aws --cpus 16+").last.wait_for()
