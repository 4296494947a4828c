"""``sky.tracker`` as its callers use it, and what ``%sky tracker`` shows."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky import cli
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.interfaces.magics import verbs
from jupyter_sky.interfaces.widgets.tracker import MAX_PRICES, format_hours, tracker_tables
from jupyter_sky.knowledge.tracker import Observation, Place

SPOT = Offer(
    "aws",
    "us-east-1",
    "g5.xlarge",
    4,
    16,
    zone="us-east-1a",
    spot=True,
    price=0.5,
    source="catalog",
    date="2026-07-05",
)
FIXED = Offer("gcp", "us-west1", "n2-standard-8", 8, 32, zone="us-west1-a", price=0.4)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data directory of the test alone."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    yield tmp_path
    Sky.clear_instance()


def run(line: str, capsys: pytest.CaptureFixture) -> str:
    """Return what ``jupyter sky LINE`` prints."""
    assert cli.main(line.split()) == 0
    return capsys.readouterr().out


def test_import_is_light() -> None:
    code = (
        "import sys, jupyter_sky as sky; sky.tracker.observe; "
        "assert not {'scipy', 'numpy', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_observe_and_ask() -> None:
    sky.tracker.observe("launched", FIXED, seconds=31)
    sky.tracker.observe("refused", FIXED, cause="capacity", why="ZONE_RESOURCE_POOL_EXHAUSTED")
    (block,) = sky.tracker.blocked()
    assert block.scope.covers(Place.of(FIXED)) and "EXHAUSTED" in block.why
    assert sky.tracker.block(FIXED) == block and sky.tracker.block(SPOT) is None
    chance = sky.tracker.chance(FIXED)
    assert chance.tried == 2 and 0.5 < chance.mean < 0.95
    assert chance.seconds == pytest.approx(31)
    assert sky.tracker.lifetime(FIXED).hours == pytest.approx(8766)
    assert sky.tracker.clear("us-west1-a") == (block,)
    assert sky.tracker.blocked() == ()
    assert sky.tracker.blocked(now=block.since) == (block,), "the past can be asked"
    sky.tracker.observe("ended", FIXED, seconds=7200)
    assert sky.tracker.lifetime(FIXED).hours == pytest.approx(8768)


def test_newer_prices_replace_those_of_offers() -> None:
    assert sky.tracker.price(SPOT) is None
    assert sky.tracker.priced([SPOT, FIXED]) == [SPOT, FIXED]
    tracker = sky.tracker.current()
    tracker.record(Observation("price", Place.of(SPOT), 1_700_000_000, usd=0.3))
    assert tracker.price(SPOT, time.time()) == sky.tracker.Price(0.3, 1_700_000_000)
    assert sky.tracker.priced([SPOT]) == [SPOT], "the catalog's price is of 2026"
    sky.tracker.observe("price", SPOT, usd=0.31)
    (found, other) = sky.tracker.priced([SPOT, FIXED])
    assert (found.price, found.source) == (0.31, "seen by the tracker")
    assert found.date >= "2026-01-01" and other == FIXED
    region, unpriced = replace(SPOT, zone=None), replace(SPOT, price=None, date="")
    assert [one.price for one in sky.tracker.priced([region, unpriced])] == [0.31, 0.31]
    served = replace(SPOT, service="emr")
    assert sky.tracker.priced([served]) == [served], "its price holds the service's surcharge"


@pytest.mark.parametrize(
    ("kind", "fields", "piece"),
    [
        ("lauched", {}, "did you mean launched?"),
        ("refused", {"cause": "full"}, "'full' is not a cause"),
        ("preempted", {"seconds": -1}, "seconds=-1"),
        ("price", {"usd": float("nan")}, "usd=nan"),
    ],
)
def test_bad_input(kind: str, fields: dict, piece: str) -> None:
    with pytest.raises(SkyUsageError) as caught:
        sky.tracker.observe(kind, SPOT, **fields)
    assert piece in str(caught.value)
    assert sky.tracker.current().observations() == ()


def test_nothing_seen_is_said_kindly(capsys: pytest.CaptureFixture) -> None:
    assert "nothing has been seen of the clouds yet" in run("tracker", capsys)
    assert "no place is blocked" in run("tracker --blocked", capsys)
    assert "no launch has been seen" in run("tracker --launches", capsys)
    assert "no machine has been seen to end" in run("tracker --lifetimes", capsys)
    assert "no spot price was seen" in run("tracker --prices", capsys)
    assert run("tracker clear", capsys) == "no place is blocked\n"


def test_all_is_shown(capsys: pytest.CaptureFixture) -> None:
    observe = sky.tracker.observe
    observe("refused", SPOT, cause="capacity", why="InsufficientInstanceCapacity: none\nleft here")
    observe("launched", FIXED, seconds=42)
    observe("ended", FIXED, seconds=3600)
    observe("price", SPOT, usd=0.31, at=time.time() - 7200)
    shown = run("tracker", capsys)
    blocked, launches, lifetimes, prices = shown.strip().split("\n\n")
    row = blocked.splitlines()[3]
    assert row.startswith("aws us-east-1a g5.xlarge spot  no capacity")
    assert "InsufficientInstanceCapacity: none left here" in row and "4:59" in row
    assert "%sky tracker clear" in blocked
    (line,) = [line for line in launches.splitlines() if line.startswith("gcp")]
    assert line.split()[3:5] == ["1", "96"] and "0:42" in line and "just now" in line
    assert "1.0 years" in lifetimes and "gcp us-west1-a n2-standard-8" in lifetimes
    assert "$0.31/h  2 h ago" in prices
    assert "gcp" not in run("tracker --cloud aws", capsys)
    only = run("tracker --blocked --cloud gcp", capsys)
    assert "no place is blocked" in only and "Launches" not in only
    cleared = run("tracker clear us-east-1a", capsys)
    assert cleared == "can be asked again: aws us-east-1a g5.xlarge spot\n"
    assert run("tracker", capsys).startswith("Blocked now\nno place is blocked")


def test_it_shows_in_a_notebook() -> None:
    sky.tracker.observe("refused", SPOT, cause="quota", why="<MaxSpotInstanceCountExceeded>")
    tables = verbs.call_verb(["tracker"])
    html = tables._repr_html_()
    assert html.count("<table") == len(tables) == 1
    assert "quota used up" in html and "&lt;MaxSpot" in html
    assert next(iter(tables)).rows[0][0] == "aws us-east-1 family g spot"


def test_many_prices_are_cut_short_and_counted() -> None:
    tracker = sky.tracker.current()
    for number in range(MAX_PRICES + 7):
        place = Place("aws", "us-east-1", f"zone-{number}", "g5.xlarge", True)
        tracker.record(Observation("price", place, 1e9 + number, usd=0.3))
    (table,) = tracker_tables(tracker, 1e9 + 99, ["prices"])
    assert len(table) == MAX_PRICES and table.rows[0][0] == "aws us-east-1 zone-46 g5.xlarge spot"
    assert "and 7 more" in table.note


@pytest.mark.parametrize(
    ("line", "piece"),
    [
        ("tracker --block", "did you mean --blocked"),
        ("tracker cleer", "did you mean clear?"),
        ("tracker clear aws", "nothing is blocked"),
        ("tracker --cloud moon", "moon"),
    ],
)
def test_mistakes(line: str, piece: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(line.split()) == 2
    assert piece in capsys.readouterr().err


def test_help_shows_the_verb(capsys: pytest.CaptureFixture) -> None:
    assert "tracker clear [PLACE ...]" in run("help tracker", capsys)


@pytest.mark.parametrize(
    ("hours", "text"),
    [(0.25, "15 min"), (2.04, "2.0 h"), (47, "47 h"), (240, "10 days"), (8766 * 3, "3.0 years")],
)
def test_hours_in_words(hours: float, text: str) -> None:
    assert format_hours(hours) == text
