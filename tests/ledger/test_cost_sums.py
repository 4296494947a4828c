"""Sums of the ledger by day, cluster and cell agree with each other and with a cloud's own bill."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from jupyter_sky.base.store.store import Store
from jupyter_sky.interfaces.server.state import PanelState
from jupyter_sky.knowledge.ledger import forecast, report
from jupyter_sky.knowledge.ledger.ledger import Ledger
from tests.emulators.provider_billing import UNITS
from tests.ledger.test_ledger import put_cluster, put_run

HOUR = 3600.0
# days on which clocks are changed, some of them at midnight
DAYS = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("America/Santiago", "2026-09-06"),
    ("America/Havana", "2026-11-01"),
    ("Asia/Beirut", "2026-03-29"),
]


@contextmanager
def in_zone(name: str) -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


@dataclass
class Life:
    """A cluster: when it begins after midnight, and for how long it has which price."""

    cloud: str
    start: float
    pieces: list[tuple[float, float]]
    cells: list[tuple[float, float]]
    """Parts of its life: when the last one ended, and how long it ran."""

    @property
    def seconds(self) -> float:
        return sum(seconds for seconds, _ in self.pieces)


amounts = some.floats(0.0, 800.0, allow_nan=False) | some.sampled_from([0.1, 1 / 3, 98.32, 1e-4])
lasting = some.floats(0.001, 30 * HOUR) | some.floats(0.001, 90.0)
lives = some.builds(
    Life,
    some.sampled_from(sorted(UNITS)),
    some.floats(-2 * HOUR, 24 * HOUR),
    some.lists(some.tuples(lasting, amounts), min_size=1, max_size=4),
    some.lists(some.tuples(some.floats(0.0, 0.3), some.floats(0.0, 0.3)), max_size=3),
)


def cloud_bill(life: Life, begun: float) -> Fraction:
    """Return what the cloud charges: units and the minimum, of a machine's life as a whole."""
    unit, least = (Fraction(part) for part in UNITS[life.cloud])
    times = [begun]
    for seconds, _ in life.pieces:
        times.append(times[-1] + seconds)
    marks = [Fraction(round(at * 10**6), 10**6) for at in times]
    whole = marks[-1] - marks[0]
    units = math.ceil(whole / unit - Fraction(1, 10**6)) * unit
    marks[-1] += max(units, least, whole) - whole
    spans = zip(marks, marks[1:], life.pieces, strict=False)
    return sum(
        (Fraction(price) * (end - start) / 3600 for start, end, (_, price) in spans), Fraction()
    )


def record(store: Store, number: int, life: Life, midnight: float) -> float:
    """Write a life into the ledger; return when it began."""
    begun = at = midnight + life.start
    put_cluster(store, f"c{number}", life.pieces[0][1], begun, cloud=life.cloud)
    found = store.cluster(f"c{number}")
    assert found is not None
    cluster = found.id
    for seconds, _ in life.pieces[:-1]:
        at += seconds
        following = life.pieces[life.pieces.index((seconds, _)) + 1][1]
        store.begin_interval(cluster, following, at)
    ended = at + life.pieces[-1][0]
    when = begun
    for index, (pause, lasted) in enumerate(life.cells):
        start = when + pause * life.seconds
        when = start + lasted * life.seconds
        if when < ended:
            put_run(store, f"r{number + 1}{index}", cluster.name, life.pieces[0][1], start, when)
    store.end_cluster(cluster, "down", ended)
    return begun


@settings(max_examples=25)
@given(some.lists(lives, min_size=1, max_size=4), some.sampled_from(DAYS))
def test_sums_agree_over_days_of_clock_changes(found: list[Life], where: tuple[str, str]) -> None:
    zone, day = where
    with in_zone(zone), tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder))
        midnight = datetime.fromisoformat(day).timestamp()
        found = [
            Life(one.cloud, one.start, list(dict.fromkeys(one.pieces)), one.cells) for one in found
        ]
        begun = [record(store, number, life, midnight) for number, life in enumerate(found)]
        charged = sum((cloud_bill(*each) for each in zip(found, begun, strict=True)), Fraction())
        ledger, now = Ledger(store), midnight + 400 * HOUR
        by = {
            kind: ledger.summary(kind, now=now) for kind in ("day", "cluster", "cloud", "notebook")
        }
        whole = {kind: sum(line.exact or 0 for line in lines) for kind, lines in by.items()}
        assert len(set(whole.values())) == 1, whole
        total = report.make_report(store, "a.ipynb", "cluster", now=now).total.usd
        assert total == pytest.approx(float(charged), rel=1e-9, abs=1e-6)
        assert math.fsum(line.usd or 0.0 for line in by["day"]) == pytest.approx(total, rel=1e-12)
        for line in by["day"]:
            _, first, last = forecast.local_day(datetime.fromisoformat(line.what).timestamp())
            spent = forecast.spent_between(
                store.intervals(since=first - HOUR), [], now, first, last
            )
            assert spent.usd == pytest.approx(line.usd, rel=1e-12, abs=1e-15)
        panel = PanelState(store)._spent(
            [row[0] for row in store.database.read("SELECT id FROM clusters")], now
        )
        assert math.fsum(each or 0.0 for each in panel.values()) == pytest.approx(total, abs=1e-6)
        for number in range(len(found)):
            cells = sum(
                line.exact or 0
                for line in ledger.summary("cell", now=now)
                if f"[{number + 1}" in line.what
            )
            cluster = next(line.exact or 0 for line in by["cluster"] if line.what == f"c{number}")
            assert cells <= cluster + 10**6
        store.close()


def test_price_changes_are_not_rounded_up_each(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    put_cluster(store, "c", 3.6, 1e9)
    cluster = store.clusters()[0].id
    for second in range(1, 30):
        store.change_price(cluster, 3.6 + second % 2, 1e9 + second)
    store.end_cluster(cluster, "down", 1e9 + 30)
    ledger = Ledger(store)
    assert ledger.cluster_usd("c") == pytest.approx(
        0.030 + 14 / 3600 + 0.030 * (4.6 / 3.6), rel=0.05
    )
    (line,) = ledger.summary("cluster")
    assert line.seconds == pytest.approx(60.0), "one least time, not thirty"
    store.close()
