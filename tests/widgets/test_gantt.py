"""Gantt chart: bars that add up, told apart by shape, and the same as text."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jupyter_sky as sky
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.decisions.optimizer.explain.timeline import critical_path, timeline
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.decisions.optimizer.planning import plan
from jupyter_sky.interfaces.widgets.gantt import COLUMNS, MAX_BARS, draw_gantt, ticks, to_text

OFFERS = [
    Offer("aws", "us-east-1", "m5.large", 2, 8, zone="us-east-1a", price=0.1),
    Offer("gcp", "us-central1", "a2", 12, 85, "us-central1-a", "A100", 1, price=3.0),
]
HOURS = st.sampled_from([0.01, 0.25, 1.0, 1.0, 2.0, 7.5])
GB = st.sampled_from([0.0, 1.0, 500.0, 5000.0])


@st.composite
def graphs(draw: st.DrawFn) -> sky.Dag:
    """Up to six tasks with edges that go forward, stores, and times that tie."""
    count = draw(st.integers(1, 6))
    with sky.Dag("random") as dag:
        tasks = []
        for number in range(count):
            task = sky.Task(f"t{number}").set_time_estimator(draw(HOURS))
            if draw(st.booleans()):
                task.set_resources(gpus="A100")
            if draw(st.booleans()):
                task.set_input(f"s3://in{number}", size=draw(GB), region="us-east-1")
            if draw(st.booleans()):
                task.set_output(f"gs://out{number}", size=draw(GB), region="us-central1")
            tasks.append(task)
        for v in range(1, count):
            for u in draw(st.sets(st.integers(0, v - 1), max_size=2)):
                dag.add_edge(tasks[u], tasks[v], size=draw(GB))
    return dag


@settings(max_examples=25)
@given(graphs())
def test_the_bars_of_the_critical_path_add_up_to_the_makespan(dag: sky.Dag) -> None:
    made = plan(dag, offers=OFFERS, tracked=False)
    bars = timeline(made)
    assert [bar.task for bar in bars] == [one.task for one in made.tasks]
    for bar, one in zip(bars, made.tasks, strict=True):
        assert bar.end_h == pytest.approx(one.finish_h, abs=1e-9)
        assert all(a.end_h == pytest.approx(b.start_h) for a, b in pairwise(bar.parts))
        assert all(part.hours >= 0 for part in bar.parts)
        assert bar.start_h > -1e-9
    chain = critical_path(bars)
    assert all(bar.critical for bar in chain)
    lengths = sum(part.hours for bar in chain for part in bar.parts)
    assert lengths == pytest.approx(made.hours, rel=1e-9)
    assert chain[0].start_h == pytest.approx(0, abs=1e-9), "nothing waits for nobody"
    _in_letters(made)
    assert ElementTree.fromstring(_svg(made)).findtext("desc")


def _in_letters(made: Plan) -> None:
    """Every task has a line with its work; no line is wider than the chart."""
    text = to_text(made)
    for bar in timeline(made):
        (line,) = [row for row in text.splitlines() if row[2:].startswith(f"{bar.task} ")]
        assert "#" in line and line.startswith("*" if bar.critical else " ")
        assert len(line) <= COLUMNS + 40
    assert text.isascii()


def _svg(made: Plan) -> str:
    found = re.search(r"<svg.*</svg>", draw_gantt(made), re.DOTALL)
    assert found
    return found[0]


def fork() -> sky.Dag:
    with sky.Dag("fork") as dag:
        first = sky.Task("first").set_input("s3://in", size="2TB", region="us-east-1")
        first.set_output("?:/x", size="1TB").set_time_estimator(1)
        long = sky.Task("long").set_time_estimator(3).set_resources(gpus="A100")
        short = sky.Task("<short>").set_time_estimator(0.5)
        first >> [long, short]
    return dag


def test_kinds_differ_by_shape_and_the_deadline_is_drawn() -> None:
    made = plan(fork(), offers=OFFERS, tracked=False, deadline="7h")
    root = ElementTree.fromstring(_svg(made))
    styles = [element.get("style") or "" for element in root.iter()]
    dashes = {found[1] for one in styles if (found := re.search(r"dasharray: ([\d. ]+)", one))}
    assert {"6 3", "2 2.5", "7 3"} <= dashes, "waiting, booting and the deadline"
    words = [element.text or "" for element in root.iter("text")]
    for word in ("waits for data", "machine boots", "works", "◆ critical path", "<short>"):
        assert word in words, word
    assert "deadline 7:00:00" in words and "◆ long" in words
    (title,) = [one.text or "" for one in root.findall("title")]
    assert "decided by first > long" in title
    assert "<short> from" in (root.findtext("desc") or "")
    lines = to_text(made).splitlines()
    assert lines[-1].endswith("| deadline 7:00:00")
    assert {line.rindex("|") for line in lines[1:4]} == {lines[1].rindex("|")}, "one straight line"


def test_far_deadline_is_in_the_legend_only() -> None:
    made = plan(fork(), offers=OFFERS, tracked=False, deadline="100h")
    assert made.deadline_h == 100
    assert "deadline 100:00:00 (later)" in to_text(made)
    assert "deadline 100:00:00 →" in draw_gantt(made)


def test_critical_tasks_of_many_are_drawn() -> None:
    with sky.Dag() as dag:
        for number in range(MAX_BARS + 20):
            sky.Task(f"t{number}").set_time_estimator(1)
        last = sky.Task("slow").set_time_estimator(2)
        last >> sky.Task("slower").set_time_estimator(3)
    made = plan(dag, offers=OFFERS, tracked=False)
    text = to_text(made)
    assert "* slow " in text and "* slower" in text and "22 of 62 tasks are not drawn" in text
    assert draw_gantt(made).count("<g>") == MAX_BARS


@given(st.floats(1e-4, 1e5), st.integers(3, 9))
def test_marks_are_round_times_within_the_axis(span: float, most: int) -> None:
    marks = ticks(span, most)
    assert marks[0] == 0 and len(marks) <= most + 1 and marks[-1] <= span * (1 + 1e-6)
    steps = {round((b - a) * 3600) for a, b in pairwise(marks)}
    assert len(steps) <= 1
