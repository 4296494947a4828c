"""The form of a cell: read, written and answered without a kernel."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.interfaces.forms.cell_line import schema
from tests.server.conftest import Refused
from tests.store.rows import CLUSTER


async def test_there_and_back(ask: Any) -> None:
    source = "%%sky --gpus V100:1 -i data --timeout 2h\nscore = fit(data)"
    found = await ask("form", "read", body={"source": source})
    assert found["fields"] == {
        "values": {"gpus": "V100:1", "input": "data", "timeout": "2h"},
        "alias": "",
    }
    assert found["reads"] == ["data", "fit"] and found["makes"] == ["score"]
    fields = found["fields"]
    fields["values"]["gpus"] = "T4:1"
    answer = await ask("form", "match", body={"source": source, "fields": fields})
    assert answer["line"] == "--gpus T4:1 -i data --timeout 2h" and answer["count"] > 3
    assert answer["places"][0]["gpu"] == "T4:1" and answer["seconds"] == 7200
    written = await ask("form", "write", body={"source": source, "fields": fields})
    assert written["source"] == f"%%sky {answer['line']}\nscore = fit(data)"
    bare = await ask("form", "write", body={"source": source, "fields": None})
    assert bare == {"source": "score = fit(data)", "line": None}


async def test_the_fields_and_their_words(ask: Any) -> None:
    found = await ask("form", "schema")
    assert [field["key"] for field in found["fields"]] == [field.key for field in schema()]


async def test_matching_offers_by_query(ask: Any) -> None:
    fields = json.dumps({"values": {"cloud": "gcp"}, "alias": ""})
    found = await ask("form", "complete", key="region", text="us-c", fields=fields)
    assert found["choices"][0]["value"] == "us-central1"
    assert (await ask("form", "complete", body={"key": "gpus", "text": "v100"}))["choices"]


async def test_a_live_cluster_is_offered(ask: Any, store: Any) -> None:
    store.save_cluster(CLUSTER)
    found = await ask("form", "complete", key="cluster", text="")
    assert found["choices"] == [{"value": CLUSTER.name, "note": ""}]


async def test_a_new_cluster_gets_a_name_when_the_notebook_has_one(
    ask: Any, store: Any, jp_root_dir: Path
) -> None:
    assert await ask("form", "new-name", notebook="a.ipynb") == {"name": ""}
    offer = asdict(Offer("aws", "us-east-1", "g5.xlarge", 4, 16))
    own = replace(CLUSTER, name="a-1f2e", notebook=str(jp_root_dir / "a.ipynb"), offer=offer)
    store.save_cluster(own)
    store.save_cluster(replace(CLUSTER, name="a-2", notebook="b.ipynb", offer=offer))
    assert await ask("form", "new-name", notebook="a.ipynb") == {"name": "a-3"}
    assert await ask("form", "new-name", notebook="c.ipynb") == {"name": ""}

    async def place(**values: str) -> str:
        body = {"fields": {"values": values}, "command": "%sky up", "notebook": "a.ipynb"}
        return (await ask("form", "place", body=body))["words"]

    assert await place(cluster="a-3", cloud="local") == (
        "would start on this machine, which costs nothing"
    )
    assert (await place()).startswith("a-1f2e is up: ")
    assert "give another name" in await place(cluster="a-2")


async def test_the_form_of_a_cluster_has_no_fields_of_cells(ask: Any) -> None:
    found = await ask("form", "schema", body={"command": "%sky up"})
    keys = [field["key"] for field in found["fields"]]
    assert {"gpus", "cpus", "nodes", "market", "idle", "cluster", "zone"} <= set(keys)
    assert not {"timeout", "max_cost", "input", "output", "bg", "pip", "dry_run"} & set(keys)


async def test_nothing_possible_names_the_field(ask: Any) -> None:
    fields = {"values": {"gpus": "V100:7"}}
    answer = await ask("form", "match", body={"source": "", "fields": fields})
    assert answer["count"] == 0 and answer["suggestions"][0]["keys"] == ["gpus"]
    assert answer["suggestions"][0]["values"] == {"gpus": "V100:8"}
    assert (await ask("form", "place", body={"fields": {"values": {"cloud": "local"}}}))[
        "words"
    ].startswith("would run on this machine")


async def test_an_estimate_is_for_the_time_that_is_given(ask: Any) -> None:
    fields = {"values": {"gpus": "T4:1", "cloud": "aws"}}
    answer = await ask("form", "match", body={"fields": fields, "time": "30m"})
    place = answer["places"][0]
    assert place["estimate"] == pytest.approx(place["price"] / 2)
    late = await ask("form", "match", body={"fields": fields, "time": "long"})
    assert "duration" in late["errors"]["time"]["message"] and late["count"] > 0


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("match", {"fields": {"values": []}}, 400, "fields"),
        ("match", {"fields": {"values": {"cpus": 4}}}, 400, "cpus"),
        ("write", {"source": "x", "fields": {"values": {"name": "a\nb"}}}, 400, "name"),
        ("read", {"source": 7}, 400, "source"),
        ("read", "no json", 400, "JSON"),
        ("march", {}, 404, "match"),
    ],
)
async def test_invalid_form_is_explained(
    ask: Any, path: str, body: Any, status: int, said: str
) -> None:
    with pytest.raises(Refused) as caught:
        await ask("form", path, body=body)
    assert caught.value.status == status
    assert said in caught.value.said["message"] + caught.value.said["hint"]


async def test_a_store_of_a_newer_version_does_not_stop_it(ask: Any, data: Any) -> None:
    import sqlite3

    data.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(data / "sky.db") as db:
        db.execute("PRAGMA user_version = 99")
    assert (await ask("form", "match", body={"fields": {"values": {"gpus": "T4"}}}))["count"]
    assert (await ask("form", "complete", key="cluster", text=""))["choices"] == []
