"""Costs of copies: the ledger has what the store itself has counted."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

import jupyter_sky as sky
from jupyter_sky import catalog, tracker
from jupyter_sky.base.errors import SkyBudget, SkyUsageError
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.rows import SpendRow
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.knowledge.ledger.ledger import Ledger
from jupyter_sky.knowledge.tracker import transfer_rates
from jupyter_sky.machines.storage.stores.errors import SkyResidency
from tests.emulators.object_store import ObjectStore

AWS, GOOGLE = "aws/us-east-1", "gcp/us-central1"


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch, own_data: None) -> Iterator[list[ObjectStore]]:
    """Two stores that are said to be in two clouds, and a ledger of the test's own."""
    sessions.close()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
    with ObjectStore("r2", min_part=1024) as one, ObjectStore("r2", min_part=1024) as two:
        two.operations.region = "us-central1"
        for server in (one, two):
            server.create("bucket")
        yield [one, two]
        sessions.close()
        assert not one.crashes and not two.crashes


def at(server: ObjectStore, key: str, place: str) -> str:
    return f"s3://bucket/{key}?endpoint={server.url}&place={place}"


def ends(servers: list[ObjectStore]) -> tuple[str, str]:
    one, two = servers
    return at(one, "x/", AWS), at(two, "y/", GOOGLE)


def fill(server: ObjectStore) -> None:
    server.put("bucket", "x/large", os.urandom(20 * 2**20))
    for number in range(5):
        server.put("bucket", f"x/{number}", os.urandom(1000))


def booked() -> list[SpendRow]:
    """Entries of the ledger."""
    return sessions.current().store.other_costs()


def counted_usd(servers: list[ObjectStore], contents: int) -> float:
    """The bill by the stores' own counts."""
    usd = 0.0
    for server in servers:
        for request in server.requests:
            method, __, rest = request.partition(" ")
            query = rest.partition("?")[2]
            is_list = method == "GET" and ("list-type" in query or "uploadId" in query)
            writes = method in ("PUT", "POST") or is_list
            usd += 5e-6 if writes else 0.4e-6 if method != "DELETE" else 0.0
    prices = catalog.load()
    one, two = (sum(server.bytes_out.values()) for server in servers)
    for place, nbytes in ((AWS, one), (GOOGLE, two)):
        usd += prices.egress(place, "internet", nbytes / 1e9).usd or 0.0
    assert one >= contents
    return usd


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "lose", "cut", "flip", "InternalError"])
def test_ledger_has_what_the_stores_count(servers: list[ObjectStore], fault: str) -> None:
    fill(servers[0])
    source, target = ends(servers)
    if fault:
        servers[0].fail("GET /bucket/x/large", fault, times=1)
        servers[1].fail("PUT /bucket/y/large", fault, times=2)
    copy = sky.copy(source, target, via="here").wait()
    (row,) = booked()
    assert row.usd == pytest.approx(counted_usd(servers, 20 * 2**20), rel=1e-3)
    assert copy.charge is not None and copy.charge.usd == row.usd
    assert (row.cluster, row.cloud) == ("transfers", "aws")
    assert row.what.startswith(f"{source} → {target}: ") and " writes, " in row.what
    ledger = Ledger(sessions.current().store)
    (line,) = ledger.summary("cloud")
    assert line.what == "aws" and line.usd == pytest.approx(row.usd)
    assert ledger.notebook_usd(sessions.current().notebook) == pytest.approx(row.usd)


@pytest.mark.slow
def test_estimate_is_what_is_booked(servers: list[ObjectStore]) -> None:
    fill(servers[0])
    source, target = ends(servers)
    estimate = sky.copy(source, target, dry_run=True)
    assert booked() == [], "nothing was copied"
    copy = sky.copy(source, target, via="here").wait()
    assert estimate.usd is not None and copy.charge is not None and copy.charge.usd is not None
    assert copy.charge.usd / estimate.usd == pytest.approx(1.0, abs=0.01)
    assert copy.charge.requests.usd == pytest.approx(estimate.estimate.charge.requests.usd)


@pytest.mark.slow
def test_rates_of_copies_replace_those_of_the_catalog(
    servers: list[ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_rates, "LEAST_SECONDS", 0.0)
    fill(servers[0])
    source, target = ends(servers)
    assert "(observed)" not in str(sky.copy(source, target, dry_run=True))
    sky.copy(source, target, via="here").wait()
    again = sky.copy(source, target.replace("/y/", "/z/"), dry_run=True)
    assert "(observed)" in str(again)
    rate = tracker.current().transfer_rates(time.time() + 1).find(AWS, GOOGLE)
    assert rate is not None and rate.count == 1 and rate.gbit_s > 0


@pytest.mark.slow
def test_interrupted_copy_is_booked_and_goes_on_for_the_rest(servers: list[ObjectStore]) -> None:
    fill(servers[0])
    source, target = ends(servers)
    servers[1].fail("PUT /bucket/y/large.*partNumber=2", "AccessDenied", times=100)
    with pytest.raises(sky.SkyError):
        sky.copy(source, target, via="here").wait()
    servers[1].faults.clear()
    sky.copy(source, target, via="here").wait()
    rows = booked()
    assert len(rows) == 2
    total = sum(row.usd or 0.0 for row in rows)
    assert total == pytest.approx(counted_usd(servers, 20 * 2**20), rel=1e-3)


@pytest.mark.slow
def test_dear_copies_are_asked_about(
    servers: list[ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(servers[0])
    source, target = ends(servers)
    monkeypatch.setattr(Sky.load(), "ask_usd", 0.001)
    with pytest.raises(SkyUsageError, match=r"egress.*more than Sky\.ask_usd"):
        sky.copy(source, target, via="here")
    assert not servers[1].keys("bucket")
    sky.copy(source, target, via="here", yes=True).wait()
    assert len(servers[1].keys("bucket")) == 6


def test_copy_beyond_the_budget_does_not_begin(servers: list[ObjectStore]) -> None:
    from jupyter_sky.knowledge.ledger import budget

    fill(servers[0])
    source, target = ends(servers)
    budget.write_budget(sessions.current().store, 0.0005, "%config")
    with pytest.raises(SkyBudget, match="more would be needed"):
        sky.copy(source, target, via="here", yes=True)
    assert not servers[1].keys("bucket")


@pytest.mark.parametrize(
    ("places", "via", "problem"),
    [
        ((AWS, "gcp/europe-west1"), "here", r"aws/us-east-1 is in US, not in EU"),
        (("aws/eu-central-1", GOOGLE), "here", r"gcp/us-central1 is in US, not in EU"),
        (
            ("aws/eu-central-1", "gcp/europe-west1"),
            "here",
            r"this machine: nobody has said that it is in EU",
        ),
    ],
)
def test_hop_outside_is_refused_before_the_first_byte(
    servers: list[ObjectStore], places: tuple[str, str], via: str, problem: str
) -> None:
    fill(servers[0])
    for server, place in zip(servers, places, strict=True):
        server.operations.region = server.account.region = place.partition("/")[2]
    one, two = servers
    with pytest.raises(SkyResidency, match=rf"{problem}.*0 bytes were sent \(--residency 'eu'\)"):
        sky.copy(at(one, "x/", places[0]), at(two, "y/", places[1]), via=via, residency="eu")
    assert not two.keys("bucket") and not sum(one.bytes_out.values())


def test_configured_residency_names_its_line(
    servers: list[ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sky.load(), "residency", {"s3://bucket/x/": "eu"})
    fill(servers[0])
    with pytest.raises(SkyResidency, match=r"\(Sky.residency\['s3://bucket/x/'\] = 'eu'\)"):
        sky.copy(*ends(servers), via="here")
    assert not servers[1].keys("bucket")


def test_store_that_tells_another_region_is_believed(servers: list[ObjectStore]) -> None:
    fill(servers[0])
    servers[0].operations.region = "eu-central-1"
    with pytest.raises(sky.SkyError, match="says that it is in eu-central-1, not in us-east-1"):
        sky.copy(*ends(servers), via="here", residency="us")
