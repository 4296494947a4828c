"""Those who are not root learn from a machine's metadata service of notices, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.clouds.launches import notice_relay
from jupyter_sky.machines.engines.node import notices
from tests.clouds.launched_machine import until
from tests.emulators.metadata import Metadata, start_server


@pytest.fixture
def relayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], tuple[Metadata, str]]]:
    """Start the metadata service of a machine and its relay; yield how, and end both."""
    servers, relays = list[Any](), list[subprocess.Popen[bytes]]()

    def start(cloud: str) -> tuple[Metadata, str]:
        metadata = Metadata({"cloud": cloud, "name": "vm-0", "id": "i-0", "spot": True})
        servers.append(start_server(metadata, "127.0.0.1", 0))
        origin = f"http://127.0.0.1:{servers[-1].server_address[1]}"
        program, file = tmp_path / "relay", tmp_path / "jupyter-sky-boot/notices"
        text = Path(notice_relay.__file__).read_text()
        program.write_text(text.replace(notice_relay.SERVICE, origin))
        file.parent.mkdir()
        relays.append(subprocess.Popen([sys.executable, "-I", program, file, str(os.getpid())]))
        until(file.exists)
        monkeypatch.setenv("JUPYTER_SKY_KEEPALIVE", str(tmp_path / "jupyter-sky"))
        monkeypatch.delenv(notices.ADDRESS_VARIABLE, raising=False)
        assert notices.metadata_address() == file.read_text()
        return metadata, file.read_text()

    yield start
    for relay in relays:
        relay.kill()
        relay.wait()
    for server in servers:
        server.shutdown()
        server.server_close()


def status(url: str, method: str = "GET", **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, None, named, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


@pytest.mark.parametrize("name", ["AwsNotices", "GoogleNotices", "AzureNotices"])
def test_notices_pass(
    relayed: Callable[[str], tuple[Metadata, str]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    cloud = {"AwsNotices": "aws", "GoogleNotices": "gcp", "AzureNotices": "azure"}[name]
    metadata, _ = relayed(cloud)
    monkeypatch.setattr(notices.socket, "gethostname", lambda: "vm-0")
    service = notices.make_service(name)
    assert service is not None and service.ask() == ()
    metadata.change({"notice": time.time() + 100})
    (found,) = service.ask()
    assert found.kind is notices.NoticeKind.PREEMPT
    if isinstance(service, notices.AzureNotices):
        assert service.approve(found)


def test_identity_does_not_pass(relayed: Callable[[str], tuple[Metadata, str]]) -> None:
    _, origin = relayed("gcp")
    google = {"Metadata_Flavor": "Google"}
    assert status(f"{origin}/computeMetadata/v1/instance/preempted", **google) == 200
    for path in (
        "/computeMetadata/v1/instance/service-accounts/default/token",
        "/computeMetadata/v1/instance/preempted/../service-accounts/default/token",
        "/computeMetadata/v1/instance/?recursive=true",
        "/computeMetadata/v1/instance/attributes/user-data",
        "/latest/meta-data/iam/security-credentials/",
        "/latest/meta-data/spot/instance-action/../../iam/info",
        "/metadata/identity/oauth2/token?resource=x",
        "//computeMetadata/v1/instance/service-accounts/default/token",
        "/",
    ):
        assert status(origin + path, **google) == 403, path
    assert status(f"{origin}/computeMetadata/v1/instance/preempted", "PUT", **google) == 403
