"""Stores over HTTPS: certificates are verified, and so are the names in them."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from jupyter_sky.machines.storage.stores import connections
from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.errors import SkyCertificateRefused
from jupyter_sky.machines.storage.stores.files import FilesStore
from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferItem, TransferOptions
from tests.emulators.object_store import ObjectStore
from tests.emulators.object_store.server import authority

from .conftest import DIALECTS, store_of

pytestmark = pytest.mark.slow  # talks to servers

DATA = bytes(range(256)) * 60


@pytest.fixture(autouse=True)
def no_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in connections.BUNDLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "authority.pem"
    authority().cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="module", params=DIALECTS)
def server(request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    with ObjectStore(request.param, tls=True, min_part=1024) as server:
        server.create("bucket")
        yield server
        assert not server.crashes, server.crashes[0]


def test_objects_pass_where_the_authority_is_trusted(
    server: ObjectStore, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    store, folder = store_of(server), FilesStore(tmp_path)
    (tmp_path / "big").write_bytes(DATA)
    options = TransferOptions(part_size=4096)
    Transfer(folder, store, [TransferItem(folder.stat("big"), "k")], options=options).run()
    assert server.content("bucket", "k") == DATA
    Transfer(store, folder, [TransferItem(store.stat("k"), "back")], options=options).run()
    assert (tmp_path / "back").read_bytes() == DATA


def test_forged_certificate_is_refused_before_anything_is_sent(server: ObjectStore) -> None:
    server.forget_counts()
    with pytest.raises(SkyCertificateRefused, match=r"certificate of 127\.0\.0\.1 is not accepted"):
        store_of(server).stat("k")
    assert server.requests == []


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE"])
def test_authorities_come_from_the_environment_at_any_time(
    bundle: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(authority().issue_cert("127.0.0.1")) as url:
        with pytest.raises(SkyCertificateRefused, match="SSL_CERT_FILE"):
            Connections().request("GET", url, {})
        monkeypatch.setenv(name, str(bundle))
        assert Connections().request("GET", url, {}).body == b"hello"


def test_certificate_of_another_host_is_refused(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    with (
        serving(authority().issue_cert("storage.example")) as url,
        pytest.raises(SkyCertificateRefused, match="IP address mismatch"),
    ):
        Connections().request("GET", url, {})


def test_bundle_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "none"))
    with (
        serving(authority().issue_cert("127.0.0.1")) as url,
        pytest.raises(SkyCertificateRefused, match=r"AWS_CA_BUNDLE=.*none"),
    ):
        Connections().request("GET", url, {})


class serving:
    """A server with a certificate that greets everyone."""

    def __init__(self, certificate: trustme.LeafCert) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self._context)

    def __enter__(self) -> str:
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()
        return f"https://127.0.0.1:{self._listener.getsockname()[1]}/"

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            try:
                with self._context.wrap_socket(connection, server_side=True) as encrypted:
                    encrypted.recv(4096)
                    encrypted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
            except OSError:
                pass  # the client has refused
