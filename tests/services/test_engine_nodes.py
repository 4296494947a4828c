"""Nodes of data engines: their packages, their network, what they are told."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyError
from jupyter_sky.machines.engines.node.service_orders import EngineOrder
from jupyter_sky.machines.services.engine_node import ensure_packages, find_python
from jupyter_sky.machines.services.ray_node import check_network, installed_version, start_options
from jupyter_sky.machines.services.sizes import RaySizes


def order(rank: int = 0, gpus: float = 0.0) -> EngineOrder:
    return EngineOrder(
        "ray", "/c", rank, 2, "", f"10.0.0.{rank}", "10.0.0.0:25001", "s", "t", gpus=gpus
    )


def test_packages_that_are_there_are_not_installed() -> None:
    assert ensure_packages("ray", [f"psutil=={importlib.metadata.version('psutil')}"]) == ""


def test_package_that_there_is_not_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(
        SkyError, match=r"--engine ray psutil==0\.0\.1 cannot be installed"
    ) as caught:
        ensure_packages("ray", ["psutil==0.0.1", "packaging"])
    assert caught.value.hint is not None and "package index" in caught.value.hint


def test_interpreter_is_that_of_the_packages() -> None:
    assert find_python("/h/env-1/lib/python3.11/site-packages") == "/h/env-1/bin/python"


@pytest.mark.parametrize("address", ["10.1.2.3", "127.0.0.1", "192.168.0.9", "100.101.1.1"])
def test_private_networks_are_taken(address: str) -> None:
    check_network(1, address)


@pytest.mark.parametrize("address", ["8.8.8.8", "100.1.1.1"])
def test_public_addresses_are_refused(address: str) -> None:
    with pytest.raises(SkyError, match="node 1 has no private address") as caught:
        check_network(1, address)
    assert caught.value.hint is not None and "--engine dask" in caught.value.hint


def test_first_node_is_the_head_and_others_join_it() -> None:
    sizes, folder = RaySizes(100, 200), Path("/proc/7/cwd/ray")
    head, other = (start_options(order(rank), sizes, 4, folder) for rank in (0, 1))
    assert head[:3] == ["--head", "--port", "25001"] and "--address" not in head
    assert other[:2] == ["--address", "10.0.0.0:25001"] and "--head" not in other
    for options in (head, other):
        assert options[options.index("--temp-dir") + 1] == "/proc/7/cwd/ray"
        assert options[options.index("--num-cpus") + 1] == "4"
        assert "--num-gpus" not in options, "Ray then looks for itself"


def test_gpus_of_the_order_are_those_of_ray() -> None:
    options = start_options(order(gpus=2.0), RaySizes(1, 1), 4, Path("/x"))
    assert options[options.index("--num-gpus") + 1] == "2"


def test_version_without_tokens_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "ray-2.9.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ray\nVersion: 2.9.0\n")
    with pytest.raises(SkyError, match=r"Ray 2\.9\.0 has no authentication") as caught:
        installed_version(str(tmp_path))
    assert caught.value.hint == 'ask for a later one: --engine "ray>=2.60"'
