"""The walk over views that the benchmark of newcomers does: what it finds, and what it lets be."""

from __future__ import annotations

import pytest

from tests.benchmarks.newcomer_scene import open_browser
from tests.benchmarks.newcomer_views import CUT_OFF

pytestmark = [pytest.mark.ui, pytest.mark.slow]

PAGE = """
<div class="jp-OutputArea-output" style="width: 200px; overflow: auto"><div class="view">
  <p style="width: 400px" id="wide">too wide for its output</p>
  <div style="width: 150px; overflow: hidden"><b style="display: inline-block; width: 300px">cut
    by its box</b></div>
  <div style="width: 150px; overflow-x: scroll; scrollbar-gutter: stable" class="scroller">
    <b style="display: inline-block; width: 300px">scrolled to</b></div>
  <div title="the whole of it" style="width: 60px; overflow: hidden; text-overflow: ellipsis;
    white-space: nowrap">told by a tooltip</div>
  <div style="width: 80px; overflow-x: auto"><div title="the whole of it" style="width: 60px;
    overflow: hidden; text-overflow: ellipsis; white-space: nowrap"><code>told by a tooltip in a box
    that scrolls</code></div></div>
  <span style="position: absolute; width: 1px; height: 1px; overflow: hidden">for readers</span>
  <p>fits</p>
</div></div>
<style>.scroller::-webkit-scrollbar { height: 10px; }</style>
"""


def test_what_overflows_without_a_scroll_bar_is_found() -> None:
    with open_browser() as browser:
        page = browser.new_page()
        page.set_content(PAGE)
        found = page.evaluate(CUT_OFF, ".jp-OutputArea-output")
        assert [text.split('"')[1] for text in found] == [
            "too wide for its output",
            "cut by its box",
        ]
        for selector in ("#wide", "b >> nth=0"):
            page.locator(selector).evaluate("one => one.style.width = '100px'")
        assert page.evaluate(CUT_OFF, ".jp-OutputArea-output") == []
