"""Pools on machines of a cloud: rented, made ready with an image, used, and given back."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.config.settings import Sky
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
