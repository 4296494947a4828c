"""The table of offers in a real browser, as the HTML that a saved notebook holds."""

from __future__ import annotations

import pytest

from jupyter_sky.base.settings import paths
from jupyter_sky.interfaces.widgets.offers import Offers
from jupyter_sky.knowledge.catalog import load

pytestmark = [pytest.mark.ui, pytest.mark.slow]


@pytest.fixture
def tables(page, tmp_path, monkeypatch):
    """Yield a page with two tables of offers, and the requests that it makes to any network."""
    monkeypatch.setattr(paths, "data_dir", lambda: tmp_path)
    catalog = load()
    html = [
        Offers(catalog.filter(**labels), limit=15)._repr_html_()
        for labels in ({"gpus": "V100:1"}, {"gpus": "A100:8", "region": "eu"})
    ]
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.set_content("<body>" + "<hr>".join(html) + "</body>")
    yield page.locator("table.jupyter-sky-offers")
    assert requests == []


def column(table, name):
    heads = table.locator("th").all_text_contents()
    cells = table.locator(f"tbody td:nth-child({heads.index(name) + 1})")
    return cells.all_text_contents()


def header(table, name):
    return table.locator("th").nth(table.locator("th").all_text_contents().index(name))


def test_click_on_a_header_sorts_its_table(tables):
    first, second = tables.nth(0), tables.nth(1)
    untouched = second.locator("tbody").inner_html()
    prices = [float(text.strip("$")) for text in column(first, "USD/h")]
    assert prices == sorted(prices) and len(set(prices)) > 3
    head = header(first, "USD/h")
    head.click()
    assert head.get_attribute("aria-sort") == "ascending"
    head.click()
    assert head.get_attribute("aria-sort") == "descending"
    assert [float(text.strip("$")) for text in column(first, "USD/h")] == sorted(prices)[::-1]
    assert second.locator("tbody").inner_html() == untouched


def test_text_sorts_as_text_numbers_as_numbers_and_the_unknown_comes_last(tables):
    first = tables.nth(0)
    cpus = header(first, "vCPUs")
    for expected in (sorted, lambda known: sorted(known, reverse=True)):
        cpus.click()
        texts = column(first, "vCPUs")
        known = [float(text) for text in texts if text]
        assert known == expected(known) and texts[len(known) :] == [""] * (len(texts) - len(known))
    clouds = header(first, "cloud")
    clouds.focus()
    clouds.press("Enter")
    assert column(first, "cloud") == sorted(column(first, "cloud"))
    assert cpus.get_attribute("aria-sort") is None


def test_price_is_in_sight_on_a_page_of_1100_pixels(page, tables):
    # beside JupyterLab's sidebar and the margins of a cell about 640 pixels are left
    page.set_viewport_size({"width": 640, "height": 900})
    for table in tables.all():
        for name in ("instance type", "USD/h"):
            box = header(table, name).bounding_box()
            assert box["x"] + box["width"] <= 640, (name, box)


def test_table_without_script_is_static(page, tables):
    plain = page.context.browser.new_context(java_script_enabled=False).new_page()
    plain.set_content(page.content())
    assert plain.locator("table.jupyter-sky-offers tbody tr").count() > 10
    plain.context.close()
