"""The process that reads what is due: spot prices into the tracker, and what may go wrong."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyNoOffer
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.prices.aws import AwsPrices
from jupyter_sky.interfaces.api.doctor import examine_prices
from jupyter_sky.knowledge.tracker import Place
from jupyter_sky.machines.renewal import worker
from jupyter_sky.machines.renewal.background import BackgroundRenewal
from jupyter_sky.machines.renewal.log import only_reader, read_log, write_log
from jupyter_sky.machines.renewal.report import renewal_table
from jupyter_sky.machines.renewal.schedule import CATALOG, QUOTAS, SPOT_PRICES, Reading, Subject
from jupyter_sky.machines.renewal.subjects import find_subjects
from jupyter_sky.machines.renewal.worker import main, renew
from tests.catalog.refresh.test_aws import at, world
from tests.emulators.aws import AwsEmulator
from tests.renewal.conftest import spot

PRICES = Subject(SPOT_PRICES, "aws")
EAST = Place("aws", "us-east-1", "us-east-1a", "g5.xlarge", spot=True)


def only_prices(data: Path, age: float = 0.0) -> None:
    """Let all but the spot prices have been read just now."""
    now = time.time()
    log = {Subject(kind, "aws"): Reading(now, now) for kind in (QUOTAS, CATALOG)}
    if age:
        log[PRICES] = Reading(now - age, now - age)
    data.mkdir(exist_ok=True)
    write_log(data, log)


def test_only_clouds_with_an_account_are_read(
    source: AwsPrices, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [SPOT_PRICES, QUOTAS, CATALOG]
    assert find_subjects() == [Subject(kind, "aws") for kind in kinds]
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert find_subjects() == []
    assert find_subjects({"aws": source}) == []


def test_spot_prices_of_a_cloud_whose_list_is_public_need_no_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("SKY_CLOUD", "azure,aws")
    Sky.clear_instance()
    assert find_subjects() == [Subject(SPOT_PRICES, "azure")]


def test_spot_prices_flow_into_the_tracker(aws: AwsEmulator, source: AwsPrices, data: Path) -> None:
    only_prices(data)
    made = renew(data, {"aws": source})
    assert made[PRICES].text == "aws: 3 spot prices, 3 of them new"
    assert made[PRICES].failures == 0
    found = sky.tracker.price(EAST)
    assert found is not None and found.usd == 0.4012 and time.time() - found.at < 60
    assert sky.tracker.price(Place("aws", "eu-west-1", "", "g5.xlarge", spot=True)).usd == 0.51
    assert aws.count("ap-east-1") == 0, "a region that is not enabled"


def test_an_invalid_price_is_left_out_alone_and_told(
    aws: AwsEmulator, source: AwsPrices, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    only_prices(data)
    aws.spot["us-east-1"].append(spot("", "us-east-1b", "0.2"))
    made = renew(data, {"aws": source})[PRICES]
    assert made.failures == 0 and made.text == "aws: 3 spot prices, 3 of them new"
    assert sky.tracker.price(EAST).usd == 0.4012
    assert "2 invalid entries of its spot prices were left out" in made.invalid, made
    assert "price is not a number" in made.invalid and "instance type" in made.invalid
    assert "1 spot prices were left out" in caplog.text
    (found,) = [one for one in examine_prices() if "left out" in one.text]
    assert found.text == made.invalid
    assert made.invalid in str(renewal_table())


def test_prices_are_read_once_an_hour(aws: AwsEmulator, source: AwsPrices, data: Path) -> None:
    only_prices(data)
    renew(data, {"aws": source})
    asked = len(aws.requests)
    assert renew(data, {"aws": source}) == {}
    assert len(aws.requests) == asked
    only_prices(data, age=3700.0)
    aws.spot["us-east-1"][0] = spot("g5.xlarge", "us-east-1a", "0.3900")
    again = renew(data, {"aws": source})
    assert again[PRICES].text == "aws: 3 spot prices, 1 of them new"
    assert sky.tracker.price(EAST).usd == 0.39


def test_another_process_that_reads_is_left_alone(
    aws: AwsEmulator, source: AwsPrices, data: Path
) -> None:
    only_prices(data)
    with only_reader(data):
        assert renew(data, {"aws": source}) == {}
    assert aws.requests == []


def test_refusals_are_noted_and_tried_later(
    aws: AwsEmulator, source: AwsPrices, data: Path
) -> None:
    only_prices(data)
    aws.trouble("DescribeSpotPriceHistory", "refuse", times=99)
    made = renew(data, {"aws": source})[PRICES]
    assert made.failures == 1 and made.done == 0.0 and "not authorized" in made.text
    assert renew(data, {"aws": source}) == {}, "not again at once"
    assert sky.tracker.price(EAST) is None


def test_a_process_that_is_killed_has_failed(
    source: AwsPrices, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_args: object) -> str:
        raise SystemExit(137)

    only_prices(data)
    monkeypatch.setattr(worker, "read_subject", killed)
    with pytest.raises(SystemExit):
        renew(data, {"aws": source})
    noted = read_log(data)[PRICES]
    assert (noted.failures, noted.done) == (1, 0.0) and "has not ended" in noted.text
    assert renew(data, {"aws": source}) == {}, "not again at once"


def test_prices_of_before_stay_where_a_list_is_empty(
    aws: AwsEmulator, source: AwsPrices, data: Path
) -> None:
    only_prices(data)
    renew(data, {"aws": source})
    aws.spot = {}
    only_prices(data, age=3700.0)
    assert renew(data, {"aws": source})[PRICES].failures == 1
    assert sky.tracker.price(EAST).usd == 0.4012


def test_plans_and_offers_use_the_newer_price_and_say_so(
    aws: AwsEmulator, source: AwsPrices, data: Path
) -> None:
    aws.spot["us-east-1"] = [spot("g5.xlarge", "us-east-1b", "0.0123")]
    asked = {"instance_type": "g5.xlarge", "cloud": "aws", "spot": True}
    (before,) = sky.offers(**asked, limit=1).head(1)
    only_prices(data)
    renew(data, {"aws": source})
    today = datetime.now(UTC).date().isoformat()
    (offer,) = sky.offers(**asked).head(1)
    assert (offer.price, offer.zone, offer.date) == (0.0123, "us-east-1b", today)
    assert offer.source == "seen by the tracker" != before.source
    text = str(sky.offers(**asked))
    assert "seen by the tracker" in text and "days old" in text
    frame = sky.offers(**asked).to_pandas()
    assert frame.usd_h[0] == 0.0123 and frame.price_from[0] == "seen by the tracker"
    assert frame.price_day[0] == today and frame.age_days[0] == 0
    assert frame.age_days.max() > 30, "those of the catalog are older"
    planned = sky.plan(sky.Resources.parse(**asked))
    (task,) = planned.tasks
    assert (task.offer.price, task.offer.source) == (0.0123, "seen by the tracker")
    assert re.search(r"prices: .*seen by the tracker, .*, of today", str(planned))
    limited = {**asked, "max_hourly_cost": 0.02}
    assert [each.price for each in sky.offers(**limited)] == [0.0123], "listed prices are above it"
    assert sky.plan(sky.Resources.parse(**limited)).tasks[0].offer == task.offer
    with pytest.raises(SkyNoOffer):
        sky.offers(**{**asked, "max_hourly_cost": 0.01})


def test_catalog_refreshes_when_it_is_older_than_a_week(data: Path, tmp_path: Path) -> None:
    cloud, base = world(), tmp_path / "shipped"
    try:
        source = at(cloud)
        now = time.time()
        data.mkdir()
        fresh = {Subject(kind, "aws"): Reading(now, now) for kind in (SPOT_PRICES, QUOTAS)}
        write_log(data, fresh)
        made = renew(data, {"aws": source}, base)
        assert list(made) == [Subject(CATALOG, "aws")]
        (reading,) = made.values()
        assert reading.text.startswith("catalog refreshed: aws has 6 priced offers, "), reading
        asked = len(cloud.requests)
        assert renew(data, {"aws": source}, base) == {} and len(cloud.requests) == asked
        write_log(data, fresh)  # as after a refresh by hand
        assert renew(data, {"aws": source}, base) == {}
        (path,) = (data / "catalog").glob("aws.json")
        meta = json.loads(path.read_text())
        path.write_text(json.dumps(meta | {"built": "2026-01-01T00:00:00+00:00"}))
        assert list(renew(data, {"aws": source}, base)) == [Subject(CATALOG, "aws")]
    finally:
        cloud.close()


def test_report_says_what_was_read_and_what_comes_next(data: Path) -> None:
    only_prices(data, age=60.0)
    rows = {row[1]: row for row in renewal_table()}
    assert rows["spot prices"][0] == "aws" and rows["spot prices"][2].endswith(" ago")
    assert rows["catalog"][2].endswith(" ago")
    Sky.load().renew = False
    assert "Sky.renew is off" in str(renewal_table())


def test_nothing_is_read_when_it_is_switched_off(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKY_RENEW", "false")
    Sky.clear_instance()
    main()
    assert read_log(data) == {}
    assert BackgroundRenewal(print).check() is False


def test_session_tells_of_a_refresh_once(data: Path) -> None:
    told: list[str] = []
    watch = BackgroundRenewal(told.append)
    now = time.time()
    data.mkdir()
    before = Reading(now - 60, now - 60, 0, "catalog refreshed: before this session")
    write_log(data, {Subject(CATALOG, "gcp"): before, Subject(QUOTAS, "aws"): Reading(now, now)})
    Sky.load().renew = False
    watch.check()
    assert told == []
    fresh = Reading(now + 60, now + 60, 0, "catalog refreshed: aws")
    write_log(data, {Subject(CATALOG, "aws"): fresh})
    watch.check()
    watch.check()
    assert told == ["catalog refreshed: aws"]


@pytest.mark.slow
def test_worker_is_a_process_of_its_own(
    data: Path, monkeypatch: pytest.MonkeyPatch, aws: AwsEmulator
) -> None:
    """It reads what is due and ends; here the account has no rights in EC2."""
    only_prices(data)
    aws.trouble("", "refuse", times=99)
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.url)
    watch = BackgroundRenewal(print)
    assert watch.check() is True
    assert watch._worker is not None and watch._worker.wait(60) == 0
    assert watch.check() is False, "what failed is tried later"
    assert read_log(data)[PRICES].failures == 1
