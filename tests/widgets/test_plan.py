"""How a plan shows itself: text, table, graph; nothing from outside, nothing by colour alone."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup

import jupyter_sky as sky
from jupyter_sky.offers import Offer
from jupyter_sky.optimizer.plan import plan
from jupyter_sky.optimizer.planned import Plan
from jupyter_sky.widgets.plangraph import MOST_TASKS, graph

OFFERS = [
    Offer(
        *("aws", "us-east-1", "m5.large", 2, 8),
        zone="us-east-1a",
        price=0.1,
        source="a price list",
        date="2026-07-05",
    ),
    Offer(
        *("gcp", "us-central1", "a2", 12, 85, "us-central1-a", "A100", 1),
        price=3.0,
        source="another",
        date="2026-06-01",
    ),
]


def pipeline() -> sky.Dag:
    with sky.Dag("<b>odd</b>") as dag:
        a = sky.Task("a & b").set_input("s3://in", size=10, region="us-east-1")
        a.set_output("?:/x", size="2GB").set_time_estimator(1.5)
        b = sky.Task("train", num_nodes=2).set_resources(gpus="A100")
        b.set_output("gs://out", size=3, region="us-central1")
        a >> b
    return dag


@pytest.fixture(scope="module")
def made() -> Plan:
    return plan(pipeline(), offers=OFFERS, tracked=False)


def test_text_has_everything_that_matters(made: Plan) -> None:
    text = str(made)
    for part in (
        *("Plan <b>odd</b>: least cost: $", "(estimates)", "aws us-east-1a m5.large"),
        *("2 x gcp us-central1-a a2", "A100:1, 12 vCPUs, 85 GiB", "$6.00/h"),
        *("1:00:00 (assumed)", "2026-07-05 a price list", "s3://in", "10 GB", "listed price"),
        *("proven best of", "re-checked", "assumed: 1 h for train"),
    ):
        assert part in text, part


def test_html_is_whole_escaped_and_asks_no_network(made: Plan) -> None:
    html = made._repr_html_()
    assert "<b>odd" not in html and "a & b" not in html
    assert not re.search(r"https?://|src=|@import|url\((?!#)", html)
    soup = BeautifulSoup(html, "html.parser")
    assert len(soup.select("table")) >= 2 and "$" in soup.text
    assert all("tex2jax_ignore" in "".join(t["class"]) for t in soup.select("table"))
    summaries = [one.text for one in soup.select("summary")]
    assert summaries == ["what moves", "why", "what if"]


def test_the_graph_is_an_image_with_words(made: Plan) -> None:
    svg = re.search(r"<svg.*</svg>", graph(made), re.DOTALL)
    assert svg
    root = ElementTree.fromstring(svg[0])
    assert root.get("role") == "img"
    spoken = root.findtext("title") or ""
    assert "a & b on aws us-east-1a m5.large" in spoken and "10 GB from s3://in" in spoken
    words = [element.text for element in root.iter("text")]
    for word in ("a & b", "aws us-east-1a", "train", "gcp us-central1-a", "s3://in", "gs://out"):
        assert word in words, word
    labels = [word for word in words if word and word.startswith("2 GB · $")]
    assert len(labels) == 1, "an arrow says what moves and for how much"
    styles = svg[0]
    assert "var(--jp-ui-font-color1" in styles and "var(--jp-layout-color0" in styles


def test_boxes_do_not_overlap(made: Plan) -> None:
    with sky.Dag() as dag:
        first, last = sky.Task("first").set_output("?:/x", size=1), sky.Task("last")
        middle = [sky.Task(f"middle {n}").set_output("?:/y", size=1) for n in range(5)]
        first >> middle >> last
    svg = re.search(r"<svg.*</svg>", graph(plan(dag, offers=OFFERS, tracked=False)), re.DOTALL)
    assert svg
    boxes = [
        tuple(float(rect.get(key, "0")) for key in ("x", "y", "width", "height"))
        for rect in ElementTree.fromstring(svg[0]).iter("rect")
        if rect.get("rx")
    ]
    assert len(boxes) == 7
    for i, (x, y, w, h) in enumerate(boxes):
        for u, v, other_w, other_h in boxes[:i]:
            apart = x + w <= u or u + other_w <= x or y + h <= v or v + other_h <= y
            assert apart, (boxes[i], (u, v))


def test_a_graph_of_too_many_tasks_is_not_drawn() -> None:
    with sky.Dag() as dag:
        for number in range(MOST_TASKS + 1):
            sky.Task(f"t{number}").set_time_estimator(1)
    made = plan(dag, offers=OFFERS, tracked=False)
    assert "<svg" not in made._repr_html_() and f"{MOST_TASKS + 1} tasks" in graph(made)


def test_a_single_request_shows_no_graph() -> None:
    made = plan(cpus="2", offers=OFFERS, tracked=False)
    assert "<svg" not in made._repr_html_() and "aws us-east-1a" in str(made)


def test_a_plan_from_a_file_shows_itself_too(made: Plan) -> None:
    again = Plan.from_json(made.to_json())
    assert str(again) == str(made)
    assert "<svg" in again._repr_html_()
