"""A cloud that another package adds, wherever the name of a cloud is read."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from textwrap import dedent

import pytest

import jupyter_sky as sky
from jupyter_sky import Offer, clouds
from jupyter_sky.base.clouds import register
from jupyter_sky.base.errors import SkyPermission, SkyRefreshError, SkyUsageError
from jupyter_sky.base.requests.dag.dag import Data
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.clouds.prices import refresh, sources
from jupyter_sky.clouds.prices.entries import make_offer, make_table
from jupyter_sky.decisions.optimizer.constraints import Avoid, Only, Quota, parse_scope
from jupyter_sky.decisions.optimizer.launchability import Launchable
from jupyter_sky.decisions.search.offers import product_family
from jupyter_sky.interfaces.api.settings import config
from jupyter_sky.interfaces.forms.completion import CompletionContext
from jupyter_sky.interfaces.magics.completer import complete_names
from jupyter_sky.interfaces.server.snapshot import IdleReports, Snapshot
from jupyter_sky.interfaces.server.state import PanelState
from jupyter_sky.interfaces.widgets.plan import draw_graph
from jupyter_sky.knowledge.catalog import files, loader
from jupyter_sky.knowledge.catalog.transfer import Location, TransferNetwork
from jupyter_sky.knowledge.catalog.user_offers import check_file
from jupyter_sky.knowledge.ledger.billing import billed_seconds, billed_seconds_sql
from jupyter_sky.knowledge.ledger.ledger import Ledger
from jupyter_sky.knowledge.tracker.observations import quota_family

HOUR = 3600.0
DRIVER = '''
"""Provider of a cloud with a price list of two machines."""

import os

from jupyter_sky import Offer
from jupyter_sky.provider import Provider, ProviderError


class Nimbus(Provider):
    """A cloud that bills whole hours."""

    name, title, colour = "nimbus", "Nimbus Cloud", "#d14f8f"
    billing, login = (3600.0, 3600.0), "set NIMBUS_KEY"
    settings = {"project": "Project that machines belong to."}
    schemes, storage_hosts = ("nim",), (".store.nimbus.example",)
    storage_region, storage_class = "eu-1", "Nimbus Store"

    def configured(self):
        return os.environ.get("NIMBUS_KEY", "")

    def offers(self):
        if os.environ["NIMBUS_KEY"] == "wrong":
            raise ProviderError("the key is not known", status=401)
        place = {"country": "DE", "jurisdiction": "EU", "source": "Nimbus Cloud"}
        yield Offer(self.name, "eu-1", "cloudy-4", 4, 16, price=0.02, **place)
        yield Offer(self.name, "eu-1", "cloudy-4", 4, 16, spot=True, price=0.01, **place)
        gpu = {"gpu": "L4", "gpu_count": 1, "gpu_memory": 24}
        yield Offer(self.name, "eu-1", "stormy-8", 8, 32, price=0.5, **gpu, **place)

    launch = machines = terminate = sweep = None

    @staticmethod
    def quota_family(instance_type):
        return "all"
'''
OFFERS = """\
cloud,region,instance_type,vcpus,memory,price,country,date
nimbus,eu-1,rainy-4,4,16,0.03,de,2026-11-01
"""


def _clear() -> None:
    for cached in (
        register._entry_points,
        register.find_provider,
        register._installed_facts,
        clouds.get,
    ):
        cached.cache_clear()
    sys.modules.pop("sky_nimbus", None)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install the package of the cloud; return a data directory."""
    site, data = tmp_path / "site", tmp_path / "data"
    info = site / "sky_nimbus-1.dist-info"
    info.mkdir(parents=True)
    data.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sky-nimbus\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{register.GROUP}]\nnimbus = sky_nimbus:Nimbus\n")
    (site / "sky_nimbus.py").write_text(DRIVER)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("SKY_DATA_DIR", str(data))
    monkeypatch.setenv("NIMBUS_KEY", "right")
    Sky.clear_instance()
    _clear()
    yield data
    Sky.clear_instance()
    _clear()


@pytest.fixture
def catalog(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take one machine of AWS for what ships; return the directory."""
    shipped = tmp_path / "shipped"
    place = {"cloud": "aws", "region": "us-east-1"}
    machine = make_offer(
        **place, instance_type="m5.xlarge", vcpus=4, memory_gib=16, on_demand_usd_h=0.2
    )
    rows = {"offers": [machine], "regions": [place | {"country": "US", "jurisdiction": "US"}]}
    tables = {name: make_table(name, listed) for name, listed in rows.items()}
    files.write(shipped, tables, files.PartMetadata("shipped", ("aws",)))
    monkeypatch.setattr(loader, "shipped_directory", lambda: shipped)
    monkeypatch.setattr(loader, "_LOADED", {})
    return shipped


def test_option_and_setting_take_it() -> None:
    assert sky.Resources.parse(cloud="aws,nimbus").clouds == ("aws", "nimbus")
    Sky.load().cloud = "nimbus"
    with pytest.raises(SkyUsageError) as failure:
        sky.Resources.parse(cloud="nimbos")
    assert "nimbus" in str(failure.value.hint)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("cloud", "nimbus"),
        ("price-source", "nimbus"),
        ("setting", "providers.nimbus.project="),
    ],
)
def test_completion_offers_it(kind: str, text: str) -> None:
    assert text in [name for name, _ in complete_names(kind, CompletionContext())]


def test_settings_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKY_PROVIDERS_NIMBUS_PROJECT", "weather")
    assert Sky.load().provider_setting("nimbus", "project") == "weather"
    assert config("providers.nimbus.project", "climate") == "climate"
    assert Sky.load().providers == {"nimbus": {"project": "climate"}}


def test_scopes_and_constraints_name_it() -> None:
    scope = parse_scope("nimbus eu-1")
    assert (scope.cloud, scope.region) == ("nimbus", "eu-1")
    with pytest.raises(SkyUsageError, match="no cloud is called nimbos"):
        parse_scope("nimbos eu-1")


@pytest.mark.parametrize(
    ("uri", "region"),
    [
        ("nim://bucket/part", ""),
        ("https://data.store.nimbus.example/part", ""),
        ("nimbus/eu-2", "eu-2"),
    ],
)
def test_uris_of_its_store(uri: str, region: str) -> None:
    found = Data.from_uri(uri, "1GB")
    assert (found.cloud, found.region) == ("nimbus", region)


def test_places_of_it_in_transfers() -> None:
    here, there = Location.parse("nimbus/eu-1"), Location.parse("aws/us-east-1")
    network = TransferNetwork({}, [], [], [])
    assert network.relation(here, there) == "other cloud" and not here.is_own
    assert network.storage("nimbus", "eu-1", 1).storage_class == "Nimbus Store"


def test_families_of_its_types() -> None:
    assert quota_family("nimbus", "cloudy-4") == "all"
    assert product_family("nimbus", "cloudy-4") == "cloudy"


def test_user_offers_of_it_are_planned(data: Path, catalog: Path) -> None:
    path = data / "offers.csv"
    path.write_text(OFFERS)
    assert check_file(path).problems == ()
    plan = sky.plan(cpus=4, memory="16", constraints=[Launchable(), Quota(8, cloud="nimbus")])
    assert plan.tasks[0].offer.place == "nimbus eu-1 rainy-4"
    away = sky.plan(cpus=4, constraints=[Avoid((parse_scope("nimbus"),))])
    assert away.clouds == ("aws",)
    only = sky.plan(cpus=4, constraints=[Only(cloud="nimbus")])
    assert only.clouds == ("nimbus",)


def test_plan_compares_it_and_draws_it_in_its_colour(data: Path, catalog: Path) -> None:
    (data / "offers.csv").write_text(OFFERS)
    plan = sky.plan(cpus=4, memory="16")
    conditions = [each.condition for each in plan.compared()]
    assert "on aws only" in conditions and plan.clouds == ("nimbus",)
    assert register.sort_names(["local", "nimbus", "aws"]) == ["aws", "nimbus", "local"]
    assert "#d14f8f" in draw_graph(plan)


def test_catalog_refresh_reads_its_price_list(data: Path, catalog: Path) -> None:
    assert list(sources())[-1] == "nimbus"
    (outcome,) = refresh(["nimbus"], quiet=True)
    assert outcome.error is None and outcome.rows == 2
    known = loader.load()
    (row,) = known.filter(cloud="nimbus", gpus="L4").offers()
    assert (row.price, row.gpu_memory, row.jurisdiction) == (0.5, 24, "EU")
    markets = known.filter(cloud="nimbus", instance_type="cloudy-4").offers()
    assert [(offer.spot, offer.price) for offer in markets] == [(True, 0.01), (False, 0.02)]
    assert known.filter(cloud="aws").offers(), "other clouds stay"


@pytest.mark.parametrize(
    ("key", "says", "hint"),
    [("", "no credentials", "set NIMBUS_KEY"), ("wrong", "the key is not known", "set NIMBUS_KEY")],
)
def test_refused_refresh_is_told_with_its_remedy(
    catalog: Path, monkeypatch: pytest.MonkeyPatch, key: str, says: str, hint: str
) -> None:
    monkeypatch.setenv("NIMBUS_KEY", key)
    (outcome,) = refresh(["nimbus"], quiet=True, pause=0)
    assert isinstance(outcome.error, SkyRefreshError) and says in str(outcome.error)
    assert outcome.error.hint == hint


def test_cloud_that_refuses_is_left_out_where_others_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(clouds.external_offers(("aws", "nimbus"))) == 3
    monkeypatch.setenv("NIMBUS_KEY", "wrong")
    assert clouds.external_offers(("aws", "nimbus")) == []
    assert "the key is not known (401); its offers are left out" in caplog.text
    with pytest.raises(SkyPermission, match="the key is not known"):
        clouds.external_offers(("nimbus",))


# -- billing -------------------------------------------------------------------------------------


def test_billing_by_its_step_in_python_and_sql() -> None:
    lasted = [0.0, 1.0, HOUR, HOUR + 1, 7200.0]
    billed = [billed_seconds("nimbus", seconds) for seconds in lasted]
    assert billed == [0.0, HOUR, HOUR, 7200.0, 7200.0]
    db = sqlite3.connect(":memory:")
    expression = billed_seconds_sql("'nimbus'", "?1", ["aws", "nimbus"])
    found = [db.execute(f"SELECT {expression}", (seconds,)).fetchone()[0] for seconds in lasted]
    assert found == pytest.approx(billed)


def test_name_with_a_quote_is_quoted_in_sql() -> None:
    expression = billed_seconds_sql("?1", "5.0", ["aws", "o'hare"])
    db = sqlite3.connect(":memory:")
    assert db.execute(f"SELECT {expression}", ("o'hare",)).fetchone()[0] == 5.0


def test_hour_that_outlasts_its_machine_is_billed_after_it(data: Path) -> None:
    """A machine that ended half an hour ago is billed on, here, in the bill and in the panel."""
    store, begun = Store.open(data), time.time() - 160
    row = ClusterRow(
        *("short", "up", "nimbus", "eu-1", "cloudy-4"),
        spot=False,
        price=2.0,
        nodes=1,
        resources="",
        offer=asdict(Offer("nimbus", "eu-1", "cloudy-4", 4, 16, price=2.0)),
        machines=[],
        connection={},
        notebook="a.ipynb",
        created=begun,
        idle=600.0,
        price_source="",
        price_date="",
    )
    store.save_cluster(row)
    store.begin_interval(row.id, row.price, begun)
    store.end_cluster(row.id, "down", begun + 60)
    since, now = begun + 1800, begun + 2 * HOUR
    (line,) = Ledger(store).summary("cloud", since, now)
    assert line.what == "nimbus" and line.usd == pytest.approx(1.0)
    (shown,) = PanelState(store).to_dict(Snapshot(), IdleReports())["clusters"]
    assert shown["usd"] == pytest.approx(2.0)


# -- lazily --------------------------------------------------------------------------------------


def test_built_in_clouds_and_an_import_read_no_entry_points() -> None:
    code = """
        import importlib.metadata, sys
        def fail(**_): raise AssertionError("entry points are read")
        importlib.metadata.entry_points = fail
        import jupyter_sky as sky
        from jupyter_sky.knowledge.catalog.transfer import Location
        from jupyter_sky.base.settings.settings import Sky
        from jupyter_sky.base.requests.dag.dag import Data
        from jupyter_sky.decisions.optimizer.constraints import parse_scope
        from jupyter_sky.base.clouds.register import find_facts, sort_names
        from jupyter_sky.knowledge.tracker.blocks import block_seconds
        sky.Resources.parse(cloud="aws,gcp,vast,local")
        Sky.load().providers = {"aws": {"scheduler_role": "arn"}}
        for uri in ("s3://b", "gs://b", "az://b", "./b", "file:///b", "?:/b", "aws/us-east-1",
                    "https://x.blob.core.windows.net/b"):
            Data.from_uri(uri, "1GB")
        Location.parse("internet").is_own, Location.parse("aws/us-east-1").is_own
        parse_scope("azure eastus"), find_facts(""), block_seconds("capacity", 1)
        assert sort_names(["lambda", "gcp"]) == ["gcp", "lambda"]
        assert "sky_nimbus" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", dedent(code)], check=True)
