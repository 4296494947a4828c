"""Decision on what is due, by ages alone."""

from __future__ import annotations

from pathlib import Path

from jupyter_sky.machines.renewal.log import only_reader, read_log, write_log
from jupyter_sky.machines.renewal.schedule import (
    CATALOG,
    PERIODS,
    QUOTAS,
    RETRY_SECONDS,
    SPOT_PRICES,
    Reading,
    Subject,
    find_due,
    next_time,
)

NOW = 1_800_000_000.0
PRICES, LIMITS, OFFERS = (Subject(kind, "aws") for kind in PERIODS)


def test_each_kind_has_a_period_of_its_own() -> None:
    hour_ago = {each: Reading(NOW - 3601, NOW - 3601) for each in (PRICES, LIMITS, OFFERS)}
    assert find_due(hour_ago, hour_ago, NOW) == [PRICES]
    day_ago = {each: Reading(NOW - 86401, NOW - 86401) for each in (OFFERS, LIMITS, PRICES)}
    assert find_due(day_ago, day_ago, NOW) == [PRICES, LIMITS]
    week_ago = {each: Reading(NOW - 604801, NOW - 604801) for each in (OFFERS, LIMITS, PRICES)}
    assert find_due(week_ago, week_ago, NOW) == [PRICES, LIMITS, OFFERS]
    assert (PRICES.kind, LIMITS.kind, OFFERS.kind) == (SPOT_PRICES, QUOTAS, CATALOG)


def test_what_was_never_read_is_due() -> None:
    assert find_due([OFFERS, PRICES], {}, NOW) == [PRICES, OFFERS]
    assert find_due([], {PRICES: Reading()}, NOW) == []


def test_failures_wait_longer_each_time_and_a_day_at_most() -> None:
    first, longest = RETRY_SECONDS
    waits = [next_time(PRICES, Reading(NOW, 0.0, n)) - NOW for n in (1, 2, 3, 100)]
    assert waits == [first, 2 * first, 4 * first, longest]
    failed = {PRICES: Reading(NOW, NOW - 7200, 1)}
    assert find_due([PRICES], failed, NOW + first - 1) == []
    assert find_due([PRICES], failed, NOW + first) == [PRICES]


def test_log_is_kept_and_a_damaged_one_is_empty(tmp_path: Path) -> None:
    readings = {PRICES: Reading(NOW, NOW, 0, "aws: 12 spot prices"), OFFERS: Reading(NOW, 0.0, 2)}
    write_log(tmp_path, readings)
    assert read_log(tmp_path) == readings
    (path,) = tmp_path.glob("*.json")
    assert path.stat().st_mode & 0o077 == 0
    for text in ("[{}]", "{", '[{"kind": "quotas", "cloud": "aws", "colour": 1}]', "3"):
        path.write_text(text)
        assert read_log(tmp_path) == {}


def test_only_one_process_reads(tmp_path: Path) -> None:
    with only_reader(tmp_path / "sky") as first, only_reader(tmp_path / "sky") as second:
        assert (first, second) == (True, False)
    with only_reader(tmp_path / "sky") as again:
        assert again
