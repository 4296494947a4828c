from __future__ import annotations

import os
import random
import threading
from dataclasses import replace

import pytest

from jupyter_sky.base.errors import SkyCancelled
from jupyter_sky.base.store.database import Database
from jupyter_sky.machines.storage.stores.errors import (
    SkyDiskFull,
    SkySourceChanged,
    SkyStoragePermission,
    SkyTargetExists,
    SkyTransferRunning,
)
from jupyter_sky.machines.storage.stores.files import FilesStore
from jupyter_sky.machines.storage.stores.journal import MIGRATIONS, Journal
from jupyter_sky.machines.storage.stores.s3 import S3Upload
from jupyter_sky.machines.storage.stores.store import IF_ABSENT, Store
from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferItem, TransferOptions
from tests.emulators.object_store import ObjectStore

from .conftest import store_of

pytestmark = pytest.mark.slow  # talks to servers

PART = 4096
DATA = random.Random(1).randbytes(50_000)  # thirteen parts
OPTIONS = TransferOptions(part_size=PART)


def items_of(store: Store, prefix: str = "") -> list[TransferItem]:
    return [TransferItem(obj, "in/" + obj.key.rpartition("/")[2]) for obj in store.list(prefix)]


def move(source: Store, target: Store, journal=None, prefix: str = "", **options):
    options = replace(OPTIONS, **options)
    return Transfer(source, target, items_of(source, prefix), journal, options).run()


@pytest.fixture
def journal(tmp_path):
    journal = Journal(Database.open(tmp_path / "transfers.db", MIGRATIONS))
    yield journal
    journal.close()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    return FilesStore(tmp_path / "data")


def put_files(store: FilesStore, **contents: bytes) -> None:
    for name, content in contents.items():
        (store.root / name).write_bytes(content)


CONTENTS = {"empty": b"", "one": b"x", "part": DATA[:PART], "more": DATA[: PART + 1], "big": DATA}


def test_folder_to_store_and_back(server, folder, tmp_path, journal):
    put_files(folder, **CONTENTS)
    store = store_of(server)
    result = move(folder, store, journal)
    assert {key: server.content("bucket", f"in/{key}") for key in CONTENTS} == CONTENTS
    assert (
        result.progress.bytes_done
        == result.progress.bytes_total
        == sum(map(len, CONTENTS.values()))
    )
    assert result.progress.bytes_sent == result.progress.bytes_total
    assert server.open_uploads("bucket") == 0
    back = FilesStore(tmp_path / "back")
    move(store, back, journal)
    assert {key: (back.root / "in" / key).read_bytes() for key in CONTENTS} == CONTENTS
    assert sorted(os.listdir(back.root / "in")) == sorted(CONTENTS)


def test_between_stores_of_two_clouds(folder, server):
    with ObjectStore("aws", min_part=1024) as other:
        other.create("bucket")
        for key, content in CONTENTS.items():
            other.put("bucket", f"a/{key}", content)
        source, target = store_of(other), store_of(server)
        target.uri = replace(target.uri, scheme="r2", account="me")
        assert not target.can_copy_from(source)
        move(source, target)
        assert {key: server.content("bucket", f"in/{key}") for key in CONTENTS} == CONTENTS


def test_inside_a_store_no_byte_passes_through(server):
    for key, content in CONTENTS.items():
        server.put("other", f"a/{key}", content)
    result = move(store_of(server, "other"), store_of(server))
    assert {key: server.content("bucket", f"in/{key}") for key in CONTENTS} == CONTENTS
    assert result.progress.bytes_sent == 0 and sum(server.bytes_in.values()) < 20_000


def test_copies_inside_a_store_go_on_at_once_whatever_the_memory(server, monkeypatch):
    both, copy = threading.Barrier(2), S3Upload.copy

    def copy_together(*arguments):
        both.wait(10)
        return copy(*arguments)

    monkeypatch.setattr(S3Upload, "copy", copy_together)
    content = DATA[: 4 * PART]
    server.put("other", "a/big", content)
    move(store_of(server, "other"), store_of(server), memory=1)
    assert server.content("bucket", "in/big") == content


def test_killed_transfer_goes_on_by_part(server, folder, journal, tmp_path):
    put_files(folder, big=DATA)
    server.fail("PUT .*partNumber=7", "AccessDenied", times=100)
    with pytest.raises(SkyStoragePermission):
        move(folder, store_of(server), journal, memory=PART)  # one part after the other
    assert server.open_uploads("bucket") == 1
    server.faults.clear()
    server.forget_counts()
    result = move(folder, store_of(server), journal)
    assert result.progress.bytes_resumed == 6 * PART
    assert server.count("partNumber") == 7 and server.content("bucket", "in/big") == DATA
    assert result.progress.bytes_sent == len(DATA) - 6 * PART


def test_download_goes_on_by_part(amazon, tmp_path, journal):
    amazon.put("bucket", "a/big", DATA)
    target = FilesStore(tmp_path / "back")
    amazon.fail("GET /bucket/a/big", "AccessDenied", times=100, after=5)
    with pytest.raises(SkyStoragePermission):
        move(store_of(amazon), target, journal, memory=PART)
    assert not (target.root / "in" / "big").exists()
    amazon.faults.clear()
    result = move(store_of(amazon), target, journal)
    assert result.progress.bytes_resumed == 5 * PART
    assert (target.root / "in" / "big").read_bytes() == DATA


def test_rotten_part_on_disk_is_fetched_again(amazon, tmp_path, journal):
    amazon.put("bucket", "a/big", DATA)
    target = FilesStore(tmp_path / "back")
    amazon.fail("GET /bucket/a/big", "AccessDenied", times=100, after=5)
    with pytest.raises(SkyStoragePermission):
        move(store_of(amazon), target, journal, memory=PART)
    (part,) = [path for path in (target.root / "in").iterdir() if path.suffix != ".done"]
    with part.open("r+b") as file:
        file.write(b"?")
    amazon.faults.clear()
    result = move(store_of(amazon), target, journal)
    assert result.progress.bytes_resumed == 4 * PART
    assert (target.root / "in" / "big").read_bytes() == DATA


def test_published_objects_are_not_sent_again(server, folder, journal):
    put_files(folder, a=b"a" * 100, b=b"b" * 100, c=b"c" * 100)
    server.fail("PUT /bucket/in/c", "AccessDenied", times=100)
    with pytest.raises(SkyStoragePermission):
        move(folder, store_of(server), journal, memory=100)
    server.faults.clear()
    server.forget_counts()
    server.put("bucket", "in/a", b"changed by another")
    result = move(folder, store_of(server), journal)
    assert result.skipped == 1 and server.count("PUT") == 2  # not b
    assert server.content("bucket", "in/a") == b"a" * 100


def test_source_that_changed_meanwhile_begins_anew(server, folder, journal):
    put_files(folder, big=DATA)
    server.fail("PUT .*partNumber=7", "AccessDenied", times=100)
    with pytest.raises(SkyStoragePermission):
        move(folder, store_of(server), journal, memory=PART)
    server.faults.clear()
    put_files(folder, big=DATA[::-1])
    result = move(folder, store_of(server), journal)
    assert result.progress.bytes_resumed == 0
    assert server.content("bucket", "in/big") == DATA[::-1]
    assert server.open_uploads("bucket") == 0


def test_source_replaced_during_the_copy_never_mixes(amazon, tmp_path):
    amazon.put("bucket", "a/big", DATA)
    source, target = store_of(amazon), FilesStore(tmp_path / "back")
    items = items_of(source)
    amazon.put("bucket", "a/big", DATA[::-1])
    Transfer(source, target, items, None, OPTIONS).run()
    assert (target.root / "in" / "big").read_bytes() == DATA[::-1]


def test_source_that_never_rests_is_an_error(amazon, tmp_path):
    amazon.put("bucket", "a/big", DATA)
    target = FilesStore(tmp_path / "back")
    amazon.fail("GET /bucket/a/big", "PreconditionFailed", times=1000)
    with pytest.raises(SkySourceChanged):
        move(store_of(amazon), target)
    assert os.listdir(target.root / "in") == []


@pytest.mark.parametrize("kind", ["cut", "flip", "lose", "SlowDown", "InternalError"])
def test_faults_are_survived(server, folder, tmp_path, kind):
    put_files(folder, **CONTENTS)
    store = store_of(server)
    server.fail("PUT", kind, times=4)
    move(folder, store, condition=IF_ABSENT)
    assert {key: server.content("bucket", f"in/{key}") for key in CONTENTS} == CONTENTS
    server.fail("GET /bucket/in", kind, times=4)
    back = FilesStore(tmp_path / "back")
    if kind != "flip":  # what a range of an object should be, no store tells: see below
        move(store, back)
        assert (back.root / "in" / "big").read_bytes() == DATA
    assert server.open_uploads("bucket") == 0


def test_flipped_bit_of_a_range_is_noticed_by_the_sum_of_all(amazon, tmp_path):
    amazon.put("bucket", "a/big", DATA)
    amazon.fail("GET /bucket/a/big", "flip", times=1)
    target = FilesStore(tmp_path / "back")
    result = move(store_of(amazon), target)
    assert (target.root / "in" / "big").read_bytes() == DATA
    assert result.progress.bytes_sent > len(DATA) and result.unverified == 0


def test_storm_of_refusals_ends_with_few_requests(amazon, folder):
    put_files(folder, **{f"f{number}": DATA[:100] for number in range(40)})
    amazon.fail("PUT", "SlowDown", times=10**6, probability=0.3)
    move(folder, store_of(amazon))
    assert len(amazon.keys("bucket")) == 40
    assert amazon.count("PUT") <= 120


def test_target_of_another_stays_untouched(server, folder):
    put_files(folder, a=b"mine", b=b"new")
    server.put("bucket", "in/a", b"theirs")
    with pytest.raises(SkyTargetExists):
        move(folder, store_of(server), condition=IF_ABSENT)
    assert server.content("bucket", "in/a") == b"theirs"
    assert server.content("bucket", "in/b") == b"new"


def test_conflict_at_completion_begins_a_new_upload(amazon, folder):
    put_files(folder, big=DATA)
    amazon.fail("POST .*uploadId", "ConditionalRequestConflict")
    move(folder, store_of(amazon))
    assert amazon.content("bucket", "in/big") == DATA
    assert amazon.count("?uploads") == 2 and amazon.open_uploads("bucket") == 0


def test_urls_that_expire_on_the_way_are_renewed(amazon, folder):
    put_files(folder, big=DATA)
    amazon.fail("PUT", "ExpiredToken", times=3)
    move(folder, store_of(amazon))
    assert amazon.content("bucket", "in/big") == DATA


def test_revoked_token_ends_clearly(folder):
    put_files(folder, big=DATA)
    with ObjectStore("google", min_part=1024) as server:
        server.create("bucket")
        store = store_of(server)
        server.account.tokens.clear()
        with pytest.raises(SkyStoragePermission, match="Invalid token"):
            move(folder, store)


def test_full_disk_leaves_nothing(amazon, tmp_path, monkeypatch):
    amazon.put("bucket", "a/big", DATA)
    target = FilesStore(tmp_path / "back")
    real, calls = os.pwrite, []

    def full(*arguments):
        calls.append(1)
        if len(calls) > 8:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(SkyDiskFull, match="No space left"):
        move(store_of(amazon), target)
    assert os.listdir(target.root / "in") == []


def test_disk_too_small_is_said_before_the_first_byte(amazon, tmp_path, monkeypatch):
    import shutil

    amazon.put("bucket", "a/big", DATA)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(SkyDiskFull, match="needs room"):
        move(store_of(amazon), FilesStore(tmp_path / "back"))
    assert amazon.count("GET /bucket/a/big") == 0


def test_cancelled_transfer_keeps_its_uploads_or_aborts_them(amazon, folder, journal):
    put_files(folder, big=DATA)
    for abort in (False, True):
        amazon.fail("PUT .*partNumber=3", "SlowDown", times=1, seconds=0.05)
        transfer = Transfer(
            folder, store_of(amazon), items_of(folder), journal, replace(OPTIONS, memory=PART)
        )
        threading.Timer(0.03, transfer.cancel, kwargs={"abort": abort}).start()
        with pytest.raises(SkyCancelled):
            transfer.run()
        assert amazon.open_uploads("bucket") == (0 if abort else 1)


def test_upload_of_a_live_process_is_left_alone(amazon, folder, journal, tmp_path):
    from jupyter_sky.base.remote.processes import identity

    put_files(folder, big=DATA)
    amazon.fail("PUT .*partNumber=7", "AccessDenied", times=100)
    with pytest.raises(SkyStoragePermission):
        move(folder, store_of(amazon), journal)
    amazon.faults.clear()
    other = Journal.open(tmp_path)
    other._owner = other._owner.replace('"pid"', '"other": 1, "pid"')  # another thread of it
    assert identity()["pid"] == os.getpid()
    with pytest.raises(SkyTransferRunning):
        move(folder, store_of(amazon), other)
    other.close()


def test_cost_follows_bytes_and_requests(amazon, folder):
    put_files(folder, **CONTENTS)
    amazon.fail("PUT", "cut", times=2)
    seen, priced = [], []

    def price(traffic):
        priced.append(traffic)
        return traffic.target.sent * 1e-3 + traffic.target.writes

    result = Transfer(
        folder,
        store_of(amazon),
        items_of(folder),
        options=replace(OPTIONS, price=price),
        on_progress=seen.append,
    ).run()
    progress, traffic = result.progress, priced[-1]
    assert progress.usd == price(traffic)
    assert traffic.target.writes == amazon.count("PUT") + amazon.count("POST")
    assert progress.bytes_sent <= traffic.target.sent < progress.bytes_sent + 10_000
    assert traffic.moved >= progress.bytes_total
    assert progress.bytes_sent > progress.bytes_total == sum(map(len, CONTENTS.values()))
    assert progress.requests_written == amazon.count("PUT")
    assert seen[-1] == replace(progress, rate=seen[-1].rate, seconds_left=seen[-1].seconds_left)
    assert "objects" in str(progress)
