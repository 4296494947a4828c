"""Images with private packages on machines reached by SSH: sent, and asked of no index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.execution.functions.calls.lazy_calls import function
from jupyter_sky.execution.functions.images.image import Image
from jupyter_sky.execution.functions.pools.compute import Compute
from tests.emulators.hosts import USABLE, SshHost
from tests.package_sync.installed_packages import Index, install

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]


@pytest.fixture
def canary() -> Iterator[Index]:
    """A package index that has nothing, and notes all that it is asked."""
    index = Index()
    yield index
    index.close()


@pytest.fixture
def host(data: Path, canary: Index) -> Iterator[SshHost]:
    """A machine that asks that index."""
    names = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    made = SshHost(66, **dict.fromkeys(names, canary.address), UV_EXTRA_INDEX_URL="")
    (data / "hosts.toml").write_text(made.toml("box"))
    yield made
    made.close()


@function
def found() -> tuple[str, str]:
    from importlib.metadata import version

    import acme_secret  # pyright: ignore[reportMissingImports]

    return acme_secret.NAME, version("acme-secret")


def test_a_private_package_of_an_image_is_sent(
    host: SshHost, canary: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(str(site))
    direct = {"url": "https://git.acme.com/s", "vcs_info": {}}
    install(site, "acme-secret", requires=("acme-absent",), direct_url=direct)
    with Compute(provider="ssh", nodes=1, image=Image(pip=["acme-secret"])) as pool:
        assert found() @ pool == [("acme-secret", "1.4.2")]
    assert not [name for name in canary.asked if "acme" in name]
