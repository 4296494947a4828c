"""Views of a plan: text, table, graph; no network access, nothing by colour alone."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup

import jupyter_sky as sky
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.decisions.optimizer.planning import plan
from jupyter_sky.interfaces.widgets.graph_layout import MAX_BOXES
from jupyter_sky.interfaces.widgets.plan import (
    MAX_ROWS,
    alternatives_table,
    compared_table,
    draw_graph,
    moves_table,
    request_table,
    tasks_table,
)

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


LABEL = r"[\d.]+ [MGT]B · ~?\$[\d.]+ · <?[\d:]+"


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
    drawn = plan(pipeline(), offers=OFFERS, tracked=False)
    # now: where planning took long, as on a busy machine, a view does not compute them by itself
    drawn.alternatives(), drawn.compared(), drawn.reasons()
    return drawn


def test_text_has_everything_that_matters(made: Plan) -> None:
    text = str(made)
    for part in (
        *("Plan <b>odd</b>: least cost: $", "(estimates)", "aws us-east-1a m5.large"),
        *("2 x gcp us-central1-a a2", "A100:1, 12 vCPUs, 85 GiB", "$6.00/h"),
        *("1:00:00 (assumed)", "a price list, 5 Jul 2026", "s3://in", "10 GB", "listed price"),
        *("proven best of", "re-checked", "assumed: 1 h for train"),
    ):
        assert part in text, part


def test_html_is_whole_escaped_and_asks_no_network(made: Plan) -> None:
    html = made._repr_html_()
    assert "<b>odd" not in html and "a & b" not in html
    assert not re.search(r"https?://|src=|@import|url\((?!#)", html)
    soup = BeautifulSoup(html, "html.parser")
    assert len(soup.select("table")) == 4 and len(soup.select("svg")) == 2
    for shown in soup.select("table"):
        assert "tex2jax_ignore" in "".join(shown["class"])
        assert all(head["scope"] == "col" for head in shown.select("thead th"))
        assert all(row.find("th")["scope"] == "row" for row in shown.select("tbody tr"))
    summaries = [one.text for one in soup.select("summary")]
    assert summaries[0].startswith("alternatives: the next best, ")
    assert summaries[1:] == ["why there", "what moves", "Sources and assumptions"]
    assumed = [part for part in soup.find_all(string=re.compile("assumed: 1 h for train"))]
    (fold,) = [part.find_parent("details") for part in assumed]
    assert fold and not fold.has_attr("open") and "proven best of" in fold.text
    assert "<script" not in html and not soup.select("[id]"), "ids would clash between outputs"
    # what is too wide scrolls in a box of its own that has a name and takes the keyboard
    for wide in soup.select("svg, table"):
        (box,) = [up for up in wide.parents if up.get("role") == "region"]
        assert box["tabindex"] == "0" and box["aria-label"] and "overflow-x: auto" in box["style"]


def test_the_graph_is_an_image_with_words(made: Plan) -> None:
    svg = re.search(r"<svg.*</svg>", draw_graph(made), re.DOTALL)
    assert svg
    root = ElementTree.fromstring(svg[0])
    assert root.get("role") == "img"
    assert "2 tasks" in (root.findtext("title") or "")
    spoken = root.findtext("desc") or ""
    assert "a & b on aws us-east-1a m5.large" in spoken and "10 GB from s3://in" in spoken
    words = [element.text for element in root.iter("text")]
    for word in ("a & b", "aws us-east-1a", "train", "gcp us-central1-a", "s3://in", "gs://out"):
        assert word in words, word
    labels = [
        " · ".join(line.text or "" for line in text) for text in root.iter("text") if len(text)
    ]
    assert all(re.fullmatch(LABEL, label) for label in labels)
    moved = [move for move in made.moves if move.gb]
    assert len(labels) == len(moved) == 3, "every arrow says how much moves, for what, how long"
    styles = svg[0]
    assert "var(--jp-ui-font-color1" in styles and "var(--jp-layout-color0" in styles


def test_the_graph_fits_a_page_of_900_pixels() -> None:
    with sky.Dag() as dag:
        first, last = sky.Task("first").set_output("?:/x", size=1), sky.Task("last")
        first.set_input("s3://in", size="10GB", region="us-east-1")
        first >> last  # pyright: ignore[reportUnusedExpression]
    html = draw_graph(plan(dag, offers=OFFERS, tracked=False))
    width = float(re.findall(r"min-width: (\d+)px", html)[0])
    assert width < 450  # labels beside each other took 614
    boxes = re.findall(r'y="([\d.]+)" width="[\d.]+" height="([\d.]+)" rx', html)
    middles = {round(float(y) + float(height) / 2) for y, height in boxes}
    assert len(boxes) >= 3 and len(middles) == 1  # a straight line


def test_labels_of_arrows_that_meet_do_not_overlap() -> None:
    with sky.Dag() as dag:
        task = sky.Task("join")
        for number in range(4):
            task.set_input(f"s3://in{number}", size="10GB", region="us-east-1")
    svg = re.search(r"<svg.*</svg>", draw_graph(plan(dag, offers=OFFERS, tracked=False)), re.DOTALL)
    assert svg
    rows = sorted(
        float(line.get("y", "0")) for line in ElementTree.fromstring(svg[0]).iter("tspan")
    )
    assert len(rows) >= 6 and min(b - a for a, b in pairwise(rows)) >= 11


def test_boxes_do_not_overlap(made: Plan) -> None:
    with sky.Dag() as dag:
        first, last = sky.Task("first").set_output("?:/x", size=1), sky.Task("last")
        middle = [sky.Task(f"middle {n}").set_output("?:/y", size=1) for n in range(5)]
        first >> middle >> last
    svg = re.search(r"<svg.*</svg>", draw_graph(plan(dag, offers=OFFERS, tracked=False)), re.DOTALL)
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


def test_graph_of_too_many_tasks_is_not_drawn() -> None:
    with sky.Dag() as dag:
        for number in range(MAX_BOXES + 1):
            sky.Task(f"t{number}").set_time_estimator(1)
    made = plan(dag, offers=OFFERS, tracked=False)
    assert "<svg" not in draw_graph(made) and f"{MAX_BOXES + 1} tasks" in made._repr_html_()
    assert "time chart of the plan" in made._repr_html_()


def test_a_single_request_shows_no_graph() -> None:
    made = plan(cpus="2", offers=OFFERS, tracked=False)
    assert "<svg" not in made._repr_html_() and "aws us-east-1a" in str(made)


def test_alternatives_have_prices(made: Plan) -> None:
    rows = {row["the whole plan"]: row for row in compared_table(made).to_dicts()}
    assert {"this plan", "on aws only", "on gcp only", "as fast as can be"} <= set(rows)
    assert "nothing there will do for train" in str(rows["on aws only"]["where"])
    dearer = [row for row in alternatives_table(made).to_dicts() if row["task"] == "a & b"]
    assert dearer and re.fullmatch(r"\+\$[\d.]+ \(\+\d+ %\)", str(dearer[0]["more"]))
    assert "another, 1 Jun 2026" in alternatives_table(made).note


def test_single_request_lists_alternatives() -> None:
    offers = [replace(OFFERS[0], region=f"r{n}", zone=None, price=0.1 + n) for n in range(9)]
    made = plan(cpus="2", offers=[*offers, *OFFERS], tracked=False)
    shown = made._repr_html_()
    rows = request_table(made).to_dicts()
    assert [row["choice"] for row in rows[:4]] == ["chosen", *["next best"] * 3]
    assert [row["where"] for row in rows[1:3]] == ["aws us-east-1a m5.large", "aws r1 m5.large"]
    assert rows[1]["more"] == "same" and rows[2]["more"] == "+$1.03 (+1,000 %)"
    assert "(assumed)" in str(rows[0]["time"]) and "<svg" not in shown
    assert not re.search(r"<th[^>]*></th>", shown)


def test_large_graph_gets_no_alternatives_by_itself(monkeypatch) -> None:
    with sky.Dag() as dag:
        for number in range(13):
            sky.Task(f"t{number}").set_time_estimator(1)
    made = plan(dag, offers=OFFERS, tracked=False)
    monkeypatch.setattr(type(made), "compared", lambda self: pytest.fail("it was asked"))
    assert "t12" in made._repr_html_() and "t12" in str(made)
    assert made.alternatives_ is None and made.reasons_ is None
    assert "plan.compared(), plan.alternatives()" in str(made), "it says how to ask"
    slow = replace(made.certificate, seconds={"tables": 9.0, "solve": 1.0})
    few = replace(plan(pipeline(), offers=OFFERS, tracked=False), certificate=slow)
    assert "train" in str(few) and few.alternatives_ is None


def test_tables_of_many_tasks_are_truncated_with_a_note() -> None:
    with sky.Dag() as dag:
        for number in range(MAX_ROWS + 7):
            task = sky.Task(f"t{number}").set_time_estimator(1)
            task.set_output("gs://out", size=1, region="us-central1")
    made = plan(dag, offers=OFFERS, tracked=False)
    assert len(tasks_table(made)) == len(moves_table(made)) == MAX_ROWS
    assert "and 7 more: plan.tasks" in str(made) and "and 7 more: plan.moves" in str(made)


def test_plan_loaded_from_a_file_is_drawn(made: Plan) -> None:
    again = Plan.from_json(made.to_json())
    assert str(again) == str(made)
    assert "<svg" in again._repr_html_()


def test_plan_is_shown_before_its_drawing_is_imported(made: Plan, tmp_path: Path) -> None:
    """The optimizer does not import widgets: a notebook draws plans, another process lists them."""
    file = tmp_path / "plan.json"
    file.write_text(made.to_json())
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from jupyter_sky.decisions.optimizer.plan import Plan\n"
        "made = Plan.from_json(Path(sys.argv[1]).read_text())\n"
        "print(made)\nassert made._repr_html_() is None\n"
        "assert 'jupyter_sky.interfaces.widgets.plan' not in sys.modules\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "shell.extension_manager.load_extension('jupyter_sky')\n"
        "data, _ = shell.display_formatter.format(made)\n"
        "assert '<svg' in data['text/html'] and 'moves' in data['text/plain'], data\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[1:] == [
        "a & b: aws us-east-1a m5.large",
        "train: gcp us-central1-a a2",
    ]
