"""The status line in both forms."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from html.parser import HTMLParser
from typing import get_args

import pytest

from jupyter_sky.execution.display import FINAL, RunStatus, Stage
from jupyter_sky.interfaces.widgets.status_line import (
    CARD_MIME,
    mimebundle,
    output_metadata,
    to_html,
    to_text,
)

DONE = RunStatus(
    "done", 72.4, "train-3f2a", "aws us-east-1 g5.xlarge spot", 1.006, 0.0604, 0.4142, notes=()
)


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.tags, self.open = "", [], 0
        self.attributes: dict[str, str | None] = {}
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name: value for name, value in attrs if name not in self.attributes}
        self.open += 1

    def handle_endtag(self, tag: str) -> None:
        self.open -= 1

    def handle_data(self, data: str) -> None:
        self.text += data


def test_text_of_a_finished_cell() -> None:
    assert to_text(DONE) == (
        "☁ done 1:12 · $0.06 this cell · $0.41 this notebook · "
        "train-3f2a on aws us-east-1 g5.xlarge spot $1.01/h"
    )


def test_unknown_parts_are_left_out() -> None:
    assert to_text(RunStatus("placing", 0.26, None, None, None, None, None)) == "☁ placing 0.3 s"


def test_local_cell_is_free_and_quick() -> None:
    text = to_text(RunStatus("done", 0.31, "local-9c1e", "this machine", 0.0, 0.0, 0.0))
    assert text == (
        "☁ done 0.3 s · $0.00 this cell · $0.00 this notebook · local-9c1e on this machine $0.00/h"
    )


def test_unknown_price_is_named() -> None:
    text = to_text(RunStatus("running", 41, "lab", "ssh lab-gpu1", None, None, None))
    assert text == "☁ running 0:41 · lab on ssh lab-gpu1 price unknown"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "0.0 s"), (0.94, "0.9 s"), (1.04, "1.0 s"), (9.96, "0:10"), (3753, "1:02:33")],
)
def test_time(seconds: float, shown: str) -> None:
    assert to_text(replace(DONE, seconds=seconds)).startswith(f"☁ done {shown} ·")


def test_detail_and_notes() -> None:
    status = replace(DONE, detail="12 MB", notes=("first", "second"))
    line, *notes = to_text(status).splitlines()
    assert line.startswith("☁ done 1:12 · 12 MB · $0.06")
    assert notes == ["  first", "  second"]
    assert Page(to_html(status)).tags.count("div") == 3


@pytest.mark.parametrize("stage", get_args(Stage))
def test_html_says_the_stage_in_words(stage: Stage) -> None:
    page = Page(to_html(replace(DONE, stage=stage)))
    assert page.text.startswith(f"● {stage} 1:12 · ")
    assert page.attributes["role"] == "status"
    assert page.open == 0
    # Without its styles it reads as the plain text does.
    assert page.text[2:] == to_text(replace(DONE, stage=stage))[2:]


def test_only_the_final_status_is_announced() -> None:
    assert Page(to_html(DONE)).attributes["aria-live"] == "polite"
    assert Page(to_html(replace(DONE, stage="running"))).attributes["aria-live"] == "off"


def test_colour_is_plain_where_jupyterlab_removes_variables() -> None:
    """It does so in notebooks that are not trusted; the last declaration wins elsewhere."""
    html = to_html(DONE)
    assert "color: #3c9a40; color: var(--jp-success-color1, #3c9a40)" in html


def test_html_escapes_and_carries_no_scripts() -> None:
    evil = '<img src=x onerror="alert(1)">'
    status = replace(DONE, cluster=evil, place=evil, detail=evil, notes=(evil,))
    page = Page(to_html(status))
    assert set(page.tags) <= {"div", "span", "b"}
    assert page.text.count(evil) == 4


def test_every_colour_has_a_fallback() -> None:
    for stage in get_args(Stage):
        for use in to_html(replace(DONE, stage=stage)).split("var(")[1:]:
            assert "," in use.split(")")[0]


def test_bundle_has_both_forms() -> None:
    assert mimebundle(DONE) == {"text/html": to_html(DONE), "text/plain": to_text(DONE)}


@pytest.mark.parametrize("stage", get_args(Stage))
def test_live_run_has_a_card(stage: Stage) -> None:
    status = replace(DONE, stage=stage, run_id="17-ab", price_from="aws 2026-11-01")
    bundle = mimebundle(status)
    assert (CARD_MIME in bundle) == (stage not in FINAL)
    assert bundle["text/plain"] == to_text(status) and bundle["text/html"] == to_html(status)
    assert output_metadata(status) == {"jupyter_sky": {"run_id": "17-ab"}}


def test_card_has_the_data_of_the_line() -> None:
    before = time.time() - 0.1
    status = replace(
        DONE, stage="running", run_id="17-ab", detail="12 MB", notes=("one",), boot=4.2
    )
    card = json.loads(json.dumps(mimebundle(replace(status, price_from="aws"))[CARD_MIME]))
    assert before <= card.pop("at") <= time.time() + 0.1
    assert card == {
        **{"version": 1, "run_id": "17-ab", "stage": "running", "seconds": 72.4},
        **{"cluster": "train-3f2a", "place": "aws us-east-1 g5.xlarge spot"},
        **{"price": 1.006, "price_from": "aws", "cell_usd": 0.0604, "notebook_usd": 0.4142},
        **{"detail": "12 MB", "notes": ["one"], "warning": "", "boot": 4.2},
    }


def test_warning_stands_below_the_line() -> None:
    warned = replace(DONE, stage="interrupting", run_id="17-ab", warning="it does not answer")
    assert to_text(warned).splitlines()[-1] == "  it does not answer"
    assert ">it does not answer</div>" in to_html(warned)
    card = mimebundle(warned)[CARD_MIME]
    assert (card["warning"], card["notes"]) == ("it does not answer", ["it does not answer"])


def test_status_without_a_run_has_no_card() -> None:
    assert (
        CARD_MIME not in mimebundle(replace(DONE, stage="running")) and output_metadata(DONE) == {}
    )


def test_html_says_where_the_price_comes_from() -> None:
    html = to_html(replace(DONE, price_from='aws "2026"'))
    assert 'title="price from aws &quot;2026&quot;"' in html
    assert "price from" not in to_html(DONE)
