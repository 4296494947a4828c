"""Fetched, compared, refused or replaced: what holds whatever the cloud."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.clouds.prices.azure import AzurePrices
from jupyter_sky.clouds.prices.lambdalabs import LambdaPrices
from jupyter_sky.clouds.prices.page_cache import Page, PageCache
from jupyter_sky.clouds.prices.runner import RefreshOutcome, refresh, sources
from jupyter_sky.knowledge.catalog import load
from tests.emulators.azure import AzureEmulator, meter
from tests.emulators.lambdalabs import KEY, LambdaEmulator, kind

REGIONS = ("eastus", "westeurope", "westus")
SIZES = tuple(f"Standard_D{number}s_v5" for number in (2, 4, 8, 16, 32))


@pytest.fixture
def cloud(ship) -> Iterator[AzureEmulator]:
    """Three regions with five sizes each; the catalog that ships has the same, at $1."""
    azure = AzureEmulator()
    azure.meters = [meter(size, region, 1.0) for region in REGIONS for size in SIZES]
    row = {"cloud": "azure", "kind": "vm", "zone_basis": "region", "price_date": "2026-06-18"}
    ship(
        offers=[
            {**row, "region": region, "instance_type": size, "on_demand_usd_h": 1.0, "vcpus": 2}
            for region in REGIONS
            for size in SIZES
        ]
    )
    yield azure
    azure.close()


@pytest.fixture
def source(cloud: AzureEmulator) -> AzurePrices:
    return AzurePrices(f"{cloud.url}/api/retail/prices")


def run(source: AzurePrices, data: Path, base: Path, **options: Any) -> RefreshOutcome:
    options = {"quiet": True, "pause": 0, **options}
    (outcome,) = refresh(["azure"], directory=data, base=base, known={"azure": source}, **options)
    return outcome


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else {}


def prices(cloud: AzureEmulator, usd: float) -> None:
    cloud.meters = [{**each, "retailPrice": usd} for each in cloud.meters]


# -- what is written -----------------------------------------------------------------------


def test_the_catalog_has_the_new_prices_and_says_that_they_are_new(cloud, source, data, base):
    prices(cloud, 1.25)
    run(source, data, base)
    catalog = load(shipped=base, user=data / "catalog", own=[])
    cheapest = catalog.filter(cpus="2", cloud="azure").offers()[0]
    assert cheapest.price == 1.25
    assert cheapest.source == "azure-retail-prices"
    assert catalog.age("azure") == 0


def test_comparison_counts_new_removed_and_repriced_offers(cloud, source, data, base):
    cloud.meters[0]["retailPrice"] = 1.5
    cloud.meters[1]["retailPrice"] = 0.8
    cloud.meters[2] = meter("Standard_New_v9", "eastus", 9.0)
    cloud.meters.append(meter(SIZES[3], "eastus", 0.2, skuName="Spot"))
    diff = run(source, data, base).diff
    assert (diff.before, diff.after) == (15, 15)
    assert (diff.new, diff.gone, diff.repriced, diff.spot_repriced) == (1, 1, 2, 0)
    assert [str(change) for change in diff.largest] == [
        "Standard_D2s_v5 in eastus: $1 → $1.5 (+50 %)",
        "Standard_D4s_v5 in eastus: $1 → $0.8 (-20 %)",
    ]
    cloud.meters[-1]["retailPrice"] = 0.3
    again = run(source, data, base).diff
    assert (again.new, again.gone, again.repriced, again.spot_repriced) == (0, 0, 0, 1)
    assert str(again.largest[0]).startswith("Standard_D16s_v5 spot in eastus: $0.2 → $0.3")


def test_a_dry_run_compares_and_writes_nothing(cloud, source, data, base):
    prices(cloud, 1.1)
    outcome = run(source, data, base, dry_run=True)
    assert (outcome.state, outcome.diff.repriced) == ("dry run", 15)
    assert contents(data / "catalog") == {}
    asked = len(cloud.requests)
    assert run(source, data, base).state == "refreshed"
    assert len(cloud.requests) == asked  # what the dry run has fetched is not fetched again


def test_damaged_file_of_an_earlier_refresh_is_rewritten(cloud, source, data, base, stored):
    run(source, data, base)
    (data / "catalog" / "azure.json").write_text("{")
    outcome = run(source, data, base)
    assert outcome.state == "refreshed", outcome.error
    assert len(stored("azure")) == 15


# -- what is refused -----------------------------------------------------------------------


def test_far_fewer_offers_are_refused_with_figures(cloud, source, data, base, stored):
    run(source, data, base)
    before = contents(data / "catalog")
    cloud.meters = cloud.meters[:10]
    outcome = run(source, data, base)
    assert "10 priced offers came back where there were 15" in str(outcome.error)
    assert "--force" in str(outcome.error)
    assert contents(data / "catalog") == before
    assert run(source, data, base, force=True).state == "refreshed"
    assert len(stored("azure")) == 10


def test_prices_that_are_all_wrong_are_refused(cloud, source, data, base):
    prices(cloud, 100.0)  # as if by the month
    outcome = run(source, data, base)
    assert "15 of 15 prices are now more than three times" in str(outcome.error)


def test_empty_refresh_is_refused_even_by_force(cloud, source, data, base):
    cloud.meters = []
    outcome = run(source, data, base, force=True)
    assert "not one offer" in str(outcome.error)
    assert contents(data / "catalog") == {}


# -- interrupted and resumed ---------------------------------------------------------------


def test_failed_refresh_keeps_the_catalog_and_the_next_resumes(cloud, source, data, base, stored):
    run(source, data, base)
    before = contents(data / "catalog")
    prices(cloud, 1.2)
    cloud.requests.clear()
    cloud.trouble("westus", "refuse", after=1)
    assert run(source, data, base).state == "not refreshed"
    assert contents(data / "catalog") == before
    fetched = len(cloud.requests) - 1
    outcome = run(source, data, base)
    assert outcome.state == "refreshed", outcome.error
    assert outcome.resumed == fetched
    assert len(cloud.requests) == 3 * 3 + 1  # each page once, and the one that was refused
    assert {row["on_demand_usd_h"] for row in stored("azure")} == {1.2}
    assert not (data / "catalog-fetched" / "azure").exists()


def test_ctrl_c_keeps_the_catalog_and_what_was_fetched(cloud, source, data, base, monkeypatch):
    answer = cloud.answer

    def interrupt(request):
        if "westus" in request.query["$filter"] and request.query.get("$skip") == "2":
            os.kill(os.getpid(), signal.SIGINT)
        return answer(request)

    monkeypatch.setattr(cloud, "answer", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(source, data, base)
    assert contents(data / "catalog") == {}
    monkeypatch.setattr(cloud, "answer", answer)
    outcome = run(source, data, base)
    assert outcome.state == "refreshed"
    assert outcome.resumed > 0


def test_pages_are_kept_for_some_hours_only(tmp_path):
    clock = [1000.0]
    cache = PageCache(tmp_path, keep_hours=6, now=lambda: clock[0])
    cache.put("eastus/prices", 0, Page([{"usd": 1.0}], "token", {"no price": 2}))
    cache.put("eastus/prices", 1, Page([{"usd": 2.0}]))
    clock[0] += 6 * 3600
    assert cache.pages("eastus/prices") == [
        Page([{"usd": 1.0}], "token", {"no price": 2}),
        Page([{"usd": 2.0}]),
    ]
    clock[0] += 1
    assert cache.pages("eastus/prices") == []


def test_partially_written_page_is_fetched_again(tmp_path):
    cache = PageCache(tmp_path)
    for number in range(3):
        cache.put("a", number, Page([number], str(number)))
    (page,) = tmp_path.glob("a/00001*")
    page.write_bytes(page.read_bytes()[:-9])
    assert [kept.records for kept in cache.pages("a")] == [[0]]


def test_list_name_cannot_escape_the_cache_folder(tmp_path):
    cache = PageCache(tmp_path / "cache")
    cache.put("..%2f/up", 0, Page([1]))
    assert cache.pages("..%2f/up")[0].records == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_unwritable_page_cache_does_not_stop_a_refresh(cloud, source, data, base, stored):
    data.mkdir()
    (data / "catalog-fetched").write_text("not a directory")
    assert run(source, data, base).state == "refreshed"
    assert len(stored("azure")) == 15


def test_unwritable_catalog_is_reported(cloud, source, data, base):
    data.mkdir()
    (data / "catalog").write_text("not a directory")
    outcome = run(source, data, base)
    assert outcome.state == "not refreshed"
    assert "cannot be written" in str(outcome.error) and str(data) in str(outcome.error)
    assert (data / "catalog-fetched").is_dir()  # the next run need not ask again


@pytest.mark.slow
def test_killed_refresh_leaves_a_complete_catalog(data, base, ship, stored):
    ship(offers=[])
    lambdas = LambdaEmulator()
    answer, asked = lambdas.answer, iter(range(10**6))

    def another(request):
        """All prices are 70 cents in one answer and 80 in the next."""
        cents = 70 + 10 * (next(asked) % 2)
        lambdas.kinds = [kind(f"cpu_{n}x", cents, "N/A", 0, ("us-west-1",)) for n in range(500)]
        return answer(request)

    lambdas.answer = another  # type: ignore[method-assign]
    code = (
        "import sys; from pathlib import Path;"
        "from jupyter_sky.clouds.prices.runner import refresh;"
        "from jupyter_sky.clouds.prices.lambdalabs import LambdaPrices;"
        "source = LambdaPrices(sys.argv[1], 'lambda-4711')\n"
        "while True: print(refresh(['lambda'], directory=Path(sys.argv[2]), base=Path(sys.argv[3]),"
        " known={'lambda': source}, quiet=True)[0].state, flush=True)"
    )
    seen = set()
    for delay in range(8):
        line = [sys.executable, "-c", code, f"{lambdas.url}/types", str(data), str(base)]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "refreshed\n"
            time.sleep(0.013 * delay)  # somewhere in the next one
            child.kill()
        found = {row["on_demand_usd_h"] for row in stored("lambda")}
        assert len(stored("lambda")) == 500
        assert len(found) == 1
        seen |= found
    lambdas.close()
    assert seen <= {0.7, 0.8}


# -- several clouds ------------------------------------------------------------------------


def test_without_names_each_cloud_that_can_is_refreshed(cloud, source, data, base, monkeypatch):
    monkeypatch.delenv("LAMBDA_API_KEY", raising=False)
    outcomes = refresh(
        directory=data,
        base=base,
        known={"lambda": LambdaPrices(), "azure": source},
        quiet=True,
    )
    states = {outcome.cloud: outcome.state for outcome in outcomes}
    assert states == {"lambda": "not refreshed", "azure": "refreshed"}
    assert "LAMBDA_API_KEY" in str(outcomes[0].error)


def test_one_cloud_leaves_the_others_alone(cloud, source, data, base, stored):
    lambdas = LambdaEmulator()
    lambdas.kinds = [kind("gpu_1x_a10", 75, "A10 (24 GB PCIe)", 1, ("us-west-1",))]
    known = {
        "azure": source,
        "lambda": LambdaPrices(f"{lambdas.url}/api/v1/instance-types", KEY),
    }
    refresh(["azure"], directory=data, base=base, known=known, quiet=True)
    before = stored("azure")
    refresh(["lambda"], directory=data, base=base, known=known, quiet=True)
    lambdas.close()
    assert stored("azure") == before
    catalog = load(shipped=base, user=data / "catalog", own=[])
    assert {offer.cloud for offer in catalog.filter().offers()} == {"azure", "lambda"}


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(SkyUsageError, match="did you mean azure"):
        refresh(["azur"])


@pytest.mark.parametrize(
    ("name", "module", "line"),
    [
        ("aws", "boto3.session", "pip install 'jupyter_sky[aws]'"),
        ("gcp", "google.cloud.billing_v1", "pip install 'jupyter_sky[gcp]'"),
    ],
)
def test_a_missing_sdk_names_the_line_that_installs_it(
    data, base, ship, monkeypatch, name, module, line
):
    ship(offers=[])
    monkeypatch.setitem(sys.modules, module, None)
    (outcome,) = refresh([name], directory=data, base=base, quiet=True)
    assert line in str(outcome.error)


def test_naming_the_sources_imports_no_sdk():
    code = (
        "import sys, jupyter_sky.clouds.prices.runner as run; run.sources();"
        "heavy = {'boto3', 'google.cloud', 'azure', 'requests', 'pyarrow', 'pandas', 'tqdm'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert set(sources()) == {"aws", "azure", "gcp", "lambda"}


# -- progress ------------------------------------------------------------------------------


def test_progress_is_shown_with_tqdm(cloud, source, data, base, capsys):
    run(source, data, base, quiet=False)
    shown = capsys.readouterr()
    assert "azure" in shown.err + shown.out  # a notebook's bar is a widget that prints itself


def test_progress_is_shown_without_tqdm(cloud, source, data, base, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    run(source, data, base, quiet=False)
    assert "azure: 1 of 3 (" in capsys.readouterr().err
