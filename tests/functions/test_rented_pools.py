"""Pools on machines of a cloud: rented, made ready with an image, used, and given back."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.settings.settings import Sky
from tests.conftest import wait_until
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import Loopback, loopback

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]


@pytest.fixture(scope="module")
def cloud(data: Path) -> Iterator[Loopback]:
    with pytest.MonkeyPatch.context() as patch, loopback("aws") as made:
        for name, value in made.env.items():
            patch.setenv(name, value)
        Sky.clear_instance()
        yield made
    Sky.clear_instance()


@sky.function
def seen() -> tuple[str, str, int, str]:
    import os
    import socket

    import mine  # pyright: ignore[reportMissingImports]
    import threadpoolctl

    return socket.gethostname(), threadpoolctl.__version__, mine.VALUE, os.environ["MODE"]


@sky.function
def square(n: int) -> int:
    return n * n


@sky.function
def met() -> int:
    return sky.counter("visits").add(1)


def test_a_pool_with_an_image(
    cloud: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("VALUE = 7\n")
    monkeypatch.chdir(tmp_path)
    version = metadata.version("threadpoolctl")
    image = sky.Image(
        pip=[f"threadpoolctl=={version}"], includes=["mine.py"], env={"MODE": "there"}
    )
    with sky.Compute(cloud="aws", nodes=2, vcpus=2, image=image) as pool:
        assert len(cloud.machines()) == 2
        told = seen() @ pool
        assert [rest for _, *rest in told] == [[version, 7, "there"]] * 2
        assert len({host for host, *_ in told}) == 2, "each on a machine of its own"
        numbers = sky.gather(*(square(n) for n in range(50))) >> pool
        assert numbers == tuple(n * n for n in range(50))
        assert sorted(met() @ pool) == [1, 2], "what they share is one thing for both machines"
    assert cloud.machines() == []


@sky.function
def connected_hosts() -> set[str]:
    """Return the addresses that the engine of a node, its agent and controller speak with."""
    import os

    import psutil

    engine = psutil.Process(os.getpid())
    links = [
        link for each in (engine, *engine.parents()[:2]) for link in each.net_connections("tcp")
    ]
    return {link.raddr.ip for link in links if link.raddr}


def test_nodes_that_do_not_speak_with_one_another(cloud: Loopback) -> None:
    options = sky.Options(cluster=False)
    with sky.Compute(cloud="aws", nodes=2, vcpus=2, allocation="spot", options=options) as pool:
        assert len(cloud.machines()) == 2
        assert len({id(connection) for connection, _rank in pool.locations.values()}) == 2
        assert connected_hosts() @ pool == [{"127.0.0.1"}] * 2, "through its tunnel, and no other"
        numbers = sky.gather(*(square(n) for n in range(50))) >> pool
        assert numbers == tuple(n * n for n in range(50))
        with pytest.raises(SkyUsageError, match="share nothing"):
            met() @ pool
        first, second = pool.clusters
        cloud.api.preempt(second.machines[0].id, 0.0)
        wait_until(lambda: second not in pool.clusters, "its machine is replaced")
        wait_until(lambda: len(pool.ranks) == 2, "by another")
        assert square(3) @ pool == [9, 9]
        assert pool.clusters[0] is first, "the other went on"
    assert cloud.machines() == []
