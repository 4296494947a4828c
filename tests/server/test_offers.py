"""Offers of the clouds, and messages for requests that are not understood."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_sky import clouds
from jupyter_sky.clouds.hyperstack import Hyperstack
from tests.server.conftest import Refused


async def test_the_cheapest_are_told_with_the_line_that_asks_for_them(ask: Any) -> None:
    found = await ask("offers", what="A100:8", spot="true", limit="3")
    prices = [offer["price"] for offer in found["offers"]]
    assert len(prices) == 3 and prices == sorted(prices) and found["total"] >= 3
    for offer in found["offers"]:
        assert offer["spot"] is True and offer["gpus"].startswith("A100")
        assert offer["date"] and offer["origin"].endswith("2024")
        assert f"--instance-type {offer['instance_type']}" in offer["line"]
    again = await ask("offers", what=found["offers"][0]["instance_type"], limit="1")
    assert again["offers"][0]["instance_type"] == found["offers"][0]["instance_type"]


async def test_the_count_is_that_of_the_rows(ask: Any) -> None:
    """Zones with the same offer share a row, and are not counted apart."""
    found = await ask("offers", what="A100:8", spot="true", region="eu")
    rows = found["offers"]
    assert any(len(row["zones"]) > 1 for row in rows) and found["total"] == len(rows)


async def test_what_can_be_launched_now_comes_first(
    ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clouds, "is_ready", lambda name: name in ("gcp", "local"))
    monkeypatch.setattr(Hyperstack, "launchable", False)
    found = await ask("offers", what="A100-80GB:1", spot="false", limit="1000")
    tiers = [offer["launch"] for offer in found["offers"]]
    assert tiers == sorted(tiers, key=["now", "account", "never"].index)
    assert set(tiers) == {"now", "account", "never"}
    for offer in found["offers"]:
        assert (offer["launch"] == "now") == (offer["cloud"] == "gcp")
        assert bool(offer["obstacle"]) == (offer["launch"] == "never")
    for tier in set(tiers):
        prices = [offer["price"] for offer in found["offers"] if offer["launch"] == tier]
        assert prices == sorted(prices)


async def test_without_a_request_popular_gpus_are_shown(ask: Any) -> None:
    found = await ask("offers", what="", spot="false")
    names = [offer["gpus"] for offer in found["offers"]]
    assert found["popular"] and names[:2] == ["T4:1", "L4:1"] and found["total"] == len(names)
    assert not any(offer["spot"] for offer in found["offers"])
    here = await ask("offers", what="", spot="true", region="eu")
    assert here["offers"] and all(offer["spot"] for offer in here["offers"])


@pytest.mark.parametrize(
    ("query", "kind", "said"),
    [
        ({"what": "A1000:8"}, "SkyUsageError", "A100"),
        ({"colour": "red"}, "SkyUsageError", "colour"),
        ({"what": "A100:8", "limit": "none"}, "SkyUsageError", "limit=none"),
        ({"what": "A100:8", "limit": "0"}, "SkyUsageError", "limit=0"),
        ({"cpus": "100000"}, "SkyNoOffer", "cpus"),
    ],
)
async def test_invalid_query_is_explained(
    ask: Any, query: dict[str, str], kind: str, said: str
) -> None:
    with pytest.raises(Refused) as caught:
        await ask("offers", **query)
    assert caught.value.status == 400 and caught.value.kind == kind
    assert said in caught.value.said["message"] + caught.value.said["hint"]
