"""A cluster on machines of a cloud, seen from a server; and its end in the cloud's own console."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.store.store import Store
from jupyter_sky.interfaces.server.service import SkyService
from tests.conftest import Notebook, wait_until
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import Loopback, loopback
from tests.executor.test_stopped_clusters import end_watches
from tests.server.test_clusters import refused, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]

SKY = "%%sky --cloud aws --cpus 2 -c far"


@pytest.fixture(scope="module")
def opened() -> Iterator[Loopback]:
    with loopback("aws") as cloud:
        yield cloud


@pytest.fixture
def cloud(opened: Loopback, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """A cloud that the server, too, has credentials for; no machine is left in it."""
    from jupyter_sky import clouds

    for name, value in opened.env.items():
        monkeypatch.setenv(name, value)
    clouds.get.cache_clear()
    yield opened
    for machine in opened.machines():
        opened.api.power_off(machine["id"])
    clouds.get.cache_clear()


@pytest.fixture
def book(
    cloud: Loopback, data: Path, tmp_path: Path, sky_env: dict[str, str]
) -> Iterator[Notebook]:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    env = {**sky_env, **cloud.env, "SKY_DATA_DIR": str(data)}
    made = Notebook(folder, env, "analysis.ipynb")
    yield made
    made.stop()
    end_watches(data)


def console(cloud: Loopback) -> Any:
    """EC2, as its own console has it."""
    import boto3

    region, _, name = cloud.machines()[0]["id"].partition("/")
    return boto3.client("ec2", region_name=region), name


async def test_a_machine_that_is_removed_in_the_console_is_shown_as_lost(
    ask: Callable[..., Any], service: SkyService, book: Notebook, cloud: Loopback, store: Store
) -> None:
    sent = book.send(SKY + " --nodes 2\nimport time\nprint('begun', flush=True)\ntime.sleep(300)")

    async def going() -> Any:
        return next((r for r in (await ask("state"))["runs"] if r["status"] == "running"), None)

    run = await until(going)
    (shown,) = (await ask("state"))["clusters"]
    assert (shown["state"], shown["cloud"], shown["nodes"]) == ("up", "aws", 2)
    assert shown["price"] > 0 and shown["usd"] > 0 and shown["lease_end"] > time.time()

    async def sampled() -> Any:
        told = await ask("clusters", "far", "metrics")
        return told if len(told["nodes"]) == 2 else None

    nodes = (await until(sampled))["nodes"]
    assert [node["rank"] for node in nodes] == [0, 1] and nodes[1]["memory"][0] > 0
    told = await ask("runs", run["run_id"], "outputs")
    assert told["outputs"][0]["text"].count("begun") == 2, "the journal is on the machine"
    assert (await ask("clusters", "far", "ssh"))["command"].startswith("ssh -t ")
    assert "first contact" in (await ask("clusters", "far", "log"))["text"]
    said = await refused(ask("clusters", "far", "extend", body={"time": "30d"}), 400)
    assert "lease" in said
    assert (await ask("clusters", "far", "extend", body={"time": "2h"}))["idle_left"] > 7100

    ec2, machine = console(cloud)
    ec2.terminate_instances(InstanceIds=[machine])

    async def lost() -> Any:
        service.poller.reconcile_soon()
        found = next(c for c in (await ask("state"))["clusters"] if c["name"] == "far")
        return found if found["state"] == "lost" else None

    shown = await until(lost)
    assert "ended" in shown["note"] or "terminated" in shown["note"].lower(), shown
    assert (await ask("state"))["rate"] == {"usd_h": 0.0, "unknown": 0}
    assert shown["note"] in await refused(ask("clusters", "far", "metrics"), 409)
    ran = await asyncio.get_running_loop().run_in_executor(None, book.collect, sent, 60)
    assert ran.ename == "SkyClusterLost"
    wait_until(lambda: not cloud.machines(), "the other node is of no use")
    assert all(interval.ended is not None for interval in store.intervals())


async def test_cluster_is_started_and_deleted_in_the_panel(
    ask: Callable[..., Any], service: SkyService, book: Notebook, cloud: Loopback, store: Store
) -> None:
    assert book.run(SKY + "\nopen('kept.txt', 'w').write('kept')").status == "ok"
    stopped = book.run("import jupyter_sky as sky\nsky.stop('far', yes=True)")
    assert stopped.status == "ok", stopped

    async def shown(state: str) -> Any:
        (cluster,) = (await ask("state"))["clusters"]
        return cluster if cluster["state"] == state else None

    cluster = await shown("stopped")
    price = cluster["price"]
    assert price == cluster["stopped"]["usd_h"] and cluster["stopped"]["disk_gib"] == 50
    assert await ask("clusters", "far", "start", body={}) == {"starting": "far"}
    cluster = await until(lambda: shown("up"))
    assert cluster["price"] != price and cluster["stopped"] is None
    read = book.run("%%sky -c far\nopen('kept.txt').read()")
    assert read.result == "'kept'", read
    assert book.run("sky.stop('far', yes=True)").status == "ok"
    assert (await ask("clusters", "far", "down", body={}))["ended"] == "far"
    assert (await shown("down"))["note"] == "ended by you in the panel"
    assert not cloud.machines()
