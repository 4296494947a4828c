"""Form, dry run, plan, launch and pool send a request to the same offer at the same price."""

from __future__ import annotations

import random
import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky import clouds
from jupyter_sky.cell_options.parsing import parse_cell_line
from jupyter_sky.config.settings import Sky
from jupyter_sky.errors import SkyError, SkyNoCapacity, SkyNoOffer
from jupyter_sky.executor import cluster_launch
from jupyter_sky.executor import session as sessions
from jupyter_sky.executor.request import with_settings
from jupyter_sky.executor.values import ClusterRequest
from jupyter_sky.forms import Fields, placement_text
from jupyter_sky.forms.cell_line import read
from jupyter_sky.functions.launch import ClusterLauncher
from jupyter_sky.ledger.ledger import format_rate
from jupyter_sky.magics import verbs
from jupyter_sky.magics.dryrun import dry_run
from jupyter_sky.offers import Offer
from jupyter_sky.optimizer.plan import Plan
from jupyter_sky.resources import Resources

POOL = """
[workstation]
address = "ada@192.0.2.5"
vcpus = 16
memory = 64
gpus = "T4:1"
price = 0.9

[closet]
address = "ada@192.0.2.6"
vcpus = 12
memory = 24
"""


class Sent(Exception):
    """A launch that would begin now."""

    def __init__(self, offer: Offer, price: float | None) -> None:
        super().__init__(offer.place)
        self.offer, self.price = offer, price


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A session whose launches stop where money would begin to be spent."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    (tmp_path / "hosts.toml").write_text(POOL)
    sessions.close()
    Sky.clear_instance()
    sessions.open_session({}, str(tmp_path / "n.ipynb"), lasting=False)

    def run(start: Any) -> None:
        raise Sent(start.order.offer, start.row.price)

    monkeypatch.setattr(cluster_launch._LaunchAttempt, "run", run)
    yield
    sessions.close()
    Sky.clear_instance()


def use(monkeypatch: pytest.MonkeyPatch, accounts: tuple[str, ...]) -> None:
    """Have credentials for these clouds."""
    monkeypatch.setattr(clouds, "is_ready", lambda name: name in clouds.ON_PREMISES + accounts)


def a_request(rng: random.Random) -> dict[str, Any]:
    """Draw the words of a pool, for which a cell has options."""
    words: dict[str, Any] = {}
    if rng.random() < 0.7:
        words["vcpus"] = rng.choice([1, 2, 4, 8, 13, 32, 96])
    if rng.random() < 0.4:
        words["memory_gb"] = rng.choice([1, 8, 30, 200])
    if rng.random() < 0.4:
        words["accelerator"] = rng.choice(["T4:1", "V100:1", "A100:8", "L4:1", "tpu-v3-8", "H100"])
    if rng.random() < 0.3:
        words["nodes"] = rng.choice([2, 3, 8])
    if rng.random() < 0.4:
        words["cloud"] = rng.choice(["aws", "gcp", "azure", "local", "ssh", "lambda"])
    if rng.random() < 0.3:
        words["max_hourly_cost"] = rng.choice([0.05, 0.7, 3.0, 40.0])
    if rng.random() < 0.2:
        words["architecture"] = rng.choice(["arm64", "x86_64"])
    if rng.random() < 0.5:
        words["allocation"] = rng.choice(["spot", "on-demand"])
    return words


def line_of(words: dict[str, Any]) -> str:
    """Write the same request as the options of a cell."""
    labels: dict[str, Any] = {
        "cpus": f"{words['vcpus']}+" if "vcpus" in words else None,
        "memory": f"{words['memory_gb']}+" if "memory_gb" in words else None,
        "gpus": words.get("accelerator"),
        "nodes": str(words.get("nodes", 1)),
        "cloud": words.get("cloud"),
        "arch": words.get("architecture"),
        "max_hourly_cost": words.get("max_hourly_cost"),
        "spot": {"spot": True, "on-demand": False}.get(words.get("allocation", "")),
    }
    return Resources.parse(**labels).command_line()


def of_plan(plan: Plan) -> tuple[str, str]:
    """Return the place of a plan, and the price that it shows."""
    (one,) = plan.tasks
    assert one.offer.price is not None
    return one.offer.place, format_rate(one.offer.price * one.nodes)


def launched(line: str) -> tuple[str, str]:
    """Return where a cell is sent, and at what price its account would be opened."""
    options = with_settings(parse_cell_line(line, {}), Sky.load())
    session = sessions.current()
    with pytest.raises(Sent) as sent:
        session.clusters.obtain(ClusterRequest(options.resources), lambda stage, detail: None)
    return sent.value.offer.place, format_rate(sent.value.price)


def pooled(words: dict[str, Any]) -> tuple[str, str]:
    """Return where a pool is sent."""
    with pytest.raises(Sent) as sent:
        sky.Compute(**words).up()
    return sent.value.offer.place, format_rate(sent.value.price)


def agree(words: dict[str, Any]) -> str:
    """Check one request; return the cloud that it goes to, empty where it cannot be launched."""
    line = line_of(words)
    options = parse_cell_line(line, {})
    told = placement_text(read(f"%%sky {line}\npass").fields or Fields(), {})
    try:
        place, price = launched(line)
    except SkyError as refusal:
        with pytest.raises(type(refusal)):
            pooled(words)
        assert told.startswith("cannot run"), (words, told)
        for show in (
            lambda: dry_run("1", options).plan,
            lambda: verbs.call_verb(planned_words(line)),
        ):
            try:
                plan = show()
            except SkyNoOffer:
                continue  # nothing on sale meets it either
            assert "launch" in " ".join(plan.notes) + str(dry_run("1", options)), words
            if "spot" not in words.get("allocation", ""):
                assert not plan.tasks[0].offer.spot, f"unasked: {words}"
        return ""
    assert (place, price) == pooled(words), words
    assert (place, price) == of_plan(dry_run("1", options).plan), words
    assert (place, price) == of_plan(verbs.call_verb(planned_words(line))), words
    if place.startswith("local"):
        assert told.startswith("would run here"), words
    else:
        assert place in told and f"{price}" in told, (words, told, place, price)
    return place.split()[0]


def planned_words(line: str) -> list[str]:
    """Return ``%sky plan`` of a request; one without options is this machine's single node."""
    return ["plan", *shlex.split(line)] if line else ["plan", "--nodes", "1"]


def test_200_requests_go_to_one_offer_at_one_price(
    notebook: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, gone = random.Random(15), []
    accounts: list[tuple[str, ...]] = [(), ("aws",), ("gcp",), ("aws", "gcp", "azure")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(200):
            use(monkeypatch, rng.choice(accounts))
            gone.append(agree(a_request(rng)))
    assert {"", "local", "ssh", "aws", "gcp", "azure"} <= set(gone), "every kind of answer came up"
    assert gone.count("") < 120


def test_a_pool_that_prefers_spot_machines_always_starts_and_says_so(
    notebook: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, ("aws",))
    asked: list[Offer] = []

    def run(start: Any) -> Any:
        asked.append(start.order.offer)
        if start.order.offer.spot:
            raise SkyNoCapacity("no spot machines are left")
        return SimpleNamespace(row=start.row, link=SimpleNamespace(lost=False))

    monkeypatch.setattr(cluster_launch._LaunchAttempt, "run", run)
    resources, nodes, spec = sky.Compute(
        cloud="aws", region="us-east-1", accelerator="A10G:1", allocation="spot-if-available"
    )._choose(sessions.current())
    known = sessions.current().clusters
    start = ClusterLauncher(known, resources, spec.lease, spec.market)
    with pytest.warns(UserWarning, match="no spot machine could be had: it is on demand, "):
        cluster = start("pool", nodes.ready)
    *refused, taken = asked
    assert len(refused) > 4 and all(offer.spot for offer in refused) and not taken.spot
    assert cluster.row.price == taken.price
