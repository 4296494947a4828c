from __future__ import annotations

import pytest

from jupyter_sky.machines.storage.stores.checksums import crc32c
from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.errors import (
    Retries,
    SkyBucketMissing,
    SkyChecksumMismatch,
    SkyInvalidKey,
    SkyObjectMissing,
    SkyRequestExpired,
    SkySourceChanged,
    SkyStoragePermission,
    SkyStoreBusy,
    SkyTargetExists,
    SkyUploadConflict,
    SkyUploadMissing,
)
from jupyter_sky.machines.storage.stores.part_worker import (
    PartJob,
    carry_part,
    read_part,
    write_part,
)
from jupyter_sky.machines.storage.stores.s3 import S3Store
from jupyter_sky.machines.storage.stores.signing import S3Credentials, SigV4Signer
from jupyter_sky.machines.storage.stores.store import (
    IF_ABSENT,
    Checksums,
    Condition,
    Part,
    Span,
    Upload,
)

from .conftest import COMPLETION, store_of

pytestmark = pytest.mark.slow  # talks to servers


def sums_of(data: bytes) -> Checksums:
    import hashlib

    return Checksums(crc32c(data), hashlib.md5(data).digest())


def write(store: S3Store, key: str, data: bytes, part_size: int = 4096, **options):
    """Write an object by parts."""
    upload = store.begin(key, len(data), part_size=part_size, **options)
    return store.end(upload, send_parts(upload, data))


def send_parts(upload: Upload, data: bytes, numbers=None) -> list[Part]:
    count = max(1, -(-len(data) // upload.part_size))
    parts = []
    for number in numbers or range(1, count + 1):
        piece = data[(number - 1) * upload.part_size : number * upload.part_size]
        sums = sums_of(piece)
        request = upload.write(number, sums)
        assert request.span.size == len(piece)
        parts.append(Part(number, request.span, sums.crc32c, write_part(request, piece, LINES)))
    return parts


LINES = Connections()
DATA = bytes(range(256)) * 60  # 15,360 bytes: four parts of 4,096


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 8192, 15_360])
def test_objects_come_back_whole(server, size):
    store = store_of(server)
    written = write(store, "a/b c+ü", DATA[:size])
    there = store.stat("a/b c+ü")
    assert (there.size, there.version) == (size, written.version)
    assert read_part(store.read(there), LINES) == DATA[:size]
    if size:
        span = Span(size // 2, size)
        assert read_part(store.read(there, span), LINES) == DATA[size // 2 : size]
    if server.operations.dialect != "r2":
        assert there.sums["crc32c"] == f"{crc32c(DATA[:size]):08x}"
    assert server.open_uploads("bucket") == 0


@pytest.mark.parametrize(
    "key", ["a//b", "/lead", "trail/", "..", "a/../b", "ü&<>\"'", "a\tb", "%41"]
)
def test_odd_keys(server, key):
    store = store_of(server)
    if server.operations.dialect == "azure" and ".." in key:
        with pytest.raises(SkyInvalidKey, match="Azure resolves"):
            write(store, key, DATA)
        return
    write(store, key, DATA)
    assert [obj.key for obj in store.list()] == [key]
    assert read_part(store.read(store.stat(key)), LINES) == DATA
    store.remove([key])
    assert list(store.list()) == []


def test_listing_goes_through_pages_in_order(amazon):
    store = store_of(amazon)
    for number in range(2345):
        amazon.put("bucket", f"d/{number:05d}", b"")
    keys = [obj.key for obj in store.list("d/")]
    assert keys == [f"d/{number:05d}" for number in range(2345)]
    assert amazon.count("GET /bucket?") == 3
    assert next(store.list("d/", after="d/00999")).key == "d/01000"
    amazon.forget_counts()
    assert next(store.list("d/")).key == "d/00000"
    assert amazon.count("GET") == 1
    store.remove(keys)
    assert list(store.list()) == [] and amazon.count("POST") == 3


def test_changed_source_is_refused(server):
    store = store_of(server)
    old = write(store, "k", DATA)
    write(store, "k", DATA[::-1])
    with pytest.raises(SkySourceChanged):
        read_part(store.read(old, Span(0, 10)), LINES)


@pytest.mark.parametrize("size", [100, 15_360])
def test_conditions_hold_at_publication(server, size):
    store = store_of(server)
    data = DATA[:size]
    first = write(store, "k", data, condition=IF_ABSENT)
    with pytest.raises(SkyTargetExists):
        write(store, "k", data[::-1], condition=IF_ABSENT)
    second = write(store, "k", data[::-1], condition=Condition(version=first.version))
    with pytest.raises(SkyTargetExists):
        write(store, "k", data, condition=Condition(version=first.version))
    assert store.stat("k").version == second.version
    assert server.content("bucket", "k") == data[::-1]


def test_upload_goes_on_where_it_stopped(server):
    store = store_of(server)
    upload = store.begin("k", len(DATA), part_size=4096)
    done = send_parts(upload, DATA, [1, 3])
    again = store.begin("k", len(DATA), part_size=4096, upload_id=upload.id)
    have = again.have()
    assert sorted(have) == [1, 3]
    if server.operations.dialect == "azure":  # ids of blocks hold the checksum; there is no tag
        assert [have[part.number].crc32c for part in done] == [part.crc32c for part in done]
    else:
        assert [have[part.number].tag for part in done] == [part.tag for part in done]
    parts = [*have.values(), *send_parts(again, DATA, [2, 4])]
    store.end(again, parts)
    assert server.content("bucket", "k") == DATA


def test_aborted_upload_leaves_nothing(server):
    store = store_of(server)
    upload = store.begin("k", len(DATA), part_size=4096)
    send_parts(upload, DATA, [1])
    upload.abort()
    upload.abort()
    if server.operations.dialect == "azure":  # keeps blocks for a week; the next upload ends them
        assert server.keys("bucket") == [] and list(store.list()) == []
        write(store, "k", DATA)
        assert server.open_uploads("bucket") == 0
        return
    assert server.open_uploads("bucket") == 0 and server.keys("bucket") == []
    with pytest.raises(SkyUploadMissing):
        upload.have()


def test_flipped_bit_on_the_way_up_is_refused(server):
    store = store_of(server)
    server.fail("PUT", "flip")
    with pytest.raises(SkyChecksumMismatch):
        write(store, "k", DATA)
    assert server.keys("bucket") == []


def test_flipped_bit_on_the_way_down_is_noticed(amazon):
    store = store_of(amazon)
    obj = write(store, "k", DATA)
    amazon.fail("GET", "flip")
    outcome = carry_part(PartJob(1, store.read(obj)), lambda _: pytest.fail("written"), LINES)
    assert type(outcome.error).__name__ == "SkyChecksumMismatch"


def test_stored_part_that_rots_is_refused_at_completion(amazon):
    store = store_of(amazon)
    amazon.fail("PUT .*partNumber=2", "rot")
    with pytest.raises(Exception, match="BadDigest"):
        write(store, "k", DATA)
    assert amazon.keys("bucket") == []


def test_lost_answer_of_a_completion_counts_as_success(server):
    store = store_of(server)
    server.fail(COMPLETION, "lose")
    written = write(store, "k", DATA, condition=IF_ABSENT)
    assert store.stat("k").version == written.version


def test_conflict_at_completion_asks_for_a_new_upload(server):
    store = store_of(server)
    server.fail(COMPLETION, "ConditionalRequestConflict")
    with pytest.raises(SkyUploadConflict):
        write(store, "k", DATA)


def test_unequal_parts_are_refused_by_r2():
    from tests.emulators.object_store import ObjectStore

    with ObjectStore("r2", min_part=1024) as server:
        server.create("bucket")
        store = store_of(server)
        upload = store.begin("k", 10_240, part_size=4096)
        longer = store.begin("k", 10_240, part_size=5120, upload_id=upload.id)
        parts = send_parts(upload, DATA[:10_240], [1, 3]) + send_parts(longer, DATA[:10_240], [2])
        with pytest.raises(SkyUploadConflict, match="same length"):
            store.end(upload, parts)


@pytest.mark.parametrize("offset", [-20 * 60, 20 * 60])
def test_wrong_clock_is_learned_from_the_store(amazon, offset):
    amazon.account.clock_offset = offset
    store = store_of(amazon)
    write(store, "k", DATA)
    assert abs(store.signer.clock.offset - offset) < 5
    assert store.read(store.stat("k")).expires > 0


def test_region_is_learned_from_the_store(amazon):
    amazon.account.region = amazon.operations.region = "eu-west-1"
    store = store_of(amazon)
    write(store, "k", DATA)
    assert store.region == "eu-west-1"
    assert amazon.count("POST /bucket/k?uploads") == 2


def test_busy_store_is_asked_again_after_the_time_it_names(amazon):
    waits: list[float] = []
    store = store_of(amazon)
    store._retries = Retries(sleep=waits.append, draw=lambda: 1.0)
    amazon.fail("GET", "TooManyRequests", retry_after="7", times=2)
    assert list(store.list()) == []
    assert waits == [7.2, 7.4]
    amazon.fail("GET", "SlowDown", times=100)
    with pytest.raises(SkyStoreBusy, match="503 SlowDown"):
        list(store.list())


def test_refusals_have_classes_of_their_own(amazon):
    store = store_of(amazon)
    with pytest.raises(SkyBucketMissing, match="nowhere"):
        list(store_of(amazon, "nowhere").list())
    with pytest.raises(SkyObjectMissing, match="bucket/no"):
        store.stat("no")
    with pytest.raises(FileNotFoundError):
        store.stat("no")
    store.signer.credentials = lambda: S3Credentials("AKIATEST", "wrong")
    with pytest.raises(SkyStoragePermission, match="SignatureDoesNotMatch"):
        list(store.list())


def test_requests_end_with_the_session_that_signed_them(amazon):
    import time

    amazon.account.sessions["AKIATEST"] = ("t0ken", time.time() + 100)
    store = store_of(amazon)
    signer = store.signer
    assert isinstance(signer, SigV4Signer)
    ends = time.time() + 100
    signer.credentials = lambda: S3Credentials("AKIATEST", "secret-of-the-test", "t0ken", ends)
    obj = write(store, "k", DATA)
    assert store.read(obj).expires <= ends + 1
    amazon.account.clock_offset = 101
    with pytest.raises(SkyRequestExpired):
        read_part(store.read(obj), LINES)
    assert "t0ken" not in repr(store.read(obj)) and "secret" not in repr(signer.credentials())


@pytest.mark.parametrize("size", [100, 15_360])
def test_copy_inside_a_store(server, size):
    source, target = store_of(server, "other"), store_of(server)
    obj = write(source, "x y", DATA[:size])
    assert target.can_copy_from(source)
    upload = target.begin("k", size, part_size=4096)
    server.forget_counts()
    parts = [upload.copy(number + 1, source, obj) for number in range(-(-size // 4096))]
    target.end(upload, parts)
    assert server.content("bucket", "k") == DATA[:size]
    assert sum(server.bytes_out.values()) < 2000
    write(source, "x y", DATA[::-1])
    with pytest.raises(SkySourceChanged):
        target.begin("k2", size, part_size=4096).copy(1, source, obj)


def test_google_tells_the_region_of_a_bucket(servers):
    server = servers["google"]
    server.reset()
    server.create("bucket")
    assert store_of(server).ask_region() == "us-east-1"
