"""Images on machines reached by SSH: built once, sent by content, given up at the first failure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyBootstrapError
from jupyter_sky.execution.functions.calls.lazy_calls import function
from jupyter_sky.execution.functions.images.image import Image
from jupyter_sky.execution.functions.pools.compute import Compute, prepare_nodes
from jupyter_sky.execution.functions.pools.pool import Pool
from jupyter_sky.machines.engines.node.instance import InstanceInfo, instance_info
from tests.emulators.hosts import USABLE, SshHost
from tests.executor.test_environment import wheel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]


@pytest.fixture(scope="module")
def hosts(data: Path) -> Iterator[list[SshHost]]:
    """Two machines; the second one reaches no package index."""
    made = [SshHost(63), SshHost(64)]
    tables = [made[0].toml("near"), made[1].toml("far", offline=True)]
    (data / "hosts.toml").write_text("\n".join(tables))
    yield made
    for host in made:
        host.close()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    (root / "mine").mkdir()
    (root / "mine" / "__init__.py").write_text("from .deep import VALUE\n")
    (root / "mine" / "deep.py").write_text("VALUE = 1\n")
    (root / "mine" / "big.bin").write_bytes(bytes(20_000_000))
    wheel(root, "tinywheel", 5)
    return root


def pool_of(image: Image) -> Compute:
    return Compute(provider="ssh", nodes=2, image=image)


@function
def found() -> tuple[int, int, str]:
    import os

    import mine  # pyright: ignore[reportMissingImports]
    import tinywheel  # pyright: ignore[reportMissingImports]

    return mine.VALUE, tinywheel.VALUE, os.environ["MODE"]


def kept(host: SshHost, what: str) -> dict[str, int]:
    """List the environments that a machine keeps, with the time at which each was made."""
    folder = host.home / ".cache" / "jupyter_sky"
    return {path.name: path.stat().st_ctime_ns for path in folder.glob(what)}


def test_image_is_installed_once(
    hosts: list[SshHost], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    package = str(next(project.glob("*.whl")))
    image = Image(pip=[package], includes=["mine"], env={"MODE": "first"})
    with pool_of(image) as pool:
        assert found() @ pool == [(1, 5, "first")] * 2
        assert function(instance_info)() @ pool == [info_of(pool, hosts, node) for node in (0, 1)]
    patterns = ("env-*/complete", "packed-*", "trees/*", "files/*")
    before = [kept(host, what) for host in hosts for what in patterns]
    (project / "mine" / "deep.py").write_text("VALUE = 2\n")
    with pool_of(image) as pool:
        assert found() @ pool == [(2, 5, "first")] * 2
        pool.call_on(1, crash).exception()  # a fresh engine has it, too
        assert found() @ pool == [(2, 5, "first")] * 2
    after = [kept(host, what) for host in hosts for what in patterns]
    for old, new in zip(before, after, strict=True):
        assert new.items() >= old.items(), "nothing is made again"
    files = [new.keys() - old.keys() for old, new in zip(before[3::4], after[3::4], strict=True)]
    assert [len(each) for each in files] == [1, 1], "one file has changed"


def crash() -> None:
    import os

    os._exit(3)


def info_of(pool: Pool, hosts: list[SshHost], node: int) -> InstanceInfo:
    """Return what a node of these two is told."""
    told = function(instance_info)() >> pool
    assert [peer.private_ip for peer in told.peers] == [host.ip for host in hosts]
    assert told.head_addr == hosts[0].ip and told.job_id == pool.id
    return InstanceInfo(
        node, 2, told.head_addr, told.head_port, pool.id, peers=told.peers, worker=0
    )


def test_failing_installation_uses_one_machine(hosts: list[SshHost]) -> None:
    def tried(host: SshHost) -> set[str]:
        return {*kept(host, "env-*.lock")}

    before = [tried(host) for host in hosts]
    with Compute(provider="ssh", nodes=2) as pool:
        begun = time.monotonic()
        with pytest.raises(SkyBootstrapError) as caught:
            prepare_nodes(Image(pip=["surely-no-such-package-9"]), pool, pool.ranks)
        assert time.monotonic() - begun < 60
    assert "node 0" in str(caught.value) and "surely-no-such-package-9" in str(caught.value)
    assert "not found" in str(caught.value) or "No matching" in str(caught.value)
    assert [len(tried(host) - old) for host, old in zip(hosts, before, strict=True)] == [1, 0]


def test_error_is_raised_before_launch(hosts: list[SshHost]) -> None:
    with pytest.raises(SkyBootstrapError, match="surely-no-such-package-9") as caught:
        pool_of(Image(pip=["surely-no-such-package-9"])).up()
    assert "no machine was asked for" in str(caught.value)
    assert all(not host.clusters() for host in hosts)
