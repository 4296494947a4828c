"""The bill and the budget, asked of a real Jupyter server."""

from __future__ import annotations

import csv
import io
import json
import time
from dataclasses import asdict, replace
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.interfaces.server import overview
from jupyter_sky.knowledge.ledger import budget
from tests.ledger import test_ledger
from tests.ledger.test_ledger import put_run

HOUR = 3600.0


def put_cluster(store: Any, name: str, price: float | None, at: float, **more: str) -> None:
    row = test_ledger.put_cluster(store, name, price, at, **more)
    offer = Offer(row.cloud, row.region, row.instance_type, 2, 8, price=price)
    store.save_cluster(replace(row, offer=asdict(offer)))


def fill(store: Any) -> float:
    """Two clusters that are up and one that has ended; one of them has no known price."""
    now = time.time()
    put_cluster(store, "train", 2.0, now - HOUR)
    put_cluster(store, "rack", None, now - HOUR, notebook="b.ipynb", cloud="ssh")
    put_cluster(store, "old", 1.0, now - 80 * HOUR, cloud="gcp")
    store.end_cluster(store.cluster("old").id, "down", now - 79 * HOUR)
    put_run(store, "r1", "train", 2.0, now - HOUR / 2, now - HOUR / 4)
    return now


async def put(jp_fetch: Any, text: str) -> dict[str, Any]:
    answer = await jp_fetch("jupyter-sky", "budget", method="PUT", body=text)
    return json.loads(answer.body)


async def test_the_bill_has_what_is_known_and_names_what_is_not(store, ask) -> None:
    fill(store)
    bill = await ask("cost", by="cluster")
    assert {line["what"]: line["usd"] is None for line in bill["lines"]} == {
        "train": False,
        "rack": True,
        "old": False,
    }
    assert bill["rate"] == {"usd_h": 2.0, "unknown": ["rack"]}
    assert bill["total"]["usd"] == pytest.approx(3.0, abs=0.1)
    assert bill["total"]["unknown"] == ["rack"] and bill["total"]["estimated"]
    assert {one["cluster"] for one in bill["forecasts"]} == {"train", "rack"}
    assert bill["here"] is None and abs(bill["at"] - time.time()) < 60
    recent = await ask("cost", by="cluster", since="2h", notebook="a.ipynb")
    assert {line["what"] for line in recent["lines"]} == {"train", "rack"}
    assert recent["here"]["usd"] == pytest.approx(3.0, abs=0.1)
    assert recent["here"]["usd_h"] == 2.0
    cells = await ask("cost", by="cell", notebook="b.ipynb")
    assert cells["lines"] == [], "the cells are the notebook's own"


async def test_csv_has_all_lines(store, service, jp_fetch) -> None:
    fill(store)
    answer = await jp_fetch("jupyter-sky", "cost.csv", params={"by": "cluster"})
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert "sky-cost-by-cluster-" in answer.headers["Content-Disposition"]
    rows = {row["cluster"]: row for row in csv.DictReader(io.StringIO(answer.body.decode()))}
    assert rows["rack"]["usd"] == "unknown" and rows["rack"]["estimated"] == "yes"
    assert float(rows["old"]["usd"]) == pytest.approx(1.0) and rows["old"]["estimated"] == "no"


async def test_the_budget_is_set_for_all(store, ask, jp_fetch) -> None:
    fill(store)
    none = await ask("budget")
    assert (none["usd"], none["state"]) == (None, "none")
    told = await put(jp_fetch, '{"usd": 50}')
    assert (told["usd"], told["origin"], told["state"]) == (50.0, "the Cost panel", "ok")
    assert budget.read_budget(store).usd == 50.0
    assert (await ask("state"))["today"]["budget"] == 50.0
    spent = budget.assess(store).spent.usd
    over = await put(jp_fetch, json.dumps({"usd": spent / 2}))
    assert over["state"] == "over" and over["running"] == ["train ($2.00/h)"]
    today = (await ask("state"))["today"]
    assert today["over"] and today["budget"] == pytest.approx(spent / 2)
    assert (await put(jp_fetch, '{"usd": null}'))["usd"] is None


@pytest.mark.parametrize("text", ['{"usd": "much"}', '{"usd": -1}', "{}", "[]", '{"usd": true}'])
async def test_invalid_budget_is_refused(store, service, jp_fetch, text: str) -> None:
    budget.write_budget(store, 20.0, "%config")
    with pytest.raises(HTTPClientError) as caught:
        await put(jp_fetch, text)
    assert caught.value.code == 400
    assert json.loads(caught.value.response.body)["kind"] == "SkyUsageError"
    assert budget.read_budget(store).usd == 20.0


@pytest.mark.parametrize("query", [{"by": "colour"}, {"since": "soon"}])
async def test_bad_questions_are_answered_in_words(store, service, jp_fetch, query) -> None:
    for name in ("cost", "cost.csv"):
        with pytest.raises(HTTPClientError) as caught:
            await jp_fetch("jupyter-sky", name, params=query)
        assert caught.value.code == 400
        assert json.loads(caught.value.response.body)["message"]


async def test_the_server_keeps_the_budget_though_nobody_asks(
    store, monkeypatch: pytest.MonkeyPatch, data, request
) -> None:
    """No front end and no kernel: the cluster ends all the same."""
    monkeypatch.setattr(overview, "RETRY_SECONDS", 0.2)
    monkeypatch.setattr(budget, "GRACE_SECONDS", 0.5)
    put_cluster(store, "train", 5.0, time.time() - HOUR, cloud="local")
    budget.write_budget(store, 1.0, "%config")
    service = request.getfixturevalue("service")
    deadline = time.monotonic() + 15
    while store.clusters() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert store.clusters() == [], "it goes on"
    assert service.session.ledger.cluster_usd("train") < 5.1
