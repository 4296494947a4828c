"""Transfers that are cut or refused, and clocks that are wrong: no more than needed is sent."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_sky.machines.storage.datasets.writing import write_object
from jupyter_sky.machines.storage.stores.files import FilesStore
from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferItem, TransferOptions
from tests.emulators.object_store import ObjectStore

from .conftest import store_of

pytestmark = pytest.mark.slow  # talks to servers

PART = 4096
DATA = random.Random(7).randbytes(50_000)  # thirteen parts
OPTIONS = TransferOptions(part_size=PART, memory=PART)


def upload(folder: Path, server: ObjectStore, content: bytes):
    (folder / "big").write_bytes(content)
    source = FilesStore(folder)
    items = [TransferItem(source.stat("big"), "k")]
    return Transfer(source, store_of(server), items, options=OPTIONS).run()


def test_cut_part_alone_is_sent_again(server: ObjectStore, tmp_path: Path) -> None:
    server.fail("PUT .*partNumber=5", "cut", at=0.4)
    result = upload(tmp_path, server, DATA)
    assert server.content("bucket", "k") == DATA
    assert server.count("partNumber") == 13 + 1
    assert server.count("partNumber=5") == 2
    assert result.progress.bytes_sent <= len(DATA) + PART


def test_store_that_asks_to_wait_is_not_asked_before(server: ObjectStore, tmp_path: Path) -> None:
    server.fail("PUT /bucket/k", "TooManyRequests", retry_after="0.4")
    begun = time.monotonic()
    upload(tmp_path, server, DATA[:PART])
    assert time.monotonic() - begun >= 0.4
    assert server.count("PUT") == 2 and server.content("bucket", "k") == DATA[:PART]


@pytest.mark.parametrize("offset", [-20 * 60, 20 * 60])
def test_wrong_clock_is_found_out_by_the_first_write(
    server: ObjectStore, tmp_path: Path, offset: float
) -> None:
    server.account.clock_offset = offset
    write_object(store_of(server), "one", b"x")
    upload(tmp_path, server, DATA[:PART])
    assert server.content("bucket", "one") == b"x"
    assert server.content("bucket", "k") == DATA[:PART]


def test_clock_that_is_put_right_on_the_way(server: ObjectStore, tmp_path: Path) -> None:
    store = store_of(server)
    list(store.list())
    server.account.clock_offset = 3000
    (tmp_path / "big").write_bytes(DATA)
    source = FilesStore(tmp_path)
    items = [TransferItem(source.stat("big"), "k")]
    Transfer(source, store, items, options=OPTIONS).run()
    assert server.content("bucket", "k") == DATA


def test_ten_thousand_keys_come_once_and_in_order(server: ObjectStore) -> None:
    keys = [f"d/{number:05d}" for number in range(0, 20_000, 2)]
    version, objects = server.put("bucket", "e", b""), server.operations.buckets["bucket"].objects
    objects.update({key: replace(version, key=key) for key in keys})
    store, found = store_of(server), []
    for obj in store.list("d/"):
        found.append(obj.key)
        if len(found) == 3000:
            server.put("bucket", "d/00001", b"")  # behind us: not seen, and nothing is lost
            server.put("bucket", "d/19999", b"")
    assert found == [*keys, "d/19999"]
