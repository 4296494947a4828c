"""Searches whose trials rent machines: launched, measured, booked, given back, and interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import Notebook
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import Loopback, loopback

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]

SPACE = """
import time
import jupyter_sky as sky
from jupyter_sky.search import Space, on_sale
labels = {"cpus": "2+", "memory": "2+", "cloud": "aws", "types": 6}
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Loopback]:
    with loopback("aws", minute=1.0) as opened:
        yield opened


@pytest.fixture
def book(fresh: Any, cloud: Loopback) -> Iterator[Notebook]:
    made = fresh("search.ipynb", **cloud.env)
    assert made.run(SPACE).status == "ok"
    yield made
    for machine in cloud.machines():
        cloud.api.power_off(machine["id"])


def test_a_cell_is_tried_on_machines_that_end(book: Notebook, cloud: Loopback) -> None:
    code = "time.sleep(4 / sky_configuration['vcpus'])"
    ran = book.run(
        f"found = sky.search('import time; ' + {code!r}, labels, 3, 'time', parallel=2)\n"
        "[(str(t.point), t.seconds, t.usd, t.error) for t in found.tries]",
        170,
    )
    assert ran.status == "ok", ran.traceback
    assert len(eval(ran.result)) == 3 and not any(row[3] for row in eval(ran.result)), ran.result
    assert not cloud.machines(), "each trial gives its machine back"
    best = book.run("found.best.point['vcpus'], found.best.seconds").result
    vcpus, seconds = eval(best)
    assert 4 / vcpus <= seconds < 4 / vcpus + 20
    from jupyter_sky.ledger.ledger import sum_usd  # noqa: F401

    booked = book.run(
        "from jupyter_sky.executor.session import current\n"
        "sum(current().ledger.cluster_usd(row.name) for row in "
        "current().store.clusters(live_only=False)), found.usd"
    ).result
    assert eval(booked)[0] == pytest.approx(eval(booked)[1]) and eval(booked)[0] > 0
