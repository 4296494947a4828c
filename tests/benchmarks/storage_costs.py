"""Dollars of copies, for the benchmark `storage`: those booked over those estimated.

Two strict stores of the tests stand for buckets in two clouds. The estimate of a dry run is
compared with the entry of the ledger, and the entry with what the stores themselves have counted.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PLACES = ("aws/us-east-1", "gcp/us-central1")
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret-of-the-test"}
WRITE_USD, READ_USD = 5e-6, 0.4e-6


@contextmanager
def own_ledger(folder: Path) -> Iterator[None]:
    """Keep the ledger in a folder of its own."""
    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.execution.sessions import session as sessions

    before = dict(os.environ)
    os.environ |= {**KEYS, "SKY_DATA_DIR": str(folder)}
    sessions.close()
    Sky.clear_instance()
    try:
        yield
    finally:
        sessions.close()
        Sky.clear_instance()
        os.environ.clear()
        os.environ.update(before)


def datasets(quick: bool, draw: random.Random) -> dict[str, list[int]]:
    """Return sizes of objects by the name of their dataset."""
    return {
        "small": [draw.randrange(1, 20_000) for _ in range(50 if quick else 2000)],
        "large": [17 * 2**20] if quick else [40 * 2**20, 16 * 2**20, 16 * 2**20 + 1],
        "mixed": [0, 1, 5000, 20 * 2**20] if quick else [0, 1, *([300_000] * 200), 50 * 2**20],
    }


def counted_usd(servers: list[Any]) -> float:
    """Return the bill by what the stores have counted."""
    from jupyter_sky import catalog

    usd, prices = 0.0, catalog.load()
    for server, place in zip(servers, PLACES, strict=True):
        usd += prices.egress(place, "internet", sum(server.bytes_out.values()) / 1e9).usd or 0.0
        usd += sum(map(request_usd, server.requests))
    return usd


def request_usd(request: str) -> float:
    """Return the price of a request as the store describes it."""
    method, _, rest = request.partition(" ")
    query = rest.partition("?")[2]
    if method == "DELETE":
        return 0.0
    is_list = method == "GET" and ("list-type" in query or "uploadId" in query)
    return WRITE_USD if method in ("PUT", "POST") or is_list else READ_USD


def estimate_error(quick: bool) -> float:
    """Return booked over estimated dollars, the ratio that is farthest from 1.

    Raises
    ------
    RuntimeError
        The ledger has another sum than the stores have counted.
    """
    import jupyter_sky as sky
    from tests.emulators.object_store import ObjectStore

    draw, ratios = random.Random(5), list[float]()
    with (
        tempfile.TemporaryDirectory() as name,
        own_ledger(Path(name)),
        ObjectStore("r2", min_part=1024) as one,
        ObjectStore("r2", min_part=1024, region="us-central1") as two,
    ):
        two.account.region = "us-central1"
        two.operations.region = "us-central1"
        for server in (one, two):
            server.create("bucket")
        ends = [
            f"s3://bucket/{{}}/?endpoint={server.url}&place={place}"
            for server, place in zip((one, two), PLACES, strict=True)
        ]
        for dataset, sizes in datasets(quick, draw).items():
            for number, size in enumerate(sizes):
                one.put("bucket", f"{dataset}/{number}", draw.randbytes(size))
            source, target = (end.format(dataset) for end in ends)
            estimate = sky.copy(source, target, dry_run=True)
            for server in (one, two):
                server.forget_counts()
            booked = sky.copy(source, target, via="here", yes=True).wait().charge
            assert booked is not None and booked.usd is not None and estimate.usd
            counted = counted_usd([one, two])
            if abs(booked.usd / counted - 1) > 1e-6:
                raise RuntimeError(f"{dataset}: ${booked.usd} booked, ${counted} counted")
            ratios.append(booked.usd / estimate.usd)
            text = f"{dataset}: ${booked.usd:.6f} booked, ${estimate.usd:.6f} estimated"
            print(text, file=sys.stderr, flush=True)
    return max(ratios, key=lambda ratio: abs(ratio - 1))
