"""Agreement of all faces on the place and the price of a request.

Each random request is asked of the form, the dry run, ``%sky plan``, the launch of a cell and that
of a pool, with the accounts of a random set of clouds. Launches stop where money would begin to be
spent; nothing else is replaced.
"""

from __future__ import annotations

import contextlib
import os
import random
import shlex
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jupyter_sky as sky
from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyError, SkyNoOffer
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.execution.cells.request import with_settings
from jupyter_sky.execution.clusters import cluster_launch
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.interfaces.forms.cell_line import Fields, read
from jupyter_sky.interfaces.forms.expected_place import placement_text
from jupyter_sky.interfaces.magics import verbs
from jupyter_sky.interfaces.magics.dryrun import dry_run
from jupyter_sky.knowledge.ledger.ledger import format_rate

HOSTS = """
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
ACCOUNTS: tuple[tuple[str, ...], ...] = ((), ("aws",), ("gcp",), ("aws", "gcp", "azure"))


class LaunchBegins(Exception):
    """A launch that would begin now."""

    def __init__(self, offer: Offer, price: float | None) -> None:
        super().__init__(offer.place)
        self.cloud = offer.cloud
        self.answer = offer.place, format_rate(price)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Answers to one request.

    Attributes
    ----------
    words : dict
        The request, as parameters of a pool.
    cloud : str
        Cloud that it goes to; empty where it cannot be launched.
    differences : tuple of str
        Faces that say something else than the launch of a cell.
    """

    words: dict[str, Any]
    cloud: str
    differences: tuple[str, ...] = ()


@contextlib.contextmanager
def notebook(folder: Path) -> Iterator[None]:
    """Open a session whose launches stop where money would begin to be spent."""
    (folder / "hosts.toml").write_text(HOSTS)

    def run(attempt: Any) -> None:
        raise LaunchBegins(attempt.request.offer, attempt.row.price)

    with (
        patch.dict(os.environ, SKY_DATA_DIR=str(folder)),
        patch.object(cluster_launch._LaunchAttempt, "run", run),
    ):
        sessions.close()
        Sky.clear_instance()
        sessions.open_session({}, str(folder / "n.ipynb"), lasting=False)
        try:
            yield
        finally:
            sessions.close()
            Sky.clear_instance()


def draw_request(rng: random.Random) -> dict[str, Any]:
    """Draw parameters of a pool for which a cell has options."""
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
    if rng.random() < 0.2:
        words["region"] = rng.choice(["eu", "us", "de"])
    if rng.random() < 0.3:
        words["max_hourly_cost"] = rng.choice([0.05, 0.7, 3.0, 40.0])
    if rng.random() < 0.2:
        words["architecture"] = rng.choice(["arm64", "x86_64"])
    if rng.random() < 0.5:
        words["allocation"] = rng.choice(["spot", "on-demand"])
    return words


def _at_least(accelerator: str) -> str:
    """Return an accelerator as a pool asks for it, as cells write that."""
    return f"{accelerator}+" if ":" in accelerator else f"{accelerator}:1+"


def cell_line(words: dict[str, Any]) -> str:
    """Return the same request as the options of a cell."""
    labels: dict[str, Any] = {
        "cpus": f"{words['vcpus']}+" if "vcpus" in words else None,
        "memory": f"{words['memory_gb']}+" if "memory_gb" in words else None,
        "gpus": _at_least(words["accelerator"]) if "accelerator" in words else None,
        "nodes": str(words.get("nodes", 1)),
        "cloud": words.get("cloud"),
        "region": words.get("region"),
        "arch": words.get("architecture"),
        "max_hourly_cost": words.get("max_hourly_cost"),
        "spot": {"spot": True, "on-demand": False}.get(words.get("allocation", "")),
    }
    return Resources.parse(**labels).command_line()


def planned_place(plan: Plan) -> tuple[str, str]:
    """Return the place of a plan, and the price that it shows."""
    (task,) = plan.tasks
    assert task.offer.price is not None
    return task.offer.place, format_rate(task.offer.price * task.nodes)


def launch_of_cell(line: str) -> LaunchBegins:
    """Return the launch that a cell would begin."""
    options = with_settings(parse_cell_line(line, {}), Sky.load())
    request = ClusterRequest(options.resources)
    return _begun(lambda: sessions.current().clusters.obtain(request, lambda stage, detail: None))


def launch_of_pool(words: dict[str, Any]) -> LaunchBegins:
    """Return the launch that a pool would begin."""
    return _begun(sky.Compute(**words).up)


def _begun(launch: Callable[[], object]) -> LaunchBegins:
    try:
        launch()
    except LaunchBegins as begun:
        return begun
    raise AssertionError("no launch has begun")


def compare(words: dict[str, Any]) -> Agreement:
    """Ask all faces for one request."""
    line = cell_line(words)
    told = placement_text(read(f"%%sky {line}\npass").fields or Fields(), {})
    try:
        begun = launch_of_cell(line)
    except SkyError as refusal:
        return Agreement(words, "", tuple(_differences_of_refusal(words, line, told, refusal)))
    place, price = begun.answer
    places: dict[str, tuple[str, str]] = {
        "pool": launch_of_pool(words).answer,
        "dry run": planned_place(dry_run("1", parse_cell_line(line, {})).plan),
        "plan": planned_place(verbs.call_verb(plan_words(line))),
    }
    found = [f"{face}: {answer}" for face, answer in places.items() if answer != (place, price)]
    here = place == "this machine" and told.startswith("would run on this machine")
    if not here and not (place in told and price in told):
        found.append(f"form: {told}")
    return Agreement(words, begun.cloud, tuple(found))


def _differences_of_refusal(
    words: dict[str, Any], line: str, told: str, refusal: SkyError
) -> Iterator[str]:
    try:
        yield f"pool: {launch_of_pool(words).answer}"
    except SkyError as other:
        if type(other) is not type(refusal):
            yield f"pool: {other!r}"
    if not told.startswith("cannot run"):
        yield f"form: {told}"
    options = parse_cell_line(line, {})
    for face, show in (
        ("dry run", lambda: dry_run("1", options).plan),
        ("plan", lambda: verbs.call_verb(plan_words(line))),
    ):
        try:
            plan = show()
        except SkyNoOffer:
            continue  # nothing on sale meets it either
        if "launch" not in " ".join(plan.notes) + str(dry_run("1", options)):
            yield f"{face}: does not say that it cannot be launched"
        if "spot" not in words.get("allocation", "") and plan.tasks[0].offer.spot:
            yield f"{face}: a spot machine, unasked"


def plan_words(line: str) -> list[str]:
    """Return ``%sky plan`` of a request; one without options is this machine's single node."""
    return ["plan", *shlex.split(line)] if line else ["plan", "--nodes", "1"]


def compare_requests(requests: int, seed: int, folder: Path) -> list[Agreement]:
    """Compare the answers to random requests."""
    rng, found = random.Random(seed), []
    with notebook(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(requests):
            accounts = clouds.ON_PREMISES + rng.choice(ACCOUNTS)
            with patch.object(clouds, "is_ready", lambda name, ready=accounts: name in ready):
                found.append(compare(draw_request(rng)))
    return found
