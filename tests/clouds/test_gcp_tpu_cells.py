"""Cells on a slice of several TPU VMs, each a real host."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_sky.knowledge.catalog import load
from tests.clouds.gcp_requests import until
from tests.clouds.rest_world import end_lease_watchers
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import loopback

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]


def test_cell_runs_on_all_vms_of_a_slice(fresh: Any) -> None:
    with loopback("gcp", minute=1.0) as opened:
        book = fresh("a.ipynb", **opened.env)
        cell = "%%sky --cloud gcp --gpus tpu-v4-16 --cpus 4 --on all\nprint('is up')"
        ran = book.run(cell, 150)
        assert ran.status == "ok", ran
        assert str(ran).count("is up") >= 2, ran
        (node,) = opened.api.tpus.nodes.values()
        assert node["acceleratorType"] == "v4-16" and len(node["networkEndpoints"]) == 2
        status = book.run("%sky status", 30)
        (offer,) = load().filter(cloud="gcp", gpus="tpu-v4-16", spot=False).offers(1)
        assert f"${offer.price:.2f}/h" in str(status), "of the slice, not of each VM"
        assert book.run("%sky down --all", 60).status == "ok"
        until(lambda: opened.api.tpus.billed() == [], 20)
        end_lease_watchers(opened.api.url)
