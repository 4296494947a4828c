"""Azure's own emulator as a witness over HTTPS, with Microsoft's client and obstore."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.machines.engines.node.ports import free_port
from jupyter_sky.machines.storage.stores.azure import AzureStore
from jupyter_sky.machines.storage.stores.azure_signing import AccountKey, AzureGrant, SasSigner
from jupyter_sky.machines.storage.stores.checksums import crc32c
from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.errors import (
    SkyBucketMissing,
    SkyChecksumMismatch,
    SkyInvalidKey,
    SkyObjectMissing,
    SkySourceChanged,
    SkyStoragePermission,
    SkyTargetExists,
)
from jupyter_sky.machines.storage.stores.files import FilesStore
from jupyter_sky.machines.storage.stores.part_worker import read_part, write_part
from jupyter_sky.machines.storage.stores.signing import Clock
from jupyter_sky.machines.storage.stores.store import IF_ABSENT, MIB, Checksums, Condition, Span
from jupyter_sky.machines.storage.stores.stores import DelegationKeys, azure_store
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferItem, TransferOptions
from tests.emulators.object_store.server import authority

from .servers import azurite_command, serving
from .test_s3 import sums_of, write

pytestmark = pytest.mark.slow  # starts a server

DATA = random.Random(3).randbytes(3 * MIB + 5)
OPTIONS = TransferOptions(part_size=MIB)
KEY = AccountKey("skytest", "a2V5IG9mIHRoZSB0ZXN0")
LINES = Connections()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "authority.pem"
    authority().cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an account in Azurite."""
    folder, port = tmp_path_factory.mktemp("azurite"), free_port("127.0.0.1")
    certificate = authority().issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    secure = ["--cert", str(folder / "cert.pem"), "--key", str(folder / "key.pem")]
    command = [*azurite_command(), "--blobPort", str(port), "--skipApiVersionCheck"]
    accounts = {"AZURITE_ACCOUNTS": f"{KEY.account}:{KEY.key}"}
    with serving([*command, *secure, "--oauth", "basic"], port, "https", accounts) as url:
        yield f"{url}/{KEY.account}"


@pytest.fixture(scope="module")
def service(account: str, bundle: Path) -> Iterator[Any]:
    """Microsoft's client."""
    from azure.storage.blob import BlobServiceClient

    with BlobServiceClient(account, credential=KEY.key, connection_verify=str(bundle)) as client:
        yield client


@pytest.fixture
def container(service: Any, request: pytest.FixtureRequest) -> str:
    name = f"c{abs(hash(request.node.name)):x}"
    service.create_container(name)
    return name


def store_with(account: str, container: str, grant: AzureGrant = KEY) -> AzureStore:
    return azure_store(StorageUri("az", container, account=KEY.account), account, lambda: grant)


@pytest.fixture
def store(
    account: str, container: str, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> AzureStore:
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    return store_with(account, container)


def test_there_and_back(store: AzureStore, tmp_path: Path) -> None:
    folder, keys = FilesStore(tmp_path), ["big", "a b/ü+&", "one", "x//y", "%41", "empty"]
    for number, key in enumerate(keys):
        path = tmp_path / "there" / str(number)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(DATA if key == "big" else b"" if key == "empty" else key.encode())
    items = [TransferItem(folder.stat(f"there/{n}"), key) for n, key in enumerate(keys)]
    Transfer(folder, store, items, options=OPTIONS).run()
    found = {obj.key: obj for obj in store.list()}
    assert sorted(found) == sorted(keys)
    assert all(found[key].sums["crc32c"] == store.stat(key).sums["crc32c"] for key in keys)
    items = [TransferItem(found[key], f"back/{n}") for n, key in enumerate(keys)]
    Transfer(store, folder, items, options=OPTIONS).run()
    for number in range(len(keys)):
        sent, came = (tmp_path / way / str(number) for way in ("there", "back"))
        assert came.read_bytes() == sent.read_bytes()
    store.remove([*keys, "never there"])
    assert list(store.list()) == []


def test_microsofts_client_and_obstore_read_what_we_wrote_and_we_theirs(
    store: AzureStore, service: Any, account: str, container: str
) -> None:
    import obstore

    theirs = service.get_container_client(container)
    rust = obstore.store.AzureStore(
        container,
        account_name=KEY.account,
        account_key=KEY.key,
        endpoint=account,
        client_options={"allow_invalid_certificates": True},
    )
    write(store, "ours/a b", DATA, part_size=MIB)
    write(store, "ours/one", b"one")
    for key, data in (("ours/a b", DATA), ("ours/one", b"one")):
        assert theirs.download_blob(key).readall() == data
        assert bytes(obstore.get(rust, key).bytes()) == data
    properties = theirs.get_blob_client("ours/a b").get_blob_properties()
    assert properties.metadata == {"skycrc32c": f"{crc32c(DATA):08x}"}
    theirs.get_blob_client("theirs/c d").upload_blob(DATA, max_concurrency=2)
    obstore.put(rust, "theirs/rust", DATA, chunk_size=MIB)
    theirs.get_blob_client("theirs/small").upload_blob(b"small")
    for obj in store.list("theirs/"):
        data = b"small" if obj.key == "theirs/small" else DATA
        assert read_part(store.read(obj), LINES) == data
        assert read_part(store.read(obj, Span(2, 5)), LINES) == data[2:5]
    assert [name for name, _ in store.list_level("")] == ["ours/", "theirs/"]


def test_upload_goes_on_with_the_blocks_that_azure_has(store: AzureStore) -> None:
    upload = store.begin("k", len(DATA), part_size=MIB)
    for number in (1, 3):
        piece = DATA[(number - 1) * MIB : number * MIB]
        write_part(upload.write(number, sums_of(piece)), piece, LINES)
    assert list(store.list()) == []
    again = store.begin("k", len(DATA), part_size=MIB, upload_id=upload.id)
    have = again.have()
    assert {n: part.crc32c for n, part in have.items()} == {
        n: crc32c(DATA[(n - 1) * MIB : n * MIB]) for n in (1, 3)
    }
    assert store.begin("k", len(DATA), part_size=MIB, upload_id="0" * 16).have() == {}
    for number in (2, 4):
        piece = DATA[(number - 1) * MIB : number * MIB]
        write_part(again.write(number, sums_of(piece)), piece, LINES)
    store.end(again, list(again.have().values()))
    assert read_part(store.read(store.stat("k")), LINES) == DATA
    with pytest.raises(SkyObjectMissing):
        store.stat("other")


@pytest.mark.parametrize("part_size", [MIB, 4 * MIB])
def test_conditions_hold(store: AzureStore, part_size: int) -> None:
    first = write(store, "k", DATA, part_size, condition=IF_ABSENT)
    with pytest.raises(SkyTargetExists):
        write(store, "k", DATA[::-1], part_size, condition=IF_ABSENT)
    second = write(store, "k", DATA[::-1], part_size, condition=Condition(version=first.version))
    with pytest.raises(SkyTargetExists):
        write(store, "k", DATA, part_size, condition=Condition(version=first.version))
    assert store.stat("k").version == second.version != first.version
    with pytest.raises(SkySourceChanged):
        read_part(store.read(first, Span(0, 10)), LINES)


def test_wrong_md5_is_refused(store: AzureStore) -> None:
    for part_size in (MIB, 4 * MIB):
        upload = store.begin("k", len(DATA), part_size=part_size)
        piece = DATA[:part_size]
        request = upload.write(1, Checksums(crc32c(piece), b"0123456789abcdef"))
        with pytest.raises(SkyChecksumMismatch):
            write_part(request, piece, LINES)
    assert list(store.list()) == []


def test_refusals_have_classes_of_their_own(account: str, store: AzureStore) -> None:
    write(store, "k", b"x")
    with pytest.raises(SkyBucketMissing, match="ContainerNotFound"):
        list(store_with(account, "nowhere").list())
    with pytest.raises(SkyInvalidKey):
        store.stat("a/../b")
    wrong = store_with(account, store.uri.bucket, AccountKey(KEY.account, "d3Jvbmc="))
    with pytest.raises(SkyStoragePermission):
        list(wrong.list())
    found = store.stat("k")
    store.signer = SasSigner(store.uri.bucket, lambda: KEY, Clock(-3600), "")
    with pytest.raises(SkyStoragePermission):  # Azure itself says that the time is over
        read_part(store.read(found), LINES)
    assert store.stat("k") == found, "the clock is learned"


def test_login_signs_with_a_delegation_key(account: str, store: AzureStore) -> None:
    import jwt

    now = int(time.time())
    claims = {"aud": "https://storage.azure.com", "iss": "https://sts.windows.net/tenant/"}
    claims |= {"oid": "user", "tid": "tenant", "nbf": now - 60, "iat": now - 60}
    token = jwt.encode(claims | {"exp": now + 3600}, "k" * 32)
    keys = DelegationKeys(KEY.account, account, lambda: token)
    signed = azure_store(store.uri, account, keys.find)
    write(signed, "k", DATA, part_size=MIB)
    assert read_part(signed.read(signed.stat("k")), LINES) == DATA
    assert [obj.key for obj in signed.list()] == ["k"]


def test_pages(store: AzureStore, service: Any) -> None:
    names = [f"d/{number:03d}" for number in range(40)]
    for name in names:
        write(store, name, b"")
    pages = list(_pages(store, 15))
    assert [len(page) for page in pages] == [15, 15, 10]
    assert [name for page in pages for name in page] == names
    assert [obj.key for obj in store.list("d/", after="d/037")] == names[38:]


def _pages(store: AzureStore, size: int) -> Iterator[list[str]]:
    from jupyter_sky.machines.storage.stores.azure import parse_blobs

    query, marker = {"restype": "container", "comp": "list", "maxresults": str(size)}, ""
    while True:
        following = {"marker": marker} if marker else {}
        page = parse_blobs(bytes(store.call("GET", "", "l", {**query, **following}).body))
        yield [name for name, _ in page.entries]
        marker = page.marker
        if not marker:
            return
