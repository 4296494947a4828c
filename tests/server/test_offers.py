"""Offers of the clouds, and messages for requests that are not understood."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.conftest import Refused


async def test_the_cheapest_are_told_with_the_line_that_asks_for_them(ask: Any) -> None:
    found = await ask("offers", what="A100:8", spot="true", limit="3")
    prices = [offer["price"] for offer in found["offers"]]
    assert len(prices) == 3 and prices == sorted(prices) and found["total"] >= 3
    for offer in found["offers"]:
        assert offer["spot"] is True and offer["gpus"].startswith("A100")
        assert offer["date"] and offer["source"] in found["source"]
        assert f"--instance-type {offer['instance_type']}" in offer["line"]
    again = await ask("offers", what=found["offers"][0]["instance_type"], limit="1")
    assert again["offers"][0]["instance_type"] == found["offers"][0]["instance_type"]


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
