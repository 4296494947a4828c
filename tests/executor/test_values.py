"""Values between the steps of a cell: limits, replies, requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_sky.base.errors import SkyBudget, SkyTimeout, SkyTransferError
from jupyter_sky.base.requests.cell_options.values import CellOptions, CellOutput
from jupyter_sky.execution.cells.inputs import Reply, Sending
from jupyter_sky.execution.cells.notebook_history import NO_HISTORY
from jupyter_sky.execution.clusters.cluster_request import RunLimits
from jupyter_sky.execution.files.transfer import TransferReporter
from tests.store.test_store import CLUSTER


@pytest.mark.parametrize(
    ("timeout", "max_cost", "price", "seconds"),
    [
        (None, None, 1.0, None),
        (60.0, None, 1.0, 60.0),
        (None, 0.5, 1.0, 1800.0),
        (60.0, 0.5, 1.0, 60.0),
        (3600.0, 0.5, 2.0, 900.0),
        (None, 0.5, 0.0, None),
        (60.0, 0.5, None, 60.0),
        (None, 0.0, 1.0, 0.0),
    ],
)
def test_limit_is_the_nearer_of_time_and_money(
    timeout: float | None, max_cost: float | None, price: float | None, seconds: float | None
) -> None:
    assert RunLimits(timeout, max_cost).seconds(price) == seconds


def test_exceeded_limits_are_named() -> None:
    limits = RunLimits(60.0, 0.5)
    assert limits.exceeded("train", 60.0, 0.5) is None
    assert limits.exceeded("train", 1.0, None) is None
    late, dear = limits.exceeded("train", 61.0, 9.0), limits.exceeded("train", 1.0, 0.51)
    assert isinstance(late, SkyTimeout) and "train was stopped: --timeout" in str(late)
    assert isinstance(dear, SkyBudget) and "more than --max-cost 0.5" in str(dear)
    assert RunLimits(None, None).exceeded("train", 1e9, 1e9) is None


def test_cost_limit_needs_a_known_price() -> None:
    unknown = replace(CLUSTER, price=None)
    RunLimits(60.0, None).check_price(unknown)
    RunLimits(None, 0.5).check_price(replace(CLUSTER, price=0.0))
    with pytest.raises(SkyBudget, match=f"the price of {CLUSTER.instance_type} is not known"):
        RunLimits(None, 0.5).check_price(unknown)


def test_replies_are_read_by_their_status() -> None:
    described = {"result": {"ref": "1"}, "outputs": {"m": {"sizes": [1]}}}
    done = Reply.parse(1, {"status": "ok", "sky": described})
    assert (done.rank, done.value, done.outputs) == (1, {"ref": "1"}, {"m": {"sizes": [1]}})
    content = {"status": "error", "ename": "E", "sky": {"refused": ""}}
    failed = Reply.parse(0, content)
    assert failed.error == content and failed.refused == "" and failed.outputs == {}
    assert Reply.parse(0, {"status": "aborted"}).refused is None
    assert Reply.parse(0, {"status": "ok", "sky": None}).value is None
    kept = Reply.parse(0, {"status": "error", "sky": {"decisions": {"x": "keep"}}})
    assert kept.decisions == {"x": "keep"}
    assert Reply.parse(0, {"status": "ok", "sky": {"decisions": ["x"]}}).decisions == {}


def test_environment_goes_into_the_request_of_the_engine() -> None:
    options = CellOptions(outputs=(CellOutput("m", True),))
    sending = Sending("m = 1", options, inline={"x": {"sizes": [1]}}, env={"TOKEN": "secret"})
    assert sending.request(7, "kernel", NO_HISTORY, trusted=False) == {
        "cell": 7,
        "session": "kernel",
        "history": {},
        "inputs": {"x": {"sizes": [1]}},
        "outputs": [["m", True]],
        "env": {"TOKEN": "secret"},
        "as_data": True,
        "engine": None,
    }


def test_transfers_are_announced_and_refused_by_size() -> None:
    notes: list[str] = []
    stages: list[tuple[str, str]] = []
    reporter = TransferReporter(lambda *stage: stages.append(stage), notes.append, 1e6, 5e9)
    reporter.announce("x", 10**6, "to")
    assert notes == []
    reporter.announce("x", 2 * 10**6, "to")
    assert notes == ["x: 2.0 MB to the cluster"]
    with pytest.raises(SkyTransferError, match=r"x has 6\.0 GB, more than 5 GB: not sent") as error:
        reporter.announce("x", 6 * 10**9, "from")
    assert error.value.hint == "add --yes to send it all the same, or keep it there: -o x!"
    reporter.progress("x")(500, 2000)
    assert stages == [("syncing", "x 500 B of 2.0 kB")]
